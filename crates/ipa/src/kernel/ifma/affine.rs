//! Affine coordinates and x/y of many elements.
//!
//! Coordinates come in the crate's form, 2^256 times what they stand for. Inverses are kept 2^4
//! times, so that a product of the two, over R = 2^260, is the plain integer.

use super::lanes::{Lanes, WIDTH};
use super::points::CURVE_D_LANES;
use super::{ONE, invert_rows, power_of_two};
use crate::field::Fq;
use crate::group::Element;
use crate::kernel::Encoded;

/// Takes an integer to the crate's form, by a product: 2^516 over R is 2^256.
const INTO_FORM: [u64; 4] = power_of_two(516);

/// Takes an integer to the lanes' form, by a product: 2^520 over R is 2^260.
const INTO_LANES: [u64; 4] = power_of_two(520);

/// The integers x/y.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn ratios(elements: &[Element]) -> Vec<[u64; 4]> {
    let mut ratios = vec![[0; 4]; elements.len()];
    let load_y = |row: usize| {
        let row = ElementRow::new(elements, row);
        Lanes::load_times_16(row.coordinate(|element| &element.y))
    };
    invert_rows::<4>(elements.len().div_ceil(WIDTH), load_y, |row, inverse_y| {
        let x = Lanes::load(ElementRow::new(elements, row).coordinate(|element| &element.x));
        let quotients = x.mul(inverse_y).to_reduced();
        for (out, quotient) in ratios[row * WIDTH..].iter_mut().zip(quotients) {
            *out = quotient;
        }
    });
    ratios
}

/// Makes all elements affine, on the curve point with the larger y; the integers x/y.
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn normalize(elements: &mut [Element]) -> Vec<[u64; 4]> {
    let mut ratios = vec![[0; 4]; elements.len()];
    let mut normal = vec![Element::IDENTITY; elements.len()];
    let form = Lanes::splat(&INTO_FORM);
    affine_rows(elements, |start, x, y, ratio| {
        let points = AffineRow {
            x: x.mul(&form).to_reduced(),
            y: y.mul(&form).to_reduced(),
            t: x.mul(&Lanes::splat(&INTO_LANES)).mul(&y.mul(&form)).to_reduced(),
            y_integer: y.to_reduced(),
        };
        let quotients = ratio.to_reduced();
        for lane in 0..WIDTH.min(elements.len() - start) {
            ratios[start + lane] = quotients[lane];
            normal[start + lane] = points.normalized(lane);
        }
    });
    elements.copy_from_slice(&normal);
    ratios
}

/// See [`crate::kernel::Kernel::encode`].
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn encode(elements: &[Element]) -> Vec<Encoded> {
    let mut encoded = Vec::with_capacity(elements.len().next_multiple_of(WIDTH));
    affine_rows(elements, |_, x, y, ratio| {
        let [x, y, ratio] = [x, y, ratio].map(|lanes| lanes.to_reduced());
        encoded.extend((0..WIDTH).map(|lane| Encoded::of(x[lane], y[lane], ratio[lane])));
    });
    // Rows came last to first.
    encoded.chunks_mut(WIDTH).for_each(<[_]>::reverse);
    encoded.reverse();
    encoded.truncate(elements.len());
    encoded
}

/// Hands out the integers x, y and x/y of eight elements at a time, `< 2 q`, and where they start;
/// the last eight come first.
#[target_feature(enable = "avx512f,avx512ifma")]
fn affine_rows(
    elements: &[Element],
    mut take: impl FnMut(usize, &Lanes<Fq>, &Lanes<Fq>, &Lanes<Fq>),
) {
    // Loaded, y and z are < 16 q, their product < 8.3 q.
    let load_yz = |row: usize| {
        let row = ElementRow::new(elements, row);
        Lanes::load_times_16(row.coordinate(|element| &element.y))
            .mul(&Lanes::load_times_16(row.coordinate(|element| &element.z)))
    };
    invert_rows::<4>(elements.len().div_ceil(WIDTH), load_yz, |row, inverse| {
        let start = row * WIDTH;
        let row = ElementRow::new(elements, row);
        let inverse_y = inverse.mul(&Lanes::load_times_16(row.coordinate(|element| &element.z)));
        let inverse_z = inverse.mul(&Lanes::load_times_16(row.coordinate(|element| &element.y)));
        let numerator = Lanes::load(row.coordinate(|element| &element.x));
        let x = numerator.mul(&inverse_z);
        let y = Lanes::load(row.coordinate(|element| &element.y)).mul(&inverse_z);
        take(start, &x, &y, &numerator.mul(&inverse_y));
    });
}

