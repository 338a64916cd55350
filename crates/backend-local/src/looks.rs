//! Looks at objects that do for more than one of the calls that came together ([`holdfast_base::batch`]). A look that was taken
//! after all of them had come is as new as any of them may ask for, as long as this process changes nothing; that it does not,
//! [`crate::marks`] tell. What this thread does for an earlier one of them is never hidden from a later one.
//!
//! Nothing is shared on threads that take calls one by one.

use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;

use holdfast_base::batch::{self, Batch};
use holdfast_vfs::{FileKind, FsResult, Handle, Mark, PreAttrs};
use rustix::fs::{AtFlags, Statx, StatxFlags, statx};

use crate::errors::fs_error;
use crate::marks;
use crate::object::Object;

/// Of whom something was seen, for which calls, and what has to stay as it is.
#[derive(Clone, Copy)]
struct Basis {
    batch: Batch,
    handle: Handle,
    mark: Mark,
}

impl Basis {
    /// To be taken before the look.
    fn before_look(object: &Object) -> Option<Self> {
        let batch = batch::current()?;
        Some(Self { batch, handle: object.handle, mark: marks::of_attributes(object.ino)? })
    }

    fn holds_for(&self, object: &Object) -> bool {
        batch::current() == Some(self.batch) && self.handle == object.handle && marks::holds(self.mark)
    }

    /// After a change of our own, which has ended and is no reason to look again.
    const fn after_own(mut self) -> Self {
        self.mark.count += 1;
        self
    }
}

/// Bytes of an open file. Nothing is asked of its times: were they seen, the kernel would give the file a new one at its next
/// change, and with it its journal a transaction, for each small write.
pub(crate) fn size_of(fd: &OwnedFd) -> FsResult<u64> {
    Ok(statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::SIZE).map_err(fs_error)?.stx_size)
}

/// What the first of several writes found.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) pre: PreAttrs,
    pub(crate) st: Statx,
}

thread_local! {
    /// The last directory, and the last of all others.
    static SEEN: RefCell<[Option<(Basis, Statx)>; 2]> = const { RefCell::new([None; 2]) };
    static BEGUN: Cell<Option<(Basis, Begun)>> = const { Cell::new(None) };
}

const fn slot(object: &Object) -> usize {
    matches!(object.kind, FileKind::Directory) as usize
}

impl Object {
    /// As [`Object::look`], and shared with the calls that came together with this one.
    pub(crate) fn look_shared(&self) -> FsResult<Statx> {
        if let Some(st) = self.seen() {
            return Ok(st);
        }
        let basis = Basis::before_look(self);
        let st = self.look()?;
        if let Some(basis) = basis {
            SEEN.with_borrow_mut(|seen| seen[slot(self)] = Some((basis, st)));
        }
        Ok(st)
    }

    /// What a call that came together with this one has seen, if it still is so.
    pub(crate) fn seen(&self) -> Option<Statx> {
        batch::current()?;
        SEEN.with_borrow(|seen| {
            let (basis, st) = seen[slot(self)].as_ref()?;
            basis.holds_for(self).then_some(*st)
        })
    }
}

/// Notes that this thread has read an object: of what it has seen there nothing but the time of last access is old.
pub(crate) fn was_read(object: &Object) {
    let count = marks::was_read(object);
    if batch::current().is_none() {
        return;
    }
    SEEN.with_borrow_mut(|seen| {
        if let Some((basis, _)) = &mut seen[slot(object)]
            && basis.handle == object.handle
            && basis.mark.count == count
        {
            *basis = basis.after_own();
        }
    });
}

/// Writes to one file, of which only the last has to tell what they have done to it.
pub(crate) struct Writes(Option<Basis>);

impl Writes {
    /// Before a write, and before anybody is told that it changes the file: what was there before the first of them, if
    /// nobody has changed it since but they.
    pub(crate) fn of(object: &Object) -> (Self, Option<Begun>) {
        match BEGUN.take().filter(|(basis, _)| basis.holds_for(object)) {
            Some((basis, begun)) => (Self(Some(basis)), Some(begun)),
            None => (Self(Basis::before_look(object)), None),
        }
    }

    /// This one has ended and was not the last.
    pub(crate) fn go_on(self, begun: Begun) {
        BEGUN.set(self.0.map(|basis| (basis.after_own(), begun)));
    }
}
