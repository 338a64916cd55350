//! `holdfast check`.

use anyhow::Result;
use holdfast_server::Config;

use crate::cli::CheckArgs;

/// Reads the file, tries everything that can be tried without serving, and says what would be served.
pub(crate) fn run(args: &CheckArgs) -> Result<()> {
    let config = Config::read(&args.config)?;
    for line in holdfast_server::check(&config)? {
        println!("{line}");
    }
    Ok(())
}
