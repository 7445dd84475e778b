//! The reference string, commitments, deltas and Pedersen hashes.

use std::sync::LazyLock;

use serde_json::Value;
use sha2::{Digest, Sha256};
use spinney_ipa::{Crs, Delta, Element, Fr, Kernel, SignedScalar, TableOptions};

use crate::vectors::{bytes, drawn_polynomial, hex, list, load, scalar, text};

/// A small table, built once for the whole test program.
pub(crate) static SMALL: LazyLock<Crs> = LazyLock::new(|| small(Kernel::detect()));

/// The ways of computing that all must agree.
pub(crate) fn all() -> [&'static Crs; 3] {
    static BARE: LazyLock<Crs> = LazyLock::new(Crs::new);
    static PORTABLE: LazyLock<Crs> = LazyLock::new(|| small(Kernel::PORTABLE));
    [&BARE, &SMALL, &PORTABLE]
}

fn small(kernel: Kernel) -> Crs {
    Crs::with_table(&TableOptions { window_bits: 4, wide_window_bits: 6, wide_points: 3, kernel })
}

#[test]
fn the_points_are_those_of_the_vectors() {
    let Some(vectors) = load("crs.json") else { return };
    let crs = Crs::new();
    let mut digest = Sha256::new();
    for (point, expected) in crs.points().iter().zip(list(&vectors, "compressed")) {
        assert_eq!(point.to_compressed(), bytes::<32>(expected));
        digest.update(point.to_compressed());
    }
    let digest: [u8; 32] = digest.finalize().into();
    assert_eq!(digest, bytes(&vectors["sha256_of_concat_compressed"]));
    assert_eq!(crs.product_point().to_compressed(), bytes::<32>(&vectors["Q_compressed"]));
    let constant = crs.commit(&[Fr::from(2 + 256 * 64)]);
    let expected = &vectors["pedersen_hash64_constant_term"]["index0_point_compressed"];
    assert_eq!(constant.to_compressed(), bytes::<32>(expected));
}

#[test]
fn commitments_of_the_vectors() {
    let Some(vectors) = load("ipa_multiproof.json") else { return };
    for case in list(&vectors, "commitments") {
        let sparse: Vec<(u8, Fr)> = match case["scalars"].as_array() {
            Some(entries) => entries
                .iter()
                .map(|entry| {
                    let index = entry["index"].as_u64().expect("index") as u8;
                    (index, scalar(&entry["scalar_le"]))
                })
                .collect(),
            None => (0..=255).zip(drawn_polynomial("full-commit")).collect(),
        };
        for crs in all() {
            let commitment = crs.commit_sparse_many(&[&sparse])[0];
            assert_eq!(commitment.to_compressed(), bytes::<32>(&case["commitment"]));
            assert_eq!(commitment.map_to_field(), scalar(&case["map_to_field_le"]));
        }
    }
}

#[test]
fn commitments_of_the_upstream_vectors() {
    let Some(vectors) = load("upstream/pedersen_commitment_test.json") else { return };
    for case in vectors.as_array().expect("list").iter().filter(|case| case["frs"].is_array()) {
        let values: Vec<Fr> = list(case, "frs")
            .iter()
            .map(|value| Fr::from_le_bytes_reduced(&bytes(value)))
            .collect();
        for crs in all() {
            let commitment = crs.commit(&values);
            let expected = bytes::<32>(&case["commitment"]);
            // The file holds the compressed point or the field image, by the version it is from.
            let image = commitment.map_to_field().to_le_bytes();
            assert!(commitment.to_compressed() == expected || image == expected);
        }
    }
}

#[test]
fn a_commitment_to_the_largest_scalars() {
    let Some(vectors) = load("upstream/commit_root_test.json") else { return };
    let cases = vectors.as_array().expect("list");
    assert!(!cases.is_empty());
    for case in cases {
        // Big-endian, unlike all other scalars here.
        let value = |text: &Value| {
            let mut word = bytes::<32>(text);
            word.reverse();
            Fr::from_le_bytes(&word).expect("canonical scalar")
        };
        let values: Vec<Fr> = list(case, "frs").iter().map(value).collect();
        for crs in all() {
            let commitment = crs.commit(&values).to_compressed();
            assert_eq!(commitment, bytes::<32>(&case["expected"]));
        }
    }
}

