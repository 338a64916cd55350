//! The operations, by family.

mod data;
mod direct;
mod directory;
mod lock;
mod names;
mod objects;
mod open;
mod ranges;
mod xattr;

pub use data::{Io, Seek, Whose};
pub use names::Created;
pub use open::{Create, CreateMode, OpenArgs, OpenTarget, Opened, WantDelegation};
