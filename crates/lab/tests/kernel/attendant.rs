//! Does on the server what a suite asks to have done there: kills it and starts it again, and changes files as a local
//! process would.

use anyhow::{Context, Result, bail};
use holdfast_lab::ServerUnderTest;
use holdfast_lab::scratch::Scratch;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The suite looks for the callback as soon as it is told that a change is done; of a local process's change of a name
/// or of attributes the server hears afterwards (`docs/design/coherence.md`).
const TIME_TO_HEAR: Duration = Duration::from_secs(2);

/// How long the suite's helper may take to say what it wants.
const ASKING: Duration = Duration::from_secs(30);

/// Whoever a suite's helper asks, over a socket of its own.
pub(crate) struct Attendant {
    listener: UnixListener,
    scratch: Scratch,
    restarts: u32,
}

impl Attendant {
    pub(crate) fn new() -> Result<Self> {
        let scratch = Scratch::new("attendant")?;
        let listener = UnixListener::bind(scratch.path().join("socket"))?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, scratch, restarts: 0 })
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.scratch.path().join("socket")
    }

    /// How often the server was killed and started again.
    pub(crate) const fn restarts(&self) -> u32 {
        self.restarts
    }

    /// Does what was asked since the last time.
    ///
    /// Errors when that cannot be done, which is then not the server's fault.
    pub(crate) fn attend(&mut self, server: &mut ServerUnderTest) -> Result<()> {
        loop {
            match self.listener.accept() {
                Ok((asking, _)) => self.serve(asking, server)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn serve(&mut self, mut asking: UnixStream, server: &mut ServerUnderTest) -> Result<()> {
        asking.set_nonblocking(false)?;
        asking.set_read_timeout(Some(ASKING))?;
        let mut line = String::new();
        BufReader::new(&asking).read_line(&mut line)?;
        let words: Vec<_> = line.split_whitespace().collect();
        if words.as_slice() == ["reboot"] {
            server.kill()?;
            server.restart()?;
            self.restarts += 1;
        } else {
            change(server, &words).with_context(|| format!("the suite asks for {line:?}"))?;
            std::thread::sleep(TIME_TO_HEAR);
        }
        // Whoever asked may have been killed since.
        let _ = asking.write_all(b"+");
        Ok(())
    }
}

fn change(server: &ServerUnderTest, words: &[&str]) -> Result<()> {
    let local = |path: &str| local(server, path);
    match words {
        ["unlink", path] => std::fs::remove_file(local(path)?)?,
        ["rename", from, to] => std::fs::rename(local(from)?, local(to)?)?,
        ["link", of, at] => std::fs::hard_link(local(of)?, local(at)?)?,
        ["chmod", mode, path] => {
            let mode = u32::from_str_radix(mode, 8)?;
            std::fs::set_permissions(local(path)?, std::fs::Permissions::from_mode(mode))?;
        }
        _ => bail!("nobody knows how to do that"),
    }
    Ok(())
}

/// A path that clients know, in the directory that is served.
fn local(server: &ServerUnderTest, path: &str) -> Result<PathBuf> {
    let within = Path::new(path).strip_prefix(server.export())?;
    Ok(server.directory().join(within))
}
