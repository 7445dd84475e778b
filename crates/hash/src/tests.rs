//! Every backend of this machine against the portable one, and that against crates by other hands.

use proptest::prelude::*;
use sha2::Digest as _;

use crate::{
    Backend, Digest, HashFunction, Inputs, SumClimb,
    blake3::Blake3,
    keccak::Keccak256,
    lanes::{self, Kernel},
    sha256::Sha256,
};

/// Longest input of the exhaustive tests; BLAKE3 changes shape at 1,025 bytes, and with 8 and 16
/// lanes of chunks again at 8,193. Under Miri, which is slow, what is shorter than a few blocks.
const LEN_MAX: usize = if cfg!(miri) { 200 } else { 9_000 };

/// The features of the CPU that each backend needs.
const NEEDS: [(Backend, &[&str]); 3] = [
    (Backend::Avx512, &["avx512f", "avx512bw", "avx512dq", "avx512vl", "avx2", "bmi1", "bmi2"]),
    (Backend::Avx2, &["avx2", "bmi1", "bmi2"]),
    (Backend::ShaNi, &["sha", "avx"]),
];

/// What another crate says.
fn reference(function: HashFunction, input: &[u8]) -> Digest {
    match function {
        HashFunction::Keccak256 => sha3::Keccak256::digest(input).into(),
        HashFunction::Sha256 => sha2::Sha256::digest(input).into(),
        HashFunction::Blake3 => ::blake3::hash(input).into(),
    }
}

fn available() -> Vec<Backend> {
    let (available, missing): (Vec<_>, Vec<_>) =
        Backend::ALL.into_iter().partition(|backend| backend.is_available());
    for backend in missing {
        println!("skipped: this machine lacks what {backend} needs");
    }
    available
}

#[test]
fn a_backend_without_one_of_its_features_is_not_run() {
    let Ok(masked) = std::env::var("SPINNEY_WITHOUT") else {
        return println!("skipped: SPINNEY_WITHOUT masks no feature, see .ci/kernels");
    };
    for feature in masked.split(',') {
        assert!(NEEDS.iter().any(|(_, needs)| needs.contains(&feature)), "who needs {feature}?");
        for (backend, needs) in NEEDS {
            if needs.contains(&feature) {
                assert!(!backend.is_available(), "{backend} without {feature}");
                assert!(HashFunction::ALL.iter().all(|f| Backend::detect(*f) != backend));
                assert!(crate::set_backend(Some(backend)).is_err());
            }
        }
    }
}

fn hash1(function: HashFunction, backend: Backend, input: &[u8]) -> Digest {
    match function {
        HashFunction::Keccak256 => Keccak256::on(backend).hash1(input),
        HashFunction::Sha256 => Sha256::on(backend).hash1(input),
        HashFunction::Blake3 => Blake3::on(backend).hash1(input),
    }
}

fn hash_equal(function: HashFunction, backend: Backend, bytes: &[u8], len: usize) -> Vec<Digest> {
    let mut out = vec![[0; 32]; bytes.len() / len];
    match function {
        HashFunction::Keccak256 => lanes::hash_equal(&Keccak256::on(backend), bytes, len, &mut out),
        HashFunction::Sha256 => lanes::hash_equal(&Sha256::on(backend), bytes, len, &mut out),
        HashFunction::Blake3 => lanes::hash_equal(&Blake3::on(backend), bytes, len, &mut out),
    }
    out
}

fn hash_many(function: HashFunction, backend: Backend, inputs: Inputs<'_>) -> Vec<Digest> {
    let mut out = vec![[0; 32]; inputs.len()];
    match function {
        HashFunction::Keccak256 => lanes::hash_many(&Keccak256::on(backend), inputs, &mut out),
        HashFunction::Sha256 => lanes::hash_many(&Sha256::on(backend), inputs, &mut out),
        HashFunction::Blake3 => lanes::hash_many(&Blake3::on(backend), inputs, &mut out),
    }
    out
}

/// Bytes that differ from place to place, with a period of no block size.
fn sample(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ (i / 251) as u8).collect()
}

#[test]
fn portable_digests_of_every_length_match_other_crates() {
    let bytes = sample(LEN_MAX);
    for function in HashFunction::ALL {
        for len in 0..=LEN_MAX {
            let digest = hash1(function, Backend::Portable, &bytes[..len]);
            assert_eq!(digest, reference(function, &bytes[..len]), "{function} of {len} bytes");
        }
    }
}

