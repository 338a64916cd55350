//! See `holdfast_fuzz::caps_call`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: holdfast_fuzz::seeds::write_if_asked("caps_call"), |data: &[u8]| holdfast_fuzz::caps_call::run(data));
