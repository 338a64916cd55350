//! READDIR and READDIRPLUS (RFC 1813 sections 3.3.16 and 3.3.17). `.` and `..` are ours, with the cookies 1 and 2;
//! what follows are the backend's. Cookies stay valid, so the verifier says nothing and is zero.

use holdfast_base::Cookie;
use holdfast_base::limits::IO_BYTES_MAX;
use holdfast_export::{Namespace, Object, WireHandle};
use holdfast_vfs::{
    AttrMask, Attrs, DirEntry, DirListing, FileKind, Flow, FsError, FsResult, Grounds, Handle, ListEnd, Page,
    PageKey,
};
use holdfast_wire::EntryList;
use holdfast_wire::nfs3::{
    DirHeader3, Entry3, EntryPlus3, Fh3, NfsStat3, Proc3, ReadDir3Args, ReadDirPlus3Args, Verifier3,
};
use holdfast_xdr::{Encode, Writer};

use crate::attr;
use crate::procedure::{Desc, FailBody, Failure, On, Op, Procedure, Site, Target};

const VERIFIER: Verifier3 = [0; 8];
const DOT: Cookie = Cookie(1);
const DOT_DOT: Cookie = Cookie(2);

/// What pages of READDIRPLUS are told apart by from those of other protocols.
const READDIRPLUS: u64 = 3 << 32;

/// Names and numbers.
pub(crate) struct ReadDir;

impl Procedure for ReadDir {
    const DESC: Desc = Desc::looks(Proc3::ReadDir, FailBody::PostOp);
    type Args<'a> = ReadDir3Args<'a>;

    fn run(op: &mut Op<'_>, on: &On, args: &ReadDir3Args<'_>, w: &mut Writer) -> Result<(), Failure> {
        let asked = Asked {
            from: args.cookie,
            verifier: args.cookieverf,
            bytes_max: args.count as usize,
            names_max: usize::MAX,
            is_plus: false,
        };
        list(op, &on.first, &asked, w)
    }
}

/// Names with handles and attributes.
pub(crate) struct ReadDirPlus;

impl Procedure for ReadDirPlus {
    const DESC: Desc = Desc::looks(Proc3::ReadDirPlus, FailBody::PostOp);
    type Args<'a> = ReadDirPlus3Args<'a>;

    fn run(op: &mut Op<'_>, on: &On, args: &ReadDirPlus3Args<'_>, w: &mut Writer) -> Result<(), Failure> {
        let asked = Asked {
            from: args.cookie,
            verifier: args.cookieverf,
            bytes_max: args.maxcount as usize,
            names_max: args.dircount as usize,
            is_plus: true,
        };
        list(op, &on.first, &asked, w)
    }
}

/// What both procedures ask.
struct Asked {
    from: Cookie,
    verifier: Verifier3,
    bytes_max: usize,
    names_max: usize,
    is_plus: bool,
}

/// An entry on its way to the reply.
struct Item<'a> {
    name: &'a [u8],
    cookie: Cookie,
    fileid: u64,
    attrs: Option<Attrs>,
    handle: Option<WireHandle>,
}

/// The listing as it is written.
struct Listing<'w> {
    entries: EntryList<'w>,
    is_plus: bool,
}

impl Listing<'_> {
    fn push(&mut self, item: &Item<'_>) -> Flow {
        let entry = Entry3 { fileid: item.fileid, name: item.name, cookie: item.cookie };
        // What `dircount` counts: number, name and cookie.
        let names_bytes = 8 + 4 + item.name.len().next_multiple_of(4) + 8;
        let fits = if self.is_plus {
            let plus = EntryPlus3 {
                entry,
                name_attributes: item.attrs.as_ref().map(attr::fattr),
                name_handle: item.handle.as_ref().map(|fh| Fh3(fh.as_bytes())),
            };
            self.entries.push(&plus, names_bytes)
        } else {
            self.entries.push(&entry, names_bytes)
        };
        if fits { Flow::Continue } else { Flow::Stop }
    }
}

fn list(op: &Op<'_>, dir: &Target, asked: &Asked, w: &mut Writer) -> Result<(), Failure> {
    if asked.from.0 != 0 && asked.verifier != VERIFIER {
        return Err(NfsStat3::BadCookie.into());
    }
    let attrs = op.attributes(dir)?;
    if attrs.kind != FileKind::Directory {
        return Err(NfsStat3::NotDir.into());
    }
    NfsStat3::Ok.encode(w);
    let start = w.len();
    DirHeader3 { dir_attributes: Some(attr::fattr(&attrs)), cookieverf: VERIFIER }.encode(w);
    let entries = EntryList::new(w, start, asked.bytes_max.min(IO_BYTES_MAX), asked.names_max);
    let mut listing = Listing { entries, is_plus: asked.is_plus };
    let end = match dots(op, dir, &attrs, asked, &mut listing)? {
        Flow::Stop => ListEnd::Stopped,
        Flow::Continue => match dir {
            Target::Pseudo(dir) => pseudo_entries(op, *dir, asked, &mut listing)?,
            Target::Site(site) => site_entries(op, site, asked, &mut listing)?,
        },
    };
    if end == ListEnd::Stopped && listing.entries.count() == 0 {
        return Err(NfsStat3::TooSmall.into());
    }
    listing.entries.finish(end == ListEnd::Eof);
    Ok(())
}

