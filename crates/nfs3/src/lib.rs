//! NFS version 3 and its MOUNT protocol (RFC 1813) over `holdfast-export` and `holdfast-vfs`. Knows no concrete
//! backend. A procedure's meaning stands once, in `procedures`; what all repeat is the engine's.
#![forbid(unsafe_code)]

mod attr;
mod caller;
mod engine;
mod mount;
mod procedure;
mod procedures;
mod service;
mod status;

pub use mount::Mount3;
pub use service::{Answered, Nfs3, Nfs3Parts, Observer};
pub use status::{is_allowed, status_of};
