//! In the guest: makes the volume, and starts and stops servers as it is told.

use super::orders::{Order, outcome_line};
use super::server::Knfsd;
use super::{Side, Start};
use crate::rival::Server;
use crate::volume::{FsKind, Volume};
use anyhow::{Context, Result};
use std::fs;
use std::hint::black_box;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddrV4, TcpListener};
use std::path::Path;

/// What the agent takes.
#[derive(Debug, clap::Args)]
pub(crate) struct AgentArguments {
    /// Where it listens for orders; servers listen on the same address
    #[arg(long)]
    listen: SocketAddrV4,
    /// The file system below
    #[arg(long, value_enum)]
    fs: FsKind,
    /// Entries of the directory that is listed
    #[arg(long)]
    entries: usize,
}

/// A server that was started; it ends when dropped.
#[derive(Debug)]
enum Running {
    Knfsd { _server: Knfsd },
    Program { _server: Server },
}

/// Carries out orders until the host hangs up.
///
/// Errors when the volume cannot be made, or the address not be had.
pub(crate) fn run(arguments: &AgentArguments) -> Result<()> {
    let scratch = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    let volume = Volume::new(arguments.fs, scratch.path(), arguments.entries)?;
    let listener = TcpListener::bind(arguments.listen)?;
    println!("listening");
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    stream.write_all(&fs::read("/proc/sys/kernel/osrelease")?)?;
    let mut running = None;
    for (number, line) in BufReader::new(stream.try_clone()?).lines().enumerate() {
        let own = scratch.path().join(format!("turn-{number}"));
        let outcome = Order::parse(&line?).and_then(|order| {
            // The one before first: it has the ports.
            drop(running.take());
            match order {
                Order::Stop => {}
                Order::Calls(count) => {
                    for _ in 0..count {
                        black_box(rustix::process::getppid());
                    }
                }
                Order::Start(side, folders) => {
                    fs::create_dir(&own)?;
                    volume.begin_turn(folders)?;
                    running = Some(start(side, &volume, &own, arguments.listen)?);
                }
            }
            Ok(())
        });
        stream.write_all(outcome_line(&outcome).as_bytes())?;
    }
    drop(running);
    Ok(())
}

fn start(side: Side, volume: &Volume, scratch: &Path, listen: SocketAddrV4) -> Result<Running> {
    let host = *listen.ip();
    Ok(match side.start() {
        Start::Knfsd { sync } => {
            Running::Knfsd { _server: Knfsd::start(volume, sync, side.ports(host)).context("knfsd")? }
        }
        Start::Program(contender) => {
            Running::Program { _server: contender.start_on(host, &volume.export(), scratch)? }
        }
        Start::Echo => Running::Program { _server: Server::start_echo_on(host, scratch)? },
    })
}
