//! The administration of a running server: a private socket in its state directory, the protocol spoken there, both
//! of its sides, and the counters behind `status` and `top`.
//!
//! Nothing here knows the server: it implements [`Administered`]. `docs/admin.md` is the protocol's documentation.
#![forbid(unsafe_code)]

mod client;
mod endpoint;
pub mod prometheus;
pub mod report;
pub mod request;
mod service;
pub mod socket;
pub mod stats;

pub use client::{AdminClient, AskError};
pub use endpoint::MetricsEndpoint;
pub use service::{Administered, Service};
