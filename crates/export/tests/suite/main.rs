//! The crate through its public face, over the in-memory backend.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod committer;
mod namespace;
