//! See `holdfast_fuzz::nlm_call`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: holdfast_fuzz::seeds::write_if_asked("nlm_call"), |data: &[u8]| holdfast_fuzz::nlm_call::run(data));
