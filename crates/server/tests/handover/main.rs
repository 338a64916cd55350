//! The planned restart, seen from outside: the server is a process of its own and is replaced while clients of every
//! protocol hold what they hold.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

mod caps;
#[path = "../suite/client.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod client;
mod goes_on;
mod load;
#[allow(dead_code, reason = "another suite uses all of it")]
mod mount;
#[allow(dead_code, reason = "another suite uses all of it")]
mod nfs4;
mod nlm;
mod prober;
mod refused;
#[allow(dead_code, reason = "another suite uses all of it")]
mod server;
mod stored;
mod supervised;
