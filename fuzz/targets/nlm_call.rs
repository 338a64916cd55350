//! See `holdfast_fuzz::nlm_call`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_fuzz::nlm_call::run(data));
