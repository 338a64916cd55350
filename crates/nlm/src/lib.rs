//! Locks for NFSv3: the network lock manager (NLM version 4: RFC 1813 appendix II, X/Open XNFS) and the network
//! status monitor (NSM) that goes with it. Locks lie in the state engine that all protocols share, and on the backend.
//!
//! `docs/design/nlm.md` says how the parts meet.
#![forbid(unsafe_code)]

mod claim;
mod granted;
pub mod handover;
mod held;
mod hosts;
mod lockd;
mod locks;
mod monitor;
mod names;
mod notice;
mod nsm;
mod outside;
mod peers;
mod program;
mod records;
mod report;
mod shares;
mod sites;
mod table;
mod taking;

pub use lockd::{Lockd, Parts, Start};
pub use nsm::Nsm;
pub use peers::{Answered, NetPeers, NoAnswer, PeerCall, Peers};
pub use program::Nlm4;
pub use records::has_holders;
pub use report::OwnerFileReport;
