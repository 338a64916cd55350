//! NFSv3 and MOUNT over the in-memory backend: calls in, whole replies out.
#![allow(clippy::unwrap_used, clippy::expect_used)]

mod attributes;
mod create;
mod durability;
mod garbage;
mod io;
mod list;
mod mount;
mod remove;
mod replay;
mod status;
mod volume;
mod world;
