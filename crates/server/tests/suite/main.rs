//! The whole server as a process of its own, with clients that mean it harm or have a great many files.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod child;
mod client;
mod hostile;
mod million;
mod neighbour;
