//! The whole crate over real mounts. Needs root and `/dev/fuse`; each test has a mount of its own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod basics;
mod bench;
mod convert;
mod double;
mod gates;
mod interrupts;
mod lock_tests;
mod locks;
mod notices;
mod stage;
mod suites;
mod users;
