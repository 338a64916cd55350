//! What the fuzz targets run: each a function from bytes, which panics when something that must hold does not.
//! They are built with coverage by `scripts/fuzz`; `cargo test` runs every seed through its target without.
#![forbid(unsafe_code)]

mod chain;
mod field;
mod input;
mod nlm_clients;
mod nlm_world;
mod ops;
mod procedures;
mod world;

pub mod caps_call;
pub mod nfs3_call;
pub mod nfs4_compound;
pub mod nlm_call;
pub mod rpc_call;
pub mod rpc_record;
pub mod seeds;
pub mod state_ops;
pub mod xdr_roundtrip;
