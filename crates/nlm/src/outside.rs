//! Locks on the backend, against processes outside the server: an open file of each lock-owner's own carries them,
//! as open-file-description locks belong to it.

use std::sync::Arc;

use holdfast_base::ByteRange;
use holdfast_export::{Export, LocalUse};
use holdfast_state::{LockKind, RangeMap};
use holdfast_vfs::{Caller, Cx, FileObject, FsResult, Handle, LockedBy, OpenMode, Wait};

/// A file of an export.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) export: Arc<Export>,
    pub(crate) handle: Handle,
}

/// The open file that carries one lock-owner's locks on a file, once there is one.
#[derive(Default)]
pub(crate) struct Outside {
    file: Option<Carrier>,
}

struct Carrier {
    file: Arc<dyn FileObject>,
    /// Write locks need a descriptor for writing.
    can_write: bool,
}

const fn backend_kind(kind: LockKind) -> holdfast_vfs::LockKind {
    match kind {
        LockKind::Read => holdfast_vfs::LockKind::Read,
        LockKind::Write => holdfast_vfs::LockKind::Write,
    }
}

impl Site {
    /// Whether somebody outside may hold locks on the file, or look at ours.
    fn has_outsiders(&self) -> bool {
        self.export.options.local != LocalUse::None || self.export.backend.may_be_on_other_hosts(&self.handle)
    }

    /// With the server's own rights: that the owner may have the lock was asked before.
    fn open(&self, can_write: bool) -> FsResult<Arc<dyn FileObject>> {
        let root = Caller::root();
        let mode = OpenMode { read: true, write: can_write, nfs_exceptions: true };
        self.export.backend.open(&Cx::new(&root, Wait::Yes), &self.handle, mode)
    }
}

impl Outside {
    /// One that goes on with an open file: it carries the owner's locks already.
    pub(crate) fn of((file, can_write): (Arc<dyn FileObject>, bool)) -> Self {
        Self { file: Some(Carrier { file, can_write }) }
    }

    /// The open file, and whether it can carry write locks.
    pub(crate) fn carrier(&self) -> Option<(&Arc<dyn FileObject>, bool)> {
        self.file.as_ref().map(|carrier| (&carrier.file, carrier.can_write))
    }

    /// Takes a lock, replacing what the owner held there; `held` is all that it held so far.
    pub(crate) fn take(
        &mut self,
        site: &Site,
        held: &RangeMap<LockKind>,
        (range, kind): (ByteRange, LockKind),
    ) -> FsResult<()> {
        if !site.has_outsiders() {
            return Ok(());
        }
        let serves = |carrier: &&Carrier| kind == LockKind::Read || carrier.can_write;
        let file = match self.file.as_ref().filter(serves) {
            Some(carrier) => Arc::clone(&carrier.file),
            None => self.change_carrier(site, held, kind == LockKind::Write)?,
        };
        site.export.backend.lock(&file, range, backend_kind(kind))
    }

    /// Opens the file (again) for what is needed now. All that the former carries are then read locks, which two
    /// can have at once, so nobody gets in between.
    fn change_carrier(
        &mut self,
        site: &Site,
        held: &RangeMap<LockKind>,
        can_write: bool,
    ) -> FsResult<Arc<dyn FileObject>> {
        let file = site.open(can_write)?;
        if self.file.is_some() {
            for (range, kind) in held.iter() {
                site.export.backend.lock(&file, range, backend_kind(kind))?;
            }
        }
        self.file = Some(Carrier { file: Arc::clone(&file), can_write });
        Ok(file)
    }

    /// Lets go of a range.
    pub(crate) fn give_up(&self, site: &Site, range: ByteRange) -> FsResult<()> {
        match &self.file {
            Some(carrier) => site.export.backend.unlock(&carrier.file, range),
            None => Ok(()),
        }
    }

    /// Lets go of everything, by closing the file.
    pub(crate) fn close(&mut self) {
        self.file = None;
    }

    /// The lock outside that is in the way. Those of the server's other owners look like it, so it must be known that
    /// none of them is.
    pub(crate) fn test(
        &self,
        site: &Site,
        (range, kind): (ByteRange, LockKind),
    ) -> FsResult<Option<LockedBy>> {
        if !site.has_outsiders() {
            return Ok(None);
        }
        let file = match &self.file {
            // The owner's own locks must not stand in its way.
            Some(carrier) => Arc::clone(&carrier.file),
            None => site.open(false)?,
        };
        site.export.backend.test_lock(&file, range, backend_kind(kind))
    }
}
