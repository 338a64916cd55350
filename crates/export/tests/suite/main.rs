//! The crate through its public face, over the in-memory backend.

mod committer;
mod namespace;
