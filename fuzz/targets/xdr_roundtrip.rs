//! See `holdfast_fuzz::xdr_roundtrip`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| holdfast_fuzz::xdr_roundtrip::run(data));
