//! `#[derive(Encode, Decode)]` for XDR (RFC 4506). One rule for each kind of Rust type:
//!
//! * a struct is its fields in order;
//! * an enum is a 32-bit discriminant, then the variant's fields in order. The discriminant is the variant's own
//!   (`A = 3`), or that of `#[xdr(case = EXPR)]`, or one more than the variant's before it (0 for the first);
//! * a variant marked `#[xdr(default)]` takes every other discriminant and keeps it in its first field, a `u32`;
//! * `&[u8]` and `Vec<u8>` are opaque data, any other `Vec` is a counted list, or with `#[xdr(chain)]` a chain of
//!   optional items (RFC 4506 section 4.19). Each needs `#[xdr(max = EXPR)]`: without a bound nothing is derived.
#![forbid(unsafe_code)]

mod attr;
mod field;
mod item;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Derives `holdfast_xdr::Encode`.
#[proc_macro_derive(Encode, attributes(xdr))]
pub fn derive_encode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    item::encode(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Derives `holdfast_xdr::Decode`, borrowing for the type's first lifetime when it has one.
#[proc_macro_derive(Decode, attributes(xdr))]
pub fn derive_decode(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    item::decode(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}
