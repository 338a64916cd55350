//! Locks as a file system must keep them: by owner and class, with waiting.

use std::time::Duration;

use holdfast_fuse::{
    FileHandle, Interrupt, LockAsk, LockClass, LockMode, LockOwner, LockSpan, NodeId, Result,
};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;

#[derive(Clone, Copy)]
struct Held {
    node: NodeId,
    owner: LockOwner,
    file: FileHandle,
    class: LockClass,
    span: LockSpan,
}

#[derive(Default)]
pub(crate) struct Locks {
    held: Mutex<Vec<Held>>,
    changed: Arc<Condvar>,
}

fn conflicts(held: &Held, node: NodeId, ask: &LockAsk) -> bool {
    let is_shared = held.span.mode == LockMode::Read && ask.span.mode == LockMode::Read;
    held.node == node
        && held.class == ask.class
        && held.owner != ask.owner
        && ask.span.mode != LockMode::Unlock
        && !is_shared
        && held.span.start <= ask.span.end
        && ask.span.start <= held.span.end
}

fn put(held: &mut Vec<Held>, node: NodeId, ask: &LockAsk) {
    let mut kept = Vec::new();
    for one in held.drain(..) {
        let is_other = one.node != node || one.class != ask.class || one.owner != ask.owner;
        if is_other || one.span.end < ask.span.start || one.span.start > ask.span.end {
            kept.push(one);
            continue;
        }
        if one.span.start < ask.span.start {
            kept.push(Held { span: LockSpan { end: ask.span.start - 1, ..one.span }, ..one });
        }
        if one.span.end > ask.span.end {
            kept.push(Held { span: LockSpan { start: ask.span.end + 1, ..one.span }, ..one });
        }
    }
    if ask.span.mode != LockMode::Unlock {
        kept.push(Held { node, owner: ask.owner, file: ask.file, class: ask.class, span: ask.span });
    }
    *held = kept;
}

impl Locks {
    pub(crate) fn conflict(&self, node: NodeId, ask: &LockAsk) -> Option<LockSpan> {
        self.held.lock().iter().find(|held| conflicts(held, node, ask)).map(|held| held.span)
    }

    pub(crate) fn take(&self, node: NodeId, ask: &LockAsk) -> bool {
        let mut held = self.held.lock();
        if held.iter().any(|one| conflicts(one, node, ask)) {
            return false;
        }
        put(&mut held, node, ask);
        self.changed.notify_all();
        true
    }

    pub(crate) fn take_waiting(&self, node: NodeId, ask: &LockAsk, interrupt: &Interrupt) -> Result<()> {
        let changed = Arc::clone(&self.changed);
        let _watch = interrupt.watch(move || {
            changed.notify_all();
        });
        let mut held = self.held.lock();
        while held.iter().any(|one| conflicts(one, node, ask)) {
            interrupt.check()?;
            // The wake-up may come between the look and the wait.
            self.changed.wait_for(&mut held, Duration::from_millis(20));
        }
        put(&mut held, node, ask);
        Ok(())
    }

    /// A process closed the file: its POSIX locks end.
    pub(crate) fn drop_owner(&self, node: NodeId, owner: LockOwner) {
        let is_over = |one: &Held| one.node == node && one.owner == owner && one.class == LockClass::Range;
        self.held.lock().retain(|one| !is_over(one));
        self.changed.notify_all();
    }

    /// An open file has ended: so has whatever was taken through it.
    pub(crate) fn drop_file(&self, node: NodeId, file: FileHandle) {
        self.held.lock().retain(|one| one.node != node || one.file != file);
        self.changed.notify_all();
    }

    pub(crate) fn count(&self) -> usize {
        self.held.lock().len()
    }
}
