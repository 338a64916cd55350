//! READDIR (RFC 8881 section 18.23).

use std::sync::Arc;

use holdfast_base::Cookie;
use holdfast_export::{Export, Object};
use holdfast_vfs::{
    DirEntry, DirListing, Flow, FsError, FsId, FsLimits, Grounds, Handle, ListEnd, Node, Page, PageKey,
};
use holdfast_wire::EntryList;
use holdfast_wire::nfs4::{Attr, Bitmap4, NfsStat4, OpNum4, ReadDir4Args, Verifier4};
use holdfast_xdr::Encode;

use super::{Encoded, Op};
use crate::attr::{OF_USAGE, WRITE_ONLY, backend_mask, encode, look};
use crate::cx::{At, Cx};
use crate::desc::{Flags, Minor, OpDesc};
use crate::error::{self, Failure, OpResult};
use crate::service::Service;

/// Cookies stay valid for as long as their directory lives, so the verifier never changes and is not looked at.
pub(super) const VERIFIER: Verifier4 = [0; 8];

/// Bytes of an empty listing: verifier, end of the chain, `eof`.
const EMPTY_BYTES: usize = 16;

/// The first cookie of a pseudo directory's listing: 0, 1 and 2 name no entry (RFC 8881 section 18.23.3).
const FIRST_COOKIE: u64 = 3;

impl Op for ReadDir4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::ReadDir, Flags::NEEDS_FH);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        if matches!(self.cookie, Cookie(1 | 2)) {
            return Err(NfsStat4::BadCookie.into());
        }
        if !self.attr_request.and(WRITE_ONLY).is_empty() {
            return Err(NfsStat4::Inval.into());
        }
        let room = (self.maxcount as usize).min(cx.reply_room());
        if room < EMPTY_BYTES {
            return Err(NfsStat4::TooSmall.into());
        }
        if let Object::Pseudo(dir) = *cx.current()? {
            return list_pseudo(cx, dir, &self, room);
        }
        let at = cx.at(NfsStat4::ServerFault)?;
        list(cx, &at, &self, room)
    }
}

fn list(cx: &mut Cx<'_>, at: &At, args: &ReadDir4Args, room: usize) -> OpResult<Encoded> {
    let (service, minor) = (&*cx.compound.service, cx.compound.minor);
    let start = cx.reply.len();
    VERIFIER.encode(cx.reply);
    let mut entries = EntryList::new(cx.reply, start, room, names_max(args.dircount));
    let key = page_key(args, minor, &entries);
    let kept = key.and_then(|key| at.backend().kept_page(&at.cx(), &at.handle, &key));
    let (end, failed) = match kept {
        Some(page) => {
            entries.put(&page.bytes, page.entries);
            (page.end, None)
        }
        None => list_fresh((service, minor, at), (args, key), &mut entries)?,
    };
    if entries.count() == 0 {
        // What stopped the listing before its first entry is the answer; later, the next call meets it again.
        if let Some(failure) = failed {
            return Err(failure);
        }
        if end == ListEnd::Stopped {
            return Err(NfsStat4::TooSmall.into());
        }
    }
    entries.finish(end == ListEnd::Eof);
    Ok(Encoded)
}

/// Attributes that are not the entry's alone, or change without it.
const NOT_KEPT: Bitmap4 = OF_USAGE.or(Bitmap4::of(&[Attr::LeaseTime, Attr::FsLocations]));

/// What this part of the listing is kept under; `None` when it cannot be kept.
fn page_key(args: &ReadDir4Args, minor: Minor, entries: &EntryList<'_>) -> Option<PageKey> {
    let want = args.attr_request;
    if want.has_beyond() || !want.and(NOT_KEPT).is_empty() {
        return None;
    }
    let (bytes, names, is_first) = entries.room();
    let names = u32::try_from(names).unwrap_or(u32::MAX);
    let head = 4 << 32 | (minor as u64) << 8 | u64::from(is_first);
    let room = (bytes as u64) << 32 | u64::from(names);
    Some(PageKey { from: args.cookie, form: [head, room, want.bits() as u64, (want.bits() >> 64) as u64] })
}

/// Lists from the backend; also tells what stopped it, when something did.
fn list_fresh(
    (service, minor, at): (&Service, Minor, &At),
    (args, key): (&ReadDir4Args, Option<PageKey>),
    entries: &mut EntryList<'_>,
) -> OpResult<(ListEnd, Option<Failure>)> {
    let listing =
        DirListing { dir: &at.handle, from: args.cookie, want: Some(backend_mask(args.attr_request)) };
    let position = entries.position();
    let (mut failed, mut grounds) = (None, Grounds::default());
    let mut on = None;
    let mut take = |entry: DirEntry<'_>| match one((service, minor, at), &entry, args.attr_request, &mut on) {
        Ok(None) => Flow::Continue,
        Ok(Some(attrs)) => taken(entries.push_with(name_bytes(entry.name), |w| {
            entry.next.encode(w);
            w.opaque(entry.name);
            attrs.write(service, minor, args.attr_request, w);
        })),
        Err(failure) => {
            failed = Some(failure);
            Flow::Stop
        }
    };
    let end = match key {
        Some(_) => at.backend().readdir_on(&at.cx(), listing, &mut grounds, &mut take)?,
        None => at.backend().readdir(&at.cx(), listing, &mut take)?,
    };
    if let Some(key) = key.filter(|_| failed.is_none() && !grounds.is_refused()) {
        let page = Page { bytes: entries.since(position).into(), entries: entries.count(), end };
        at.backend().keep_page(&at.handle, &key, (page, grounds));
    }
    Ok((end, failed))
}

