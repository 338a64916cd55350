//! ONC RPC version 2 (RFC 5531) over TCP: record marking, calls and replies, credentials, the duplicate-request
//! cache, calls back to clients, and the threads that all of it runs on.
//!
//! Programs implement [`service::Program`]; [`server::Server`] serves them; [`detached::Detached`] runs them
//! without a network.
#![forbid(unsafe_code)]

pub mod auth;
pub mod callback;
pub mod client;
mod congestion;
mod connection;
mod crew;
pub mod datagram;
pub mod detached;
mod dispatch;
mod driver;
pub mod handover;
mod kick;
pub mod link;
mod message;
mod output;
pub mod pending;
pub mod pool;
pub mod portmap;
pub mod record;
pub mod reply_cache;
pub mod rpcbind;
pub mod runtime;
pub mod server;
pub mod service;
mod throttle;
mod together;

pub use auth::{Auth, AuthSys};
pub use callback::{CallError, OutgoingCall};
pub use connection::Connection;
pub use datagram::DatagramServer;
pub use pending::PendingReply;
pub use server::{Limits, Server, ServerView};
pub use service::{Call, FileBody, InLane, Lane, Mode, Outcome, Program, Resume, Turn};
pub use together::together;
