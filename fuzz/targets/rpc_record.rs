//! See `holdfast_fuzz::rpc_record`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: holdfast_fuzz::seeds::write_if_asked("rpc_record"), |data: &[u8]| holdfast_fuzz::rpc_record::run(data));
