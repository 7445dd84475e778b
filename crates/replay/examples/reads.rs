//! What a read of an account costs, beside a read of a page:
//! `cargo run --release -p spinney-replay -F measure --example reads -- STORE [READS]`.
//!
//! STORE is a folder that `spinney replay` made. Accounts are drawn among those whose
//! addresses it knows. *Cold*: no page is in memory; each read that needs a page asks the store for
//! it. *Warm*: the same reads once more. Beside both: rows of pages drawn at random, each read from
//! the store by its key. All of it is measured twice: with the files in the memory of the system,
//! and on the disk, where the system forgets them before each row of reads; it does so for root
//! alone, and on Linux.

use std::error::Error;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use alloy_primitives::Address;
use spinney_state::{State, StateRead as _};
use spinney_store::{AnyStore, Location, OpenFor};
use spinney_tree::{PageStore as _, Snapshot as _, Table};

const CACHE_BYTES: usize = 1 << 30;

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let place = args.next().ok_or("name a store that spinney replay made")?;
    let count = args.next().map_or(Ok(2_000), |count| count.parse())?;
    let store = Location::directory(Path::new(&place)).open(OpenFor::Writing, CACHE_BYTES / 16)?;
    let drawn = drawn(&store, count)?;
    println!("{} accounts and {} pages drawn", drawn.0.len(), drawn.1.len());
    measure(&store, &drawn, "memory of the system", || true)?;
    measure(&store, &drawn, "disk", forget_files)
}

fn measure(
    store: &AnyStore,
    (addresses, pages): &Drawn,
    files_in: &str,
    before: fn() -> bool,
) -> Result<(), Box<dyn Error>> {
    let (mut per_page, mut cold, mut warm, mut asked) = (vec![], vec![], vec![], 0);
    for _ in 0..5 {
        if !before() {
            println!("{files_in}: the system does not forget files for us");
            return Ok(());
        }
        let snapshot = store.snapshot()?;
        let began = Instant::now();
        let mut bytes = 0;
        for key in pages {
            bytes += snapshot.read(Table::Pages, key)?.map_or(0, |row| row.len());
        }
        per_page.push(began.elapsed() / u32::try_from(pages.len())?);
        assert!(bytes > 0);
        let state = State::open(store, CACHE_BYTES)?;
        let first = state.costs().pages_read;
        before();
        for took in [&mut cold, &mut warm] {
            let began = Instant::now();
            for address in addresses {
                assert!(state.account(*address)?.is_some());
            }
            took.push(began.elapsed() / u32::try_from(addresses.len())?);
            if asked == 0 {
                asked = state.costs().pages_read - first;
            }
        }
    }
    let [page, cold, warm] = [per_page, cold, warm].map(median);
    let pages_each = asked as f64 / addresses.len() as f64;
    let ratio = cold.as_secs_f64() / (page.as_secs_f64() * pages_each);
    println!(
        "{files_in}: a page {page:.2?}; an account, warm {warm:.2?}, cold {cold:.2?}: \
         {pages_each:.2} pages each, {ratio:.2} of these"
    );
    Ok(())
}

/// Has the system forget what it holds of files.
fn forget_files() -> bool {
    let synced = Command::new("sync").status().is_ok_and(|status| status.success());
    synced && std::fs::write("/proc/sys/vm/drop_caches", "3").is_ok()
}

/// Accounts, and keys of pages.
type Drawn = (Vec<Address>, Vec<Vec<u8>>);

/// Accounts that are there, and pages.
fn drawn(store: &AnyStore, count: usize) -> Result<Drawn, Box<dyn Error>> {
    let snapshot = store.snapshot()?;
    let mut addresses = Vec::new();
    snapshot.scan(Table::Preimages, &[], None, &mut |_, row| {
        addresses.extend(Address::try_from(row).ok());
        true
    })?;
    let mut pages = Vec::new();
    snapshot.scan(Table::Pages, &[], None, &mut |key, _| {
        pages.push(key.to_vec());
        true
    })?;
    // In no order that the store knows.
    addresses.sort_unstable();
    shuffle(&mut addresses);
    shuffle(&mut pages);
    let state = State::open(store, CACHE_BYTES)?;
    let mut there = Vec::new();
    for address in addresses {
        if there.len() < count && state.account(address)?.is_some() {
            there.push(address);
        }
    }
    pages.truncate(count);
    Ok((there, pages))
}

fn shuffle<T>(all: &mut [T]) {
    let mut random = 7_u64;
    for at in (1..all.len()).rev() {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        all.swap(at, (random >> 33) as usize % (at + 1));
    }
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}
