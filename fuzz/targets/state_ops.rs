//! See `holdfast_fuzz::state_ops`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_fuzz::state_ops::run(data));
