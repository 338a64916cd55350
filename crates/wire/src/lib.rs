//! The messages of every RPC program, as Rust types with derived codecs: what is on the wire and nothing
//! about what it means. Names are the RFCs' in Rust case. Everything that can be long borrows from the message,
//! and every length has a bound in `holdfast_base::limits`.
#![forbid(unsafe_code)]

mod entries;
mod number;

pub mod caps;
pub mod mount3;
pub mod nfs3;
pub mod nfs4;
pub mod nlm4;
pub mod nsm;
pub mod portmap;
pub mod rpc;

pub use entries::EntryList;
