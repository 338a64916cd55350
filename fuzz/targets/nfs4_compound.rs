//! See `holdfast_fuzz::nfs4_compound`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_fuzz::nfs4_compound::run(data));
