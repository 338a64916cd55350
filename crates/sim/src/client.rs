//! Clients that follow the protocols as good clients do, and some that do not.

pub mod app;
pub(crate) mod callbacks;
pub(crate) mod conn;
pub(crate) mod delegations;
pub(crate) mod kept;
pub(crate) mod liar;
mod mounted;
pub(crate) mod recover;
pub(crate) mod sessions;
pub(crate) mod slots;
pub(crate) mod v3;
pub(crate) mod v4;
