//! Delegations of plain NFSv4, as the machine uses them: what RFC 8881 section 10.4 and 10.9 promise the holder is held
//! as capabilities. `docs/design/client.md` has the table.

mod giving_back;
pub(in crate::nfs) mod holder;
mod keeper;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use holdfast_base::limits::{DELEGATION_REFUSED_MS, DELEGATIONS_REFUSED_MAX};
use holdfast_cache::{Access, Attrs, Caller, CapSet, Grant, Handle};
use holdfast_client::{
    Callbacks, Cx, Delegated, DelegationKind, Error, HeldAttributes, Recall, WantDelegation,
};
use holdfast_wire::nfs4::{NfsStat4, NfsTime4};
use parking_lot::{Condvar, Mutex, RwLock};
use rustc_hash::FxHashMap;

use super::attributes::{WANTED, attrs_of};
use super::{NfsServer, wire};
use crate::volume::Volume;
use holder::Holder;

/// Asks for delegations, hears of recalls, and keeps the number of those held within bounds. Made before the client,
/// whose callbacks it takes; to be served with the volume before anything is asked.
#[derive(Default)]
pub struct Delegations {
    holder: RwLock<Option<Weak<dyn Holder>>>,
    /// Not to be asked for until then.
    refused: Mutex<FxHashMap<Handle, Instant>>,
    /// The server has none for directories.
    lacks_directories: AtomicBool,
    /// Files written under a delegation, and by whom last: the times that were shown go with its return.
    written: Mutex<FxHashMap<Handle, Caller>>,
    wish: Mutex<Wish>,
    wished: Condvar,
}

/// What the keeper is to look after now.
#[derive(Debug, Default)]
struct Wish {
    /// Delegations that came since it last looked.
    came: usize,
    /// So many should be left.
    keep: Option<usize>,
    is_over: bool,
}

impl Wish {
    fn is_urgent(&self) -> bool {
        self.keep.is_some() || self.came >= CAME_MAX
    }
}

/// After so many the keeper looks whether there are too many.
const CAME_MAX: usize = 1024;

/// What a delegation promises. Of a file: its content, its attributes but for the time of access, and the names of its
/// links (RFC 8881 section 10.4), extended attributes as other attributes (RFC 8276 section 8.7); of a directory: its
/// entries and attributes (section 10.9.2). The holder of one to write may keep changes of data and of what goes with
/// it: all else is changed at the server.
const fn promised(kind: DelegationKind) -> CapSet {
    match kind {
        DelegationKind::Read | DelegationKind::Directory => CapSet::ALL_S,
        DelegationKind::Write => CapSet(CapSet::ALL_S.0 | CapSet::FILE_X.0),
    }
}

fn grant(delegated: Delegated) -> Grant {
    Grant {
        caps: promised(delegated.kind),
        seq: delegated.number,
        plain: false,
        group_of_directory: false,
        listed: false,
        hands_on_none: false,
        changed_since: false,
    }
}

impl Delegations {
    /// None yet.
    #[must_use]
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// What is delegated is used by this volume from now on; a thread gives back what is not used. To be called once,
    /// after [`NfsServer::use_delegations`] and before anything is asked.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn serve(self: &Arc<Self>, volume: &Volume, server: &Arc<NfsServer>) -> std::io::Result<()> {
        let shared: Arc<dyn Holder> = Arc::clone(&volume.0) as _;
        *self.holder.write() = Some(Arc::downgrade(&shared));
        keeper::start(self, server)
    }

    /// Ends the thread.
    pub(in crate::nfs) fn end(&self) {
        self.wish.lock().is_over = true;
        self.wished.notify_all();
    }

    fn holder(&self) -> Option<Arc<dyn Holder>> {
        self.holder.read().as_ref()?.upgrade()
    }

    /// Whether asking for the delegation of an object is of any use now.
    fn is_refused(&self, object: &Handle) -> bool {
        let mut refused = self.refused.lock();
        match refused.get(object) {
            Some(until) if Instant::now() < *until => true,
            Some(_) => {
                refused.remove(object);
                false
            }
            None => false,
        }
    }

    fn refuse(&self, object: Handle) {
        let mut refused = self.refused.lock();
        if refused.len() >= DELEGATIONS_REFUSED_MAX {
            refused.clear();
        }
        refused.insert(object, Instant::now() + Duration::from_millis(DELEGATION_REFUSED_MS));
    }

    fn came(&self) {
        let mut wish = self.wish.lock();
        wish.came += 1;
        if wish.came >= CAME_MAX {
            self.wished.notify_all();
        }
    }

    /// The machine is to give something back, as of this number.
    fn take_back(&self, object: &Handle, number: u64) {
        if let Some(holder) = self.holder() {
            holder.recalled(object, number);
        }
    }
}

