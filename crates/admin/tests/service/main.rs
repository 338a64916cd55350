//! The service and the asking side over a server that is none.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod fake;
mod http;
mod lines;
mod paging;
mod words;
