//! Eight points side by side.

use super::lanes::{Columns, Lanes, WIDTH};
use super::{FROM_LANES, ONE, TO_LANES, words};
use crate::field::Fq;
use crate::group::Element;
use crate::group::element::CURVE_D;
use crate::group::short::{SCALE, SHIFT};
use crate::kernel::{Entry, Multiple};

/// Eight points in extended coordinates: x and y are `< 3 q`, z is `< 2 q` and t is `< 6 q`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Points {
    x: Lanes<Fq>,
    y: Lanes<Fq>,
    z: Lanes<Fq>,
    t: Lanes<Fq>,
}

/// The curve coefficient d in the lanes' form.
pub(super) const CURVE_D_LANES: [u64; 4] = in_lanes(CURVE_D);

const SHIFT_LANES: [u64; 4] = in_lanes(SHIFT);
const SCALE_LANES: [u64; 4] = in_lanes(SCALE);

/// The lanes' form is 16 times the crate's.
const fn in_lanes(constant: Fq) -> [u64; 4] {
    let times_16 = constant.double().double().double().double();
    *times_16.montgomery()
}

/// The limbs of one point: four coordinates of five limbs.
pub(super) type State = [[u64; 5]; 4];

impl Points {
    /// Adds an entry in each lane, or subtracts it where the bit of the lane is set
    /// (madd-2008-hwcd, a = -5; see [`Element::add_prepared`]).
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn add_entries(&mut self, entries: [&Entry; WIDTH], negated: u8) {
        let x = Lanes::load(entries.map(|entry| &entry.0[0]));
        let y = Lanes::load(entries.map(|entry| &entry.0[1]));
        let dxy = Lanes::load(entries.map(|entry| &entry.0[2]));
        // Entries are < q, so a, b and c are < 1.09 q; the sign of x and dxy is brought in later,
        // where a and c are added.
        let a = self.x.mul(&x);
        let b = self.y.mul(&y);
        let c = self.t.mul(&dxy);
        // < 6 q times < 3 q: s < 1.52 q.
        let entry_sum = y.pending().plus_primes::<1>().plus_or_minus(negated, &x).carry();
        let s = self.x.plus(&self.y).carry().mul(&entry_sum);
        // e = s - a - b < 5.7 q, f = z - c and g = z + c < 5.1 q, h = b + 5 a < 12.6 q.
        let e = s.minus(&b).plus_primes::<3>().plus_or_minus(!negated, &a).carry();
        let z = self.z.pending().plus_primes::<2>();
        let f = z.plus_or_minus(!negated, &c).carry();
        let g = z.plus_or_minus(negated, &c).carry();
        let h = b.pending().plus_primes::<6>();
        let h = h.plus_or_minus(negated, &a).plus_or_minus_4(negated, &a).carry();
        // < 1.83 q, < 2.83 q, < 1.74 q, < 2.999 q
        *self = Self { x: e.mul(&f), y: g.mul(&h), z: f.mul(&g), t: e.mul(&h) };
    }

    /// Adds other points, whose coordinates may all be `< 16 q` (add-2008-hwcd, a = -5).
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn add(&mut self, other: &Self) {
        // a and b < 2.4 q, c < 1.2 q, d < 2 q; 6 q times 32 q: s < 6.5 q.
        let a = self.x.mul(&other.x);
        let b = self.y.mul(&other.y);
        let c = self.t.mul(&other.t).mul(&Lanes::splat(&CURVE_D_LANES));
        let d = self.z.mul(&other.z);
        let s = self.x.plus(&self.y).carry().mul(&other.x.plus(&other.y).carry());
        // e < 11.5 q, f < 4 q, g < 3.2 q, h < 14.4 q.
        let e = s.minus(&a).minus(&b).plus_primes::<5>().carry();
        let f = d.minus(&c).plus_primes::<2>().carry();
        let g = d.plus(&c).carry();
        let h = b.plus(&a).plus_or_minus_4(0, &a).carry();
        // < 2.4 q, < 2.4 q, < 1.4 q, < 5.7 q
        *self = Self { x: e.mul(&f), y: g.mul(&h), z: f.mul(&g), t: e.mul(&h) };
    }

