//! The lock manager, called as clients call it.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "what a test relies on must hold")]

mod blocking;
mod crowd;
mod grace;
mod handover;
mod locks;
mod monitor;
mod network;
mod outside;
mod overlapping;
mod random;
mod shares;
mod world;
