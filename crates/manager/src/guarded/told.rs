//! Telling of changed entries.

use holdfast_base::FileKey;
use holdfast_vfs::{AttrMask, Change, Created, Cx, FsResult, Handle, Name, Node};

use super::Guarded;
use crate::entries::{Entry, EntryChange};

impl Guarded {
    /// A name was made, or taken over.
    pub(super) fn tell_added(
        &self,
        cx: &Cx<'_>,
        (dir, name): (&Handle, Name<'_>),
        (change, object): (&Change, &Handle),
        replaces: bool,
    ) {
        if self.manager.tells_entries() {
            let node = self.seen(cx, object);
            let what = Entry::Added { name, node: node.as_ref(), replaces };
            self.tell(cx, dir, change, what);
        }
    }

    /// The same of a create, when it made something.
    pub(super) fn tell_created(
        &self,
        cx: &Cx<'_>,
        at: (&Handle, Name<'_>),
        created: FsResult<Created>,
    ) -> FsResult<Created> {
        if let Ok(created) = created.as_ref()
            && created.is_new
        {
            self.tell_added(cx, at, (&created.dir, &created.node.handle), false);
        }
        created
    }

    /// A name went.
    pub(super) fn tell_removed(&self, cx: &Cx<'_>, (dir, name): (&Handle, Name<'_>), change: &Change) {
        if self.manager.tells_entries() {
            self.tell(cx, dir, change, Entry::Removed { name });
        }
    }

    /// A name became another; `replaced`: what had that before.
    pub(super) fn tell_renamed(
        &self,
        cx: &Cx<'_>,
        ((from, old), (to, new)): ((&Handle, Name<'_>), (&Handle, Name<'_>)),
        (left, come): &(Change, Change),
        replaced: Option<FileKey>,
    ) {
        if !self.manager.tells_entries() {
            return;
        }
        let node = self.inner.lookup(cx, to, new, AttrMask::STAT | AttrMask::CHANGE).ok();
        let is_same = |now: Option<FileKey>| now.is_some() && now == replaced;
        if is_same(node.as_ref().map(|node| node.handle.key())) && is_same(self.behind(cx, (from, old))) {
            // Two names of one object, of which both stay (RFC 8881 section 18.26.3).
            return;
        }
        let replaces = replaced.is_some();
        if from.key() == to.key() {
            let what = Entry::Renamed { from: old, to: new, node: node.as_ref(), replaces };
            self.tell(cx, to, come, what);
            return;
        }
        self.tell_removed(cx, (from, old), left);
        let what = Entry::Added { name: new, node: node.as_ref(), replaces };
        self.tell(cx, to, come, what);
    }

    /// Two names stand for what the other stood for: each has another in its place, and none is gone.
    pub(super) fn tell_exchanged(
        &self,
        cx: &Cx<'_>,
        (one, other): ((&Handle, Name<'_>), (&Handle, Name<'_>)),
        changes: &(Change, Change),
    ) {
        if !self.manager.tells_entries() {
            return;
        }
        for ((dir, name), change) in [(one, &changes.0), (other, &changes.1)] {
            let node = self.inner.lookup(cx, dir, name, AttrMask::STAT | AttrMask::CHANGE).ok();
            let what = Entry::Added { name, node: node.as_ref(), replaces: true };
            self.tell(cx, dir, change, what);
        }
    }

    fn tell(&self, cx: &Cx<'_>, dir: &Handle, change: &Change, what: Entry<'_>) {
        let change = EntryChange { dir: dir.key(), by: cx.client, attrs: &change.after, what };
        self.manager.tell_entries(&change);
    }

    pub(super) fn behind(&self, cx: &Cx<'_>, (dir, name): (&Handle, Name<'_>)) -> Option<FileKey> {
        self.inner.lookup(cx, dir, name, AttrMask::NONE).ok().map(|node| node.handle.key())
    }

    fn seen(&self, cx: &Cx<'_>, object: &Handle) -> Option<Node> {
        let attrs = self.inner.getattr(cx, object, AttrMask::STAT | AttrMask::CHANGE).ok()?;
        Some(Node { handle: *object, attrs })
    }
}
