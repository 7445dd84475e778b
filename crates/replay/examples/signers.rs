//! What recovering senders costs, in CPU time a transaction: `cargo run --release -p spinney-replay
//! -F measure --example signers -- [TRANSACTIONS] [THREADS]`, and the same with
//! `--no-default-features` for the way in Rust alone.

use std::{error::Error, thread, time::Instant};

use cpu_time::ProcessTime;
use spinney_replay::{ChainBlock, SampleChain, SampleOptions, TextbookState};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<usize>());
    let wanted = args.next().transpose()?.unwrap_or(20_000);
    let threads = args.next().transpose()?.unwrap_or(1);
    let mut options = SampleOptions::default();
    (options.block_count, options.transactions_per_block) = (20, 100);
    let sample = SampleChain::new(options, TextbookState::new())?;
    let config = sample.genesis().config.clone();
    let blocks: Vec<ChainBlock> = sample.collect::<Result<_, _>>()?;
    let count: usize = blocks.iter().map(|block| block.block.body.transactions.len()).sum();
    let rounds = wanted.div_ceil(count).div_ceil(threads);
    let (cpu, wall) = (ProcessTime::now(), Instant::now());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                for block in (0..rounds).flat_map(|_| &blocks) {
                    block.senders(&config).expect("the sample's signatures are valid");
                }
            });
        }
    });
    let done = (rounds * count * threads) as f64;
    let by = if cfg!(feature = "libsecp256k1") { "libsecp256k1" } else { "Rust" };
    println!(
        "{by}: {:.1} us of CPU, {:.1} us of wall a transaction; {done} of them, {threads} threads",
        cpu.elapsed().as_secs_f64() * 1e6 / done,
        wall.elapsed().as_secs_f64() * 1e6 / done,
    );
    Ok(())
}