impl Callbacks for Delegations {
    fn recall(&self, file: &holdfast_client::Handle, recall: Recall) {
        tracing::debug!(?file, ?recall, "a delegation is recalled");
        let object = Handle::new(file.as_bytes());
        self.refuse(object.clone());
        self.take_back(&object, recall.number);
    }

    fn held_attributes(&self, file: &holdfast_client::Handle) -> Option<HeldAttributes> {
        let shown = self.holder()?.shown(&Handle::new(file.as_bytes())).filter(|shown| shown.is_ours)?;
        let attrs = shown.attrs;
        let wire_time =
            |time: holdfast_base::Timestamp| NfsTime4 { seconds: time.seconds, nseconds: time.nanos };
        // RFC 8881 section 10.4.3: the change that came with the delegation, one more where data waits here.
        Some(HeldAttributes {
            change: attrs.change + u64::from(shown.is_modified),
            size: attrs.size,
            accessed: Some(wire_time(attrs.atime)),
            modified: Some(wire_time(attrs.mtime)),
        })
    }

    fn recall_any(&self, keep: u32, read: bool, write: bool) {
        if read || write {
            let mut wish = self.wish.lock();
            wish.keep = Some(keep as usize);
            self.wished.notify_all();
        }
    }

    fn delegation_gone(&self, file: &holdfast_client::Handle, number: u64) {
        tracing::debug!(?file, "a delegation is lost");
        self.take_back(&Handle::new(file.as_bytes()), number);
    }
}

impl NfsServer {
    /// Asks for delegations from now on. To be called once, before anything is asked.
    pub fn use_delegations(&self, delegations: Arc<Delegations>) {
        if self.delegations.set(delegations).is_err() {
            tracing::error!("delegations are used already");
        }
    }

    /// What is wished for with an open.
    pub(super) fn wanted(&self, object: Option<&Handle>, access: Access) -> WantDelegation {
        let Some(delegations) = self.delegations.get() else { return WantDelegation::No };
        if object.is_some_and(|object| delegations.is_refused(object)) {
            return WantDelegation::No;
        }
        if access.write { WantDelegation::Write } else { WantDelegation::Read }
    }

    /// What is held of an object. Taken before a question: what is given meanwhile does not cover the answer.
    pub(super) fn held(&self, object: &Handle) -> Option<Grant> {
        self.delegations.get()?;
        self.client.delegated(&wire(object)).map(grant)
    }

    /// What came with an open of a file.
    pub(super) fn given(&self, object: &Handle) -> Option<Grant> {
        self.delegations.get()?.came();
        self.held(object)
    }

    /// Has the server tell of changes in a directory whose names are asked for, where it does: before the question, so
    /// that the answer is covered. Its attributes come where that is news.
    pub(super) fn watch(&self, dir: &Handle, cx: Cx<'_>) -> (Option<Grant>, Option<Attrs>) {
        let Some(delegations) = self.delegations.get() else { return (None, None) };
        let file = wire(dir);
        if let Some(held) = self.client.delegated(&file) {
            return (Some(grant(held)), None);
        }
        if delegations.lacks_directories.load(Ordering::Relaxed) || delegations.is_refused(dir) {
            return (None, None);
        }
        match self.client.delegate_directory(cx, &file, WANTED) {
            Ok(Some((delegated, attributes))) => {
                delegations.came();
                (Some(grant(delegated)), attrs_of(&attributes).ok())
            }
            Ok(None) => {
                delegations.refuse(dir.clone());
                (None, None)
            }
            Err(Error::Nfs(NfsStat4::NotSupp | NfsStat4::OpIllegal)) => {
                tracing::info!("the server has no delegations of directories");
                delegations.lacks_directories.store(true, Ordering::Relaxed);
                (None, None)
            }
            Err(error) => {
                tracing::debug!(%error, "no delegation of a directory");
                delegations.refuse(dir.clone());
                (None, None)
            }
        }
    }
}

impl fmt::Debug for Delegations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delegations, {:?}", self.wish.lock())
    }
}