    /// Eight elements, coordinates `< 16 q`: to be the second operand of an addition only.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn load_loose(elements: [&Element; WIDTH]) -> Self {
        let mut coordinates = [[elements[0].x.montgomery(); WIDTH]; 4];
        // No closures: they would be calls.
        for (lane, element) in elements.into_iter().enumerate() {
            let of = [&element.x, &element.y, &element.z, &element.t];
            for (lanes, coordinate) in coordinates.iter_mut().zip(of) {
                lanes[lane] = coordinate.montgomery();
            }
        }
        let [x, y, z, t] = coordinates;
        Self {
            x: Lanes::load_times_16(x),
            y: Lanes::load_times_16(y),
            z: Lanes::load_times_16(z),
            t: Lanes::load_times_16(t),
        }
    }

    /// Eight elements.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn load(elements: &[Element; WIDTH]) -> Self {
        let factor = Lanes::splat(&TO_LANES);
        let [x, y, z, t] = COORDINATES.map(|coordinate| {
            let coordinates = elements.each_ref().map(coordinate);
            Lanes::load(words(&coordinates)).mul(&factor)
        });
        Self { x, y, z, t }
    }

    /// Points of the short form, whose coordinates are `< 2 q` (see [`crate::group::short`]).
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn of_short(x: &Lanes<Fq>, y: &Lanes<Fq>) -> Self {
        let scale = Lanes::splat(&SCALE_LANES);
        let u = x.minus(&Lanes::splat(&SHIFT_LANES)).plus_primes::<1>().carry();
        let above = u.plus(&scale).carry();
        let below = u.minus(&scale).plus_primes::<1>().carry();
        // < 3 q times < 4 q: < 1.4 q.
        Self { x: u.mul(&above), y: below.mul(y), z: above.mul(y), t: u.mul(&below) }
    }

    /// The neutral element in all lanes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn identity() -> Self {
        let (zero, one) = (Lanes::splat(&[0; 4]), Lanes::splat(&ONE));
        Self { x: zero, y: one, z: one, t: zero }
    }

    /// The elements of all lanes.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn to_elements(self) -> [Element; WIDTH] {
        let factor = Lanes::splat(&FROM_LANES);
        let (x, y) = (self.x.mul(&factor).to_reduced(), self.y.mul(&factor).to_reduced());
        let (z, t) = (self.z.mul(&factor).to_reduced(), self.t.mul(&factor).to_reduced());
        let mut elements = [Element::IDENTITY; WIDTH];
        for (lane, element) in elements.iter_mut().enumerate() {
            let [x, y, z, t] = [&x, &y, &z, &t].map(|all| Fq::from_montgomery(all[lane]));
            *element = Element { x, y, z, t };
        }
        elements
    }

    pub(super) const fn z(&self) -> &Lanes<Fq> {
        &self.z
    }

    /// The points as entries, given `1 / z < 2 q`.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn to_entries(self, inverse_z: &Lanes<Fq>) -> [Entry; WIDTH] {
        let x = self.x.mul(inverse_z);
        let y = self.y.mul(inverse_z);
        let dxy = x.mul(&y).mul(&Lanes::splat(&CURVE_D_LANES));
        let [x, y, dxy] = [x, y, dxy].map(|lanes| lanes.to_reduced());
        std::array::from_fn(|lane| Entry([x[lane], y[lane], dxy[lane]]))
    }

    /// What the coordinates of points of the short form are divided by: `< 1.5 q`.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn short_denominator(&self) -> Lanes<Fq> {
        // < 5 q times < 3 q.
        self.z.minus(&self.y).plus_primes::<3>().carry().mul(&self.x)
    }

    /// The points as multiples, given the inverse of their denominator, `< 2 q`.
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn to_multiples(self, inverse: &Lanes<Fq>) -> [Multiple; WIDTH] {
        let scaled = inverse.mul(&Lanes::splat(&SCALE_LANES));
        // < 5 q times < 1.1 q.
        let scaled = self.z.plus(&self.y).carry().mul(&scaled);
        let x = scaled.mul(&self.x).plus(&Lanes::splat(&SHIFT_LANES)).settle();
        let [x, y] = [x, scaled.mul(&self.z)].map(|lanes| lanes.to_reduced());
        std::array::from_fn(|lane| Multiple([x[lane], y[lane]]))
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn zero() -> Self {
        let zero = Lanes::splat(&[0; 4]);
        Self { x: zero, y: zero, z: zero, t: zero }
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn set_lane(&mut self, lane: usize, state: &State) {
        let [x, y, z, t] = state;
        self.x = self.x.with_lane(lane, x);
        self.y = self.y.with_lane(lane, y);
        self.z = self.z.with_lane(lane, z);
        self.t = self.t.with_lane(lane, t);
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    pub(super) fn to_columns(self) -> [Columns; 4] {
        [self.x.to_columns(), self.y.to_columns(), self.z.to_columns(), self.t.to_columns()]
    }
}

/// The accumulators in the lanes' form, eight at a time.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn load_states(sums: &[Element]) -> Vec<State> {
    let mut states = vec![[[0; 5]; 4]; sums.len()];
    for (states, sums) in states.chunks_mut(WIDTH).zip(sums.chunks(WIDTH)) {
        let element = |lane| sums.get(lane).copied().unwrap_or_default();
        let columns = Points::load(&std::array::from_fn(element)).to_columns();
        for (lane, state) in states.iter_mut().enumerate() {
            *state = columns.map(|coordinate| coordinate.map(|column| column[lane]));
        }
    }
    states
}

/// Back to the crate's form.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn store_states(states: &[State], sums: &mut [Element]) {
    let factor = Lanes::<Fq>::splat(&FROM_LANES);
    for (states, sums) in states.chunks(WIDTH).zip(sums.chunks_mut(WIDTH)) {
        let coordinates: [[[u64; 4]; WIDTH]; 4] = std::array::from_fn(|index| {
            let mut columns = [[0; WIDTH]; 5];
            for (lane, state) in states.iter().enumerate() {
                for (column, limb) in columns.iter_mut().zip(state[index]) {
                    column[lane] = limb;
                }
            }
            Lanes::from_columns(&columns).mul(&factor).to_reduced()
        });
        for (lane, sum) in sums.iter_mut().enumerate() {
            let [x, y, z, t] = coordinates.map(|numbers| Fq::from_montgomery(numbers[lane]));
            *sum = Element { x, y, z, t };
        }
    }
}

/// The coordinates of an element in the order of a [`State`].
const COORDINATES: [fn(&Element) -> Fq; 4] = [|e| e.x, |e| e.y, |e| e.z, |e| e.t];
