//! The server put together: configuration, exports, state on disk, programs, and the life of the process.

mod config;
mod exports;
mod groups;
mod life;
mod nss;
mod programs;
mod ready;
mod source;
mod state_dir;

use std::path::PathBuf;

pub use config::{Config, ConfigError, ExportConfig, LEASE_SECONDS};
pub use exports::check;
pub use holdfast_export::{ClientRule, ExportOptions, LocalUse, Squash};
pub use life::serve;
pub use source::{Share, Source, SourceError};

/// What to serve, as the command line and the configuration file together say.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// Exports and settings, those of the command line included.
    pub config: Config,
    /// The file they partly came from.
    pub config_file: Option<PathBuf>,
}
