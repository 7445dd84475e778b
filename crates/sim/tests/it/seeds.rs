//! A few seeds of the simulator. `spinney-sim --seeds 1000` is the long form, and `--store log` the
//! one over the log.

use spinney_sim::{Kind, Tally, run};

fn seeds(seeds: std::ops::Range<u64>, kind: &Kind) {
    let steps: Vec<_> = (0..300).collect();
    let mut sum = Tally::default();
    for seed in seeds {
        match run(seed, &steps, kind) {
            Ok(tally) => sum += tally,
            Err(failure) => panic!("{failure}"),
        }
    }
    println!("{kind}: {sum}");
    for (what, count) in sum.counts() {
        assert!(count > 0 || what == "power cuts" || what.starts_with("found"), "no {what}");
    }
}

#[test]
fn a_few_seeds_in_memory() {
    seeds(1..9, &Kind::Memory);
}

#[test]
fn a_few_seeds_over_redb() {
    seeds(1..9, &Kind::Redb);
}

#[test]
fn a_few_seeds_over_sqlite() {
    seeds(1..9, &Kind::Sqlite);
}
