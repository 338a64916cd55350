//! The place where mounts of this host come for descriptors: a socket, and a thread for each of them.
//! `docs/design/same-host.md` says what is spoken there.

mod place;
mod table;
mod talk;

use std::fmt;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use holdfast_base::limits::SAME_HOST_PEERS_MAX;
use holdfast_base::{ClientId, Entropy, SystemEntropy};
use holdfast_caps::Neighbours;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use place::Place;
use table::{Secret, Table, Visit};

/// The socket, open for as long as this lives.
pub(crate) struct Neighbourhood {
    shared: Arc<Shared>,
    listener: Arc<UnixListener>,
    place: Place,
}

/// What its threads have.
struct Shared {
    table: Mutex<Table<OwnedFd>>,
    /// To end visits by.
    streams: Mutex<FxHashMap<Visit, UnixStream>>,
    entropy: Mutex<SystemEntropy>,
    /// Connections, and those among them that have not said who they are.
    peers: AtomicUsize,
    strangers: AtomicUsize,
}

impl Neighbourhood {
    /// Opens the socket of the server that keeps its state there.
    ///
    /// # Errors
    /// Where it cannot be.
    pub(crate) fn open(state_dir: &Path) -> io::Result<Arc<Self>> {
        let (place, listener) = Place::of_state(state_dir)?.bind()?;
        let shared = Arc::new(Shared {
            table: Mutex::default(),
            streams: Mutex::default(),
            entropy: Mutex::new(SystemEntropy::new()?),
            peers: AtomicUsize::new(0),
            strangers: AtomicUsize::new(0),
        });
        let listener = Arc::new(listener);
        let (open, at) = (Arc::clone(&shared), Arc::clone(&listener));
        thread::Builder::new().name("same-host".into()).spawn(move || welcome(&open, &at))?;
        Ok(Arc::new(Self { shared, listener, place }))
    }
}

/// Takes connections until the socket is shut.
fn welcome(shared: &Arc<Shared>, listener: &UnixListener) {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                let Some(seat) = Seat::taken(shared) else { continue };
                let visitor = Arc::clone(shared);
                let talk = move || talk::with(&visitor, &stream, seat);
                if let Err(error) = thread::Builder::new().name("neighbour".into()).spawn(talk) {
                    tracing::warn!(%error, "a mount of this host is not served descriptors");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return,
            Err(error) => {
                // Out of descriptors, most likely: others may close theirs.
                tracing::warn!(%error, "connections of this host");
                thread::sleep(std::time::Duration::from_millis(100));
            }
        }
    }
}

/// A connection's place among those that may be.
struct Seat {
    shared: Arc<Shared>,
    is_stranger: bool,
}

impl Seat {
    fn taken(shared: &Arc<Shared>) -> Option<Self> {
        let peers = shared.peers.fetch_add(1, Ordering::Relaxed);
        let strangers = shared.strangers.fetch_add(1, Ordering::Relaxed);
        // Dropped, it is given back.
        let seat = Self { shared: Arc::clone(shared), is_stranger: true };
        let has_room =
            peers < SAME_HOST_PEERS_MAX && strangers < holdfast_base::limits::SAME_HOST_STRANGERS_MAX;
        has_room.then_some(seat)
    }

    fn known(&mut self) {
        if std::mem::take(&mut self.is_stranger) {
            self.shared.strangers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.known();
        self.shared.peers.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Shared {
    fn secret(&self) -> Secret {
        let mut secret = [0; 16];
        self.entropy.lock().fill(&mut secret);
        secret
    }

    fn come(&self, nonce: &Secret, stream: &UnixStream) -> Option<Visit> {
        let stream = stream.try_clone().ok()?;
        // Before it can be forgotten: then it is found.
        let mut streams = self.streams.lock();
        let visit = self.table.lock().come(nonce, Instant::now())?;
        streams.insert(visit, stream);
        Some(visit)
    }

    fn go(&self, visit: Visit) {
        self.streams.lock().remove(&visit);
        self.table.lock().go(visit);
    }

    fn end(&self, visits: &[Visit]) {
        let mut streams = self.streams.lock();
        for stream in visits.iter().filter_map(|visit| streams.remove(visit)) {
            // It may be gone already.
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

impl Neighbours for Neighbourhood {
    fn path(&self) -> &[u8] {
        self.place.path().as_os_str().as_bytes()
    }

    fn invite(&self, client: ClientId) -> Option<[u8; 16]> {
        let nonce = self.shared.secret();
        self.shared.table.lock().invite(client, nonce, Instant::now()).then_some(nonce)
    }

    fn is_here(&self, client: ClientId) -> bool {
        self.shared.table.lock().is_here(client)
    }

    fn keep(&self, client: ClientId, descriptor: OwnedFd) -> Option<[u8; 16]> {
        let token = self.shared.secret();
        let kept = self.shared.table.lock().keep(client, token, descriptor, Instant::now());
        // Closed, where it was not, after the lock.
        kept.is_ok().then_some(token)
    }

    fn forget(&self, client: ClientId) {
        let visits = self.shared.table.lock().forget(client);
        self.shared.end(&visits);
    }

    fn tidy(&self) {
        self.shared.table.lock().tidy(Instant::now());
    }
}

impl Drop for Neighbourhood {
    fn drop(&mut self) {
        // Nobody can be told that it did not go.
        let _ = rustix::net::shutdown(&*self.listener, rustix::net::Shutdown::Both);
        for (_, stream) in self.shared.streams.lock().drain() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.place.leave();
    }
}

impl fmt::Debug for Neighbourhood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Neighbourhood").field("path", &self.place.path()).finish_non_exhaustive()
    }
}