#[test]
fn single_digests_of_every_length_match_the_portable_ones() {
    let bytes = sample(LEN_MAX + 64);
    for function in HashFunction::ALL {
        for len in 0..=LEN_MAX {
            // The start moves along, so that all alignments occur.
            let input = &bytes[len % 64..][..len];
            let expected = hash1(function, Backend::Portable, input);
            for backend in available() {
                let digest = hash1(function, backend, input);
                assert_eq!(digest, expected, "{function} of {len} bytes on {backend}");
            }
        }
    }
}

#[test]
fn equal_inputs_match_single_ones_at_every_length_and_count() {
    let bytes = sample(20_000);
    let lens = (1..=600).chain([1_000, 1_023, 1_024, 1_025, 1_088, 2_048, 2_049, 4_095]);
    for (len, function) in lens.flat_map(|len| HashFunction::ALL.map(|function| (len, function))) {
        let bytes = &bytes[len % 32..];
        // Each count of lanes up to two passes of the widest kernel, in turn.
        let count = (1 + len % 33).min(bytes.len() / len);
        let bytes = &bytes[..count * len];
        let expected: Vec<_> = bytes.chunks(len).map(|input| reference(function, input)).collect();
        for backend in available() {
            let digests = hash_equal(function, backend, bytes, len);
            assert_eq!(digests, expected, "{function} of {count} times {len} on {backend}");
        }
    }
}

#[test]
fn node_shapes_match_at_every_count() {
    for (len, count) in [32, 64, 67, 72, 99, 135, 136]
        .into_iter()
        .flat_map(|len| (1..=40).map(move |count| (len, count)))
    {
        let bytes = &sample(count * len + 1)[1..];
        for function in HashFunction::ALL {
            let expected: Vec<_> =
                bytes.chunks(len).map(|input| reference(function, input)).collect();
            for backend in available() {
                let digests = hash_equal(function, backend, bytes, len);
                assert_eq!(digests, expected, "{function} of {count} times {len} on {backend}");
            }
        }
        // A backend alone, where few inputs would run on another one.
        let expected: Vec<_> = bytes.chunks(len).map(crate::sha256).collect();
        for backend in available() {
            let mut digests = vec![[0; 32]; count];
            lanes::hash_equal(&Sha256::purely(backend), bytes, len, &mut digests);
            assert_eq!(digests, expected, "{count} times {len} purely on {backend}");
        }
    }
}

#[test]
fn many_groups_match_at_every_count_of_groups() {
    for (len, groups) in [32, 64, 99].into_iter().flat_map(|len| (1..=7).map(move |n| (len, n))) {
        for count in [16 * groups - 1, 16 * groups, 16 * groups + 1] {
            let bytes = &sample(count * len + 3)[3..];
            let ends: Vec<u32> = (1..=count).map(|i| (i * len) as u32).collect();
            for function in HashFunction::ALL {
                let expected: Vec<_> =
                    bytes.chunks(len).map(|input| reference(function, input)).collect();
                for backend in available() {
                    let digests = hash_equal(function, backend, bytes, len);
                    assert_eq!(digests, expected, "{function} of {count} times {len} on {backend}");
                    let digests = hash_many(function, backend, Inputs::new(bytes, &ends));
                    assert_eq!(digests, expected, "{function} of {count} inputs of {len}");
                }
            }
        }
    }
}

#[test]
fn no_inputs_and_empty_inputs() {
    for function in HashFunction::ALL {
        function.hash_equal(&[], 64, &mut []);
        function.hash_many(Inputs::new(&[], &[]), &mut []);
        let mut digests = [[1; 32]; 9];
        function.hash_equal(&[], 0, &mut digests);
        assert_eq!(digests, [reference(function, &[]); 9]);
        for backend in available() {
            let digests = hash_many(function, backend, Inputs::new(&[], &[0; 21]));
            assert_eq!(digests, [reference(function, &[]); 21], "{function} on {backend}");
        }
    }
}

#[test]
#[should_panic(expected = "one digest per 64 bytes")]
fn a_buffer_of_another_length_is_refused() {
    crate::sha256_equal(&[0; 100], 64, &mut [[0; 32]; 2]);
}

#[test]
#[should_panic(expected = "one digest per input")]
fn another_number_of_digests_is_refused() {
    crate::keccak256_many(Inputs::new(&[1, 2], &[1, 2]), &mut [[0; 32]; 3]);
}

