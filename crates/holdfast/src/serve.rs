//! `holdfast serve`.

use anyhow::Result;
use holdfast_server::supervisor;
use holdfast_server::{ClientRule, Config, ExportConfig, ExportOptions, ServeOptions};

use crate::cli::ServeArgs;

/// Serves until told to stop.
pub(crate) fn run(args: ServeArgs) -> Result<()> {
    if !args.no_supervise && supervisor::is_wanted() {
        return supervisor::supervise();
    }
    holdfast_server::serve(options(args)?)
}

fn options(args: ServeArgs) -> Result<ServeOptions> {
    let mut config = match &args.config {
        Some(path) => Config::read(path)?,
        None => Config::default(),
    };
    let rules = ExportOptions {
        is_read_only: args.read_only,
        squash: args.squash.into(),
        clients: if args.allow.is_empty() { ClientRule::this_host() } else { args.allow },
        is_sync: !args.is_async,
        local: args.local.into(),
        ..ExportOptions::default()
    };
    let exports = args.sources.into_iter().map(|share| ExportConfig::from_share(share, &rules)).collect();
    if !args.listen.is_empty() {
        config.listen = args.listen;
    }
    config.state_dir = args.state_dir.or(config.state_dir);
    config.lease = args.lease.or(config.lease);
    if args.no_rpcbind {
        config.rpcbind = Some(false);
    }
    Ok(ServeOptions { config, config_file: args.config, exports })
}
