//! Prints what the operations of a Verkle tree cost here, with either kernel.
//!
//! ```text
//! cargo run --release -p spinney-ipa -F measure --example measure [THREADS]
//! ```
//!
//! Every figure is the best of several rounds. THREADS defaults to 1. With one thread it is CPU
//! time (on Unix), so that other work on the machine disturbs little; with more it is wall-clock
//! time.

use std::time::Duration;

use spinney_ipa::{
    Crs, Delta, Element, Fq, Fr, Kernel, Multiproof, Opening, ProverOpening, SignedScalar,
    TableOptions, Transcript, multiply_sum,
};

fn main() {
    let threads = std::env::args().nth(1).map_or(1, |text| text.parse().expect("a thread count"));
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
    println!("threads {threads}");
    pool.install(|| {
        report("first Crs::new of the process", once(Crs::new), 1);
        let detected = Kernel::detect();
        measure(Kernel::PORTABLE);
        if detected != Kernel::PORTABLE {
            measure(detected);
        }
        println!("\nbatches, kernel {}", detected.name());
        batches(&mut Draws(0xba7c4));
    });
}

fn measure(kernel: Kernel) {
    println!("\nkernel {}", kernel.name());
    let mut draws = Draws(0x5eed);
    fields(kernel, &mut draws);

    let options = TableOptions { kernel, ..TableOptions::default() };
    report("table build", best(3, || Crs::with_table(&options)), 1);
    let crs = Crs::with_table(&options);
    println!("{:<44}{:>10.1} MiB", "table size", crs.table_bytes() as f64 / f64::from(1 << 20));
    deltas(&crs, &mut draws);
    commitments(&crs, &mut draws);
    for count in [1, 1000] {
        proofs(&crs, count, &mut draws);
    }
}

fn fields(kernel: Kernel, draws: &mut Draws) {
    let elements: Vec<Fq> = (0..64).map(|_| Fq::from_limbs(draws.limbs())).collect();
    // Two hundred and fifty-two squarings, after fourteen products of a small table.
    let power = best(200, || kernel.pow_many(&elements, &[0, 0, 0, 1 << 60]));
    report("Fq mul (in a power, per element)", power, 64 * (14 + 252));
    let scalars: Vec<Fr> = (0..64).map(|_| draws.scalar()).collect();
    report("Fr mul", best(500, || scalars.iter().fold(Fr::ONE, |a, b| a * *b)), 64);
    let invert = best(200, || elements.iter().map(Fq::invert).collect::<Vec<_>>());
    report("Fq inversion", invert, 64);
    report("Fq square root", best(50, || elements.iter().filter_map(Fq::sqrt).count()), 64);
    let legendre = best(50, || elements.iter().map(Fq::legendre).sum::<i32>());
    report("Fq Legendre symbol", legendre, 64);
}

fn deltas(crs: &Crs, draws: &mut Draws) {
    for (name, targets, first, count) in [
        ("delta of 129 bits, 2 a target", 512u32, 5, 2u8),
        ("delta of 253 bits, 1 a target", 512, 5, 1),
        ("delta of 253 bits on the first points", 512, 0, 1),
        ("delta of 129 bits, 20 targets", 20, 5, 2),
    ] {
        let batch: Vec<Delta> = (0..targets)
            .flat_map(|target| (0..count).map(move |_| target))
            .map(|target| {
                let basis =
                    if first == 0 { draws.word() as u8 % 5 } else { draws.word() as u8 | 8 };
                let amount = if name.contains("129") {
                    let half = |limbs: [u64; 4]| [limbs[0], limbs[1], limbs[2] & 1, 0];
                    SignedScalar::between(half(draws.limbs()), half(draws.limbs()))
                } else {
                    SignedScalar::between(draws.scalar().to_limbs(), draws.scalar().to_limbs())
                };
                Delta { target, basis, amount }
            })
            .collect();
        let mut accumulators = vec![Element::generator(); targets as usize];
        let time = best(100, || crs.add_deltas(&mut accumulators, &batch));
        report(name, time, batch.len());
    }
}

fn commitments(crs: &Crs, draws: &mut Draws) {
    let full: Vec<Fr> = (0..256).map(|_| draws.scalar()).collect();
    report("commit to 256 scalars", best(50, || crs.commit(&full)), 1);
}

