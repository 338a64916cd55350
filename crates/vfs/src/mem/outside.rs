//! Promises against local processes. There are none who could reach this file system; tests play them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use holdfast_base::ByteRange;
use holdfast_base::limits::LOCAL_UNLOCKS_AWAITED_MAX;

use super::inode::{Body, Ino};
use super::{MemBackend, MemFile, State};
use crate::error::{FsError, FsResult};
use crate::handle::Handle;
use crate::open::LockKind;
use crate::pledge::{HeldPledge, LocalDeed, LocalListener, Pledge, PledgeGuard};

/// A pledge that was made and not let go of.
struct Pledged {
    id: u64,
    ino: Ino,
    what: Pledge,
    is_broken: Arc<AtomicBool>,
}

/// A lock of an outsider that somebody waits for.
struct Awaited {
    ino: Ino,
    file: u64,
    range: ByteRange,
    kind: LockKind,
}

/// What is held against outsiders, and who is told of them.
#[derive(Default)]
pub(super) struct Outside {
    pledged: Vec<Pledged>,
    last: u64,
    refuses: bool,
    listener: Option<Weak<dyn LocalListener>>,
    awaited: Vec<Awaited>,
}

/// A guard of this file system.
struct MemGuard {
    fs: MemBackend,
    id: u64,
    is_broken: Arc<AtomicBool>,
}

impl PledgeGuard for MemGuard {
    fn is_broken(&self) -> bool {
        self.is_broken.load(Ordering::SeqCst)
    }
}

impl Drop for MemGuard {
    fn drop(&mut self) {
        self.fs.state().outside.pledged.retain(|pledged| pledged.id != self.id);
    }
}

fn check_kind(state: &State, ino: Ino, what: Pledge) -> FsResult<()> {
    match (&state.get(ino)?.body, what) {
        (Body::Directory(..), Pledge::Directory) => Ok(()),
        (_, Pledge::Directory) => Err(FsError::NotDir),
        (Body::Directory(..), Pledge::ReadFile) => Err(FsError::IsDir),
        (_, Pledge::ReadFile) => Ok(()),
        (_, Pledge::ReadWritten | Pledge::WriteFile) => state.get(ino)?.blocks().map(drop),
    }
}

impl MemBackend {
    pub(super) fn make_pledge(&self, object: &Handle, what: Pledge) -> FsResult<Option<HeldPledge>> {
        let mut state = self.state();
        let ino = state.ino(object)?;
        check_kind(&state, ino, what)?;
        let outside = &mut state.outside;
        if outside.refuses {
            return Ok(None);
        }
        outside.last += 1;
        let (id, is_broken) = (outside.last, Arc::new(AtomicBool::new(false)));
        outside.pledged.push(Pledged { id, ino, what, is_broken: Arc::clone(&is_broken) });
        drop(state);
        Ok(Some(Box::new(MemGuard { fs: self.clone(), id, is_broken })))
    }

    pub(super) fn set_listener(&self, listener: Weak<dyn LocalListener>) {
        self.state().outside.listener = Some(listener);
    }

    pub(super) fn await_unlock_of(&self, file: &MemFile, range: ByteRange, kind: LockKind) -> FsResult<()> {
        let mut state = self.state();
        let awaited = &mut state.outside.awaited;
        awaited.retain(|a| (a.ino, a.file, a.range, a.kind) != (file.ino, file.id, range, kind));
        if awaited.len() >= LOCAL_UNLOCKS_AWAITED_MAX {
            return Err(FsError::Delay);
        }
        awaited.push(Awaited { ino: file.ino, file: file.id, range, kind });
        drop(state);
        self.tell_unlocked();
        Ok(())
    }

    /// Tells of all locks of outsiders that are waited for and gone.
    pub(super) fn tell_unlocked(&self) {
        let mut state = self.state();
        let awaited = std::mem::take(&mut state.outside.awaited);
        let is_held = |a: &Awaited| state.outsider(a.ino, a.range, a.kind).is_some();
        let (held, free): (Vec<_>, Vec<_>) = awaited.into_iter().partition(is_held);
        state.outside.awaited = held;
        let told: Vec<_> = free.iter().map(|a| (state.handle(a.ino).key(), a.range)).collect();
        let listener = state.outside.listener();
        drop(state);
        if let Some(listener) = listener {
            told.into_iter().for_each(|(key, range)| listener.local_unlock(key, range));
        }
    }

