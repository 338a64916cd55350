//! The `holdfast` command.
#![forbid(unsafe_code)]

mod check;
mod cli;
mod man;
mod serve;

use std::io::IsTerminal as _;
use std::process::ExitCode;

use clap::Parser;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    start_log(&cli.log);
    let outcome = match cli.command {
        cli::Command::Serve(args) => serve::run(*args),
        cli::Command::Check(args) => check::run(&args),
        cli::Command::Man(args) => man::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("holdfast: {e:#}");
            ExitCode::FAILURE
        }
    }
}

/// Logs go to standard error, so that standard output has only what was asked for.
fn start_log(levels: &str) {
    let filter = EnvFilter::try_new(levels).unwrap_or_else(|_| EnvFilter::new("info"));
    let to_terminal = std::io::stderr().is_terminal();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(to_terminal)
        .with_target(false)
        .init();
}