/// See [`crate::kernel::Kernel::decode`].
#[target_feature(enable = "avx512f,avx512ifma")]
pub(super) fn decode(points: &[[[u64; 4]; 2]]) -> Vec<Option<Element>> {
    let mut elements = Vec::with_capacity(points.len().next_multiple_of(WIDTH));
    let (form, into_lanes) = (Lanes::<Fq>::splat(&INTO_FORM), Lanes::splat(&INTO_LANES));
    let (one, curve_d) = (Lanes::splat(&ONE), Lanes::splat(&CURVE_D_LANES));
    let neutral = [[0; 4], [1, 0, 0, 0]];
    for points in points.chunks(WIDTH) {
        // What is new begins with nothing.
        if points.iter().all(|point| *point == neutral) {
            elements.resize(elements.len() + points.len(), Some(Element::IDENTITY));
            continue;
        }
        let rows: [[[u64; 4]; 2]; WIDTH] =
            std::array::from_fn(|lane| points.get(lane).copied().unwrap_or(neutral));
        let [x, y] = [0, 1].map(|of| Lanes::load(rows.each_ref().map(|point| &point[of])));
        let (x_form, y_form) = (x.mul(&form), y.mul(&form));
        let (x, y) = (x.mul(&into_lanes), y.mul(&into_lanes));
        let (xx, yy) = (x.mul(&x), y.mul(&y));
        // y^2 - 5 x^2 - 1 - d x^2 y^2: more than -8 q, and < 1.1 q.
        let rest = yy.minus(&xx).plus_or_minus_4(0xff, &xx).minus(&one);
        let rest = rest.minus(&xx.mul(&yy).mul(&curve_d)).plus_primes::<8>().settle().to_reduced();
        let t = x.mul(&y_form).to_reduced();
        let (x, y) = (x_form.to_reduced(), y_form.to_reduced());
        elements.extend((0..points.len()).map(|lane| {
            let [x, y, t] = [&x, &y, &t].map(|all| Fq::from_montgomery(all[lane]));
            (rest[lane] == [0; 4]).then_some(Element { x, y, z: Fq::ONE, t })
        }));
    }
    elements
}

/// Up to eight elements, and the neutral one in the lanes left over.
struct ElementRow<'a>([&'a Element; WIDTH]);

impl<'a> ElementRow<'a> {
    fn new(elements: &'a [Element], row: usize) -> Self {
        let element = |lane| elements.get(row * WIDTH + lane).unwrap_or(&Element::IDENTITY);
        Self(std::array::from_fn(element))
    }

    fn coordinate(&self, of: impl Fn(&'a Element) -> &'a Fq) -> [&'a [u64; 4]; WIDTH] {
        self.0.map(|element| of(element).montgomery())
    }
}

/// Affine coordinates of eight points, out of their lanes.
struct AffineRow {
    x: [[u64; 4]; WIDTH],
    y: [[u64; 4]; WIDTH],
    t: [[u64; 4]; WIDTH],
    y_integer: [[u64; 4]; WIDTH],
}

impl AffineRow {
    /// See [`crate::group::Affine::normalized`]. The product of both coordinates has no sign.
    fn normalized(&self, lane: usize) -> Element {
        let [x, y, t] = [&self.x, &self.y, &self.t].map(|all| Fq::from_montgomery(all[lane]));
        if x.is_zero() {
            Element::IDENTITY
        } else if Fq::is_integer_largest(&self.y_integer[lane]) {
            Element { x, y, z: Fq::ONE, t }
        } else {
            Element { x: -x, y: -y, z: Fq::ONE, t }
        }
    }
}
