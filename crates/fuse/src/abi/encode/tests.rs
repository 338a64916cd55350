use super::*;
use crate::passthrough::BackingId;
use crate::types::{Device, FileHandle, NodeId};

const AT: Timestamp = Timestamp { seconds: -5, nanos: 7 };

fn some_attr() -> Attr {
    Attr {
        ino: 1,
        size: 2,
        blocks: 3,
        atime: AT,
        mtime: AT,
        ctime: AT,
        mode: 0o100_644,
        nlink: 4,
        uid: 5,
        gid: 6,
        rdev: Device { major: 8, minor: 1 },
        blksize: 0,
    }
}

fn bytes(encode: impl FnOnce(&mut Vec<u8>)) -> usize {
    let mut out = Vec::new();
    encode(&mut out);
    out.len()
}

#[test]
fn replies_have_the_sizes_of_the_kernels_structures() {
    let a = some_attr();
    let e = Entry { attr: a, ..Entry::absent(Duration::ZERO) };
    assert_eq!(bytes(|out| header(out, 1, 0)), OUT_HEADER_BYTES);
    assert_eq!(bytes(|out| attr(out, &a)), 88);
    assert_eq!(bytes(|out| attr_reply(out, &AttrReply { attr: a, valid: Duration::ZERO })), 104);
    assert_eq!(bytes(|out| entry(out, &e)), ENTRY_BYTES);
    assert_eq!(bytes(|out| opened(out, &Opened::default())), 16);
    assert_eq!(bytes(|out| statfs(out, &Statfs::default())), 80);
    assert_eq!(bytes(|out| lock(out, None)), 24);
    let x = StatxReply {
        attr: a,
        btime: Some(AT),
        attributes: 0,
        attributes_mask: 0,
        valid: crate::types::FOREVER,
    };
    assert_eq!(bytes(|out| statx(out, &x)), 32 + 256);
}

#[test]
fn a_length_covers_what_is_sent_from_elsewhere() {
    let mut out = Vec::new();
    header(&mut out, 7, 0);
    finish(&mut out, 1000);
    assert_eq!(out[..4], 1016u32.to_ne_bytes());
    assert_eq!(status(7, 5)[4..8], (-5i32).to_ne_bytes());
}

#[test]
fn a_backing_file_takes_flags_along_that_go_with_it() {
    let flags = OpenedFlags::KEEP_CACHE | OpenedFlags::NOFLUSH;
    let mut out = Vec::new();
    opened(&mut out, &Opened { file: FileHandle(1), flags, backing: Some(BackingId(3)) });
    let expected = OpenedFlags::NOFLUSH | OpenedFlags::PASSTHROUGH;
    assert_eq!(out[8..12], expected.bits().to_ne_bytes());
    assert_eq!(out[12..], 3i32.to_ne_bytes());
    out.clear();
    // Without one, nobody asks for it by accident.
    opened(&mut out, &Opened { file: FileHandle(1), flags: OpenedFlags::PASSTHROUGH, backing: None });
    assert_eq!(out[8..], [0; 8]);
}

#[test]
fn for_ever_fits_and_more_is_cut_to_it() {
    assert_eq!(validity(crate::types::FOREVER), (u64::from(u32::MAX), 0));
    assert_eq!(validity(Duration::MAX).0, u64::from(u32::MAX));
    assert_eq!(validity(Duration::from_millis(1500)), (1, 500_000_000));
}

#[test]
fn an_absent_name_has_no_node() {
    let mut out = Vec::new();
    entry(&mut out, &Entry::absent(Duration::from_secs(3)));
    assert_eq!(out[..8], NodeId(0).0.to_ne_bytes());
    assert_eq!(out[16..24], 3u64.to_ne_bytes());
}