/// `.` and `..`, as far as they are asked for.
fn dots(
    op: &Op<'_>,
    dir: &Target,
    attrs: &Attrs,
    asked: &Asked,
    listing: &mut Listing<'_>,
) -> FsResult<Flow> {
    if asked.from.0 == 0 {
        let handle = asked.is_plus.then(|| seal(op, dir));
        let fileid = attrs.fileid;
        let item = Item { name: b".", cookie: DOT, fileid, attrs: Some(*attrs), handle };
        if listing.push(&item) == Flow::Stop {
            return Ok(Flow::Stop);
        }
    }
    if asked.from < DOT_DOT {
        let (attrs, handle) = above(op, dir, attrs)?;
        let handle = asked.is_plus.then_some(handle);
        let fileid = attrs.fileid;
        return Ok(listing.push(&Item { name: b"..", cookie: DOT_DOT, fileid, attrs: Some(attrs), handle }));
    }
    Ok(Flow::Continue)
}

fn seal(op: &Op<'_>, target: &Target) -> WireHandle {
    match target {
        Target::Pseudo(dir) => op.namespace.seal(&Object::Pseudo(*dir)),
        Target::Site(site) => op.namespace.seal_in(&site.export, &site.handle),
    }
}

/// The directory above; of a root it is the root itself.
fn above(op: &Op<'_>, dir: &Target, attrs: &Attrs) -> FsResult<(Attrs, WireHandle)> {
    let object = match dir {
        Target::Pseudo(dir) => op.namespace.parent(*dir),
        Target::Site(site) => {
            let parent = site.backend().parent(&site.cx(op.wait), &site.handle, AttrMask::STAT);
            match parent {
                Ok(node) => return Ok((node.attrs, op.namespace.seal_in(&site.export, &node.handle))),
                Err(FsError::NotFound) => op.namespace.parent_of_export(&site.export),
                Err(FsError::WouldBlock) => return Err(FsError::WouldBlock),
                // Who may list a directory may still not go up from it.
                Err(error) => Err(error),
            }
        }
    };
    match object {
        Ok(Object::Pseudo(n)) => Ok((op.namespace.attrs(n)?, op.namespace.seal(&Object::Pseudo(n)))),
        _ => Ok((*attrs, seal(op, dir))),
    }
}

fn site_entries(op: &Op<'_>, site: &Site, asked: &Asked, listing: &mut Listing<'_>) -> FsResult<ListEnd> {
    let from = if asked.from <= DOT_DOT { Cookie(0) } else { asked.from };
    if !asked.is_plus {
        return fresh_entries(op, site, (from, None), listing);
    }
    let (bytes, names, is_first) = listing.entries.room();
    let key = PageKey { from, form: [READDIRPLUS, bytes as u64, names as u64, u64::from(is_first)] };
    let (cx, backend) = (site.cx(op.wait), site.backend());
    if let Some(page) = backend.kept_page(&cx, &site.handle, &key) {
        listing.entries.put(&page.bytes, page.entries);
        return Ok(page.end);
    }
    let (position, before) = (listing.entries.position(), listing.entries.count());
    let mut grounds = Grounds::default();
    let end = fresh_entries(op, site, (from, Some(&mut grounds)), listing)?;
    if !grounds.is_refused() {
        let entries = listing.entries.count() - before;
        let page = Page { bytes: listing.entries.since(position).into(), entries, end };
        backend.keep_page(&site.handle, &key, (page, grounds));
    }
    Ok(end)
}

/// Entries with attributes, and what those rest on, where there are grounds; names and numbers where there are none.
fn fresh_entries(
    op: &Op<'_>,
    site: &Site,
    (from, grounds): (Cookie, Option<&mut Grounds>),
    listing: &mut Listing<'_>,
) -> FsResult<ListEnd> {
    let want = grounds.is_some().then_some(AttrMask::STAT);
    let seal = |handle: &Handle| op.namespace.seal_in(&site.export, handle);
    let listed = DirListing { dir: &site.handle, from, want };
    let mut would_block = false;
    let mut take = |entry: DirEntry<'_>| {
        if matches!(entry.node, Some(Err(FsError::WouldBlock))) {
            would_block = true;
            return Flow::Stop;
        }
        // An entry whose attributes cannot be had is listed all the same.
        let node = entry.node.and_then(Result::ok);
        listing.push(&Item {
            name: entry.name,
            cookie: entry.next,
            fileid: entry.fileid,
            attrs: node.map(|n| n.attrs),
            handle: node.map(|n| seal(&n.handle)),
        })
    };
    let (cx, backend) = (site.cx(op.wait), site.backend());
    let end = match grounds {
        Some(grounds) => backend.readdir_on(&cx, listed, grounds, &mut take)?,
        None => backend.readdir(&cx, listed, &mut take)?,
    };
    // What was listed so far is enough to answer with, unless it is nothing.
    if would_block && listing.entries.count() == 0 { Err(FsError::WouldBlock) } else { Ok(end) }
}

/// Entries of a pseudo directory: their cookies count from 3.
fn pseudo_entries(op: &Op<'_>, dir: u64, asked: &Asked, listing: &mut Listing<'_>) -> FsResult<ListEnd> {
    let skip = usize::try_from(asked.from.0.saturating_sub(DOT_DOT.0)).unwrap_or(usize::MAX);
    let entries = op.namespace.entries(dir, op.peer)?;
    for (i, (name, object)) in entries.iter().enumerate().skip(skip) {
        // An export's own attributes are judged by its own rules: the client asks for them by handle.
        let (fileid, attrs) = match object {
            Object::Pseudo(below) => {
                let attrs = op.namespace.attrs(*below)?;
                (attrs.fileid, Some(attrs))
            }
            Object::Export(export, _) => (Namespace::mounted_on(export), None),
        };
        let handle = asked.is_plus.then(|| op.namespace.seal(object));
        let cookie = Cookie(DOT_DOT.0 + 1 + i as u64);
        if listing.push(&Item { name, cookie, fileid, attrs, handle }) == Flow::Stop {
            return Ok(ListEnd::Stopped);
        }
    }
    Ok(ListEnd::Eof)
}
