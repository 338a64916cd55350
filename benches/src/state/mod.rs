//! What state costs those who wait for it: how long an open waits for the recall of a delegation, and how long clients
//! wait for a server that is started again, planned or killed. Nobody else publishes these, so there is no rival.

mod client;

use crate::client::call::connect;
use crate::rival::{Contender, Server};
use crate::volume::{FsKind, SMALL_FILES, Volume, small_name};
use anyhow::{Context, Result, ensure};
use client::Client;
use holdfast_wire::nfs4::{OPEN4_SHARE_ACCESS_BOTH, OPEN4_SHARE_ACCESS_READ};
use std::io::{Read, Write};
use std::net::{SocketAddrV4, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long after the last answer a server is asked to start again.
const CALM: Duration = Duration::from_millis(500);
/// No restart takes longer, unless it failed.
const RESTART_PATIENCE: Duration = Duration::from_secs(30);
/// How soon a client that was refused tries again.
const REFUSED: Duration = Duration::from_millis(1);

/// Measures and prints.
///
/// Errors when a server cannot be started, or does not do what it should.
pub(crate) fn run(restarts: usize, scratch: &Path) -> Result<()> {
    let volume = Volume::new(FsKind::Xfs, scratch, 0)?;
    let at = scratch.join("state-bench");
    std::fs::create_dir(&at)?;
    let export = volume.export();
    let mut server = Contender::HoldfastAsync.start(&export, &at)?;
    recalls(server.ports.nfs)?;
    let planned = (0..restarts).map(|_| planned(&server)).collect::<Result<Vec<_>>>()?;
    print("planned restart: the longest wait of a client with a call a millisecond", planned, "ms");
    let mut killed = Vec::new();
    for _ in 0..restarts {
        let mut beat = Heart::new(server.ports.nfs)?;
        std::thread::sleep(CALM);
        let started = Instant::now();
        server.kill();
        server = Contender::HoldfastAsync.start_again(&export, &at)?;
        beat.until_answered()?;
        killed.push(started.elapsed());
    }
    print("SIGKILL and start: from the signal to the first answer", killed, "ms");
    drop(server);
    drop(volume);
    Ok(())
}

/// One client holds delegations of all small files; another opens them for writing, one after the other.
fn recalls(server: SocketAddrV4) -> Result<()> {
    let mut holder = Client::connect(server, "holder")?;
    let mut delegated = 0;
    for number in 0..SMALL_FILES {
        delegated += usize::from(holder.open(&small_name(number), OPEN4_SHARE_ACCESS_READ)?.0);
    }
    ensure!(delegated > SMALL_FILES / 2, "{delegated} of {SMALL_FILES} files were delegated");
    // It ends with its connection, that is with the server.
    std::thread::spawn(move || holder.give_back());
    let mut other = Client::connect(server, "other")?;
    let mut took = Vec::new();
    let mut put_off = 0;
    for number in 0..SMALL_FILES {
        let started = Instant::now();
        put_off +=
            other.open(&small_name(number), OPEN4_SHARE_ACCESS_BOTH).context("an open that recalls")?.1;
        took.push(started.elapsed());
    }
    print(&format!("open that recalls a delegation ({delegated} held, put off {put_off} times)"), took, "us");
    Ok(())
}

/// The program is put in its own place while a client calls.
fn planned(server: &Server) -> Result<Duration> {
    let mut beat = Heart::new(server.ports.nfs)?;
    let mut longest = Duration::ZERO;
    let began = Instant::now();
    let mut asked = false;
    while began.elapsed() < CALM * 4 {
        if !asked && began.elapsed() > CALM {
            server.upgrade()?;
            asked = true;
        }
        longest = longest.max(beat.once().context("a connection that a planned restart should have kept")?);
        std::thread::sleep(REFUSED);
    }
    Ok(longest)
}

/// A client that asks for nothing but an answer: NULL of NFSv3.
struct Heart {
    server: SocketAddrV4,
    stream: TcpStream,
}

impl Heart {
    fn new(server: SocketAddrV4) -> Result<Self> {
        Ok(Self { server, stream: connect(server)? })
    }

    fn once(&mut self) -> Result<Duration> {
        let words = [0x8000_0028_u32, 7, 0, 2, 100_003, 3, 0, 0, 0, 0, 0];
        let call: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let started = Instant::now();
        self.stream.write_all(&call)?;
        self.stream.read_exact(&mut [0; 28])?;
        Ok(started.elapsed())
    }

    /// Connects anew as often as it takes.
    fn until_answered(&mut self) -> Result<()> {
        let deadline = Instant::now() + RESTART_PATIENCE;
        while self.once().is_err() {
            ensure!(Instant::now() < deadline, "no answer after {RESTART_PATIENCE:?}");
            match connect(self.server) {
                Ok(stream) => self.stream = stream,
                Err(_) => std::thread::sleep(REFUSED),
            }
        }
        Ok(())
    }
}

fn print(what: &str, mut took: Vec<Duration>, unit: &str) {
    took.sort_unstable();
    let at = |part: f64| took[((took.len() - 1) as f64 * part) as usize];
    let shown = |time: Duration| match unit {
        "us" => format!("{:.0} us", time.as_secs_f64() * 1e6),
        _ => format!("{:.1} ms", time.as_secs_f64() * 1e3),
    };
    println!("{what}: median {}, 99th percentile {}, of {}", shown(at(0.5)), shown(at(0.99)), took.len());
}