/// What is told of an entry.
enum EntryAttrs {
    Looked(look::Looked),
    Error(NfsStat4),
    /// It lies elsewhere: that, and what is told of it all the same.
    Absent(look::Looked),
}

impl EntryAttrs {
    fn write(&self, service: &Service, minor: Minor, want: Bitmap4, to: &mut holdfast_xdr::Writer) {
        match self {
            Self::Looked(looked) => looked.write(service, minor, want, to),
            Self::Error(status) => encode::rdattr_error(*status, to),
            Self::Absent(looked) => looked.write_error(service, minor, (NfsStat4::Moved, want), to),
        }
    }
}

/// `None` for an entry that vanished meanwhile. `on` is the file system of the entry before, with its limits.
fn one(
    (service, minor, at): (&Service, Minor, &At),
    entry: &DirEntry<'_>,
    want: Bitmap4,
    on: &mut Option<(FsId, FsLimits)>,
) -> OpResult<Option<EntryAttrs>> {
    let node: Result<Node, FsError> = entry.node.unwrap_or(Err(FsError::Io));
    let looked = node.map_err(Failure::from).and_then(|node| {
        let limits = match *on {
            Some((fs, limits)) if fs == node.attrs.fsid => limits,
            // The backend finds the object for it: as dear as the entry itself.
            _ => at.backend().limits(&node.handle)?,
        };
        *on = Some((node.attrs.fsid, limits));
        look::node_within(service, at, (&node, limits), want)
    });
    match looked {
        Err(Failure::Fs(FsError::NotFound | FsError::Stale)) => Ok(None),
        looked => told(looked, minor, want).map(Some),
    }
}

/// That an entry cannot be looked at fails it alone, when the client asked for that (RFC 8881 section 18.23.3).
fn told(looked: OpResult<look::Looked>, minor: Minor, want: Bitmap4) -> OpResult<EntryAttrs> {
    match looked {
        Ok(looked) => Ok(EntryAttrs::Looked(looked)),
        Err(Failure::Fs(e)) if want.has(Attr::RdAttrError) => {
            Ok(EntryAttrs::Error(error::fit(error::from_fs(e), OpNum4::ReadDir, minor)))
        }
        Err(failure) => Err(failure),
    }
}

fn list_pseudo(cx: &mut Cx<'_>, dir: u64, args: &ReadDir4Args, room: usize) -> OpResult<Encoded> {
    let peer = cx.connection().peer().ip();
    let all = cx.config().namespace.entries(dir, peer)?;
    let skip = match args.cookie.0 {
        0 => 0,
        n => usize::try_from(n - FIRST_COOKIE + 1).map_err(|_| NfsStat4::BadCookie)?,
    };
    let mut looked = Vec::new();
    for (name, object) in all.into_iter().skip(skip) {
        let attrs = match object {
            Object::Pseudo(below) => EntryAttrs::Looked(look::pseudo(cx.service(), below)?),
            Object::Export(export, handle) if export.is_moved() => {
                absent(&export, handle, args.attr_request)?
            }
            Object::Export(..) => {
                let looked = export_root(cx, object, args.attr_request);
                told(looked, cx.minor(), args.attr_request)?
            }
        };
        looked.push((name, attrs));
    }
    let (service, minor) = (&*cx.compound.service, cx.compound.minor);
    let start = cx.reply.len();
    VERIFIER.encode(cx.reply);
    let mut entries = EntryList::new(cx.reply, start, room, names_max(args.dircount));
    let took_all = looked.iter().enumerate().all(|(i, (name, attrs))| {
        entries.push_with(name_bytes(name), |w| {
            w.u64(FIRST_COOKIE + (skip + i) as u64);
            w.opaque(name);
            attrs.write(service, minor, args.attr_request, w);
        })
    });
    if entries.count() == 0 && !took_all {
        return Err(NfsStat4::TooSmall.into());
    }
    entries.finish(took_all);
    Ok(Encoded)
}

/// An export that lies elsewhere, in the directory above it (RFC 8881 section 11.3.2).
fn absent(export: &Arc<Export>, handle: Handle, want: Bitmap4) -> OpResult<EntryAttrs> {
    let looked = look::absent(export, handle)?;
    match want {
        // Who wants to know where it is, is told as of any other.
        want if want.has(Attr::FsLocations) => Ok(EntryAttrs::Looked(looked)),
        want if want.has(Attr::RdAttrError) => Ok(EntryAttrs::Absent(looked)),
        _ => Err(NfsStat4::Moved.into()),
    }
}

fn export_root(cx: &mut Cx<'_>, object: Object, want: Bitmap4) -> OpResult<look::Looked> {
    let at = cx.at_object(object, NfsStat4::ServerFault)?;
    let attrs = at.backend().getattr(&at.cx(), &at.handle, backend_mask(want))?;
    look::node(cx.service(), &at, &Node { handle: at.handle, attrs }, want)
}

/// `dircount` bounds names and cookies alone, as a hint; 0 means there is none.
const fn names_max(dircount: u32) -> usize {
    if dircount == 0 { usize::MAX } else { dircount as usize }
}

const fn name_bytes(name: &[u8]) -> usize {
    8 + 4 + name.len().next_multiple_of(4)
}

const fn taken(fits: bool) -> Flow {
    if fits { Flow::Continue } else { Flow::Stop }
}
