//! `holdfast check`.

use anyhow::{Result, ensure};
use holdfast_server::Config;

use crate::cli::CheckArgs;

/// Reads the file, tries everything that can be tried without serving, and says what would be served.
pub(crate) fn run(args: &CheckArgs) -> Result<()> {
    let config = Config::read(&args.config)?;
    ensure!(!config.exports.is_empty(), "{}: nothing to serve: it has no [[export]]", args.config.display());
    for line in holdfast_server::check(&config)? {
        println!("{line}");
    }
    Ok(())
}
