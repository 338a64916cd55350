//! Requests as bytes: what is sent is understood, and nothing that could be sent is fatal.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

use holdfast_fuse::abi::opcode::Opcode;
use holdfast_fuse::abi::operation::{Dialect, Header, Malformed, Operation};
use holdfast_fuse::{
    Device, FileHandle, Forget, LockClass, LockMode, LockOwner, NodeId, OpenFlags, RenameFlags, SetTime,
    XattrMode,
};
use proptest::prelude::*;

/// A request as the kernel lays it out.
fn request(opcode: u32, body: &[u8], extensions: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let length = u32::try_from(40 + body.len() + extensions.len()).unwrap();
    bytes.extend(length.to_ne_bytes());
    bytes.extend(opcode.to_ne_bytes());
    bytes.extend(6u64.to_ne_bytes());
    bytes.extend(9u64.to_ne_bytes());
    for word in [1000u32, 100, 4711] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes.extend(u16::try_from(extensions.len() / 8).unwrap().to_ne_bytes());
    bytes.extend([0, 0]);
    bytes.extend(body);
    bytes.extend(extensions);
    bytes
}

const NEW: Dialect = Dialect { has_setxattr_ext: true };

/// Decodes and hands on, as an operation borrows from the bytes.
fn with<R>(opcode: Opcode, body: &[u8], f: impl FnOnce(Result<Option<Operation<'_>>, Malformed>) -> R) -> R {
    let bytes = request(opcode as u32, body, &[]);
    let (header, body) = Header::decode(&bytes).unwrap();
    f(Operation::decode(&header, body, NEW))
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_ne_bytes()).collect()
}

#[test]
fn a_header_says_who_asks() {
    let bytes = request(Opcode::Readlink as u32, &[], &[]);
    let (header, body) = Header::decode(&bytes).unwrap();
    assert_eq!(
        (header.unique, header.node, header.uid, header.gid, header.pid),
        (6, NodeId(9), 1000, 100, 4711)
    );
    assert!(body.is_empty());
}

#[test]
fn extensions_are_cut_off() {
    let bytes = request(Opcode::Lookup as u32, b"name\0", &[7; 16]);
    let (_, body) = Header::decode(&bytes).unwrap();
    assert_eq!(body, b"name\0");
}

#[test]
fn a_wrong_length_is_refused() {
    let bytes = request(Opcode::Readlink as u32, &[], &[]);
    assert_eq!(Header::decode(&bytes[..39]).err(), Some(Malformed));
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(Header::decode(&longer).err(), Some(Malformed));
    let mut extended = bytes;
    extended[36] = 9;
    assert_eq!(Header::decode(&extended).err(), Some(Malformed));
}

#[test]
fn names_that_would_leave_the_directory_are_refused() {
    for name in [&b"\0"[..], b"a/b\0", b"unended", b""] {
        with(Opcode::Lookup, name, |operation| assert_eq!(operation, Err(Malformed)));
    }
    with(Opcode::Lookup, b"a\0", |operation| {
        let Ok(Some(Operation::Lookup(at))) = operation else { panic!("{operation:?}") };
        assert_eq!((at.dir, at.name), (NodeId(9), &b"a"[..]));
    });
}

#[test]
fn both_renames_are_one() {
    let mut body = longs(&[12]);
    body.extend(b"old\0new\0");
    with(Opcode::Rename, &body, |operation| {
        let Ok(Some(Operation::Rename(rename))) = operation else { panic!("{operation:?}") };
        assert_eq!((rename.from.name, rename.to.name, rename.to.dir), (&b"old"[..], &b"new"[..], NodeId(12)));
        assert!(rename.flags.is_empty());
    });
    let mut body = longs(&[12]);
    body.extend(words(&[2, 0]));
    body.extend(b"old\0new\0");
    with(Opcode::Rename2, &body, |operation| {
        let Ok(Some(Operation::Rename(rename))) = operation else { panic!("{operation:?}") };
        assert_eq!(rename.flags, RenameFlags::EXCHANGE);
    });
}

#[test]
fn only_what_is_valid_is_set() {
    // FATTR_MODE, FATTR_SIZE, FATTR_MTIME with the present, FATTR_FH.
    let mut body = words(&[1 | 1 << 3 | 1 << 5 | 1 << 8 | 1 << 6, 0]);
    body.extend(longs(&[77, 4096, 5, 11, 12, 13]));
    body.extend(words(&[1, 2, 3, 0o100_640, 0, 1000, 100, 0]));
    with(Opcode::Setattr, &body, |operation| {
        let Ok(Some(Operation::Setattr(set))) = operation else { panic!("{operation:?}") };
        assert_eq!((set.mode, set.size, set.file), (Some(0o100_640), Some(4096), Some(FileHandle(77))));
        assert_eq!((set.uid, set.gid, set.atime, set.mtime), (None, None, None, Some(SetTime::Now)));
        assert_eq!((set.lock_owner, set.kill_set_ids), (None, false));
    });
}

