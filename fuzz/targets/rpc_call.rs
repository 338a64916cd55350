//! See `holdfast_fuzz::rpc_call`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_fuzz::rpc_call::run(data));
