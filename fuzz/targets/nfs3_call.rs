//! See `holdfast_fuzz::nfs3_call`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_fuzz::nfs3_call::run(data));