#[test]
fn a_write_has_as_much_data_as_it_says() {
    let mut body = longs(&[3, 4096]);
    body.extend(words(&[4, 1 << 1 | 1 << 2]));
    body.extend(longs(&[99]));
    body.extend(words(&[libc::O_RDWR.cast_unsigned(), 0]));
    body.extend(b"data");
    with(Opcode::Write, &body, |operation| {
        let Ok(Some(Operation::Write(write))) = operation else { panic!("{operation:?}") };
        assert_eq!((write.data, write.offset, write.lock_owner), (&b"data"[..], 4096, Some(LockOwner(99))));
        assert!(write.kill_set_ids && !write.is_write_back && write.flags.contains(OpenFlags::READ_WRITE));
    });
    with(Opcode::Write, &body[..body.len() - 1], |operation| assert_eq!(operation, Err(Malformed)));
}

#[test]
fn locks_tell_their_class_and_mode() {
    let lock = |kind: i32, flags: u32, end: u64| {
        let mut body = longs(&[3, 4, 0, end]);
        body.extend(words(&[kind.cast_unsigned(), 4711, flags, 0]));
        body
    };
    for (flags, class) in [(0, LockClass::Range), (1, LockClass::Flock)] {
        with(Opcode::Setlkw, &lock(libc::F_WRLCK, flags, 9), |operation| {
            let Ok(Some(Operation::Setlkw(ask))) = operation else { panic!("{operation:?}") };
            assert_eq!((ask.class, ask.span.mode, ask.span.pid), (class, LockMode::Write, 4711));
        });
    }
    with(Opcode::Setlk, &lock(17, 0, 9), |operation| assert_eq!(operation, Err(Malformed)));
}

#[test]
fn setxattr_has_two_forms() {
    let body = |is_long: bool| {
        let mut body = words(&[2, libc::XATTR_CREATE.cast_unsigned()]);
        if is_long {
            body.extend(words(&[1, 0]));
        }
        body.extend(b"user.k\0vv");
        body
    };
    for is_long in [true, false] {
        let bytes = request(Opcode::Setxattr as u32, &body(is_long), &[]);
        let (header, body) = Header::decode(&bytes).unwrap();
        let operation = Operation::decode(&header, body, Dialect { has_setxattr_ext: is_long });
        let Ok(Some(Operation::Setxattr(set))) = operation else { panic!("{operation:?}") };
        assert_eq!((set.name, set.value, set.mode), (&b"user.k"[..], &b"vv"[..], XattrMode::Create));
        assert_eq!(set.kill_set_gid, is_long);
    }
}

#[test]
fn forgets_come_in_batches() {
    let mut body = words(&[2, 0]);
    body.extend(longs(&[5, 1, 6, 2]));
    with(Opcode::BatchForget, &body, |operation| {
        let Ok(Some(Operation::BatchForget(many))) = operation else { panic!("{operation:?}") };
        let expected = [Forget { node: NodeId(5), lookups: 1 }, Forget { node: NodeId(6), lookups: 2 }];
        assert_eq!(many.iter().collect::<Vec<_>>(), expected);
    });
    let lying = words(&[u32::MAX, 0]);
    with(Opcode::BatchForget, &lying, |operation| assert_eq!(operation, Err(Malformed)));
}

#[test]
fn numbers_of_devices_survive() {
    for (major, minor) in [(0, 0), (1, 3), (4095, 1_048_575), (259, 256)] {
        let device = Device { major, minor };
        assert_eq!(Device::decode(device.encode()), device);
        let number = rustix::fs::makedev(major, minor);
        // The kernel's form is the C library's lower half.
        assert_eq!(u64::from(device.encode()), number & 0xffff_ffff);
    }
}

#[test]
fn what_nobody_knows_is_no_defect() {
    let bytes = request(4096, &[0; 100], &[]);
    let (header, body) = Header::decode(&bytes).unwrap();
    assert_eq!(Operation::decode(&header, body, NEW), Ok(None));
}

fn opcode() -> impl Strategy<Value = u32> {
    prop_oneof![4 => (0..Opcode::ALL.len()).prop_map(|i| Opcode::ALL[i] as u32), 1 => any::<u32>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 5_000, ..ProptestConfig::default() })]

    #[test]
    fn no_bytes_are_fatal(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok((header, body)) = Header::decode(&bytes) {
            let _ = Operation::decode(&header, body, NEW);
        }
    }

    #[test]
    fn no_body_is_fatal(
        opcode in opcode(),
        body in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), Just(255), any::<u8>()], 0..160),
        has_setxattr_ext in any::<bool>(),
    ) {
        let bytes = request(opcode, &body, &[]);
        let (header, body) = Header::decode(&bytes).expect("a good header");
        if let Ok(Some(Operation::BatchForget(many))) = Operation::decode(&header, body, Dialect { has_setxattr_ext }) {
            prop_assert!(many.iter().count() * 16 <= body.len());
        }
    }

    #[test]
    fn a_cut_request_is_refused_or_whole(opcode in opcode(), cut in 0usize..160) {
        // Every operation has a bound below which it cannot be; none reads beyond what there is.
        let bytes = request(opcode, &[b'a'; 160], &[]);
        let (header, body) = Header::decode(&bytes).expect("a good header");
        let _ = Operation::decode(&header, &body[..cut], NEW);
    }
}
