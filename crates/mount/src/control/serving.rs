//! The mount's side: a thread for each of a few connections.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use holdfast_base::limits::{CONTROL_CONNECTIONS_MAX, CONTROL_REQUEST_BYTES_MAX};
use serde_json::Value;

use super::socket::Place;
use super::{Answer, ConflictLine, Identity, Progress, Request, ServerLine};

/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_millis(200);

/// How long a connection may be silent, or leave an answer lying.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a mount can be asked and told.
pub trait Controlled: Send + Sync + 'static {
    /// Who this is.
    fn identity(&self) -> Identity;
    /// The statistics, as JSON.
    fn stats(&self) -> Value;
    /// What has still to be sent.
    fn progress(&self) -> Progress;
    /// Sends everything and waits until it is stable.
    ///
    /// # Errors
    /// What could not be done since the last time, as sentences: which files, and why.
    fn sync(&self) -> Result<(), String>;
    /// Gives up what was not sent, and fails everything that waits.
    fn abandon(&self) -> Progress;
    /// What was changed on both sides while the server was away.
    fn conflicts(&self) -> Vec<ConflictLine>;
    /// The servers, in order.
    fn servers(&self) -> Vec<ServerLine>;
    /// One more server.
    ///
    /// # Errors
    /// A sentence.
    fn add_server(&self, name: &str) -> Result<(), String>;
    /// One server less.
    ///
    /// # Errors
    /// A sentence.
    fn remove_server(&self, name: &str) -> Result<(), String>;
}

/// The socket, answered. Gone when dropped.
#[derive(Debug)]
pub struct Endpoint {
    place: Place,
    listener: UnixListener,
}

impl Endpoint {
    /// Answers at a place for as long as the mount lives.
    ///
    /// # Errors
    /// When the socket cannot be made.
    pub fn start(place: Place, mount: Weak<dyn Controlled>) -> io::Result<Self> {
        let listener = place.bind()?;
        let accepting = listener.try_clone()?;
        thread::Builder::new().name("control".into()).spawn(move || accept(&accepting, &mount))?;
        Ok(Self { place, listener })
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.place.path());
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn accept(listener: &UnixListener, mount: &Weak<dyn Controlled>) {
    let open = Arc::new(AtomicUsize::new(0));
    loop {
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            Err(error) => {
                tracing::debug!(%error, "control socket");
                thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if open.fetch_add(1, Ordering::Relaxed) >= CONTROL_CONNECTIONS_MAX {
            open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let (mount, still_open) = (mount.clone(), Arc::clone(&open));
        let serving = thread::Builder::new().name("control".into()).spawn(move || {
            if let Err(error) = serve(&stream, &mount) {
                tracing::debug!(%error, "control connection");
            }
            still_open.fetch_sub(1, Ordering::Relaxed);
        });
        if serving.is_err() {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

fn serve(stream: &UnixStream, mount: &Weak<dyn Controlled>) -> io::Result<()> {
    if !is_allowed(stream)? {
        return say(stream, &Answer::Error("ask as root or as the user who mounted".into()));
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        let most = CONTROL_REQUEST_BYTES_MAX as u64;
        if lines.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        let Some(mount) = mount.upgrade() else { return Ok(()) };
        match serde_json::from_slice(&line) {
            Ok(request) => answer(stream, &mount, request)?,
            Err(error) => say(stream, &Answer::Error(format!("not understood: {error}")))?,
        }
    }
}

/// The directory is private already; a socket passed on, or a directory made wider by hand, is not to be enough.
fn is_allowed(stream: &UnixStream) -> io::Result<bool> {
    let peer = rustix::net::sockopt::socket_peercred(stream)?;
    Ok(peer.uid.is_root() || peer.uid == rustix::process::geteuid())
}

fn answer(stream: &UnixStream, mount: &Arc<dyn Controlled>, request: Request) -> io::Result<()> {
    let done = match request {
        Request::Identity => shown(&mount.identity()),
        Request::Stats => Ok(mount.stats()),
        Request::Sync | Request::Drain => return sync_with_progress(stream, mount),
        Request::Abandon => shown(&mount.abandon()),
        Request::Servers => shown(&mount.servers()),
        Request::AddServer { server } => mount.add_server(&server).map(|()| Value::Null),
        Request::RemoveServer { server } => mount.remove_server(&server).map(|()| Value::Null),
        Request::Conflicts => shown(&mount.conflicts()),
    };
    say(stream, &done.map_or_else(Answer::Error, Answer::Ok))
}

fn shown<T: serde::Serialize>(value: &T) -> Result<Value, String> {
    serde_json::to_value(value).map_err(|e| e.to_string())
}

fn sync_with_progress(stream: &UnixStream, mount: &Arc<dyn Controlled>) -> io::Result<()> {
    let (done, is_done) = mpsc::channel();
    let syncing = Arc::clone(mount);
    thread::Builder::new().name("sync".into()).spawn(move || {
        // Nobody listens any more when the asker has gone: it was done all the same.
        let _ = done.send(syncing.sync());
    })?;
    loop {
        match is_done.recv_timeout(PROGRESS_EVERY) {
            Ok(Ok(())) => return say(stream, &Answer::Ok(Value::Null)),
            Ok(Err(message)) => return say(stream, &Answer::Error(message)),
            Err(RecvTimeoutError::Disconnected) => {
                return say(stream, &Answer::Error("the thread that synced ended early".into()));
            }
            Err(RecvTimeoutError::Timeout) => say(stream, &Answer::Progress(mount.progress()))?,
        }
    }
}

fn say(mut stream: &UnixStream, answer: &Answer) -> io::Result<()> {
    let mut line = serde_json::to_vec(answer)?;
    line.push(b'\n');
    stream.write_all(&line)
}