/// EIP-6800 `pedersen_hash`: 16-byte chunks after a first value that holds the length.
fn pedersen_hash(crs: &Crs, input: &[u8]) -> Fr {
    crs.commit(&pedersen_values(input)).map_to_field()
}

fn pedersen_values(input: &[u8]) -> Vec<Fr> {
    let mut values = vec![Fr::from(2 + 256 * input.len() as u64)];
    for chunk in input.chunks(16) {
        let mut padded = [0; 32];
        padded[..chunk.len()].copy_from_slice(chunk);
        values.push(Fr::from_le_bytes_reduced(&padded));
    }
    values
}

#[test]
fn pedersen_hashes_of_the_vectors() {
    let Some(vectors) = load("tree_keys.json") else { return };
    for case in list(&vectors, "pedersen_hash") {
        for crs in all() {
            assert_eq!(pedersen_hash(crs, &hex(text(case, "input"))), scalar(&case["hash"]));
        }
    }
}

#[test]
fn tree_keys_of_the_vectors() {
    let Some(vectors) = load("tree_keys.json") else { return };
    for account in list(&vectors, "accounts") {
        let mut input = [0; 64];
        input[12..32].copy_from_slice(&bytes::<20>(&account["address"]));
        let expected = bytes::<32>(&account["basic_data_key"]);
        assert_eq!(pedersen_hash(&SMALL, &input).to_le_bytes()[..31], expected[..31]);
        for slot in list(account, "storage_keys") {
            let mut tree_index = bytes::<32>(&slot["tree_index_be"]);
            tree_index.reverse();
            input[32..].copy_from_slice(&tree_index);
            let expected = bytes::<32>(&slot["key"]);
            assert_eq!(pedersen_hash(&SMALL, &input).to_le_bytes()[..31], expected[..31]);
        }
        input[32..].fill(0);
    }
}

#[test]
fn tree_keys_of_the_upstream_vectors() {
    let Some(vectors) = load("upstream/pedersen_hash_test.json") else { return };
    for case in vectors.as_array().expect("list").iter().filter(|case| case["addr"].is_string()) {
        let mut input = hex(text(case, "addr"));
        input.extend(decimal_le_bytes(text(case, "treeIndex")));
        let expected = bytes::<32>(&case["treeKey"]);
        for crs in all() {
            // From before EIP-6800: the commitment's own bytes, backwards.
            let mut hash = crs.commit(&pedersen_values(&input)).to_compressed();
            hash.reverse();
            assert_eq!(hash[..31], expected[..31]);
        }
    }
}

/// 32 little-endian bytes of a decimal number.
fn decimal_le_bytes(digits: &str) -> [u8; 32] {
    let mut bytes = [0; 32];
    for digit in digits.bytes() {
        let mut carry = u16::from(digit - b'0');
        for byte in &mut bytes {
            carry += u16::from(*byte) * 10;
            *byte = carry as u8;
            carry >>= 8;
        }
    }
    bytes
}

#[test]
fn leaf_commitments_of_the_vectors() {
    let Some(vectors) = load("leaf_nodes.json") else { return };
    for leaf in list(&vectors, "leaves") {
        let mut halves = [vec![Fr::ZERO; 256], vec![Fr::ZERO; 256]];
        for entry in list(leaf, "values") {
            let suffix = entry["suffix"].as_u64().expect("suffix") as usize;
            let value = bytes::<32>(&entry["value"]);
            let half = &mut halves[suffix / 128];
            let limb = |i: usize| u64::from_le_bytes(value[i..i + 8].try_into().expect("8 bytes"));
            half[2 * (suffix % 128)] = Fr::from_limbs([limb(0), limb(8), 1, 0]);
            half[2 * (suffix % 128) + 1] = Fr::from_limbs([limb(16), limb(24), 0, 0]);
        }
        let [c1, c2] = halves.map(|half| SMALL.commit(&half));
        assert_eq!(c1.to_compressed(), bytes::<32>(&leaf["c1"]));
        assert_eq!(c2.to_compressed(), bytes::<32>(&leaf["c2"]));
        let mut stem = [0; 32];
        stem[..31].copy_from_slice(&bytes::<31>(&leaf["stem"]));
        let images = Element::map_to_field_many(&[c1, c2]);
        let header = [Fr::ONE, Fr::from_le_bytes_reduced(&stem), images[0], images[1]];
        assert_eq!(SMALL.commit(&header).to_compressed(), bytes::<32>(&leaf["commitment"]));
    }
}

