//! What a name stands for, for who is about to change it: one walk, which opens nothing and brings nothing into the
//! descriptor cache.

use std::cell::RefCell;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, LazyLock};

use holdfast_vfs::{AttrMask, Cx, FsError, FsResult, Handle, Name};
use rustix::io::Errno;

use crate::errors::fs_error;
use crate::filesystem::HandleKind;
use crate::handles;
use crate::local::LocalBackend;
use crate::object::Object;
use crate::sys;

/// What this thread was told of a name last. The change itself follows at once, on the same thread, and has to know which
/// object of ours loses a name: no second walk for that.
struct Told {
    fs: u64,
    dir: u64,
    name: u64,
    there: Option<Handle>,
}

thread_local! {
    static TOLD: RefCell<Option<Told>> = const { RefCell::new(None) };
}

/// Stands for the name: callers, who choose names, must not find two that have the same one. So it is by a secret of the
/// process.
fn hash(name: &[u8]) -> u64 {
    static SECRET: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    SECRET.hash_one(name)
}

impl LocalBackend {
    /// See [`holdfast_vfs::Backend::named`].
    pub(crate) fn do_named(&self, cx: &Cx<'_>, dir: &Handle, name: Name<'_>) -> FsResult<Option<Handle>> {
        let object = self.resolve(cx.wait, dir)?;
        object.must_be_dir()?;
        self.may_wait(cx, &object)?;
        TOLD.set(None);
        // Elsewhere a name may lead into another part of the file system, which only a descriptor tells.
        if object.fs.handles == HandleKind::Kernel
            && object.fs.nature.kind.numbers_are_unique()
            && let Some(there) = self.walk_to(cx, &object, name.as_bytes())?
        {
            let told = Told { fs: object.fs.key, dir: object.ino, name: hash(name.as_bytes()), there };
            TOLD.set(Some(told));
            return Ok(there);
        }
        match self.do_lookup(cx, dir, name, AttrMask::NONE) {
            Ok(node) => Ok(Some(node.handle)),
            Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// `None` where it has to be looked up: something is mounted there.
    fn walk_to(&self, cx: &Cx<'_>, dir: &Object, name: &[u8]) -> FsResult<Option<Option<Handle>>> {
        let acting = self.identity.act_as(cx.caller)?;
        let found = handles::with_c_name(name, |name| sys::name_to_handle(dir.fd(), name))?;
        drop(acting);
        match found {
            Ok(kernel) if kernel.mount_id as u64 == dir.mount_id => {
                Ok(Some(Some(handles::of_kernel(&dir.fs, &kernel)?)))
            }
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::OVERFLOW) => Ok(None),
            Err(Errno::NOENT) if dir.look()?.stx_nlink == 0 => Err(FsError::Stale),
            Err(Errno::NOENT) => Ok(Some(None)),
            Err(error) => Err(fs_error(error)),
        }
    }

    /// The object of a name when we hold a descriptor of it: by what [`LocalBackend::do_named`] has just told this
    /// thread, else by another walk.
    pub(crate) fn held_child(&self, dir: &Object, name: &[u8]) -> Option<Arc<Object>> {
        let is_it = |told: &Told| (told.fs, told.dir, told.name) == (dir.fs.key, dir.ino, hash(name));
        match TOLD.take().filter(is_it) {
            Some(told) => self.cache.find(&told.there?),
            None => self.cached_child(dir, name),
        }
    }

    /// Forgets what this thread was told: a change begins that it was not asked for.
    pub(crate) fn begin_unnamed() {
        TOLD.set(None);
    }
}
