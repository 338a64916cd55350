//! Names that were looked up, so that the next lookup need not walk: which object a name in a directory led to, and
//! the directory's ctime when it did. As long as the directory has that ctime, the name still leads there.
//!
//! This holds only where every change of a directory takes a new ctime once somebody looked (multigrain times),
//! where a number means one object, and where no other mount lies on the directory's.

use std::hash::BuildHasher as _;
use std::sync::Arc;

use holdfast_base::limits::{BACKEND_BINDING_NAME_BYTES, BACKEND_BINDINGS_MAX};
use holdfast_vfs::{Cx, FsResult};
use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use rustix::fs::Statx;

use crate::local::{Keep, LocalBackend};
use crate::object::{Object, ctime_of};
use crate::sys;

/// One name in one directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Place {
    fs: u64,
    dir: u64,
    len: u8,
    name: [u8; BACKEND_BINDING_NAME_BYTES],
}

impl Place {
    /// `None` for a name that is too long to be remembered.
    fn new(dir: &Object, name: &[u8]) -> Option<Self> {
        let mut bytes = [0; BACKEND_BINDING_NAME_BYTES];
        bytes.get_mut(..name.len())?.copy_from_slice(name);
        Some(Self { fs: dir.fs.key, dir: dir.ino, len: u8::try_from(name.len()).ok()?, name: bytes })
    }
}

#[derive(Clone, Copy)]
struct Binding {
    place: Place,
    dir_ctime: (i64, u32),
    ino: u64,
}

/// The names; each has one place, where the last comer stands.
pub(crate) struct Bindings {
    slots: Box<[Mutex<Option<Binding>>]>,
}

impl Default for Bindings {
    fn default() -> Self {
        Self { slots: (0..BACKEND_BINDINGS_MAX).map(|_| Mutex::new(None)).collect() }
    }
}

impl Bindings {
    /// By a quick hash that anybody can aim at a place: all he gets is that another name is looked up by a walk.
    fn slot(&self, place: &Place) -> &Mutex<Option<Binding>> {
        &self.slots[(FxBuildHasher.hash_one(place) >> 20) as usize % self.slots.len()]
    }

    fn find(&self, place: &Place, dir_ctime: (i64, u32)) -> Option<u64> {
        let slot = self.slot(place).lock();
        slot.as_ref().filter(|b| b.dir_ctime == dir_ctime && b.place == *place).map(|b| b.ino)
    }

    fn put(&self, place: Place, dir_ctime: (i64, u32), ino: u64) {
        *self.slot(&place).lock() = Some(Binding { place, dir_ctime, ino });
    }
}

impl LocalBackend {
    /// [`LocalBackend::child`], by memory where that is as good.
    pub(crate) fn child_or_bound(
        &self,
        cx: &Cx<'_>,
        dir: &Object,
        name: &[u8],
    ) -> FsResult<(Arc<Object>, Statx)> {
        let fits = dir.fs.is_multigrain
            && dir.fs.nature.kind.numbers_are_unique()
            && self.mounts.is_bare(dir.mount_id);
        let Some(place) = Place::new(dir, name).filter(|_| fits) else {
            return self.child(cx, dir, name, Keep::Always);
        };
        // Before the walk: whatever changes the directory from here on gives it another ctime, and what is noted
        // below holds no more.
        let seen = dir.look_shared()?;
        if let Some(ino) = self.bindings.find(&place, ctime_of(&seen))
            && let Some(object) = self.cache.find_number(dir.fs.key, ino)
            && self.may_search(cx, dir, &seen)?
        {
            object.note_use();
            let st = object.look()?;
            return Ok((object, st));
        }
        let found = self.child(cx, dir, name, Keep::Always)?;
        if Arc::ptr_eq(&found.0.fs, &dir.fs) {
            self.bindings.put(place, ctime_of(&seen), found.0.ino);
        }
        Ok(found)
    }

    /// Whether the caller may search a directory that looks like this.
    pub(crate) fn may_search(&self, cx: &Cx<'_>, dir: &Object, seen: &Statx) -> FsResult<bool> {
        self.may(cx, dir, libc::X_OK, seen)
    }

    /// Whether the caller has these rights (`R_OK | W_OK | X_OK`) to an object that looks like this.
    pub(crate) fn may(&self, cx: &Cx<'_>, object: &Object, rights: i32, seen: &Statx) -> FsResult<bool> {
        if object.was_granted(cx.caller, (rights, self.identity.can_switch()), seen) {
            return Ok(true);
        }
        let _acting = self.identity.act_as(cx.caller)?;
        let may = sys::has_rights(object.fd(), rights).is_ok();
        if may {
            object.note_granted(cx.caller, rights, seen);
        }
        Ok(may)
    }
}
