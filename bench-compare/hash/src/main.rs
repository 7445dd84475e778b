//! `spinney-hash` beside the crates it replaces, in one run: nanoseconds a digest, and the ratio to
//! the peer measured just before. Run with `cargo run --release`; `-- keccak` and the like choose
//! tables.
//!
//! Each number is the best of many short runs of CPU time of this thread, so that a busy machine
//! disturbs it little.

use std::{env, hint::black_box, time::Duration};

use sha2::Digest as _;
use spinney_hash::{
    Backend, Digest, HashFunction, Inputs, SumClimb, backend, backends, set_backend,
    sha256_sum_climb,
};

const MANY: usize = 1024;
const COUNTS: [usize; 10] = [1, 2, 3, 4, 6, 8, 12, 16, 32, MANY];
const ROUNDS: usize = 5;

fn main() {
    let chosen: Vec<String> = env::args().skip(1).collect();
    let wanted = |name: &str| chosen.is_empty() || chosen.iter().any(|choice| choice == name);
    println!("backends by default: {}", backends());
    if wanted("keccak") {
        tables(HashFunction::Keccak256, "keccak-asm", &[32, 64, 110, 135, 532], keccak_asm);
    }
    if wanted("sha") {
        tables(HashFunction::Sha256, "sha2", &[32, 64, 72, 99], sha2);
    }
    if wanted("blake") {
        tables(HashFunction::Blake3, "blake3", &[32, 64, 67, 99, 1024, 8192], blake3);
    }
    if wanted("mixed") {
        mixed();
    }
    if wanted("climb") {
        climbs();
    }
}

fn keccak_asm(input: &[u8]) -> Digest {
    keccak_asm::Keccak256::digest(input).into()
}

fn sha2(input: &[u8]) -> Digest {
    sha2::Sha256::digest(input).into()
}

fn blake3(input: &[u8]) -> Digest {
    *blake3::hash(input).as_bytes()
}

/// The backends that `function` has on this machine, the preferred one first.
fn backends_of(function: HashFunction) -> Vec<Backend> {
    let mut found: Vec<Backend> = Vec::new();
    for choice in [None].into_iter().chain(Backend::ALL.map(Some)) {
        if set_backend(choice).is_ok() && !found.contains(&backend(function)) {
            found.push(backend(function));
        }
    }
    found
}

fn tables(function: HashFunction, peer: &str, lens: &[usize], by_peer: fn(&[u8]) -> Digest) {
    let backends = backends_of(function);
    head(&format!("{function}, bytes | {peer}"), COUNTS.map(Some).into_iter().chain([None]));
    for &len in lens {
        let bytes: Vec<u8> = (0..len * MANY).map(|i| (i * 7 + i / 256) as u8).collect();
        let ends: Vec<u32> = (1..=MANY).map(|i| (i * len) as u32).collect();
        let mut out = vec![[0; 32]; MANY];
        let mut reference = f64::MAX;
        let mut cells = vec![[f64::MAX; COUNTS.len() + 1]; backends.len()];
        // Round after round, so that peer and kernels see the same moods of the machine.
        for _ in 0..ROUNDS {
            reference = reference.min(best(MANY, || {
                for (digest, input) in out.iter_mut().zip(bytes.chunks(len)) {
                    *digest = by_peer(black_box(input));
                }
            }));
            let expected = out.clone();
            for (backend, cells) in backends.iter().zip(&mut cells) {
                set_backend(Some(*backend)).expect("it was found");
                let (many, cells) = cells.split_last_mut().expect("a last column");
                for (count, cell) in COUNTS.into_iter().zip(cells) {
                    let (bytes, out) = (&bytes[..count * len], &mut out[..count]);
                    *cell = cell.min(best(count, || {
                        function.hash_equal(black_box(bytes), len, out);
                    }));
                    assert_eq!(*out, expected[..count]);
                }
                *many = many.min(best(MANY, || {
                    function.hash_many(Inputs::new(black_box(&bytes), &ends), &mut out);
                }));
                assert_eq!(out, expected);
            }
        }
        for (backend, cells) in backends.iter().zip(cells) {
            row(&format!("{len} | {reference:.1} | {backend}"), cells, reference);
        }
    }
}

