//! See `holdfast_fuzz::nfs4_compound`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: holdfast_fuzz::seeds::write_if_asked("nfs4_compound"), |data: &[u8]| holdfast_fuzz::nfs4_compound::run(data));
