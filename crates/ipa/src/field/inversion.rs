//! Modular inversion by division steps (Bernstein and Yang, "Fast constant-time gcd computation and
//! modular inversion", 2019), in variable time.
//!
//! A pair (f, g) starts as (prime, a). A division step halves g, first making it even by adding f
//! or by swapping the two. Which steps are taken depends on the low bits alone, so 62 of them are
//! gathered into a 2x2 matrix of machine words before it is applied to the long numbers. The pair
//! (d, e) follows along modulo the prime, with `a * d = f` and `a * e = g`; when g reaches zero, f
//! is the gcd, 1 or -1, and d the inverse up to that sign.

/// Bits in a limb of a long number here; the two bits left over hold signs and carries.
const LIMB_BITS: u32 = 62;
const LIMB_MASK: u64 = (1 << LIMB_BITS) - 1;

/// A signed number of five limbs: the lower four are in `0..2^62`, the last one carries the sign.
type Signed62 = [i64; 5];

/// The matrix of a batch of division steps, scaled by 2^62.
struct Steps {
    u: i64,
    v: i64,
    q: i64,
    r: i64,
}

/// The inverse of `a` modulo an odd `prime` below 2^255, or `None` of zero.
///
/// `a` is below the prime, and so is the inverse.
pub(crate) fn invert(a: &[u64; 4], prime: &[u64; 4]) -> Option<[u64; 4]> {
    if *a == [0; 4] {
        return None;
    }
    let modulus = split(prime);
    let inverse_62 = inverse_of_odd(prime[0]) & LIMB_MASK;
    let (mut f, mut g) = (modulus, split(a));
    let (mut d, mut e) = ([0; 5], [1, 0, 0, 0, 0]);
    let mut delta = 1i64;
    while g != [0; 5] {
        let low = |x: &Signed62| (x[0] as u64) | ((x[1] as u64) << LIMB_BITS);
        let steps = division_steps(&mut delta, low(&f), low(&g));
        apply_modular(&mut d, &mut e, &steps, &modulus, inverse_62);
        apply_exact(&mut f, &mut g, &steps);
    }
    Some(join(normalize(d, f[4] < 0, &modulus)))
}

/// Takes 62 division steps by the low bits of f and g.
fn division_steps(delta: &mut i64, mut f: u64, mut g: u64) -> Steps {
    let (mut u, mut v, mut q, mut r) = (1i64, 0i64, 0i64, 1i64);
    let mut left = LIMB_BITS;
    loop {
        let halvings = (g | (u64::MAX << left)).trailing_zeros();
        g >>= halvings;
        u <<= halvings;
        v <<= halvings;
        *delta += i64::from(halvings);
        left -= halvings;
        if left == 0 {
            return Steps { u, v, q, r };
        }
        if *delta > 0 {
            *delta = -*delta;
            (f, g) = (g, f.wrapping_neg());
            (u, q) = (q, -u);
            (v, r) = (r, -v);
        }
        // Both are odd. Add the multiple of f that clears the low bits of g, as many at once as
        // the step rule would clear without another swap.
        let bits = (1 - *delta).min(i64::from(left)).min(6) as u32;
        let multiple = g.wrapping_mul(inverse_of_odd_6(f)).wrapping_neg() & ((1 << bits) - 1);
        g = g.wrapping_add(f.wrapping_mul(multiple));
        q += u * multiple as i64;
        r += v * multiple as i64;
    }
}

/// `(f, g) = steps * (f, g) / 2^62`, exact.
fn apply_exact(f: &mut Signed62, g: &mut Signed62, steps: &Steps) {
    let mut cf = wide(steps.u, f[0]) + wide(steps.v, g[0]);
    let mut cg = wide(steps.q, f[0]) + wide(steps.r, g[0]);
    cf >>= LIMB_BITS;
    cg >>= LIMB_BITS;
    for i in 1..5 {
        cf += wide(steps.u, f[i]) + wide(steps.v, g[i]);
        cg += wide(steps.q, f[i]) + wide(steps.r, g[i]);
        f[i - 1] = (cf as u64 & LIMB_MASK) as i64;
        g[i - 1] = (cg as u64 & LIMB_MASK) as i64;
        cf >>= LIMB_BITS;
        cg >>= LIMB_BITS;
    }
    f[4] = cf as i64;
    g[4] = cg as i64;
}

