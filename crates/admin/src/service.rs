//! The service behind the socket. Its threads are its own: it answers also when every worker of the server hangs,
//! which is when it is needed most.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use holdfast_base::limits::{ADMIN_CONNECTIONS_MAX, ADMIN_IDLE_SECONDS, ADMIN_REQUEST_BYTES_MAX};
use serde::Serialize;
use serde_json::Value;

use crate::report::{Client, Counters, Holding, LogLevels, Page, Reloaded, Status, Taken, Upgrading};
use crate::request::{
    Answer, ClientsWanted, Code, LocksWanted, Outcome, Refusal, Request, VERSION, Which, decode,
};
use crate::socket::Bound;

/// A server, as its administrator sees it. Every method may wait, and is called from threads of the service.
pub trait Administered: Send + Sync {
    /// How it is.
    fn status(&self) -> Status;

    /// Its clients, in pages of at most [`holdfast_base::limits::ADMIN_ROWS_MAX`].
    ///
    /// # Errors
    /// [`Code::BadRequest`] for an `after` that no page gave.
    fn clients(&self, wanted: &ClientsWanted) -> Result<Page<Client>, Refusal>;

    /// Who holds what, in pages as above.
    ///
    /// # Errors
    /// [`Code::BadRequest`] likewise; [`Code::NotFound`] for an export that does not exist.
    fn locks(&self, wanted: &LocksWanted) -> Result<Page<Holding>, Refusal>;

    /// Takes everything from the clients named so, by id, name or address: a host may be several clients.
    ///
    /// # Errors
    /// [`Code::NotFound`].
    fn revoke(&self, client: &str) -> Result<Taken, Refusal>;

    /// Takes what is chosen.
    ///
    /// # Errors
    /// [`Code::NotFound`] when nothing is; [`Code::BadRequest`] when nothing is said.
    fn release(&self, which: &Which) -> Result<Taken, Refusal>;

    /// Reads the configuration again.
    ///
    /// # Errors
    /// [`Code::NotPossible`] without a configuration file; [`Code::Failed`] when it is wrong.
    fn reload(&self) -> Result<Reloaded, Refusal>;

    /// Begins to hand over to the program that is installed now, and returns before it does.
    ///
    /// # Errors
    /// [`Code::NotPossible`]; [`Code::Failed`].
    fn upgrade(&self) -> Result<Upgrading, Refusal>;

    /// Drops what can be read again from caches.
    fn drop_caches(&self);

    /// Ends the grace period. Waits until it is on record who may not reclaim any more.
    ///
    /// # Errors
    /// [`Code::NotFound`] when there is none; [`Code::Failed`] when that cannot be recorded, which goes on being tried.
    fn end_grace(&self) -> Result<(), Refusal>;

    /// Tells what is logged, after setting it when `levels` are given.
    ///
    /// # Errors
    /// [`Code::BadRequest`] for levels that make no sense; [`Code::NotPossible`].
    fn log(&self, levels: Option<&str>) -> Result<LogLevels, Refusal>;

    /// What was done.
    fn counters(&self) -> Counters;

    /// Metrics as Prometheus reads them.
    fn metrics(&self) -> String;
}

/// The service of one state directory. Ends when dropped; connections end with their next request.
#[derive(Debug)]
pub struct Service {
    bound: Bound,
}

struct Shared {
    server: Weak<dyn Administered>,
    connections: AtomicUsize,
}

impl Service {
    /// Answers at the socket of a state directory, on behalf of a server, for as long as that lives.
    ///
    /// # Errors
    /// When the socket cannot be made: the message names it.
    pub fn start(state_dir: &Path, server: Weak<dyn Administered>) -> io::Result<Self> {
        let bound = Bound::new(state_dir)?;
        let listener = bound.listener.try_clone()?;
        let shared = Arc::new(Shared { server, connections: AtomicUsize::new(0) });
        thread::Builder::new().name("admin".into()).spawn(move || accept(&listener, &shared))?;
        Ok(Self { bound })
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Wakes the thread that accepts.
        let _ = rustix::net::shutdown(&self.bound.listener, rustix::net::Shutdown::Both);
    }
}

fn accept(listener: &UnixListener, shared: &Arc<Shared>) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => admit(stream, shared),
            // The service has ended.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => return,
            Err(error) => {
                tracing::debug!(%error, "admin socket");
                thread::sleep(Duration::from_millis(100));
            }
        }
        if shared.server.strong_count() == 0 {
            return;
        }
    }
}

