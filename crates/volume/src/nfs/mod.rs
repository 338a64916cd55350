//! A server spoken to in NFSv4.1 or 4.2 alone: every question becomes one or a few compounds.

mod attributes;
mod creds;
mod data;
mod delegations;
mod locking;
mod names;
mod opens;
mod placement;
mod xattrs;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use bytes::Bytes;
use holdfast_base::ByteRange;
use holdfast_base::limits::AHEAD_CALL_MS;
use holdfast_cache::{
    AheadOut, Answer, Ask, Batch, Caller, CommitOut, Errno, Handle, Object, Question, Release, WriteOut,
};
use holdfast_client::{Cancel, Client, Cred, Cx, Error};
use holdfast_wire::nfs4::NfsStat4;

use crate::locks::{LockConflict, LockOwner, LockRequest};
use crate::server::{BatchDone, Server, Settled, Undone, WriteDone};
use crate::volume::Volume;

pub(crate) use attributes::{WANTED, attrs_of};
use creds::Creds;
pub use delegations::Delegations;
use delegations::holder::Holder;
use opens::Opens;

/// How long reading ahead goes on behind a file that was not given.
const AHEAD_CALL_TIME: Duration = Duration::from_millis(AHEAD_CALL_MS);

/// The server behind an NFSv4.1 client.
#[derive(Debug)]
pub struct NfsServer {
    client: Client,
    creds: Creds,
    opens: Opens,
    /// Where the server promises nothing else.
    delegations: OnceLock<Arc<Delegations>>,
    /// Whom it is asked for.
    holder: OnceLock<Weak<dyn Holder>>,
    /// What was open before went on existing after its last name was removed, when that was last told.
    preserves_unlinked: AtomicBool,
}

impl NfsServer {
    /// Over this client.
    #[must_use]
    pub fn new(client: Client) -> Self {
        Self {
            client,
            creds: Creds::default(),
            opens: Opens::default(),
            delegations: OnceLock::new(),
            holder: OnceLock::new(),
            preserves_unlinked: AtomicBool::new(false),
        }
    }

    /// The client.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Asks for this volume, without anything between them. To be called once, before anything is asked.
    pub fn serve(&self, volume: &Volume) {
        let shared: Arc<dyn Holder> = Arc::clone(&volume.0) as _;
        if self.holder.set(Arc::downgrade(&shared)).is_err() {
            tracing::error!("there is a volume already");
        }
    }

    /// The object at a path from the server's root.
    ///
    /// # Errors
    /// Those of looking up each component.
    pub fn root(&self, path: &str, caller: &Caller, cancel: &Cancel) -> Result<Object, Error> {
        let cred = self.creds.of(caller);
        let cx = Cx::new(&cred, cancel);
        let node = self.client.root(cx, path.as_bytes())?;
        self.client.adopt_root(cx, &node.handle)?;
        let handle = Handle::new(node.handle.as_bytes());
        let attributes = self.client.getattr(cx, &node.handle, WANTED)?;
        Ok(Object { handle, attrs: attrs_of(&attributes)?, grant: None })
    }
}

impl NfsServer {
    pub(crate) fn cred(&self, caller: &Caller) -> Cred {
        self.creds.of(caller)
    }
}

impl Drop for NfsServer {
    fn drop(&mut self) {
        if let Some(delegations) = self.delegations.get() {
            delegations.end();
        }
    }
}

/// The client's own form of a handle.
pub(crate) fn wire(handle: &Handle) -> holdfast_client::Handle {
    holdfast_client::Handle::new(handle.as_bytes())
}

pub(crate) fn errno(error: &Error) -> Errno {
    Errno(error.errno().raw_os_error())
}

pub(crate) fn undone(error: &Error) -> Undone {
    match error {
        // What was asked may have happened: it is asked again, and the answer is the same.
        Error::Cancelled | Error::TimedOut | Error::Disconnected | Error::Unreachable(_) => Undone::Lost,
        // Where it is the server may yet say.
        Error::Nfs(NfsStat4::Moved) => Undone::Lost,
        other => {
            // An errno alone does not tell why.
            tracing::warn!(error = %other, "the server does not do it");
            Undone::Failed(errno(other))
        }
    }
}

impl Server for NfsServer {
    fn perform(&self, ask: &Ask, cancel: &Cancel) -> Result<Answer, Errno> {
        let cred = self.creds.of(&ask.caller);
        self.answer(&ask.question, Cx::new(&cred, cancel)).map_err(|error| errno(&error))
    }

    fn batch(&self, _: &Batch, _: &Cancel) -> Result<BatchDone, Undone> {
        // The machine makes no batches for a server without the caps program.
        Err(Undone::Failed(Errno::EOPNOTSUPP))
    }

    fn stable(&self, _: u64, _: &Cancel) -> Result<Settled, Undone> {
        Err(Undone::Failed(Errno::EOPNOTSUPP))
    }

    fn write(&self, write: &WriteOut, cancel: &Cancel) -> Result<WriteDone, Undone> {
        let cred = self.creds.of(&write.caller);
        self.note_written(&write.object, &write.caller);
        self.write_out(write, Cx::new(&cred, cancel)).map_err(|error| undone(&error))
    }

