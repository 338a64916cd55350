//! LOOKUP and LIST: names, and what they stand for.

use holdfast_base::limits::{CAPS_LIST_BYTES_MAX, CAPS_LIST_ENTRIES_MAX};
use holdfast_base::{CapSet, Cookie};
use holdfast_export::WireHandle;
use holdfast_vfs::{AttrMask, Attrs, DirListing, FileKind, Flow, FsError, ListEnd, Name, Node};
use holdfast_wire::EntryList;
use holdfast_wire::caps::{
    Acquired, CapsStat, Grant, Handle, ListArgs, ListEntry, Looked, LookupArgs, LookupOk, NodeAt, Res,
};
use holdfast_xdr::{Encode, Writer};

use crate::find::Promising;
use crate::site::{Actor, Site};
use crate::{Caps, attrs, status};

/// How often a name is looked up of which the object is gone each time. So quickly nobody replaces it: the file system is in
/// disorder.
const LOOKS_MAX: u32 = 32;

/// An entry of a listing.
struct Entry {
    name: Vec<u8>,
    next: Cookie,
    fileid: u64,
    node: Result<(WireHandle, Attrs, Grant), CapsStat>,
}

/// A name as the backend lists it: with the position after it, its number, and what it names.
type Found = (Vec<u8>, Cookie, u64, Result<Node, FsError>);

/// What a name stands for, and what is held of that and of the directory.
pub(crate) struct LookedUp {
    dir: Acquired,
    found: Option<(WireHandle, holdfast_wire::caps::Attrs, Grant)>,
    /// The name's token and number, where it is promised by itself.
    pub(crate) promise: Option<(WireHandle, u64)>,
}

impl LookedUp {
    /// As it is told.
    pub(crate) fn told(&self) -> LookupOk<'_> {
        let found = match &self.found {
            Some((handle, attrs, grant)) => {
                Looked::Present(NodeAt { handle: Handle(handle.as_bytes()), attrs: *attrs, grant: *grant })
            }
            None => Looked::Absent,
        };
        LookupOk { dir: self.dir, found }
    }
}

impl Caps {
    pub(crate) fn lookup(
        &self,
        actor: &Actor,
        args: &LookupArgs<'_>,
        reply: &mut Writer,
    ) -> Result<(), CapsStat> {
        Res::Ok(self.look_up(actor, args, Promising::Directories)?.told()).encode(reply);
        Ok(())
    }

    /// Grants on the directory, or promises the name, then looks up, so that what is found and what is not is covered.
    pub(crate) fn look_up(
        &self,
        actor: &Actor,
        args: &LookupArgs<'_>,
        promising: Promising,
    ) -> Result<LookedUp, CapsStat> {
        let dir = self.site(actor, args.dir.0)?;
        let caller = self.caller(actor, &dir.export)?;
        let cx = actor.cx(&caller);
        let name = Name::new(args.name).map_err(status::of_fs)?;
        let until = self.parts.manager.caps_patience();
        let is_contested = promising == Promising::Names && self.is_contested(&dir);
        // What would be taken again at once is no use to anybody, and costs a recall.
        let want_dir = if is_contested { args.want_dir.without(CapSet::FILE_X) } else { args.want_dir };
        let directory = (FileKind::Directory, want_dir, None);
        let backend = &dir.export.backend;
        let is_dir =
            |attrs: &Attrs| if attrs.kind == FileKind::Directory { Ok(()) } else { Err(CapsStat::NotDir) };
        is_dir(&backend.getattr(&cx, &dir.handle, AttrMask::NONE).map_err(status::of_fs)?)?;
        let grant = self.grant(actor.client, &dir, directory, Some(until))?;
        let find = || match backend.lookup(&cx, &dir.handle, name, AttrMask::NONE) {
            Ok(node) => Ok(Some(node)),
            Err(FsError::NotFound) => Ok(None),
            Err(error) => Err(status::of_fs(error)),
        };
        // Nothing is promised to who may not look; and of what was promised after the look it tells nothing.
        let mut found = find()?;
        let mut promise = None;
        let is_covered = grant.held.contains(CapSet::FILE_S) && !is_contested;
        if promising == Promising::Names && !is_covered {
            promise = self.promise_name(actor.client, &dir, name)?;
            if promise.is_some() {
                found = find()?;
            }
        }
        let look = |Node { handle, attrs: seen }| {
            let child = dir.beside(handle);
            let grant = self.grant(actor.client, &child, (seen.kind, args.want, None), Some(until))?;
            let seen = backend.getattr(&cx, &handle, attrs::ALL).map_err(status::of_fs)?;
            Ok((self.seal(&child), attrs::attrs(&seen), grant))
        };
        // It may have been removed while those were waited for who held something of it: that it is gone is no answer to what
        // its name stands for.
        let mut looks = 0;
        let found = loop {
            looks += 1;
            match found.map(look).transpose() {
                Err(CapsStat::Stale) if looks < LOOKS_MAX => found = find()?,
                seen => break seen?,
            }
        };
        let seen = backend.getattr(&cx, &dir.handle, attrs::ALL).map_err(status::of_fs)?;
        Ok(LookedUp { dir: Acquired { grant, attrs: attrs::attrs(&seen) }, found, promise })
    }

