//! What fanotify tells: the form of its events, and what each means.

use holdfast_vfs::LocalDeed;

use crate::handles::{self, Inner};
use crate::object::Object;
use crate::sys;

pub(super) const MODIFY: u64 = 0x2;
pub(super) const ATTRIB: u64 = 0x4;
pub(super) const OPEN: u64 = 0x20;
pub(super) const MOVED_FROM: u64 = 0x40;
pub(super) const MOVED_TO: u64 = 0x80;
pub(super) const CREATE: u64 = 0x100;
pub(super) const DELETE: u64 = 0x200;
pub(super) const DELETE_SELF: u64 = 0x400;
pub(super) const MOVE_SELF: u64 = 0x800;
pub(super) const OVERFLOW: u64 = 0x4000;
const ON_DIRECTORY: u64 = 0x4000_0000;

const ON_CHILDREN: u64 = 0x0800_0000;

pub(super) const ENTRIES: u64 = MOVED_FROM | MOVED_TO | CREATE | DELETE;

/// What no lease tells of a file. `ATTRIB` comes for a link made or removed as well.
pub(super) const FILE: u64 = ATTRIB | MOVE_SELF | DELETE_SELF;

/// What a lease tells, where there is none.
pub(super) const INSTEAD_OF_LEASE: u64 = MODIFY | OPEN;

pub(super) const DIRECTORY: u64 = FILE | ENTRIES | ON_DIRECTORY;

/// What changes a listing with attributes: of a directory, and of what lies in it.
pub(super) const LISTING: u64 = ATTRIB | DELETE_SELF | ENTRIES | ON_DIRECTORY | MODIFY | ON_CHILDREN;

/// The deeds of an event. Whether an open is for reading is not told, so it counts as one for writing: who has the
/// file open for writing may change it through a mapping without any event.
pub(super) fn deeds(mask: u64) -> impl Iterator<Item = LocalDeed> {
    [
        (OPEN, LocalDeed::OpenToWrite),
        (MODIFY, LocalDeed::Wrote),
        (ATTRIB, LocalDeed::ChangedAttrs),
        (MOVE_SELF | DELETE_SELF, LocalDeed::ChangedName),
        (ENTRIES, LocalDeed::ChangedEntries),
    ]
    .into_iter()
    .filter(move |(bits, _)| mask & bits != 0)
    .map(|(_, deed)| deed)
}

/// How fanotify names an object: the file system's id from `statfs`, then type and bytes of a handle.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Fid {
    /// As ext4 and XFS make them: which of two forms a handle of ours has depends on when it was made.
    Numbered { fsid: [u8; 8], ino: u64, generation: u32 },
    /// In the machine's order, as the kernel writes them.
    Other(Box<[u8]>),
}

/// The file system's id as `statfs` tells it: two words, the lower one first, whatever the machine's order.
const fn fsid_of(told: u64) -> [u8; 8] {
    let [a, b, c, d] = (told as u32).to_ne_bytes();
    let [e, f, g, h] = ((told >> 32) as u32).to_ne_bytes();
    [a, b, c, d, e, f, g, h]
}

impl Fid {
    /// Of an object; `None` on a file system that fanotify cannot name objects of.
    pub(super) fn of(object: &Object) -> Option<Self> {
        let fs = &object.fs;
        // The handle that we know it by names it to fanotify too.
        if fs.nature.kind.numbers_are_unique()
            && let Ok((_, Inner::Kernel(handle))) = handles::decode(&object.handle)
            && let known @ Self::Numbered { .. } =
                Self::new(fsid_of(fs.told_id()?), handle.kind, handle.as_bytes())
        {
            return Some(known);
        }
        let fsid = rustix::fs::fstatvfs(object.fd()).ok()?.f_fsid;
        let handle = sys::handle_for_identity(object.fd()).ok()?;
        Some(Self::new(fsid_of(fsid), handle.kind, handle.as_bytes()))
    }

    fn new(fsid: [u8; 8], kind: i32, handle: &[u8]) -> Self {
        let word = |from: usize| handle.get(from..from + 4)?.try_into().ok().map(u32::from_ne_bytes);
        let long = || handle.get(..8)?.try_into().ok().map(u64::from_ne_bytes);
        let numbered = match (kind, handle.len()) {
            (INO32_GEN, 8) => word(0).map(u64::from).zip(word(4)),
            (XFS_INO64_GEN, 12) => long().zip(word(8)),
            _ => None,
        };
        match numbered {
            Some((ino, generation)) => Self::Numbered { fsid, ino, generation },
            None => Self::Other([&fsid[..], &kind.to_ne_bytes(), handle].concat().into()),
        }
    }

    /// The object's number, where its name tells it.
    pub(super) const fn number(&self) -> Option<u64> {
        match self {
            Self::Numbered { ino, .. } => Some(*ino),
            Self::Other(_) => None,
        }
    }
}

/// `FILEID_INO32_GEN`, of ext4 and most others: a number and a generation of 32 bits each.
const INO32_GEN: i32 = 1;
/// XFS's: a number of 64 bits, a generation of 32.
const XFS_INO64_GEN: i32 = 0x81;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) mask: u64,
    /// Of the process; 0 when it is none of ours and we may not know.
    pub(super) pid: i32,
    pub(super) fid: Option<Fid>,
}

