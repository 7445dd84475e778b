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

/// Defines the permutation over some word; wants what [`round`] wants in scope.
macro_rules! permutation {
    ($(#[$attribute:meta])* $visibility:vis fn $name:ident($word:ty)) => {
        $(#[$attribute])*
        $visibility fn $name(state: &mut [$word; 25]) {
            let (mut s, mut next) = (*state, *state);
            for constant in $crate::keccak::rounds::ROUND_CONSTANTS {
                $crate::keccak::rounds::round!(s, next, constant);
                s = next;
            }
            *state = s;
        }
    };
}

/// One round, from the state `$s` to another one, `$to`, plane by plane. Wants these functions in
/// scope, on the state's word: `xor3(a, b, c)`, `rotate::<N>(a)` to the left, `chi(a, b, c)` = a ^
/// (!b & c), `iota(a, u64)`; and `theta(a, neighbours(b, c))` = a ^ b ^ c, where what `neighbours`
/// says serves five lanes.
macro_rules! round {
    ($s:ident, $to:ident, $constant:expr) => {
        let c0 = xor3(xor3($s[0], $s[5], $s[10]), $s[15], $s[20]);
        let c1 = xor3(xor3($s[1], $s[6], $s[11]), $s[16], $s[21]);
        let c2 = xor3(xor3($s[2], $s[7], $s[12]), $s[17], $s[22]);
        let c3 = xor3(xor3($s[3], $s[8], $s[13]), $s[18], $s[23]);
        let c4 = xor3(xor3($s[4], $s[9], $s[14]), $s[19], $s[24]);

        let d0 = neighbours(c4, rotate::<1>(c1));
        let d1 = neighbours(c0, rotate::<1>(c2));
        let d2 = neighbours(c1, rotate::<1>(c3));
        let d3 = neighbours(c2, rotate::<1>(c4));
        let d4 = neighbours(c3, rotate::<1>(c0));

        let b0 = theta($s[0], d0);
        let b1 = rotate::<44>(theta($s[6], d1));
        let b2 = rotate::<43>(theta($s[12], d2));
        let b3 = rotate::<21>(theta($s[18], d3));
        let b4 = rotate::<14>(theta($s[24], d4));
        $to[0] = iota(chi(b0, b1, b2), $constant);
        $to[1] = chi(b1, b2, b3);
        $to[2] = chi(b2, b3, b4);
        $to[3] = chi(b3, b4, b0);
        $to[4] = chi(b4, b0, b1);

        let b5 = rotate::<28>(theta($s[3], d3));
        let b6 = rotate::<20>(theta($s[9], d4));
        let b7 = rotate::<3>(theta($s[10], d0));
        let b8 = rotate::<45>(theta($s[16], d1));
        let b9 = rotate::<61>(theta($s[22], d2));
        $to[5] = chi(b5, b6, b7);
        $to[6] = chi(b6, b7, b8);
        $to[7] = chi(b7, b8, b9);
        $to[8] = chi(b8, b9, b5);
        $to[9] = chi(b9, b5, b6);

        let b10 = rotate::<1>(theta($s[1], d1));
        let b11 = rotate::<6>(theta($s[7], d2));
        let b12 = rotate::<25>(theta($s[13], d3));
        let b13 = rotate::<8>(theta($s[19], d4));
        let b14 = rotate::<18>(theta($s[20], d0));
        $to[10] = chi(b10, b11, b12);
        $to[11] = chi(b11, b12, b13);
        $to[12] = chi(b12, b13, b14);
        $to[13] = chi(b13, b14, b10);
        $to[14] = chi(b14, b10, b11);

        let b15 = rotate::<27>(theta($s[4], d4));
        let b16 = rotate::<36>(theta($s[5], d0));
        let b17 = rotate::<10>(theta($s[11], d1));
        let b18 = rotate::<15>(theta($s[17], d2));
        let b19 = rotate::<56>(theta($s[23], d3));
        $to[15] = chi(b15, b16, b17);
        $to[16] = chi(b16, b17, b18);
        $to[17] = chi(b17, b18, b19);
        $to[18] = chi(b18, b19, b15);
        $to[19] = chi(b19, b15, b16);

        let b20 = rotate::<62>(theta($s[2], d2));
        let b21 = rotate::<55>(theta($s[8], d3));
        let b22 = rotate::<39>(theta($s[14], d4));
        let b23 = rotate::<41>(theta($s[15], d0));
        let b24 = rotate::<2>(theta($s[21], d1));
        $to[20] = chi(b20, b21, b22);
        $to[21] = chi(b21, b22, b23);
        $to[22] = chi(b22, b23, b24);
        $to[23] = chi(b23, b24, b20);
        $to[24] = chi(b24, b20, b21);
    };
}

pub(super) use {permutation, round};
