//! The transport over real sockets, with a client that speaks bytes.
#![expect(clippy::unwrap_used, reason = "the functions that tests share are no tests to clippy")]

mod abuse;
mod backpressure;
mod basics;
mod client;
mod datagrams;
mod files;
mod hanging;
mod lanes;
mod lifecycle;
mod portmap;
mod program;
mod together;
mod turns;
