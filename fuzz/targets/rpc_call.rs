//! See `holdfast_fuzz::rpc_call`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: holdfast_fuzz::seeds::write_if_asked("rpc_call"), |data: &[u8]| holdfast_fuzz::rpc_call::run(data));
