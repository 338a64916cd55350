//! `holdfast man`: the manual pages, made from the command line's own description.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::cli::{Cli, ManArgs};

/// Writes a page for the command and one for each subcommand, those of subcommands included.
pub(crate) fn run(args: &ManArgs) -> Result<()> {
    fs::create_dir_all(&args.dir).with_context(|| args.dir.display().to_string())?;
    let mut command = Cli::command();
    // Hands options of all subcommands down to them.
    command.build();
    pages(command, &args.dir)
}

fn pages(command: clap::Command, dir: &Path) -> Result<()> {
    for sub in command.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        let name = format!("{}-{}", command.get_name(), sub.get_name());
        // The name must live as long as the program, which ends here.
        let leaked: &'static str = name.leak();
        pages(sub.clone().name(leaked), dir)?;
    }
    let path = dir.join(format!("{}.1", command.get_name()));
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    fs::write(&path, page).with_context(|| path.display().to_string())
}