    /// A process beside the server does this: breaks the pledges that it breaks, and tells the listener, on this
    /// thread, when something is pledged of the object.
    pub fn deed_outside(&self, object: &Handle, deed: LocalDeed) {
        let state = self.state();
        let Ok(ino) = state.ino(object) else { return };
        let of_it = || state.outside.pledged.iter().filter(|pledged| pledged.ino == ino);
        for pledged in of_it().filter(|pledged| deed.breaks(pledged.what)) {
            pledged.is_broken.store(true, Ordering::SeqCst);
        }
        let listener = of_it().next().and_then(|_| state.outside.listener());
        drop(state);
        if let Some(listener) = listener {
            listener.local_deed(object.key(), deed);
        }
    }

    /// From now on nothing can be pledged, as where the kernel guards nothing; or it can again.
    pub fn refuse_pledges(&self, refuses: bool) {
        self.state().outside.refuses = refuses;
    }

    /// What is pledged of an object, in the order of making.
    #[must_use]
    pub fn pledges_held(&self, object: &Handle) -> Vec<Pledge> {
        let state = self.state();
        let Ok(ino) = state.ino(object) else { return Vec::new() };
        state
            .outside
            .pledged
            .iter()
            .filter(|pledged| pledged.ino == ino)
            .map(|pledged| pledged.what)
            .collect()
    }
}

impl Outside {
    fn listener(&self) -> Option<Arc<dyn LocalListener>> {
        self.listener.as_ref()?.upgrade()
    }

    /// Nobody waits through a file that was closed.
    pub(super) fn closed(&mut self, file: u64) {
        self.awaited.retain(|awaited| awaited.file != file);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use holdfast_base::FileKey;

    use super::*;
    use crate::attrs::SetAttrs;
    use crate::backend::Backend as _;
    use crate::caller::{Caller, Cx, Wait};
    use crate::making::CreateHow;
    use crate::open::{CreateMode, OpenMode};
    use crate::{AttrMask, MemOptions, Name};

    #[derive(Default)]
    struct Ear {
        deeds: Mutex<Vec<(FileKey, LocalDeed)>>,
        unlocks: Mutex<Vec<(FileKey, ByteRange)>>,
    }

    impl LocalListener for Ear {
        fn local_deed(&self, file: FileKey, deed: LocalDeed) {
            self.deeds.lock().unwrap().push((file, deed));
        }

        fn local_unlock(&self, file: FileKey, range: ByteRange) {
            self.unlocks.lock().unwrap().push((file, range));
        }
    }

    fn world() -> (MemBackend, Handle, Arc<Ear>) {
        let fs = MemBackend::new(&MemOptions::deterministic());
        let ear = Arc::new(Ear::default());
        let listener: Arc<dyn LocalListener> = Arc::<Ear>::clone(&ear);
        fs.listen(Arc::downgrade(&listener));
        let (caller, set) = (Caller::root(), SetAttrs::default());
        let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::STAT };
        let cx = Cx::new(&caller, Wait::Yes);
        let made = fs.create(&cx, &fs.root().unwrap(), Name::new(b"file").unwrap(), &how).unwrap();
        (fs, made.node.handle, ear)
    }

    #[test]
    fn a_played_process_breaks_what_cannot_stand_beside_its_deed_and_is_told_of() {
        let (fs, file, ear) = world();
        fs.deed_outside(&file, LocalDeed::Wrote);
        assert!(ear.deeds.lock().unwrap().is_empty(), "nothing was pledged of it");
        let guard = fs.pledge(&file, Pledge::ReadFile, None).unwrap().unwrap();
        assert_eq!(fs.pledges_held(&file), [Pledge::ReadFile]);
        fs.deed_outside(&file, LocalDeed::OpenToRead);
        assert!(!guard.is_broken());
        fs.deed_outside(&file, LocalDeed::OpenToWrite);
        assert!(guard.is_broken());
        let told = [(file.key(), LocalDeed::OpenToRead), (file.key(), LocalDeed::OpenToWrite)];
        assert_eq!(*ear.deeds.lock().unwrap(), told);
        drop(guard);
        assert_eq!(fs.pledges_held(&file), []);
        fs.refuse_pledges(true);
        assert!(fs.pledge(&file, Pledge::ReadFile, None).unwrap().is_none());
    }

    #[test]
    fn an_outsiders_unlock_is_told_once_for_each_time_it_was_asked_for() {
        let (fs, file, ear) = world();
        let caller = Caller::root();
        let mode = OpenMode { read: true, write: true, nfs_exceptions: false };
        let open = fs.open(&Cx::new(&caller, Wait::Yes), &file, mode).unwrap();
        fs.lock_outside(&file, ByteRange::ALL, LockKind::Write).unwrap();
        fs.await_unlock(&open, ByteRange::ALL, LockKind::Read).unwrap();
        assert!(ear.unlocks.lock().unwrap().is_empty());
        fs.unlock_outside(&file);
        fs.unlock_outside(&file);
        assert_eq!(*ear.unlocks.lock().unwrap(), [(file.key(), ByteRange::ALL)]);
    }
}
