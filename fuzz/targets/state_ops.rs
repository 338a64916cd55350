//! See `holdfast_fuzz::state_ops`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: holdfast_fuzz::seeds::write_if_asked("state_ops"), |data: &[u8]| holdfast_fuzz::state_ops::run(data));