/// `(d, e) = steps * (d, e) / 2^62` modulo the prime; both stay within -2p..p.
fn apply_modular(
    d: &mut Signed62,
    e: &mut Signed62,
    steps: &Steps,
    modulus: &Signed62,
    inverse_62: u64,
) {
    // A negative d or e is first lifted by the prime, through the factor it will be met with.
    let (sign_d, sign_e) = (d[4] >> 63, e[4] >> 63);
    let mut md = (steps.u & sign_d) + (steps.v & sign_e);
    let mut me = (steps.q & sign_d) + (steps.r & sign_e);
    let mut cd = wide(steps.u, d[0]) + wide(steps.v, e[0]);
    let mut ce = wide(steps.q, d[0]) + wide(steps.r, e[0]);
    // Then a multiple of the prime makes the low limb vanish.
    md -= (inverse_62.wrapping_mul(cd as u64).wrapping_add(md as u64) & LIMB_MASK) as i64;
    me -= (inverse_62.wrapping_mul(ce as u64).wrapping_add(me as u64) & LIMB_MASK) as i64;
    cd += wide(modulus[0], md);
    ce += wide(modulus[0], me);
    debug_assert!(cd as u64 & LIMB_MASK == 0 && ce as u64 & LIMB_MASK == 0);
    cd >>= LIMB_BITS;
    ce >>= LIMB_BITS;
    for i in 1..5 {
        cd += wide(steps.u, d[i]) + wide(steps.v, e[i]) + wide(modulus[i], md);
        ce += wide(steps.q, d[i]) + wide(steps.r, e[i]) + wide(modulus[i], me);
        d[i - 1] = (cd as u64 & LIMB_MASK) as i64;
        e[i - 1] = (ce as u64 & LIMB_MASK) as i64;
        cd >>= LIMB_BITS;
        ce >>= LIMB_BITS;
    }
    d[4] = cd as i64;
    e[4] = ce as i64;
}

/// Brings a number of -2p..p, negated where asked, into 0..p.
fn normalize(mut x: Signed62, negate: bool, modulus: &Signed62) -> Signed62 {
    if x[4] < 0 {
        x = combine(&x, modulus, 1);
    }
    if negate {
        x = combine(&[0; 5], &x, -1);
    }
    while x[4] < 0 {
        x = combine(&x, modulus, 1);
    }
    x
}

/// `a + sign * b`.
fn combine(a: &Signed62, b: &Signed62, sign: i64) -> Signed62 {
    let mut result = [0; 5];
    let mut carry = 0;
    for i in 0..4 {
        carry += a[i] + sign * b[i];
        result[i] = carry & LIMB_MASK as i64;
        carry >>= LIMB_BITS;
    }
    result[4] = carry + a[4] + sign * b[4];
    result
}

#[inline(always)]
fn wide(a: i64, b: i64) -> i128 {
    i128::from(a) * i128::from(b)
}

/// `x^-1 mod 2^64` of an odd x.
fn inverse_of_odd(x: u64) -> u64 {
    let mut inverse = inverse_of_odd_6(x);
    for _ in 0..4 {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(x.wrapping_mul(inverse)));
    }
    inverse
}

/// An odd x is its own inverse modulo 8; one Newton step doubles the bits.
#[inline(always)]
fn inverse_of_odd_6(x: u64) -> u64 {
    x.wrapping_mul(2u64.wrapping_sub(x.wrapping_mul(x)))
}

fn split(x: &[u64; 4]) -> Signed62 {
    [
        (x[0] & LIMB_MASK) as i64,
        ((x[0] >> 62 | x[1] << 2) & LIMB_MASK) as i64,
        ((x[1] >> 60 | x[2] << 4) & LIMB_MASK) as i64,
        ((x[2] >> 58 | x[3] << 6) & LIMB_MASK) as i64,
        (x[3] >> 56) as i64,
    ]
}

fn join(x: Signed62) -> [u64; 4] {
    let x = x.map(|limb| limb as u64);
    [x[0] | x[1] << 62, x[1] >> 2 | x[2] << 60, x[2] >> 4 | x[3] << 58, x[3] >> 6 | x[4] << 56]
}
