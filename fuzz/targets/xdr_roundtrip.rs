//! See `holdfast_fuzz::xdr_roundtrip`.
#![no_main]

libfuzzer_sys::fuzz_target!(init: holdfast_fuzz::seeds::write_if_asked("xdr_roundtrip"), |data: &[u8]| holdfast_fuzz::xdr_roundtrip::run(data));
