use spinney_hash::*;
fn main() {
    let len = 32;
    set_backend(Some(Backend::ShaNi)).unwrap();
    let buf = vec![7u8; len * 1024];
    let mut out = vec![[0u8; 32]; 1024];
    for _ in 0..40000 { sha256_equal(std::hint::black_box(&buf), len, &mut out); }
}
