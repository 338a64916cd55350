//! A directory of this machine as a backend: persistent handles, the kernel's own judgement of permissions, a
//! change attribute that never repeats, and commits shared by all who wait.
//!
//! `unsafe` stands in `sys` and `sys_notify` alone.

mod advice;
mod appends;
mod attributes;
mod backend;
mod beside;
mod bindings;
mod cache;
pub mod change;
mod commit;
mod credentials;
mod dirty;
mod durable;
mod errors;
mod exclusive;
pub mod failpoint;
mod files;
mod filesystem;
mod flocks;
mod folding;
mod handles;
mod handover;
mod lend;
mod listing;
mod local;
mod locks;
mod looks;
mod marks;
mod mounts;
mod named;
mod nameless;
mod names;
mod newer;
mod object;
mod opening;
mod options;
mod pages;
mod procfd;
mod residency;
mod spans;
mod spares;
mod sys;
mod sys_notify;
mod table;
mod unseen;
mod watch;
mod xattrs;

pub use credentials::release_thread;
pub use errors::OpenError;
pub use local::LocalBackend;
pub use options::{LocalOptions, LocalUse};