/// The head of a Markdown table: what is hashed and by which kernel, then how many inputs at once;
/// `None` is many inputs of any lengths.
fn head(what: &str, counts: impl Iterator<Item = Option<usize>>) {
    let counts = counts.map(|count| count.map_or("Inputs".into(), |count| count.to_string()));
    let columns: Vec<String> = counts.collect();
    println!("\n| {what} | kernel | {} |", columns.join(" | "));
    println!("|{}", "---|".repeat(columns.len() + 3));
}

/// A row of it: a kernel's nanoseconds a digest, and their ratio to the peer's.
fn row(what: &str, cells: impl IntoIterator<Item = f64>, reference: f64) {
    print!("| {what} |");
    cells.into_iter().for_each(|ns| print!(" {ns:.1} {:.3} |", ns / reference));
    println!();
}

/// A level of an MPT: leaves and short branches between full branches.
fn mixed() {
    let lens = (0..MANY).map(|i| [110, 83, 532, 70, 147, 115, 306, 532, 38, 211][i * 7 % 10]);
    let lens: Vec<usize> = lens.collect();
    let mut end = 0;
    let ends: Vec<u32> = lens
        .iter()
        .map(|&len| {
            end += len as u32;
            end
        })
        .collect();
    let bytes: Vec<u8> = (0..end).map(|i| (i * 7 + i / 256) as u8).collect();
    head("lengths of an MPT's nodes, 38 to 532 bytes | peer", [None].into_iter());
    for (function, peer, by_peer) in [
        (HashFunction::Keccak256, "keccak-asm", keccak_asm as fn(&[u8]) -> Digest),
        (HashFunction::Sha256, "sha2", sha2),
        (HashFunction::Blake3, "blake3", blake3),
    ] {
        let mut out = vec![[0; 32]; MANY];
        let inputs: Vec<&[u8]> = Inputs::new(&bytes, &ends).iter().collect();
        let reference = best(MANY, || {
            for (digest, input) in out.iter_mut().zip(&inputs) {
                *digest = by_peer(black_box(input));
            }
        });
        for backend in backends_of(function) {
            set_backend(Some(backend)).expect("it was found");
            let ns = best(MANY, || {
                function.hash_many(Inputs::new(black_box(&bytes), &ends), &mut out);
            });
            row(&format!("{function} | {peer} {reference:.1} | {backend}"), [ns], reference);
        }
    }
}

/// Whole climbs of the Merkle-sum tree, per level.
fn climbs() {
    const TO: u16 = 14;
    const COUNTS: [usize; 7] = [1, 2, 3, 4, 8, 16, 256];
    let empty = [[3; 32]; 257];
    let paths: Vec<[u8; 32]> = (0..256).map(|i| [i as u8 ^ 0x5a; 32]).collect();
    let node = [7; 72];
    let reference = best(1, || {
        black_box(sha2(black_box(&node)));
    });
    head("climbs of the Merkle-sum tree, a level | sha2 of a node", COUNTS.map(Some).into_iter());
    for backend in backends_of(HashFunction::Sha256) {
        set_backend(Some(backend)).expect("it was found");
        let cells = COUNTS.map(|count| {
            let climb = |i: usize| SumClimb {
                hash: [i as u8; 32],
                sum: i as u64,
                path: paths[i],
                from: 256,
                to: TO + (i % 3) as u16,
            };
            let fresh: Vec<_> = (0..count).map(climb).collect();
            let levels: usize = fresh.iter().map(|climb| usize::from(climb.from - climb.to)).sum();
            let mut climbs = fresh.clone();
            best(levels, || {
                // What has climbed is there.
                climbs.copy_from_slice(&fresh);
                sha256_sum_climb(black_box(&mut climbs), &empty);
            })
        });
        row(&format!("72 bytes | {reference:.1} | {backend}"), cells, reference);
    }
}

/// Nanoseconds of CPU time for each of `count` digests, in the best of many runs.
fn best(count: usize, mut run: impl FnMut()) -> f64 {
    let start = cpu_time();
    let mut repeats: u32 = 0;
    while cpu_time() - start < Duration::from_micros(300) {
        run();
        repeats += 1;
    }
    let mut best = Duration::MAX;
    for _ in 0..12 {
        let start = cpu_time();
        for _ in 0..repeats {
            run();
        }
        best = best.min(cpu_time() - start);
    }
    best.as_secs_f64() * 1e9 / (f64::from(repeats) * count as f64)
}

/// The CPU time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