/// A small generator of test values (xorshift).
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    pub(crate) fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    pub(crate) fn scalar(&mut self) -> Fr {
        Fr::from_limbs([self.word(), self.word(), self.word(), self.word()])
    }
}

#[test]
fn deltas_equal_a_new_commitment() {
    for crs in all() {
        deltas_equal_a_new_commitment_of(crs, 37, 3);
        deltas_equal_a_new_commitment_of(crs, 3, 40);
    }
}

#[test]
fn every_kernel_adds_deltas_alike() {
    let options = TableOptions {
        window_bits: 5,
        wide_window_bits: 7,
        wide_points: 2,
        kernel: Kernel::PORTABLE,
    };
    deltas_equal_a_new_commitment_of(&Crs::with_table(&options), 300, 7);
    let options = TableOptions { kernel: Kernel::detect(), ..options };
    deltas_equal_a_new_commitment_of(&Crs::with_table(&options), 300, 20);
}

fn deltas_equal_a_new_commitment_of(crs: &Crs, targets: usize, per_target: usize) {
    let mut draws = Draws(0x5eed);
    let mut values = vec![vec![Fr::ZERO; 256]; targets];
    let mut accumulators = vec![Element::IDENTITY; targets];
    for round in 0..2 {
        let mut deltas = Vec::new();
        for _ in 0..targets * per_target {
            let (target, basis) = (draws.word() as usize % targets, draws.word() as u8);
            let new = match draws.word() % 4 {
                0 => Fr::ZERO,
                1 | 2 => Fr::from_limbs([draws.word(), draws.word(), 1, 0]),
                _ => draws.scalar(),
            };
            let old = std::mem::replace(&mut values[target][usize::from(basis)], new);
            let amount = SignedScalar::between(old.to_limbs(), new.to_limbs());
            deltas.push(Delta { target: target as u32, basis, amount });
        }
        crs.add_deltas(&mut accumulators, &deltas);
        for (accumulator, values) in accumulators.iter().zip(&values) {
            assert_eq!(*accumulator, SMALL.commit(values), "round {round}");
        }
    }
}

#[test]
fn the_default_table_fits_128_mebibytes() {
    let crs = Crs::with_table(&TableOptions::default());
    assert!(crs.table_bytes() <= 128 << 20, "{} bytes", crs.table_bytes());
    deltas_equal_a_new_commitment_of(&crs, 50, 5);
}

#[test]
fn a_table_grows_while_threads_sum_with_it() {
    let options = TableOptions {
        window_bits: 6,
        wide_window_bits: 7,
        wide_points: 2,
        kernel: Kernel::detect(),
    };
    let crs = Crs::with_growing_table(&options);
    let whole = Crs::with_table(&options).table_bytes();
    let small = crs.table_bytes();
    assert!(small * 2 < whole, "{small} bytes, {whole} in the end");
    std::thread::scope(|scope| {
        for targets in [30, 700] {
            let crs = &crs;
            scope.spawn(move || {
                // A few that stay below the bound, then on beyond it.
                deltas_equal_a_new_commitment_of(crs, targets, 3);
                while crs.table_bytes() != whole {
                    deltas_equal_a_new_commitment_of(crs, targets, 20);
                }
                deltas_equal_a_new_commitment_of(crs, targets, 3);
            });
        }
    });
}
