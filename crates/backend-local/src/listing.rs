//! Listing directories: positions are the file system's own (`d_off`), shifted past the cookies that NFS keeps for
//! itself.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use holdfast_base::Cookie;
use holdfast_base::limits::{
    BACKEND_LISTING_BUFFER_BYTES, BACKEND_LISTING_PLUS_BUFFER_BYTES, BACKEND_LISTINGS_MAX,
};
use holdfast_vfs::{
    AttrMask, Caller, Cx, DirEntry, DirListing, FileKind, Flow, FsError, FsResult, Grounds, Handle, ListEnd,
    Mark, Node,
};
use parking_lot::Mutex;
use rustix::fs::{OFlags, RawDir, SeekFrom, seek};

use crate::errors::fs_error;
use crate::local::{Keep, LocalBackend};
use crate::looks;
use crate::marks;
use crate::object::Object;
use crate::sys;
use crate::watch::listed;

/// `d_off` 0 is the start; NFS keeps cookies 1 and 2 for itself (RFC 8881 section 18.23.3).
const SHIFT: u64 = 3;
const LAST: u64 = i64::MAX as u64;

/// The cookie of a position. ext4 ends its directories with the largest position there is, which stays itself.
const fn cookie_of(position: u64) -> Cookie {
    Cookie(if position >= LAST - SHIFT { LAST } else { position + SHIFT })
}

const fn position_of(cookie: Cookie) -> Option<u64> {
    match cookie.0 {
        0 => Some(0),
        LAST => Some(LAST),
        c if c >= SHIFT && c < LAST => Some(c - SHIFT),
        _ => None,
    }
}

/// A directory opened for a caller, standing somewhere.
struct Open {
    handle: Handle,
    cookie: Cookie,
    caller: Caller,
    fd: OwnedFd,
    /// Where the next `getdents64` would go on.
    position: u64,
}

/// Open directories between two calls of one listing. An overlay would otherwise merge its layers anew for each.
#[derive(Default)]
pub(crate) struct Listings {
    open: Mutex<VecDeque<Open>>,
}

impl Listings {
    fn take(&self, handle: &Handle, cookie: Cookie, caller: &Caller) -> Option<Open> {
        let mut open = self.open.lock();
        let at =
            open.iter().position(|o| o.cookie == cookie && o.handle == *handle && o.caller == *caller)?;
        open.remove(at)
    }

    fn put(&self, listing: Open) {
        let mut open = self.open.lock();
        let oldest = if open.len() >= BACKEND_LISTINGS_MAX { open.pop_front() } else { None };
        open.push_back(listing);
        drop(open);
        drop(oldest);
    }

    /// Closes a directory that has been removed: a listing of it that nobody goes on with would keep it.
    pub(crate) fn forget(&self, handle: &Handle) {
        let mut open = self.open.lock();
        let all = std::mem::take(&mut *open);
        let (gone, kept) = all.into_iter().partition::<VecDeque<_>, _>(|listing| listing.handle == *handle);
        *open = kept;
        drop(open);
        drop(gone);
    }

    pub(crate) fn clear(&self) {
        let open = std::mem::take(&mut *self.open.lock());
        drop(open);
    }
}

