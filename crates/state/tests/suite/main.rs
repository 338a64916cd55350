//! The state engine, by what it decides.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod caps;
mod clients;
mod courtesy;
mod delegations;
mod foreign;
mod linux;
mod lock_bounds;
mod locks;
mod memory;
mod mounts;
mod opens;
mod reclaim;
mod witness;
mod world;
