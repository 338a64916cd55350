//! Commits: from handles to what the committers of the file systems force.

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_vfs::{FileKind, FsError, FsResult, Handle, Touched, Wait};
use rustix::fs::OFlags;

use crate::commit::Force;
use crate::errors::fs_error;
use crate::filesystem::{FileSystem, HandleKind};
use crate::handles;
use crate::local::LocalBackend;
use crate::object::Object;

/// One object on its way to the disk.
struct Committing {
    index: usize,
    /// `None` where it makes no difference which object it is.
    object: Option<Arc<Object>>,
    force: Force,
}

type ByFileSystem = BTreeMap<u64, (Arc<FileSystem>, Vec<Committing>)>;

impl LocalBackend {
    pub(crate) fn do_commit(&self, touched: &[Touched], results: &mut [FsResult<()>]) {
        self.identity.as_server();
        for (fs, group) in self.prepare_all(touched, results).into_values() {
            self.commit_group(&fs, group, results, None);
        }
    }

    pub(crate) fn do_commit_with(
        &self,
        own: BorrowedFd<'_>,
        touched: &[Touched],
        results: &mut [FsResult<()>],
    ) -> Option<FsResult<()>> {
        self.identity.as_server();
        // Decided before anything is prepared, which cannot be done twice.
        let (key, _) = handles::decode(&touched.first()?.handle).ok()?;
        let fs = self.mounts.by_key(key, self.root_fd()).ok()?;
        if !fs.committer.forces_all_at_once() || !fs.holds(own) {
            return None;
        }
        // Nothing, when all that was touched is gone.
        let (fs, group) = self.prepare_all(touched, results).into_values().next()?;
        self.commit_group(&fs, group, results, Some(own))
    }

    fn prepare_all(&self, touched: &[Touched], results: &mut [FsResult<()>]) -> ByFileSystem {
        let mut by_fs = ByFileSystem::new();
        for (index, (one, result)) in touched.iter().zip(results.iter_mut()).enumerate() {
            *result = self.prepare(index, one, &mut by_fs);
        }
        by_fs
    }

    /// Finds what is to be forced for one object; nothing when it is gone, and nothing of it can be durable.
    fn prepare(&self, index: usize, one: &Touched, by_fs: &mut ByFileSystem) -> FsResult<()> {
        let mut add = |fs: &Arc<FileSystem>, object, force| {
            let (_, group) = by_fs.entry(fs.key).or_insert_with(|| (Arc::clone(fs), Vec::new()));
            group.push(Committing { index, object, force });
        };
        if let Some(fs) = self.forced_whole(one) {
            add(&fs, None, Force { fd: None, data: false });
            return Ok(());
        }
        let dirty = if one.data { self.dirty.take(&one.handle) } else { None };
        let (object, fd) = match dirty {
            Some((object, fd)) => (object, Some(fd)),
            None => match self.resolve(Wait::Yes, &one.handle) {
                Ok(object) => (object, None),
                Err(FsError::Stale) => return Ok(()),
                Err(e) => return Err(e),
            },
        };
        let data = one.data && object.kind == FileKind::Regular;
        let fd = match fd {
            Some(fd) => Some(fd),
            None if data || !object.fs.committer.forces_names_at_once() => match self.forceable(&object) {
                // It cannot be opened now: a local process holds a lease, or this server takes one at this moment. The change was
                // made all the same, and forcing the whole file system reaches it.
                Err(FsError::Delay) => None,
                other => other?,
            },
            None => None,
        };
        let fs = Arc::clone(&object.fs);
        add(&fs, Some(object), Force { fd, data });
        Ok(())
    }

    /// The file system, where forcing it is all that there is to do for one object.
    fn forced_whole(&self, one: &Touched) -> Option<Arc<FileSystem>> {
        let (key, _) = handles::decode(&one.handle).ok().filter(|_| !one.data)?;
        self.mounts.by_key(key, self.root_fd()).ok().filter(|fs| fs.committer.forces_names_at_once())
    }

    /// A descriptor that can be forced; `None` for what cannot be opened without side effects, and what we may
    /// not open.
    fn forceable(&self, object: &Object) -> FsResult<Option<Arc<OwnedFd>>> {
        if !matches!(object.kind, FileKind::Regular | FileKind::Directory) {
            return Ok(None);
        }
        if let Some(fd) = self.watch.leased(&object.handle, false, false) {
            return Ok(Some(fd));
        }
        let open = |flags| self.sparing(|| self.proc_fd.reopen(object.fd(), flags | OFlags::NONBLOCK));
        match open(OFlags::RDONLY) {
            // An ordinary user's write-only file.
            Err(FsError::Access) if object.kind == FileKind::Regular => match open(OFlags::WRONLY) {
                Err(FsError::Access) => Ok(None),
                other => other.map(|fd| Some(Arc::new(fd))),
            },
            Err(FsError::Access) => Ok(None),
            other => other.map(|fd| Some(Arc::new(fd))),
        }
    }

    fn commit_group(
        &self,
        fs: &FileSystem,
        group: Vec<Committing>,
        results: &mut [FsResult<()>],
        own: Option<BorrowedFd<'_>>,
    ) -> Option<FsResult<()>> {
        let table = if fs.handles == HandleKind::Table { self.table.force() } else { Ok(()) };
        let (places, forces): (Vec<_>, Vec<_>) =
            group.into_iter().map(|c| ((c.index, c.object), c.force)).unzip();
        let mut outcomes = vec![Ok(()); forces.len()];
        let of_own = match own {
            Some(own) => fs.committer.force_with((fs.top.as_fd(), own), &forces, &mut outcomes),
            None => {
                fs.committer.force(fs.top.as_fd(), &forces, &mut outcomes);
                None
            }
        };
        for (((index, object), force), outcome) in places.iter().zip(&forces).zip(outcomes) {
            results[*index] = outcome.map_err(fs_error).and(table);
            let Some(object) = object.as_ref().filter(|_| force.data) else { continue };
            if let Err(error) = results[*index] {
                self.note_lost_data(&object.handle, error);
            }
            if !object.is_dirty.load(Ordering::SeqCst) {
                object.close_writer();
            }
        }
        of_own.map(|outcome| outcome.map_err(fs_error))
    }

    pub(crate) fn domain_of(&self, handle: &Handle) -> u64 {
        handles::decode(handle).map_or(0, |(key, _)| key)
    }

    /// The seed, moved on by each loss. Mixed so that neighbouring seeds and losses give nothing alike.
    pub(crate) fn verifier(&self) -> [u8; 8] {
        let bumps = self.verifier_bumps.load(Ordering::SeqCst);
        let seed = self.options.verifier_seed.wrapping_add(bumps.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        seed.to_le_bytes()
    }
}