fn admit(stream: UnixStream, shared: &Arc<Shared>) {
    if !is_trusted(&stream) {
        tracing::warn!("somebody who is neither root nor the server's user asked at the admin socket");
        return;
    }
    let patience = Some(Duration::from_secs(ADMIN_IDLE_SECONDS));
    if stream.set_read_timeout(patience).is_err() || stream.set_write_timeout(patience).is_err() {
        return;
    }
    let place = Place::take(shared);
    if place.is_last {
        let refusal = Refusal::new(Code::Busy, "too many ask at once; try again");
        // It may have gone already.
        let _ = put(&mut &stream, Outcome::Error(refusal));
        return;
    }
    let converse = move || {
        if let Err(error) = converse(&stream, &place.of) {
            tracing::debug!(%error, "a connection to the admin socket ended");
        }
    };
    if let Err(error) = thread::Builder::new().name("admin".into()).spawn(converse) {
        tracing::warn!(%error, "cannot answer at the admin socket");
    }
}

/// Only root and the server's own user may ask, whatever the permissions of the socket came to be.
fn is_trusted(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid();
    rustix::net::sockopt::socket_peercred(stream).is_ok_and(|peer| peer.uid.is_root() || peer.uid == own)
}

/// One of the connections there may be.
struct Place {
    of: Arc<Shared>,
    is_last: bool,
}

impl Place {
    fn take(shared: &Arc<Shared>) -> Self {
        let before = shared.connections.fetch_add(1, Ordering::Relaxed);
        Self { of: Arc::clone(shared), is_last: before >= ADMIN_CONNECTIONS_MAX }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn converse(stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    let mut lines = BufReader::new(stream);
    let mut line = Vec::new();
    loop {
        line.clear();
        let bound = ADMIN_REQUEST_BYTES_MAX as u64;
        if lines.by_ref().take(bound).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.len() == ADMIN_REQUEST_BYTES_MAX && !line.ends_with(b"\n") {
            let refusal = Refusal::new(Code::BadRequest, format!("longer than {bound} bytes"));
            return put(&mut &*stream, Outcome::Error(refusal));
        }
        // Nothing left of it: the server has ended.
        let Some(server) = shared.server.upgrade() else { return Ok(()) };
        put(&mut &*stream, answer(server.as_ref(), &line))?;
    }
}

/// What comes of one line.
fn answer(server: &dyn Administered, line: &[u8]) -> Outcome {
    match decode(line).and_then(|request| run(server, request)) {
        Ok(value) => Outcome::Ok(value),
        Err(refusal) => Outcome::Error(refusal),
    }
}

fn run(server: &dyn Administered, request: Request) -> Result<Value, Refusal> {
    match request {
        Request::Status => value(server.status()),
        Request::Clients(wanted) => value(server.clients(&wanted)?),
        Request::Locks(wanted) => value(server.locks(&wanted)?),
        Request::Revoke { client } => value(server.revoke(&client)?),
        Request::Release(which) => value(server.release(&which)?),
        Request::Reload => value(server.reload()?),
        Request::Upgrade => value(server.upgrade()?),
        Request::DropCaches => {
            server.drop_caches();
            Ok(Value::Null)
        }
        Request::EndGrace => value(server.end_grace()?),
        Request::Log { levels } => value(server.log(levels.as_deref())?),
        Request::Counters => value(server.counters()),
        Request::Metrics => Ok(Value::String(server.metrics())),
    }
}

fn value(answer: impl Serialize) -> Result<Value, Refusal> {
    serde_json::to_value(answer).map_err(|e| Refusal::new(Code::Failed, e.to_string()))
}

fn put(stream: &mut &UnixStream, outcome: Outcome) -> io::Result<()> {
    let mut line = serde_json::to_vec(&Answer { version: VERSION, outcome })?;
    line.push(b'\n');
    stream.write_all(&line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_of_this_user_is_trusted() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert!(is_trusted(&ours));
    }

    #[test]
    fn somebody_who_is_neither_root_nor_the_servers_user_is_not_trusted() {
        if !rustix::process::geteuid().is_root() {
            // Without root nobody else can be played: the rule is then shown by what it reads.
            let (ours, _theirs) = UnixStream::pair().unwrap();
            let peer = rustix::net::sockopt::socket_peercred(&ours).unwrap();
            assert_eq!(peer.uid, rustix::process::geteuid());
            return;
        }
        // Of a thread alone: the kernel keeps credentials by thread.
        let pair = thread::spawn(|| {
            let nobody = rustix::process::Uid::from_raw(65_534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            UnixStream::pair().unwrap()
        });
        let (ours, _theirs) = pair.join().unwrap();
        assert!(!is_trusted(&ours));
    }
}