fn batches(draws: &mut Draws) {
    let crs = Crs::new();
    let vectors: Vec<[(u8, Fr); 1]> = (0..4096).map(|i| [(i as u8, draws.scalar())]).collect();
    let vectors: Vec<&[(u8, Fr)]> = vectors.iter().map(|vector| &vector[..]).collect();
    let elements = crs.commit_sparse_many(&vectors);
    for count in [8, 256, 4096] {
        let time = best(20, || Element::map_to_field_many(&elements[..count]));
        report(&format!("map_to_field, batch of {count}"), time, count);
    }
    let time = best(50, || Element::normalize_and_map_many(&mut elements.clone()));
    report("normalise and map_to_field, batch of 4096", time, 4096);
    let encodings = Element::compress_many(&elements);
    for count in [1, 17, 4096] {
        let time = best(20, || Element::from_compressed_many(&encodings[..count]));
        report(&format!("decode untrusted, batch of {count}"), time, count);
    }
    for count in [17, 256, 1024] {
        let scalars: Vec<Fr> = (0..count).map(|_| draws.scalar()).collect();
        let time = best(30, || multiply_sum(&elements[..count], &scalars));
        report(&format!("sum of {count} products, any points"), time, 1);
    }
}

fn proofs(crs: &Crs, count: usize, draws: &mut Draws) {
    let vectors: Vec<[Fr; 256]> =
        (0..count).map(|_| std::array::from_fn(|_| draws.scalar())).collect();
    let mut commitments: Vec<Element> = vectors.iter().map(|vector| crs.commit(vector)).collect();
    Element::normalize_many(&mut commitments);
    let known: Vec<ProverOpening<'_>> = vectors
        .iter()
        .zip(&commitments)
        .map(|(values, &commitment)| ProverOpening {
            commitment,
            values,
            index: draws.word() as u8,
        })
        .collect();
    let told: Vec<Opening> = known
        .iter()
        .map(|known| Opening {
            commitment: known.commitment,
            index: known.index,
            value: known.values[usize::from(known.index)],
        })
        .collect();
    let prove = || Multiproof::prove(crs, &mut Transcript::new(b"vt"), &known).expect("openings");
    report(&format!("prove {count} openings"), best(30, prove), 1);
    let bytes = prove().to_bytes();
    let bare = Crs::with_kernel(crs.kernel());
    for (crs, name) in [(crs, "verify"), (&bare, "verify without a table")] {
        let verify = || {
            let proof = Multiproof::from_bytes(&bytes).expect("a proof");
            proof.verify(crs, &mut Transcript::new(b"vt"), &told).expect("holds");
        };
        report(&format!("{name}, {count} openings"), best(50, verify), 1);
    }
}

/// The shortest of some rounds, each long enough for the clock.
fn best<T>(rounds: usize, mut work: impl FnMut() -> T) -> Duration {
    let mut run = |times: u32| {
        let start = now();
        for _ in 0..times {
            std::hint::black_box(work());
        }
        (now() - start) / times
    };
    let times = Duration::from_micros(100).div_duration_f64(run(1).max(Duration::from_nanos(1)));
    let round = || run((times as u32).max(1));
    std::iter::repeat_with(round).take(rounds).min().unwrap_or_default()
}

/// The time of a single run.
fn once<T>(work: impl FnOnce() -> T) -> Duration {
    let start = now();
    std::hint::black_box(work());
    now() - start
}

/// CPU time of this thread if it does all the work, else the time of day.
fn now() -> Duration {
    #[cfg(unix)]
    if rayon::current_num_threads() == 1 {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        return Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32);
    }
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default()
}

fn report(name: &str, time: Duration, parts: usize) {
    let each = time.as_nanos() as f64 / parts as f64;
    let (value, unit) = match each {
        0.0..1e3 => (each, "ns"),
        1e3..1e6 => (each / 1e3, "us"),
        _ => (each / 1e6, "ms"),
    };
    println!("{name:<44}{value:>10.2} {unit}");
}

/// A small generator of values (xorshift).
struct Draws(u64);

impl Draws {
    fn word(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn limbs(&mut self) -> [u64; 4] {
        std::array::from_fn(|_| self.word())
    }

    fn scalar(&mut self) -> Fr {
        Fr::from_limbs(self.limbs())
    }
}
