//! The commands that ask a running server, over the socket in its state directory.

pub(crate) mod args;
mod clients;
mod locks;
mod reload;
mod status;
mod table;
mod top;

use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use holdfast_admin::report::LogLevels;
use holdfast_admin::request::{Code, Request};
use holdfast_admin::{AdminClient, AskError};
use serde::Serialize;

use args::{
    Asking, ClientsArgs, DropCachesArgs, GraceArgs, GraceCommand, LocksArgs, LogArgs, ReloadArgs, StatusArgs,
    TopArgs,
};

/// No server runs with the state directory.
const NO_SERVER: u8 = 3;

/// Nothing is meant by the arguments.
const NOT_FOUND: u8 = 4;

/// A command that asks a running server.
pub(crate) enum Asked {
    Status(StatusArgs),
    Top(TopArgs),
    Clients(ClientsArgs),
    Locks(LocksArgs),
    Reload(ReloadArgs),
    Log(LogArgs),
    DropCaches(DropCachesArgs),
    Grace(GraceArgs),
}

/// Asks, and shows the answer.
pub(crate) fn run(asked: &Asked) -> Result<()> {
    match asked {
        Asked::Status(args) => status::run(args),
        Asked::Top(args) => top::run(args),
        Asked::Clients(args) => clients::run(args),
        Asked::Locks(args) => locks::run(args),
        Asked::Reload(args) => reload::run(args),
        Asked::Log(args) => {
            let request = Request::Log { levels: args.levels.clone() };
            let answer: LogLevels = args.asking.connect()?.ask(request)?;
            args.asking.show(&answer, |answer| format!("{}\n", answer.levels))
        }
        Asked::Grace(GraceArgs { asking, command: GraceCommand::End }) => {
            Ok(asking.connect()?.ask::<()>(Request::EndGrace)?)
        }
        Asked::DropCaches(args) => Ok(args.asking.connect()?.ask::<()>(Request::DropCaches)?),
    }
}

/// The exit code that an error ends the program with.
pub(crate) fn exit_code(error: &anyhow::Error) -> ExitCode {
    match error.downcast_ref::<AskError>() {
        Some(AskError::NoServer(_)) => NO_SERVER.into(),
        Some(AskError::Refused(refusal)) if refusal.code == Code::NotFound => NOT_FOUND.into(),
        _ => ExitCode::FAILURE,
    }
}

impl Asking {
    fn dir(&self) -> Result<PathBuf> {
        match &self.state_dir {
            Some(dir) => Ok(dir.clone()),
            None => holdfast_server::default_state_dir(),
        }
    }

    fn connect(&self) -> Result<AdminClient> {
        Ok(AdminClient::connect(&self.dir()?)?)
    }

    /// Prints an answer: as JSON when that was asked for, else as `people` has it.
    fn show<T: Serialize, D: Display>(&self, answer: &T, people: impl FnOnce(&T) -> D) -> Result<()> {
        if self.json {
            print(&format_args!("{}\n", serde_json::to_string_pretty(answer)?))
        } else {
            print(&people(answer))
        }
    }
}

/// Prints. A reader that has had enough (`| head`) is no error.
fn print(text: &dyn Display) -> Result<()> {
    let mut out = io::stdout().lock();
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests;
