//! See `holdfast_fuzz::rpc_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_fuzz::rpc_record::run(data));
