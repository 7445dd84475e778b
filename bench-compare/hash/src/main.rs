use std::{hint::black_box, time::Instant};
use spinney_hash::*;
use sha2::Digest as _;
fn time(per: usize, mut f: impl FnMut()) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..50 { let n = 20_000 / per.max(1) + 1; let t = Instant::now(); for _ in 0..n { f(); } best = best.min(t.elapsed().as_secs_f64() * 1e9 / (n * per) as f64); }
    best
}
fn main() {
    for len in [32usize, 64, 72, 200] {
        let buf = vec![7u8; len * 1024];
        let mut out = vec![[0u8; 32]; 1024];
        let one = time(1, || { black_box(sha2::Sha256::digest(black_box(&buf[..len]))); });
        println!("len {len} sha2 {one:.1}");
        for b in [Backend::ShaNi, Backend::Avx512, Backend::Avx2, Backend::Portable] {
            set_backend(Some(b)).unwrap();
            let s = time(1, || { black_box(sha256(black_box(&buf[..len]))); });
            print!("  {b:9} x1 {s:.1} ({:.3})", s / one);
            for n in [2usize, 3, 4, 8, 16, 1024] {
                let s = time(n, || { sha256_equal(black_box(&buf[..len * n]), len, &mut out[..n]); });
                print!("  x{n} {s:.1} ({:.3})", s / one);
            }
            let ends: Vec<u32> = (1..=1024).map(|i| (i * len) as u32).collect();
            let s = time(1024, || { sha256_many(Inputs::new(black_box(&buf), &ends), &mut out); });
            println!("  many {s:.1} ({:.3})", s / one);
        }
    }
    let empty = vec![[3u8; 32]; 257];
    let key = [0x5au8; 32];
        for b in [Backend::ShaNi, Backend::Avx512, Backend::Avx2, Backend::Portable] {
            set_backend(Some(b)).unwrap();
            print!("{b:9}");
            for n in [1usize, 2, 3, 4, 8, 64] {
                let mut c: Vec<_> = (0..n).map(|i| SumClimb { hash: [i as u8; 32], sum: i as u64, path: &key, from: 256, to: 14 + (i % 3) as u16 }).collect();
                let mut best = f64::MAX;
                for _ in 0..50 { let t = Instant::now(); sha256_sum_climb(&mut c, &empty); best = best.min(t.elapsed().as_secs_f64() * 1e9 / n as f64 / 241.); }
                print!(" x{n} {best:.1}");
            }
            println!(" ns/level");
        }
}
