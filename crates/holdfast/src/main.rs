//! The `holdfast` command.
#![forbid(unsafe_code)]

mod admin;
mod check;
mod cli;
mod man;
mod mount;
mod serve;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use admin::Asked;
use clap::Parser;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    let as_helper = mount::helper::translated(&arguments, rustix::process::geteuid().is_root());
    let is_helper = as_helper.is_some();
    let cli = cli::Cli::parse_from(as_helper.unwrap_or(arguments));
    start_log(&cli.log);
    let outcome = match cli.command {
        cli::Command::Serve(args) => serve::run(*args),
        cli::Command::Mount(args) => mount::run(&args),
        cli::Command::Umount(args) => mount::unmount(&args),
        cli::Command::Check(args) => check::run(&args),
        cli::Command::Man(args) => man::run(&args),
        cli::Command::Status(args) => admin::run(&Asked::Status(args)),
        cli::Command::Top(args) => admin::run(&Asked::Top(args)),
        cli::Command::Clients(args) => admin::run(&Asked::Clients(args)),
        cli::Command::Locks(args) => admin::run(&Asked::Locks(args)),
        cli::Command::Reload(args) => admin::run(&Asked::Reload(args)),
        cli::Command::Log(args) => admin::run(&Asked::Log(args)),
        cli::Command::Grace(args) => admin::run(&Asked::Grace(args)),
        cli::Command::DropCaches(args) => admin::run(&Asked::DropCaches(args)),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("holdfast: {e:#}");
            if is_helper {
                return mount::helper::MOUNT_FAILURE.into();
            }
            admin::exit_code(&e)
        }
    }
}

/// Logs go to standard error, so that standard output has only what was asked for. A server's levels can be changed
/// while it serves (`holdfast log`).
fn start_log(levels: &str) {
    let filter = EnvFilter::new(levels);
    let to_terminal = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(to_terminal)
        .with_target(false)
        .with_filter_reloading();
    let handle = log.reload_handle();
    log.init();
    holdfast_server::control_log_by(Box::new(move |levels| {
        if let Some(levels) = levels {
            let filter = levels_from(levels)?;
            handle.reload(filter).map_err(|e| e.to_string())?;
        }
        handle.with_current(ToString::to_string).map_err(|e| e.to_string())
    }));
}

/// Levels as the command line and the environment give them.
fn checked_levels(levels: &str) -> Result<String, String> {
    levels_from(levels).map(|_| levels.to_owned())
}

/// A filter of these levels. A word alone must be a level: taken as the name of a part, as the filter would, a misspelt
/// level would silence all others.
fn levels_from(levels: &str) -> Result<EnvFilter, String> {
    let is_level = |word: &str| word.parse::<tracing::metadata::LevelFilter>().is_ok();
    let is_clear = |part: &str| part.contains('=') || is_level(part.trim());
    if let Some(part) = levels.split(',').find(|part| !is_clear(part)) {
        return Err(format!("{part:?} is no level: write error, warn, info, debug or trace, or PART=LEVEL"));
    }
    EnvFilter::try_new(levels).map_err(|e| format!("{levels:?} are no levels: {e}"))
}
