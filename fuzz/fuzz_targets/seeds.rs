//! Writes the seeds and ends. It is built like a target, since instrumented code links in no other
//! way.
#![no_main]
libfuzzer_sys::fuzz_target!(
    init: {
        let code = spinney_fuzz::write_seeds().map_or_else(
            |error| {
                eprintln!("error: {error}");
                2
            },
            |()| 0,
        );
        if std::hint::black_box(true) {
            std::process::exit(code);
        }
    },
    |_input: &[u8]| {}
);
