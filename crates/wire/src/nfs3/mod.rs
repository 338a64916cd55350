//! NFS version 3 (RFC 1813).

mod args;
mod results;
mod status;
mod types;

pub use args::*;
pub use results::*;
pub use status::*;
pub use types::*;
