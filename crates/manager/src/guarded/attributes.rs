//! Attributes of files that somebody else may have changed without having written that back.

use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_base::{Cookie, Timestamp};
use holdfast_state::{Deed, Seen};
use holdfast_vfs::{
    AttrMask, Attrs, Caller, Cx, DirEntry, DirListing, File, FileKind, Flow, FsError, FsResult, Handle,
    ListEnd, Node, SetAttrs, SetTime, Wait,
};

use super::Guarded;
use crate::held::HeldAttributes;

/// An entry whose attributes its holder is to be asked for.
struct Late {
    name: Vec<u8>,
    next: Cookie,
    fileid: u64,
    node: Node,
}

/// Times as a holder tells them, not before the file's own nor after now: its clock may be wrong (RFC 9754 section 5).
fn within(held: HeldAttributes, (mtime, atime): (Timestamp, Timestamp), now: Timestamp) -> HeldAttributes {
    let between = |told: Option<Timestamp>, is: Timestamp| told.map(|at| at.min(now).max(is));
    HeldAttributes { mtime: between(held.mtime, mtime), atime: between(held.atime, atime), ..held }
}

fn wall_now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}

impl Guarded {
    /// The attributes as they are to be shown: with what a holder of a write delegation has not written back.
    pub(super) fn as_held(
        &self,
        cx: &Cx<'_>,
        object: &Handle,
        (attrs, want): (Attrs, AttrMask),
    ) -> FsResult<Attrs> {
        if (want & (AttrMask::STAT | AttrMask::CHANGE)).is_empty() || !self.is_held(cx, object, &attrs) {
            return Ok(attrs);
        }
        // Whatever was asked for, the holder's word is weighed against change and size.
        let server = self.inner.getattr(cx, object, AttrMask::STAT | AttrMask::CHANGE)?;
        let seen = Seen { change: server.change, size: server.size };
        let (key, by) = (object.key(), cx.client);
        match self.manager.held_attributes(key, by, (seen, cx.wait))? {
            // Setting times may have to wait, whoever asked.
            Some(_) if cx.wait == Wait::No => Err(FsError::WouldBlock),
            // What the holder says of a file that it has given back meanwhile is past.
            Some((shown, held)) if self.is_held(cx, object, &attrs) => {
                Ok(self.stamp(object, (attrs, server), (shown, held)))
            }
            // It may have been given back meanwhile, with what was written before.
            _ => self.inner.getattr(cx, object, want),
        }
    }

    fn is_held(&self, cx: &Cx<'_>, object: &Handle, attrs: &Attrs) -> bool {
        attrs.kind == FileKind::Regular
            && self.manager.has_promises()
            && self.manager.index.look(object.key(), Deed::LookAttrs, cx.client).is_err()
    }

    /// Gives the file itself the times that are shown, so that they never appear to go back when the holder returns
    /// (RFC 8881 section 10.4.3: SHOULD), and puts them together with what the holder says.
    fn stamp(
        &self,
        object: &Handle,
        (attrs, server): (Attrs, Attrs),
        (shown, held): (Seen, HeldAttributes),
    ) -> Attrs {
        let held = within(held, (server.mtime, server.atime), wall_now());
        let root = Caller::root();
        let cx = Cx::new(&root, Wait::Yes);
        let set = SetAttrs {
            mtime: Some(held.mtime.map_or(SetTime::Now, SetTime::At)),
            atime: held.atime.map(SetTime::At),
            ..SetAttrs::default()
        };
        // Where that fails the times are a little old, and the change attribute is right all the same.
        let now =
            self.inner.setattr(&cx, File::Stateless(object), &set, None).map_or(server, |set| set.after);
        Attrs {
            size: shown.size,
            change: shown.change.max(now.change),
            mtime: held.mtime.unwrap_or(now.mtime),
            atime: held.atime.unwrap_or(now.atime),
            ctime: now.ctime,
            ..attrs
        }
    }

    /// Lists as [`holdfast_vfs::Backend::readdir`] does. Holders are asked between two stretches of the listing, not
    /// within, where the backend may hold locks.
    pub(super) fn list_as_held(
        &self,
        cx: &Cx<'_>,
        (listing, want): (DirListing<'_>, AttrMask),
        take: &mut dyn FnMut(DirEntry<'_>) -> Flow,
    ) -> FsResult<ListEnd> {
        let mut from = listing.from;
        let mut is_any_taken = false;
        loop {
            let mut late = None;
            let end = self.inner.readdir(cx, DirListing { from, ..listing }, &mut |entry| {
                if let Some(Ok(node)) = &entry.node
                    && self.is_held(cx, &node.handle, &node.attrs)
                {
                    let name = entry.name.to_vec();
                    late = Some(Late { name, next: entry.next, fileid: entry.fileid, node: *node });
                    return Flow::Stop;
                }
                let flow = take(entry);
                is_any_taken |= flow == Flow::Continue;
                flow
            })?;
            let Some(Late { name, next, fileid, mut node }) = late else { return Ok(end) };
            match self.as_held(cx, &node.handle, (node.attrs, want)) {
                Ok(attrs) => node.attrs = attrs,
                // What is there already is an answer; the client goes on from this entry.
                Err(_) if is_any_taken => return Ok(ListEnd::Stopped),
                Err(error) => return Err(error),
            }
            let entry = DirEntry { name: &name, next, fileid, node: Some(Ok(node)) };
            if take(entry) == Flow::Stop {
                return Ok(ListEnd::Stopped);
            }
            (from, is_any_taken) = (next, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_base::ChangeId;

    use super::*;

    #[test]
    fn a_holders_times_go_neither_back_nor_past_now() {
        let at = |seconds| Timestamp { seconds, nanos: 0 };
        let told = |mtime, atime| {
            let held = HeldAttributes { change: ChangeId(1), size: 0, mtime, atime };
            let within = within(held, (at(100), at(90)), at(200));
            (within.mtime, within.atime)
        };
        assert_eq!(told(Some(at(150)), Some(at(95))), (Some(at(150)), Some(at(95))));
        assert_eq!(told(Some(at(50)), Some(at(50))), (Some(at(100)), Some(at(90))));
        assert_eq!(told(Some(at(500)), None), (Some(at(200)), None));
    }
}