    pub(crate) fn list(
        &self,
        actor: &Actor,
        args: &ListArgs<'_>,
        reply: &mut Writer,
    ) -> Result<(), CapsStat> {
        let dir = self.site(actor, args.dir.0)?;
        let caller = self.caller(actor, &dir.export)?;
        let cx = actor.cx(&caller);
        let backend = &dir.export.backend;
        let seen = backend.getattr(&cx, &dir.handle, attrs::ALL).map_err(status::of_fs)?;
        if seen.kind != FileKind::Directory {
            return Err(CapsStat::NotDir);
        }
        let until = self.parts.manager.caps_patience();
        let grant =
            self.grant(actor.client, &dir, (FileKind::Directory, args.want_dir, None), Some(until))?;
        let seen = backend.getattr(&cx, &dir.handle, attrs::ALL).map_err(status::of_fs)?;
        let bytes_max = (args.bytes_max as usize).min(CAPS_LIST_BYTES_MAX);
        let (entries, end) = self.collect(actor, &dir, (args.cookie, args.want, bytes_max))?;
        let start = reply.len();
        0u32.encode(reply);
        Acquired { grant, attrs: attrs::attrs(&seen) }.encode(reply);
        let mut list = EntryList::new(reply, start, bytes_max, usize::MAX);
        let mut is_whole = end == ListEnd::Eof;
        for entry in &entries {
            let node = match &entry.node {
                Ok((handle, seen, grant)) => Res::Ok(NodeAt {
                    handle: Handle(handle.as_bytes()),
                    attrs: attrs::attrs(seen),
                    grant: *grant,
                }),
                Err(stat) => Res::Failed(stat.as_u32()),
            };
            let entry = ListEntry { name: &entry.name, cookie: entry.next, fileid: entry.fileid, node };
            if !list.push(&entry, 0) {
                is_whole = false;
                break;
            }
        }
        if list.count() == 0 && !is_whole {
            return Err(CapsStat::TooSmall);
        }
        list.finish(is_whole);
        Ok(())
    }

    /// Names first, in one go; then, the backend holding nothing any more, what is granted of each and how it looks.
    fn collect(
        &self,
        actor: &Actor,
        dir: &Site,
        (from, want, bytes_max): (Cookie, CapSet, usize),
    ) -> Result<(Vec<Entry>, ListEnd), CapsStat> {
        let caller = self.caller(actor, &dir.export)?;
        let cx = actor.cx(&caller);
        let backend = &dir.export.backend;
        let mut found: Vec<Found> = Vec::new();
        let mut bytes = 0;
        let listing = DirListing { dir: &dir.handle, from, want: Some(AttrMask::NONE) };
        let end = backend.readdir(&cx, listing, &mut |entry| {
            // Name, cookie, number, handle, attributes and grant.
            bytes += entry.name.len() + 280;
            if !found.is_empty() && (bytes > bytes_max || found.len() >= CAPS_LIST_ENTRIES_MAX) {
                return Flow::Stop;
            }
            let node = entry.node.unwrap_or(Err(FsError::Stale));
            found.push((entry.name.to_vec(), entry.next, entry.fileid, node));
            Flow::Continue
        });
        let end = end.map_err(status::of_fs)?;
        let one = |node: Result<Node, FsError>| {
            let node = node.map_err(status::of_fs)?;
            let child = dir.beside(node.handle);
            // Nothing is recalled for it, and nobody waited for.
            let grant = self.grant(actor.client, &child, (node.attrs.kind, want, None), None)?;
            let impatient = holdfast_vfs::Cx { wait: holdfast_vfs::Wait::No, ..cx };
            let seen = match backend.getattr(&impatient, &node.handle, attrs::ALL) {
                Err(FsError::WouldBlock) => self.look(actor, &child).ok_or(CapsStat::Delay)?,
                other => other.map_err(status::of_fs)?,
            };
            Ok((self.seal(&child), seen, grant))
        };
        let entries =
            found.into_iter().map(|(name, next, fileid, node)| Entry { name, next, fileid, node: one(node) });
        Ok((entries.collect(), end))
    }
}