impl LocalBackend {
    pub(crate) fn do_readdir(
        &self,
        cx: &Cx<'_>,
        listing: DirListing<'_>,
        grounds: Option<&mut Grounds>,
        take: &mut dyn FnMut(DirEntry<'_>) -> Flow,
    ) -> FsResult<ListEnd> {
        let from = position_of(listing.from).ok_or(FsError::BadCookie)?;
        let dir = self.resolve(cx.wait, listing.dir)?;
        dir.must_be_dir()?;
        self.may_wait(cx, &dir)?;
        let mut open = match self.listings.take(listing.dir, listing.from, cx.caller) {
            Some(open) => open,
            None => self.open_listing(cx, &dir, listing.from)?,
        };
        if open.position != from {
            seek(&open.fd, SeekFrom::Start(from)).map_err(|_| FsError::BadCookie)?;
        }
        let mut grounds = self.grounds_for(&dir, from > 0, grounds);
        let listed = self.list(cx, &dir, (&mut open, listing.want), &mut grounds, take);
        looks::was_read(&dir);
        let (end, at) = listed?;
        if end == ListEnd::Stopped {
            // The kernel stands after the whole buffer; `position` is left as something that no cookie is, so
            // that the next call seeks.
            (open.cookie, open.position) = (at.unwrap_or(listing.from), u64::MAX);
            self.listings.put(open);
        }
        Ok(end)
    }

    /// The grounds to be gathered, with the directory's own entries as the first; none where they are not asked for, or
    /// nothing may be kept. `is_long` when the listing goes on where another call ended.
    fn grounds_for<'g>(
        &self,
        dir: &Arc<Object>,
        is_long: bool,
        grounds: Option<&'g mut Grounds>,
    ) -> Option<&'g mut Grounds> {
        let grounds = grounds?;
        match self.marks_for(dir, is_long) {
            Some((entries, watch)) => {
                grounds.rest_on(entries);
                watch.into_iter().for_each(|watch| grounds.rest_on(watch));
                Some(grounds)
            }
            None => {
                grounds.refuse();
                None
            }
        }
    }

    /// Marks of a directory's entries, and of the watch on local processes where there may be any.
    fn marks_for(&self, dir: &Arc<Object>, is_long: bool) -> Option<(Mark, Option<Mark>)> {
        if !self.keeps_pages(dir) {
            return None;
        }
        let watch = match self.options.is_sole_writer {
            true => None,
            false => Some(listed::watch(dir, is_long, (self.identity, &self.proc_fd))?),
        };
        Some((marks::of_entries(dir.ino)?, watch))
    }

    fn open_listing(&self, cx: &Cx<'_>, dir: &Object, cookie: Cookie) -> FsResult<Open> {
        let fd = self.sparing(|| {
            let _acting = self.identity.act_as(cx.caller)?;
            self.proc_fd.reopen(dir.fd(), OFlags::RDONLY | OFlags::DIRECTORY)
        })?;
        Ok(Open { handle: dir.handle, cookie, caller: cx.caller.clone(), fd, position: 0 })
    }

    /// Gives entries to `take`; also tells the position after the last one taken.
    fn list(
        &self,
        cx: &Cx<'_>,
        dir: &Arc<Object>,
        (open, want): (&mut Open, Option<AttrMask>),
        grounds: &mut Option<&mut Grounds>,
        take: &mut dyn FnMut(DirEntry<'_>) -> Flow,
    ) -> FsResult<(ListEnd, Option<Cookie>)> {
        // What the taker leaves of a buffer is read again: the less of it the better where the taker takes long.
        let bytes =
            if want.is_some() { BACKEND_LISTING_PLUS_BUFFER_BYTES } else { BACKEND_LISTING_BUFFER_BYTES };
        let mut buffer = Vec::with_capacity(bytes);
        let mut entries = RawDir::new(open.fd.as_fd(), buffer.spare_capacity_mut());
        let by_number = want.is_some() && self.may_list_by_number(cx, dir)?;
        let mut last = None;
        while let Some(entry) = entries.next() {
            let entry = match entry {
                // What a removed directory says.
                Err(rustix::io::Errno::NOENT) => break,
                other => other.map_err(fs_error)?,
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let next = cookie_of(entry.next_entry_cookie());
            let node = match want {
                None => None,
                // Removed since the buffer was filled: it is not there any more.
                Some(want) => {
                    let mark = marks::of_attributes(entry.ino());
                    let known = if by_number { self.node_by_number(dir, entry.ino(), want) } else { None };
                    let node = match known.map_or_else(|| self.node_by_name(cx, dir, name, want), Ok) {
                        Err(FsError::NotFound) => continue,
                        other => other,
                    };
                    if let Some(grounds) = grounds {
                        let mark = mark.filter(|_| by_number && self.may_rest_on(&node));
                        rest_on(grounds, mark, &node);
                    }
                    Some(node)
                }
            };
            match take(DirEntry { name, next, fileid: entry.ino(), node }) {
                Flow::Continue => last = Some(next),
                Flow::Stop => return Ok((ListEnd::Stopped, last)),
            }
        }
        Ok((ListEnd::Eof, last))
    }

    /// Whether all changes of what an entry shows are counted: those that local processes make in a directory below the
    /// one that is watched are not told of.
    fn may_rest_on(&self, node: &FsResult<Node>) -> bool {
        self.options.is_sole_writer || node.is_ok_and(|node| node.attrs.kind != FileKind::Directory)
    }

    /// Whether the numbers of this directory's entries are as good as a lookup of their names: each means one
    /// object, no name is a mount point, and the caller may search the directory.
    fn may_list_by_number(&self, cx: &Cx<'_>, dir: &Object) -> FsResult<bool> {
        if !dir.fs.nature.kind.numbers_are_unique() || !self.mounts.is_bare(dir.mount_id) {
            return Ok(false);
        }
        let _acting = self.identity.act_as(cx.caller)?;
        Ok(sys::has_rights(dir.fd(), libc::X_OK).is_ok())
    }

    /// The object of an entry when we hold it: nobody else can have its number as long as we do.
    fn node_by_number(&self, dir: &Object, ino: u64, want: AttrMask) -> Option<Node> {
        let object = self.cache.find_number(dir.fs.key, ino)?;
        let st = object.look().ok().filter(|st| st.stx_nlink > 0)?;
        Some(Node { handle: object.handle, attrs: self.attrs_of(&object, &st, want) })
    }

    fn node_by_name(&self, cx: &Cx<'_>, dir: &Arc<Object>, name: &[u8], want: AttrMask) -> FsResult<Node> {
        let (object, st) = self.child(cx, dir, name, Keep::IfRoom)?;
        Ok(Node { handle: object.handle, attrs: self.attrs_of(&object, &st, want) })
    }
}

/// Notes what an entry rests on: on a mark of its object, taken before the look. A file with several names may lose one
/// by a removal that only finds it by name, so it is not shown again.
fn rest_on(grounds: &mut Grounds, mark: Option<Mark>, node: &FsResult<Node>) {
    match (mark, node) {
        (Some(mark), Ok(node)) if node.attrs.kind == FileKind::Directory || node.attrs.nlink == 1 => {
            grounds.rest_on(mark);
        }
        _ => grounds.refuse(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_keep_to_their_range_and_lead_back() {
        for position in [1, 2, 3, 77, u64::from(u32::MAX), LAST - SHIFT - 1, LAST] {
            let cookie = cookie_of(position);
            assert!(cookie.0 > 2 && cookie.0 <= LAST);
            assert_eq!(position_of(cookie), Some(position));
        }
        assert_eq!(position_of(Cookie(0)), Some(0));
        for bad in [1, 2, LAST + 1, u64::MAX] {
            assert_eq!(position_of(Cookie(bad)), None);
        }
    }
}
