//! Listings: what the volume lists, with `.` and `..` before it.

use holdfast_fuse::{DirItem, DirSink, EntryKind, NodeId, Read, Request};
use holdfast_volume::cache::{self, Kind};
use rustix::io::Errno;

use super::call::Call;
use super::convert::{entry, errno, fh, type_bits};
use super::{Result, Translation};

/// Offsets behind `.` and `..`; those of other entries are the volume's, moved up by as much.
const AFTER_DOT: u64 = 1;
const AFTER_DOTS: u64 = 2;

impl Translation {
    pub(super) fn list(
        &self,
        request: &Request<'_>,
        dir: NodeId,
        read: &Read,
        out: &mut DirSink<'_>,
        plus: bool,
    ) -> Result<()> {
        let mut offset = read.offset;
        for (before, name, next) in [(0, &b"."[..], AFTER_DOT), (AFTER_DOT, b"..", AFTER_DOTS)] {
            if offset == before {
                let kind = EntryKind::of_mode(type_bits(Kind::Dir));
                // Nobody goes by the numbers of these two; 0 alone would hide them.
                if !out.push(&DirItem { name, ino: dir.0.max(1), kind, next }, None) {
                    return Ok(());
                }
                offset = next;
            }
        }
        let from = offset.wrapping_sub(AFTER_DOTS);
        let mut take = |listed: &cache::DirEntry| {
            let kind = listed.kind.map_or(EntryKind::UNKNOWN, |kind| EntryKind::of_mode(type_bits(kind)));
            let next = listed.offset.wrapping_add(AFTER_DOTS);
            let item = DirItem { name: listed.name.as_bytes(), ino: listed.fileid, kind, next };
            let known = listed.entry.as_ref().map(entry);
            out.push(&item, known.as_ref())
        };
        let place = (fh(read.file), from);
        let listed = self.volume.readdir(&Call::new(request), place, plus, &mut take);
        // Of a directory that was removed while it was open Linux says so, whatever the server says.
        listed.map_err(|e| if e == cache::Errno::ESTALE { Errno::NOENT } else { errno(e) })
    }
}