/// `FAN_EVENT_INFO_TYPE_FID`.
const INFO_FID: u8 = 1;

/// Takes a buffer that was read apart. What cannot be understood becomes an overflow: something was missed.
pub(super) fn parse(mut buffer: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    while !buffer.is_empty() {
        let Some((event, rest)) = parse_one(buffer) else {
            events.push(Event { mask: OVERFLOW, pid: 0, fid: None });
            break;
        };
        events.push(event);
        buffer = rest;
    }
    events
}

/// `struct fanotify_event_metadata`, and its information records.
fn parse_one(buffer: &[u8]) -> Option<(Event, &[u8])> {
    let number = |at: usize| buffer.get(at..at + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let length = usize::try_from(number(0)?).ok()?;
    let version = *buffer.get(4)?;
    let head = usize::from(u16::from_ne_bytes(buffer.get(6..8)?.try_into().ok()?));
    if version != 3 || head < 24 {
        return None;
    }
    let (event, rest) = buffer.split_at_checked(length)?;
    let mask = u64::from_ne_bytes(event.get(8..16)?.try_into().ok()?);
    let pid = number(20)? as i32;
    Some((Event { mask, pid, fid: parse_fid(event.get(head..)?) }, rest))
}

/// The first record that names an object: header of 4 bytes (type, padding, length), file system, handle.
fn parse_fid(mut records: &[u8]) -> Option<Fid> {
    loop {
        let (head, _) = records.split_first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([head[2], head[3]]));
        let (record, rest) = records.split_at_checked(length.max(4))?;
        if head[0] == INFO_FID {
            let fsid = record.get(4..12)?.try_into().ok()?;
            let bytes = usize::try_from(u32::from_ne_bytes(record.get(12..16)?.try_into().ok()?)).ok()?;
            let kind = i32::from_ne_bytes(record.get(16..20)?.try_into().ok()?);
            return Some(Fid::new(fsid, kind, record.get(20..20usize.checked_add(bytes)?)?));
        }
        records = rest;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An event as Linux 6.18 writes it: a `MODIFY` of an ext4 file, the handle of eight bytes.
    fn event(mask: u64, pid: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&(24u32 + 28).to_ne_bytes());
        bytes.extend_from_slice(&[3, 0]);
        bytes.extend_from_slice(&24u16.to_ne_bytes());
        bytes.extend_from_slice(&mask.to_ne_bytes());
        bytes.extend_from_slice(&(-1i32).to_ne_bytes());
        bytes.extend_from_slice(&pid.to_ne_bytes());
        bytes.extend_from_slice(&[INFO_FID, 0]);
        bytes.extend_from_slice(&28u16.to_ne_bytes());
        bytes.extend_from_slice(b"fsfsfsfs");
        bytes.extend_from_slice(&8u32.to_ne_bytes());
        bytes.extend_from_slice(&1i32.to_ne_bytes());
        bytes.extend_from_slice(b"hhhhhhhh");
        bytes
    }

    #[test]
    fn events_are_taken_apart_and_nonsense_counts_as_something_missed() {
        let two = [event(MODIFY | OPEN, 7), event(ATTRIB, 0)].concat();
        let number = u32::from_ne_bytes(*b"hhhh");
        let fid = Some(Fid::Numbered { fsid: *b"fsfsfsfs", ino: number.into(), generation: number });
        let first = Event { mask: MODIFY | OPEN, pid: 7, fid: fid.clone() };
        assert_eq!(parse(&two), [first.clone(), Event { mask: ATTRIB, pid: 0, fid }]);
        let missed = Event { mask: OVERFLOW, pid: 0, fid: None };
        for end in 1..event(0, 0).len() {
            let cut = parse(&two[..event(0, 0).len() + end]);
            assert_eq!(cut, [first.clone(), missed.clone()], "cut after {end}");
        }
    }

    #[test]
    fn a_handle_of_either_form_names_the_same_object() {
        let (ino, generation) = (77_u32, 5_u32.to_ne_bytes());
        let short = Fid::new(*b"fsfsfsfs", 1, &[ino.to_ne_bytes(), generation].concat());
        let long = [&u64::from(ino).to_ne_bytes()[..], &generation].concat();
        assert_eq!(short, Fid::new(*b"fsfsfsfs", 0x81, &long));
        assert_eq!(short.number(), Some(77));
        // Not one of these, though it says so: tmpfs has three words of its own.
        assert_eq!(Fid::new(*b"fsfsfsfs", 1, &long).number(), None);
    }

    #[test]
    fn an_event_of_several_kinds_is_several_deeds() {
        assert_eq!(deeds(MODIFY | OPEN).collect::<Vec<_>>(), [LocalDeed::OpenToWrite, LocalDeed::Wrote]);
        assert_eq!(deeds(CREATE | ON_DIRECTORY).collect::<Vec<_>>(), [LocalDeed::ChangedEntries]);
        assert_eq!(deeds(DELETE_SELF).collect::<Vec<_>>(), [LocalDeed::ChangedName]);
    }
}
