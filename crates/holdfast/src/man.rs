//! `holdfast man`: the manual pages, made from the command line's own description.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::cli::{Cli, ManArgs};

/// Writes a page for the command and one for each subcommand.
pub(crate) fn run(args: &ManArgs) -> Result<()> {
    fs::create_dir_all(&args.dir).with_context(|| args.dir.display().to_string())?;
    let command = Cli::command();
    for sub in command.get_subcommands().filter(|c| !c.is_hide_set()) {
        let name = format!("{}-{}", command.get_name(), sub.get_name());
        // The name must live as long as the program, which ends here.
        let leaked: &'static str = name.clone().leak();
        write(sub.clone().name(leaked), &args.dir.join(format!("{name}.1")))?;
    }
    write(command, &args.dir.join("holdfast.1"))
}

fn write(command: clap::Command, path: &Path) -> Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    fs::write(path, page).with_context(|| path.display().to_string())
}
