//! See `holdfast_fuzz::nfs3_call`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: holdfast_fuzz::seeds::write_if_asked("nfs3_call"), |data: &[u8]| holdfast_fuzz::nfs3_call::run(data));