/// Lengths as trees have them, and a few long ones.
fn len() -> impl Strategy<Value = usize> {
    prop_oneof![6 => 0..140_usize, 3 => 140..700_usize, 1 => 700..LEN_MAX, 1 => 1_000..1_060_usize]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn mixed_inputs_match_other_crates(
        lens in prop::collection::vec(len(), 0..70),
        offset in 0..64_usize,
        seed: u8,
    ) {
        let total: usize = lens.iter().sum();
        let mut bytes = sample(offset + total);
        bytes.iter_mut().for_each(|byte| *byte ^= seed);
        let mut end = 0;
        let ends: Vec<u32> = lens.iter().map(|len| { end += *len as u32; end }).collect();
        let inputs = Inputs::new(&bytes[offset..], &ends);
        for function in HashFunction::ALL {
            let expected: Vec<_> = inputs.iter().map(|input| reference(function, input)).collect();
            for backend in available() {
                let digests = hash_many(function, backend, inputs);
                prop_assert_eq!(&digests, &expected, "{} on {}", function, backend);
            }
        }
    }

    #[test]
    fn climbs_match_one_node_at_a_time(
        starts in prop::collection::vec(
            (any::<[u8; 32]>(), any::<u64>(), 0..=256_u16, 0..=256_u16),
            0..40,
        ),
        paths in prop::collection::vec(any::<[u8; 32]>(), 40),
        full in any::<bool>(),
    ) {
        let empty: Vec<_> = (0..257).map(|depth: u64| crate::sha256(&depth.to_be_bytes())).collect();
        let climbs: Vec<_> = starts.iter().zip(paths).map(|(&(hash, sum, a, b), path)| {
            let (from, to) = if full { (256, a.min(b) / 8) } else { (a.max(b), a.min(b)) };
            SumClimb { hash, sum, path, from, to }
        }).collect();
        let expected: Vec<_> = climbs.iter().map(|climb| climbed(climb, &empty)).collect();
        for (backend, make) in available().into_iter().flat_map(|backend| {
            [Sha256::on as fn(Backend) -> Sha256, Sha256::purely].map(|make| (backend, make))
        }) {
            let mut climbs = climbs.clone();
            make(backend).sum_climb(&mut climbs, &empty);
            let digests: Vec<_> = climbs.iter().map(|climb| climb.hash).collect();
            prop_assert_eq!(&digests, &expected, "on {}", backend);
            prop_assert!(climbs.iter().all(|climb| climb.from == climb.to));
        }
    }
}

/// The rule of the Merkle-sum tree, a node at a time.
fn climbed(climb: &SumClimb, empty: &[Digest]) -> Digest {
    let mut hash = climb.hash;
    for depth in (climb.to..climb.from).rev().map(usize::from) {
        let sibling = empty[depth + 1];
        let right = (climb.path[depth / 8] >> (depth % 8)) & 1 == 1;
        let (left, right) = if right { (sibling, hash) } else { (hash, sibling) };
        let node = [&left[..], &right[..], &climb.sum.to_be_bytes()[..]].concat();
        hash = reference(HashFunction::Sha256, &node);
    }
    hash
}

#[test]
fn the_empty_tree_is_a_climb_of_the_empty_leaf() {
    // The table of empty subtrees that bip-tap-ms-smt begins with: depth 256 and depth 255.
    let leaf = crate::sha256(&[0; 8]);
    assert_eq!(leaf[..4], [0xaf, 0x55, 0x70, 0xf5]);
    let empty = vec![leaf; 257];
    let mut climbs = [SumClimb { hash: leaf, sum: 0, path: [0; 32], from: 256, to: 255 }];
    crate::sha256_sum_climb(&mut climbs, &empty);
    assert_eq!(climbs[0].hash[..4], [0x5a, 0x61, 0xe2, 0x38]);
}

#[test]
#[should_panic(expected = "a climb goes from 3 to 4")]
fn a_climb_down_is_refused() {
    let mut climbs = [SumClimb { hash: [0; 32], sum: 0, path: [0; 32], from: 3, to: 4 }];
    crate::sha256_sum_climb(&mut climbs, &[[0; 32]; 9]);
}

#[test]
#[should_panic(expected = "a path has 256 bits")]
fn a_climb_beyond_its_path_is_refused() {
    let mut climbs = [SumClimb { hash: [0; 32], sum: 0, path: [0; 32], from: 257, to: 4 }];
    crate::sha256_sum_climb(&mut climbs, &[[0; 32]; 258]);
}
