//! Encodings, equality and the map to the scalar field.

use spinney_ipa::{DecodeError, Element, Fr};

use crate::vectors::{bytes, element, list, load, scalar, text};

#[test]
fn decodes_and_refuses_as_the_vectors_say() {
    let Some(vectors) = load("banderwagon.json") else { return };
    for case in list(&vectors, "decode_compressed_untrusted") {
        let encoding = bytes(&case["bytes"]);
        match Element::from_compressed(&encoding) {
            Ok(element) => {
                assert_eq!(case["ok"], true, "{case}");
                assert_eq!(element.to_compressed(), bytes::<32>(&case["reserialized"]));
            }
            Err(error) => {
                let expected = match text(case, "error") {
                    "point is not on the curve" => DecodeError::NotOnCurve,
                    "point is not in the correct subgroup" => DecodeError::NotInSubgroup,
                    _ => DecodeError::NotCanonical,
                };
                assert_eq!(error, expected, "{case}");
            }
        }
    }
}

#[test]
fn decoding_many_names_the_first_that_is_refused() {
    let Some(vectors) = load("banderwagon.json") else { return };
    let (good, bad): (Vec<_>, Vec<_>) =
        list(&vectors, "decode_compressed_untrusted").iter().partition(|case| case["ok"] == true);
    let mut encodings: Vec<[u8; 32]> = good.iter().map(|case| bytes(&case["bytes"])).collect();
    let elements = Element::from_compressed_many(&encodings).expect("valid points");
    for (encoding, element) in encodings.iter().zip(&elements) {
        assert_eq!(*element, Element::from_compressed(encoding).expect("valid point"));
    }
    for case in bad {
        let encoding = bytes(&case["bytes"]);
        encodings.insert(3, encoding);
        let alone = Element::from_compressed(&encoding).expect_err("invalid point");
        assert_eq!(Element::from_compressed_many(&encodings).map(|_| ()), Err((3, alone)));
        encodings.remove(3);
    }
}

#[test]
fn doublings_of_the_generator() {
    let Some(vectors) = load("banderwagon.json") else { return };
    let mut point = Element::generator();
    let mut all = Vec::new();
    for case in list(&vectors, "generator_doublings") {
        assert_eq!(point.to_compressed(), bytes::<32>(&case["compressed"]));
        assert_eq!(point.map_to_field(), scalar(&case["map_to_field_le"]));
        let trusted = Element::from_uncompressed_trusted(&bytes(&case["uncompressed"]));
        assert_eq!(trusted, Ok(point));
        all.push(point);
        point = point.double();
    }
    let maps: Vec<Fr> = all.iter().map(Element::map_to_field).collect();
    assert_eq!(Element::map_to_field_many(&all), maps);
    let encodings: Vec<_> = all.iter().map(Element::to_compressed).collect();
    assert_eq!(Element::compress_many(&all), encodings);
    let mut normalized = all.clone();
    assert_eq!(Element::normalize_and_map_many(&mut normalized), maps);
    assert_eq!(normalized, all);
    for (normalized, element) in normalized.iter().zip(&all) {
        assert_eq!(normalized.to_uncompressed(), element.to_uncompressed());
        assert_eq!(
            Element::from_uncompressed_trusted(&element.to_uncompressed())
                .map(|e| e.to_compressed()),
            Ok(element.to_compressed())
        );
    }
}

#[test]
fn both_curve_points_of_an_element_write_the_same_bytes() {
    let Some(vectors) = load("crs.json") else { return };
    let base = Element::generator();
    for (compressed, uncompressed) in
        list(&vectors, "compressed").iter().zip(list(&vectors, "uncompressed_x_be_y_be"))
    {
        let point = element(compressed);
        assert_eq!(point.to_uncompressed(), bytes::<64>(uncompressed));
        // A detour that ends on the other curve point for about half of all elements.
        let detour = (point + base) - base;
        assert_eq!(detour, point);
        assert_eq!(detour.to_uncompressed(), point.to_uncompressed());
        assert_eq!(detour.map_to_field(), point.map_to_field());
    }
}

#[test]
fn the_neutral_element() {
    let zero = Element::IDENTITY;
    assert!(zero.is_identity());
    assert_eq!(zero.to_compressed(), [0; 32]);
    assert_eq!(zero.map_to_field(), Fr::ZERO);
    let generator = Element::generator();
    assert_eq!(generator - generator, zero);
    assert_eq!(generator + zero, generator);
    assert_ne!(generator, zero);
    assert_ne!(generator, -generator);
    let mut twice = [generator - generator, generator];
    assert_eq!(Element::normalize_and_map_many(&mut twice)[0], Fr::ZERO);
    assert_eq!(twice[0].to_uncompressed(), zero.to_uncompressed());
    let Some(vectors) = load("banderwagon.json") else { return };
    let told = &vectors["identity"];
    assert_eq!(zero.to_compressed(), bytes::<32>(&told["compressed"]));
    assert_eq!(zero.to_uncompressed(), bytes::<64>(&told["uncompressed"]));
    assert_eq!(zero.map_to_field(), scalar(&told["map_to_field_le"]));
}

/// go-ipa has a second, stricter reader of such bytes, which refuses all of these. Ours is for
/// bytes that this program wrote: it takes either curve point of an element, and none that is off
/// the curve.
#[test]
fn uncompressed_bytes_of_the_vectors() {
    let Some(vectors) = load("banderwagon.json") else { return };
    let read = list(&vectors, "decode_uncompressed_untrusted")
        .iter()
        .map(|case| Element::from_uncompressed_trusted(&bytes(&case["bytes"])));
    let expected = [Ok(Element::generator()), Ok(Element::IDENTITY), Err(DecodeError::NotOnCurve)];
    assert_eq!(read.collect::<Vec<_>>(), expected);
}

#[test]
fn uncompressed_bytes_off_the_curve_are_refused() {
    let mut bytes = Element::generator().to_uncompressed();
    bytes[63] ^= 1;
    assert_eq!(Element::from_uncompressed_trusted(&bytes), Err(DecodeError::NotOnCurve));
    assert_eq!(Element::from_uncompressed_trusted(&[0xff; 64]), Err(DecodeError::NotCanonical));
}

#[test]
fn products_with_the_generator() {
    let Some(vectors) = load("banderwagon.json") else { return };
    for case in list(&vectors, "scalar_mul_generator") {
        let factor = scalar(&case["scalar_le"]);
        // Big-endian bytes, whatever the name says.
        let mut unreduced = bytes(&case["scalar_le_unreduced"]);
        unreduced.reverse();
        assert_eq!(Fr::from_le_bytes_reduced(&unreduced), factor);
        let product = Element::generator() * factor;
        assert_eq!(product.to_compressed(), bytes::<32>(&case["compressed"]));
        assert_eq!(product.map_to_field(), scalar(&case["map_to_field_le"]));
        assert_eq!(spinney_ipa::multiply_sum(&[Element::generator()], &[factor]), product);
    }
}
