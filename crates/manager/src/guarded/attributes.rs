//! Attributes of files that somebody else may have changed without having written that back.

use std::time::{SystemTime, UNIX_EPOCH};

use holdfast_base::limits::{LISTING_ASKED_MAX, LISTING_RECALLS_MAX};
use holdfast_base::{ClientId, Cookie, Timestamp};
use holdfast_state::{Deed, Seen};
use holdfast_vfs::{
    AttrMask, Attrs, Caller, Cx, DirEntry, DirListing, File, Flow, FsError, FsResult, Grounds, Handle,
    ListEnd, Node, SetAttrs, SetTime, Wait,
};

use super::Guarded;
use crate::held::HeldAttributes;

/// An entry that waits for a holder's answer, its own or that of one before it.
struct Late {
    name: Vec<u8>,
    next: Cookie,
    fileid: u64,
    node: Option<FsResult<Node>>,
    is_held: bool,
}

impl Late {
    fn new(entry: &DirEntry<'_>, is_held: bool) -> Self {
        let DirEntry { name, next, fileid, node } = entry;
        Self { name: name.to_vec(), next: *next, fileid: *fileid, node: *node, is_held }
    }
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
        self.as_held_since(cx, object, (attrs, want), None)
    }

    /// The same for a request that began when so many questions had been put: the answer to any later one will do.
    fn as_held_since(
        &self,
        cx: &Cx<'_>,
        object: &Handle,
        (attrs, want): (Attrs, AttrMask),
        since: Option<u64>,
    ) -> FsResult<Attrs> {
        if (want & (AttrMask::STAT | AttrMask::CHANGE)).is_empty() || !self.is_held(cx, object) {
            return Ok(attrs);
        }
        // Whatever was asked for, the holder's word is weighed against change and size.
        let server = self.inner.getattr(cx, object, AttrMask::STAT | AttrMask::CHANGE)?;
        let seen = Seen { change: server.change, size: server.size };
        let (key, by) = (object.key(), cx.client);
        match self.manager.held_attributes(key, (by, since), (seen, cx.wait))? {
            // Setting times may have to wait, whoever asked.
            Some(_) if cx.wait != Wait::Yes => Err(FsError::WouldBlock),
            // What the holder says of a file that it has given back meanwhile is past.
            Some((shown, held)) if self.is_held(cx, object) => {
                Ok(self.stamp(object, (attrs, server), (shown, held)))
            }
            // It may have been given back meanwhile, with what was written before.
            _ => self.inner.getattr(cx, object, want),
        }
    }

    fn is_held(&self, cx: &Cx<'_>, object: &Handle) -> bool {
        self.is_held_against(cx.client, object)
    }

    fn is_held_against(&self, by: Option<ClientId>, object: &Handle) -> bool {
        self.manager.has_promises() && self.manager.index.look(object.key(), Deed::LookAttrs, by).is_err()
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

    /// Lists as [`holdfast_vfs::Backend::readdir`] does, or where there are grounds as
    /// [`holdfast_vfs::Backend::readdir_on`].
    pub(super) fn list(
        &self,
        cx: &Cx<'_>,
        listing: DirListing<'_>,
        mut grounds: Option<&mut Grounds>,
        take: &mut dyn FnMut(DirEntry<'_>) -> Flow,
    ) -> FsResult<ListEnd> {
        self.manager.contend_if_promised(listing.dir, Deed::LookEntries, cx)?;
        if let Some(want) = listing.want
            && self.manager.has_promises()
        {
            return self.list_as_held(cx, (listing, want), grounds, take);
        }
        let end = self.list_inner(cx, listing, grounds.as_deref_mut(), take);
        // What was promised meanwhile was not looked for.
        if let Some(grounds) = grounds.filter(|_| self.manager.has_promises()) {
            grounds.refuse();
        }
        end
    }

    fn list_inner(
        &self,
        cx: &Cx<'_>,
        listing: DirListing<'_>,
        grounds: Option<&mut Grounds>,
        take: &mut dyn FnMut(DirEntry<'_>) -> Flow,
    ) -> FsResult<ListEnd> {
        match grounds {
            Some(grounds) => self.inner.readdir_on(cx, listing, grounds, take),
            None => self.inner.readdir(cx, listing, take),
        }
    }

    /// Lists as [`holdfast_vfs::Backend::readdir`] does. Holders are asked between two stretches of the listing, not
    /// within, where the backend may hold locks; those of several entries at once.
    fn list_as_held(
        &self,
        cx: &Cx<'_>,
        (listing, want): (DirListing<'_>, AttrMask),
        mut grounds: Option<&mut Grounds>,
        take: &mut dyn FnMut(DirEntry<'_>) -> Flow,
    ) -> FsResult<ListEnd> {
        let mut from = listing.from;
        let mut is_any_taken = false;
        loop {
            let (mut late, mut is_anyones) = (Vec::new(), false);
            let stretch = DirListing { from, ..listing };
            let end = self.list_inner(cx, stretch, grounds.as_deref_mut(), &mut |entry| {
                let mut is_held = false;
                if let Some(Ok(node)) = &entry.node {
                    // The holder's own listing shows what others are not to be shown.
                    is_anyones |= self.is_held_against(None, &node.handle);
                    is_held = is_anyones && self.is_held(cx, &node.handle);
                }
                if is_held || !late.is_empty() {
                    late.push(Late::new(&entry, is_held));
                    return if late.len() < LISTING_ASKED_MAX { Flow::Continue } else { Flow::Stop };
                }
                let flow = take(entry);
                is_any_taken |= flow == Flow::Continue;
                flow
            });
            if let Some(grounds) = grounds.as_deref_mut().filter(|_| is_anyones) {
                grounds.refuse();
            }
            let end = end?;
            let Some(last) = late.last() else { return Ok(end) };
            let (next, is_full) = (last.next, late.len() == LISTING_ASKED_MAX);
            match self.take_late(cx, (late, want), &mut is_any_taken, take) {
                Ok(Flow::Continue) if is_full => from = next,
                Ok(Flow::Continue) => return Ok(end),
                Ok(Flow::Stop) => return Ok(ListEnd::Stopped),
                Err(error) => {
                    self.recall_rest(cx, stretch);
                    // What is there already is an answer; the client goes on from the entry that failed.
                    return if is_any_taken { Ok(ListEnd::Stopped) } else { Err(error) };
                }
            }
        }
    }

    /// Gives the entries of a stretch with what their holders say, who are asked all at once.
    fn take_late(
        &self,
        cx: &Cx<'_>,
        (late, want): (Vec<Late>, AttrMask),
        is_any_taken: &mut bool,
        take: &mut dyn FnMut(DirEntry<'_>) -> Flow,
    ) -> FsResult<Flow> {
        let began = self.manager.questions.count();
        if want.contains(AttrMask::STAT) && cx.wait == Wait::Yes {
            for one in late.iter().filter(|one| one.is_held) {
                if let Some(Ok(node)) = &one.node {
                    self.manager.ask_ahead((node.handle.key(), node.attrs.size), cx.client, began);
                }
            }
        }
        for Late { name, next, fileid, mut node, is_held } in late {
            if let Some(Ok(node)) = node.as_mut().filter(|_| is_held) {
                node.attrs = self.as_held_since(cx, &node.handle, (node.attrs, want), Some(began))?;
            }
            if take(DirEntry { name: &name, next, fileid, node }) == Flow::Stop {
                return Ok(Flow::Stop);
            }
            *is_any_taken = true;
        }
        Ok(Flow::Continue)
    }

    /// A holder has not answered for one entry. What it has of others there is recalled without asking it: one after
    /// the other, each with its time to return, would keep the listing from ever coming to its end.
    fn recall_rest(&self, cx: &Cx<'_>, listing: DirListing<'_>) {
        if !self.manager.questions.has_silent() {
            return;
        }
        let mut left = LISTING_RECALLS_MAX;
        let mut files = Vec::new();
        // What cannot be listed now is met by the next try.
        let _ = self.inner.readdir(cx, listing, &mut |entry| {
            if let Some(Ok(node)) = &entry.node
                && self.is_held(cx, &node.handle)
            {
                files.push(node.handle.key());
            }
            left -= 1;
            if left == 0 { Flow::Stop } else { Flow::Continue }
        });
        files.into_iter().for_each(|file| self.manager.recall_from_silent(file, cx.client));
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
