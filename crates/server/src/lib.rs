//! The server put together: configuration, exports, state on disk, programs, and the life of the process.

mod admin;
mod caps;
mod config;
#[doc(hidden)]
pub mod durable;
mod exports;
mod handover;
mod life;
mod listening;
mod lockd;
mod memory;
mod nss;
mod process;
mod programs;
mod ready;
mod reload;
mod same_host;
mod source;
mod standstill;
mod state_dir;
mod supervised;
pub mod supervisor;

use std::path::PathBuf;

#[doc(hidden)]
pub use admin::Tally;
pub use admin::{LogControl, control_log_by};
pub use config::{Config, ConfigError, ExportConfig, LEASE_SECONDS, MetricsConfig, parse_listen};
pub use exports::check;
pub use holdfast_export::{ANONYMOUS_ID, ClientRule, ExportOptions, LocalUse, Squash};
pub use life::serve;
pub use source::{Share, Source, SourceError};
pub use state_dir::default_dir as default_state_dir;

/// What to serve, as the command line and the configuration file together say.
#[derive(Clone, Debug)]
pub struct ServeOptions {
    /// The configuration file's content, with the settings that the command line gave in their place.
    pub config: Config,
    /// The file, to be read again on SIGHUP.
    pub config_file: Option<PathBuf>,
    /// Exports named on the command line: served beside those of the file, also after a reload.
    pub exports: Vec<ExportConfig>,
}
