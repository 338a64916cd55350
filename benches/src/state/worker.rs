//! The client whose standing still is measured: our own of 4.2, with a file open and locked, which makes and removes a
//! name and writes under its lock, one after the other, and has back what a restart takes before it goes on.

use crate::volume::EXPORT_NAME;
use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use holdfast_base::ByteRange;
use holdfast_client::{
    Attributes, Callbacks, Cancel, Client, Create, CreateKind, CreateMode, Cred, Cx, Event, Handle,
    HeldAttributes, Io, LockArgs, OpenArgs, OpenFile, OpenTarget, Options, Recall, SetAttributes,
    WantDelegation, Whose,
};
use holdfast_wire::nfs4::{OPEN4_SHARE_ACCESS_BOTH, StableHow4};
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The file that it holds.
const HELD: &[u8] = b"held";
const LOCK_OWNER: &[u8] = b"worker";
/// Bytes of one write.
const WRITTEN: &[u8] = &[0x5a; 4096];
/// Between two looks at how far it came.
const LOOK: Duration = Duration::from_millis(5);

/// It works on a thread of its own.
pub(super) struct Worker {
    heard: Arc<Heard>,
    thread: JoinHandle<Result<Duration>>,
}

/// How a worker fared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    /// The longest time between two operations done.
    pub(super) stall: Duration,
    /// How often it had to connect, the first time included.
    pub(super) connections: u64,
    /// How often it had to reclaim.
    pub(super) reclaims: u64,
}

/// What its threads tell each other.
#[derive(Default)]
struct Heard {
    is_enough: AtomicBool,
    done: AtomicU64,
    connections: AtomicU64,
    reclaims: AtomicU64,
    losses: AtomicU64,
}

impl Callbacks for Heard {
    fn recall(&self, _: &Handle, _: Recall) {
        // It asks for no delegations.
    }

    fn held_attributes(&self, _: &Handle) -> Option<HeldAttributes> {
        None
    }

    fn locks_lost(&self, _: &Handle, _: &[u8]) {
        self.losses.fetch_add(1, Ordering::SeqCst);
    }

    fn happened(&self, event: &Event) {
        let counted = match event {
            Event::Connected(_) => &self.connections,
            Event::Restarted => &self.reclaims,
            Event::StateLost => &self.losses,
            _ => return,
        };
        counted.fetch_add(1, Ordering::SeqCst);
    }
}

impl Worker {
    /// Connects, opens and locks its file, and begins to work.
    ///
    /// Errors when the server refuses.
    pub(super) fn begin(server: SocketAddrV4) -> Result<Self> {
        let heard = Arc::new(Heard::default());
        let hands = Hands::connect(server, Arc::clone(&heard))?;
        let working = Arc::clone(&heard);
        let thread = std::thread::spawn(move || hands.work(&working));
        Ok(Self { heard, thread })
    }

    /// Waits until so many more operations were done.
    ///
    /// Errors when they are not in time, or it has given up.
    pub(super) fn go_on(&self, operations: u64, patience: Duration) -> Result<()> {
        let deadline = Instant::now() + patience;
        let until = self.heard.done.load(Ordering::SeqCst) + operations;
        while self.heard.done.load(Ordering::SeqCst) < until {
            // Why it has is for `end` to tell.
            if self.thread.is_finished() {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "a client does not go on after {patience:?}");
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Has it end its work, and tells how that went.
    ///
    /// Errors when an operation failed, or something that it held was lost.
    pub(super) fn end(self) -> Result<Work> {
        self.heard.is_enough.store(true, Ordering::SeqCst);
        let stall = self.thread.join().ok().context("a client's thread panicked")??;
        let count = |of: &AtomicU64| of.load(Ordering::SeqCst);
        ensure!(count(&self.heard.losses) == 0, "a client has lost what it held");
        Ok(Work { stall, connections: count(&self.heard.connections), reclaims: count(&self.heard.reclaims) })
    }
}

/// The client with what it holds.
struct Hands {
    client: Client,
    cred: Cred,
    cancel: Cancel,
    root: Handle,
    file: OpenFile,
}

impl Hands {
    fn connect(server: SocketAddrV4, heard: Arc<Heard>) -> Result<Self> {
        let (cred, cancel) = (Cred::own(), Cancel::new());
        let client = Client::connect(Options::new(vec![server.to_string()]), heard, &cancel)?;
        let cx = Cx::new(&cred, &cancel);
        let root = client.root(cx, EXPORT_NAME.as_bytes())?.handle;
        client.adopt_root(cx, &root)?;
        let set = SetAttributes { mode: Some(0o644), ..SetAttributes::default() };
        let open = OpenArgs {
            target: OpenTarget::Name(&root, HELD),
            access: OPEN4_SHARE_ACCESS_BOTH,
            deny: 0,
            create: Some(Create { mode: CreateMode::Unchecked, set: &set }),
            delegation: WantDelegation::No,
            want: Attributes::STAT,
        };
        let file = client.open(cx, &open)?.file;
        let lock = LockArgs { owner: LOCK_OWNER, range: ByteRange::ALL, exclusive: true };
        client.lock(cx, &file, &lock)?;
        Ok(Self { client, cred, cancel, root, file })
    }

    /// Until it is enough. A name that is made or removed twice, or not at all, is an error here.
    fn work(&self, heard: &Heard) -> Result<Duration> {
        let cx = Cx::new(&self.cred, &self.cancel);
        let set = SetAttributes { mode: Some(0o755), ..SetAttributes::default() };
        let (mut stall, mut last) = (Duration::ZERO, Instant::now());
        let mut done = || {
            stall = stall.max(last.elapsed());
            last = Instant::now();
            heard.done.fetch_add(1, Ordering::SeqCst);
        };
        for number in 0_u64.. {
            if heard.is_enough.load(Ordering::SeqCst) {
                break;
            }
            let name = format!("name-{number}");
            let place = (&self.root, name.as_bytes());
            self.client
                .create(cx, place, CreateKind::Directory, &set, Attributes::STAT)
                .with_context(|| format!("making {name}"))?;
            done();
            self.client
                .remove(cx, &self.root, name.as_bytes())
                .with_context(|| format!("removing {name}"))?;
            done();
            let io = Io { owner: Whose::Of(LOCK_OWNER), ..Io::open(&self.file) };
            let written = self.client.write(cx, io, 0, Bytes::from_static(WRITTEN), StableHow4::Unstable)?;
            ensure!(written.count as usize == WRITTEN.len(), "a short write");
            done();
        }
        self.client.unlock(&self.cancel, self.file.handle(), LOCK_OWNER, ByteRange::ALL)?;
        self.client.close(cx, &self.file)?;
        self.client.shutdown();
        Ok(stall)
    }
}