    fn commit(&self, commit: &CommitOut, cancel: &Cancel) -> Result<u64, Undone> {
        let cred = self.creds.of(&commit.caller);
        self.commit_out(&commit.object, Cx::new(&cred, cancel)).map_err(|error| match error {
            // Removed since it was written, as likely as not: nothing to tell of.
            Error::Nfs(NfsStat4::Stale) => Undone::Failed(Errno::ESTALE),
            error => undone(&error),
        })
    }

    fn release(&self, releases: &[Release], cancel: &Cancel) -> Result<(), Undone> {
        self.give_back(releases, cancel)
    }

    fn read_ahead(&self, out: &AheadOut, cancel: &Cancel) -> Option<Vec<Option<Bytes>>> {
        let cred = self.creds.of(&out.caller);
        let files: Vec<_> = out.files.iter().map(|(file, length)| (wire(file), *length)).collect();
        let read = self.client.read_some(Cx::new(&cred, cancel), &files, AHEAD_CALL_TIME);
        read.inspect_err(|error| tracing::debug!(%error, "not read ahead")).ok()
    }

    fn lock(&self, lock: &LockRequest<'_>, wait: bool, cancel: &Cancel) -> Result<(), Errno> {
        self.take_lock(lock, wait, cancel)
    }

    fn unlock(
        &self,
        object: &Handle,
        owner: LockOwner,
        range: ByteRange,
        cancel: &Cancel,
    ) -> Result<(), Errno> {
        self.client.unlock(cancel, &wire(object), &owner.bytes(), range).map_err(|error| errno(&error))
    }

    fn lock_test(&self, lock: &LockRequest<'_>, cancel: &Cancel) -> Result<Option<LockConflict>, Errno> {
        self.test_lock(lock, cancel)
    }

    fn holds_locks(&self, object: &Handle, owner: &[u8]) -> bool {
        self.client.holds_locks(&wire(object), owner)
    }

    fn has_lost_locks(&self, object: &Handle) -> bool {
        self.client.has_lost_locks(&wire(object))
    }
}

impl NfsServer {
    fn answer(&self, question: &Question, cx: Cx<'_>) -> Result<Answer, Error> {
        use Question as Q;
        match question {
            Q::Lookup { dir, name, .. } => self.look_up(dir, name, cx),
            Q::GetAttr { object, .. } => self.get_attributes(object, cx),
            Q::List { dir, cookie, verifier, bytes_max, .. } => {
                self.list(dir, (*cookie, *verifier), *bytes_max, cx)
            }
            Q::Acquire { items } => self.look_at(items, cx),
            Q::Read { object, open, offset, length, from_disk } => {
                self.read(object, *open, (*offset, *length, *from_disk), cx)
            }
            Q::ReadLink { object } => self.read_link(object, cx),
            Q::Open { object, access, truncate, .. } => self.open(object, *access, *truncate, cx),
            Q::Close { open } => self.close(*open, cx),
            Q::Create { dir, name, attrs, access, exclusive, .. } => {
                self.create((dir, name), attrs, *access, *exclusive, cx)
            }
            // NFS has no words for it.
            Q::Nameless { .. } => Err(Error::Nfs(NfsStat4::NotSupp)),
            Q::Make { dir, name, making, attrs, .. } => self.make((dir, name), making, attrs, cx),
            Q::Link { object, dir, name, .. } => self.link(object, (dir, name), cx),
            Q::Remove { dir, name, .. } => self.remove((dir, name), cx),
            Q::Rename { from_dir, from, to_dir, to, mode, .. } => {
                self.rename((from_dir, from), (to_dir, to), *mode, cx)
            }
            Q::SetAttr { object, open, changes, .. } => self.set_attributes(object, *open, changes, cx),
            Q::Write { object, open, offset, data, stable } => {
                self.write_now((object, *open, *offset), data, *stable, cx)
            }
            Q::Append { object, open, data } => self.append((object, *open), data, cx),
            Q::Commit { object, .. } => {
                self.commit_out(object, cx).map(|verifier| Answer::Committed { verifier })
            }
            Q::Allocate { object, open, mode, offset, length } => {
                self.allocate(object, *open, *mode, (*offset, *length), cx)
            }
            Q::Seek { object, open, offset, kind } => self.seek(object, *open, *offset, *kind, cx),
            Q::Copy { from, from_open, from_offset, to, to_open, to_offset, length } => {
                let (from, to) = ((from, *from_open, *from_offset), (to, *to_open, *to_offset));
                self.copy(from, to, *length, cx)
            }
            Q::GetXattr { object, name } => self.get_xattr(object, name, cx),
            Q::ListXattr { object } => self.list_xattrs(object, cx),
            Q::SetXattr { object, name, value, mode } => self.set_xattr(object, name, value, *mode, cx),
            Q::RemoveXattr { object, name } => self.remove_xattr(object, name, cx),
            Q::StatFs { object } => self.room(object, cx),
            // Nothing in NFS tells; whoever cannot know waits for the server's word with each change.
            Q::WhoAmI | Q::Blocks { .. } => Err(Error::Nfs(NfsStat4::NotSupp)),
        }
    }
}
