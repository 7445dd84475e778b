//! Keccak-f[1600] (FIPS 202, section 3), written once and compiled for words and for vectors of
//! words.
//!
//! Lane (x, y) of the standard is `state[x + 5 * y]`. One round is theta, rho, pi, chi and iota in
//! one sweep: `b` below is the state after pi, so that each lane of the state is read once and
//! written once.

/// What iota adds in each round (FIPS 202, section 3.2.5).
pub(super) const ROUND_CONSTANTS: [u64; 24] = round_constants();

/// Runs the standard's shift register: bit `2^j - 1` of the constant of round `i` is `rc(j + 7 *
/// i)`.
const fn round_constants() -> [u64; 24] {
    let mut constants = [0; 24];
    let mut register: u16 = 1;
    let mut step = 0;
    while step < 24 * 7 {
        if register & 1 == 1 {
            constants[step / 7] |= 1 << ((1 << (step % 7)) - 1);
        }
        register <<= 1;
        if register & 0x100 != 0 {
            register ^= 0x171;
        }
        step += 1;
    }
    constants
}

/// Defines the permutation over some word; wants these functions in scope, on that word:
/// `xor3(a, b, c)`, `rotate::<N>(a)` to the left, `chi(a, b, c)` = a ^ (!b & c), `iota(a, u64)`.
macro_rules! permutation {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident($word:ty)) => {
        $(#[$attribute])*
        $visibility fn $name(state: &mut [$word; 25]) {
            let mut s = *state;
            for constant in $crate::keccak::rounds::ROUND_CONSTANTS {
                let c0 = xor3(xor3(s[0], s[5], s[10]), s[15], s[20]);
                let c1 = xor3(xor3(s[1], s[6], s[11]), s[16], s[21]);
                let c2 = xor3(xor3(s[2], s[7], s[12]), s[17], s[22]);
                let c3 = xor3(xor3(s[3], s[8], s[13]), s[18], s[23]);
                let c4 = xor3(xor3(s[4], s[9], s[14]), s[19], s[24]);
                let (r0, r1, r2) = (rotate::<1>(c0), rotate::<1>(c1), rotate::<1>(c2));
                let (r3, r4) = (rotate::<1>(c3), rotate::<1>(c4));

                let b0 = xor3(s[0], c4, r1);
                let b1 = rotate::<44>(xor3(s[6], c0, r2));
                let b2 = rotate::<43>(xor3(s[12], c1, r3));
                let b3 = rotate::<21>(xor3(s[18], c2, r4));
                let b4 = rotate::<14>(xor3(s[24], c3, r0));
                let b5 = rotate::<28>(xor3(s[3], c2, r4));
                let b6 = rotate::<20>(xor3(s[9], c3, r0));
                let b7 = rotate::<3>(xor3(s[10], c4, r1));
                let b8 = rotate::<45>(xor3(s[16], c0, r2));
                let b9 = rotate::<61>(xor3(s[22], c1, r3));
                let b10 = rotate::<1>(xor3(s[1], c0, r2));
                let b11 = rotate::<6>(xor3(s[7], c1, r3));
                let b12 = rotate::<25>(xor3(s[13], c2, r4));
                let b13 = rotate::<8>(xor3(s[19], c3, r0));
                let b14 = rotate::<18>(xor3(s[20], c4, r1));
                let b15 = rotate::<27>(xor3(s[4], c3, r0));
                let b16 = rotate::<36>(xor3(s[5], c4, r1));
                let b17 = rotate::<10>(xor3(s[11], c0, r2));
                let b18 = rotate::<15>(xor3(s[17], c1, r3));
                let b19 = rotate::<56>(xor3(s[23], c2, r4));
                let b20 = rotate::<62>(xor3(s[2], c1, r3));
                let b21 = rotate::<55>(xor3(s[8], c2, r4));
                let b22 = rotate::<39>(xor3(s[14], c3, r0));
                let b23 = rotate::<41>(xor3(s[15], c4, r1));
                let b24 = rotate::<2>(xor3(s[21], c0, r2));

                s = [
                    iota(chi(b0, b1, b2), constant),
                    chi(b1, b2, b3), chi(b2, b3, b4), chi(b3, b4, b0), chi(b4, b0, b1),
                    chi(b5, b6, b7), chi(b6, b7, b8), chi(b7, b8, b9), chi(b8, b9, b5),
                    chi(b9, b5, b6),
                    chi(b10, b11, b12), chi(b11, b12, b13), chi(b12, b13, b14), chi(b13, b14, b10),
                    chi(b14, b10, b11),
                    chi(b15, b16, b17), chi(b16, b17, b18), chi(b17, b18, b19), chi(b18, b19, b15),
                    chi(b19, b15, b16),
                    chi(b20, b21, b22), chi(b21, b22, b23), chi(b22, b23, b24), chi(b23, b24, b20),
                    chi(b24, b20, b21),
                ];
            }
            *state = s;
        }
    };
}

pub(super) use permutation;
