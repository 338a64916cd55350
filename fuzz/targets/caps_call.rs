//! See `holdfast_fuzz::caps_call`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_fuzz::caps_call::run(data));
