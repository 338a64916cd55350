//! Composition of the client: mount options, the daemon behind a mount and its life, the translation between the
//! kernel's FUSE requests and the volume, and the control socket by which `holdfast mount stats` and the like reach it.
#![deny(unsafe_code)]

mod complaints;
mod connecting;
pub mod control;
mod controlled;
pub mod daemon;
pub mod dead;
mod fs;
pub mod guard;
mod kernel_side;
mod life;
mod logfile;
pub mod mountinfo;
mod offline;
pub mod options;
mod privileges;
mod signals;
pub mod source;

pub use holdfast_fuse::{MountError, Unmount, unmount};
pub use life::{MountRequest, remount, run};
pub use options::{CacheMode, MountOptions, Patience};
pub use source::{ServerName, Source};
