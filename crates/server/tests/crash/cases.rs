//! Batches of every kind of operation, and what they lead to.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;

use holdfast_base::CapSet;
use holdfast_wire::caps::*;

use crate::server::names;

/// The number under which they go.
pub(crate) const TXN: TxnId = TxnId(1);

/// A batch: what must be there before it, its operations in the exported directory, what must be there after.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    /// How many operations change something, each of which is struck.
    pub(crate) struck: usize,
    pub(crate) prepare: fn(&Path),
    pub(crate) ops: for<'a> fn(Ref<'a>, &'a [u8]) -> Vec<BatchOp<'a>>,
    pub(crate) check: fn(&Path),
}

/// What operation `op` of the batch made.
pub(crate) const fn own(op: u32) -> Ref<'static> {
    Ref::Made { txn: TXN, op }
}

pub(crate) fn set(mode: u32) -> SetAttrs {
    SetAttrs { mode: Some(mode), ..SetAttrs::default() }
}

pub(crate) fn create<'a>(dir: Ref<'a>, name: &'a [u8], data: &'a [u8]) -> BatchOp<'a> {
    BatchOp::Create { dir, name, if_taken: IfTaken::Fail, set: set(0o604), want: CapSet::NONE, data }
}

fn place<'a>(dir: Ref<'a>, name: &'a [u8], data: &'a [u8], pooled: &'a [u8]) -> BatchOp<'a> {
    let (set, want, pooled) = (set(0o604), CapSet::NONE, Handle(pooled));
    BatchOp::Place { dir, name, if_taken: IfTaken::KeepBoth, set, want, data, pooled }
}

pub(crate) fn mkdir<'a>(dir: Ref<'a>, name: &'a [u8]) -> BatchOp<'a> {
    BatchOp::Mkdir { dir, name, if_taken: IfTaken::Fail, set: set(0o705), want: CapSet::NONE }
}

fn nothing(_: &Path) {}

pub(crate) fn a_file(files: &Path) {
    fs::write(files.join("old"), b"0123456789").unwrap();
}

fn a_taken_name(files: &Path) {
    fs::write(files.join("new"), b"theirs").unwrap();
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

pub(crate) const CASES: &[Case] = &[
    Case {
        name: "CREATE with data",
        struck: 1,
        prepare: nothing,
        ops: |root, _| vec![create(root, b"new", b"ten bytes!")],
        check: |files| {
            assert_eq!(fs::read(files.join("new")).unwrap(), b"ten bytes!");
            assert_eq!(mode_of(&files.join("new")), 0o604);
        },
    },
    Case {
        name: "CREATE with data, the times that a copy keeps, and a set-id bit",
        struck: 1,
        prepare: nothing,
        ops: |root, _| {
            let at = |seconds| Some(SetTime::At(Time { seconds, nanos: 0 }));
            let set = SetAttrs { atime: at(2_000_000), mtime: at(1_000_000), ..set(0o4705) };
            let (dir, name, if_taken, want) = (root, &b"new"[..], IfTaken::Fail, CapSet::NONE);
            vec![BatchOp::Create { dir, name, if_taken, set, want, data: b"ten bytes!" }]
        },
        check: |files| {
            let is = fs::metadata(files.join("new")).unwrap();
            assert_eq!((is.mtime(), is.mode() & 0o7777), (1_000_000, 0o4705));
            assert_eq!(fs::read(files.join("new")).unwrap(), b"ten bytes!");
        },
    },
    Case {
        name: "CREATE beside a name that is taken",
        struck: 1,
        prepare: a_taken_name,
        ops: |root, _| {
            let (set, want) = (set(0o600), CapSet::NONE);
            vec![BatchOp::Create {
                dir: root,
                name: b"new",
                if_taken: IfTaken::KeepBoth,
                set,
                want,
                data: b"ours",
            }]
        },
        check: |files| {
            assert_eq!(fs::read(files.join("new")).unwrap(), b"theirs");
            let all = names(files);
            assert_eq!(all.len(), 2, "{all:?}");
            assert_eq!(fs::read(files.join(&all[1])).unwrap(), b"ours");
        },
    },
    Case {
        name: "MKDIR, and a file in it",
        struck: 2,
        prepare: nothing,
        ops: |root, _| vec![mkdir(root, b"new"), create(own(0), b"inside", b"x")],
        check: |files| {
            assert_eq!(mode_of(&files.join("new")), 0o705);
            assert_eq!(fs::read(files.join("new/inside")).unwrap(), b"x");
        },
    },
    Case {
        name: "SYMLINK",
        struck: 1,
        prepare: nothing,
        ops: |root, _| {
            let (set, want) = (SetAttrs::default(), CapSet::NONE);
            let if_taken = IfTaken::Fail;
            vec![BatchOp::Symlink { dir: root, name: b"new", if_taken, set, want, target: b"some/where" }]
        },
        check: |files| assert_eq!(fs::read_link(files.join("new")).unwrap(), Path::new("some/where")),
    },
    Case {
        name: "MKNOD of a pipe",
        struck: 1,
        prepare: nothing,
        ops: |root, _| {
            let (if_taken, kind, want) = (IfTaken::Fail, NodeKind::Fifo, CapSet::NONE);
            let (rdev_major, rdev_minor) = (0, 0);
            vec![BatchOp::Mknod {
                dir: root,
                name: b"new",
                if_taken,
                set: set(0o600),
                want,
                kind,
                rdev_major,
                rdev_minor,
            }]
        },
        check: |files| assert!(fs::metadata(files.join("new")).unwrap().file_type().is_fifo()),
    },
    Case {
        name: "LINK",
        struck: 1,
        prepare: a_file,
        ops: |root, old| vec![BatchOp::Link { object: Ref::Handle(Handle(old)), dir: root, name: b"new" }],
        check: |files| assert_eq!(fs::metadata(files.join("new")).unwrap().nlink(), 2),
    },
    Case {
        name: "SETATTR, then DATA",
        struck: 2,
        prepare: a_file,
        ops: |_, old| {
            let object = Ref::Handle(Handle(old));
            vec![
                BatchOp::SetAttr { object, set: set(0o604) },
                BatchOp::Data { object, offset: 8, data: b"abcd" },
            ]
        },
        check: |files| {
            assert_eq!(mode_of(&files.join("old")), 0o604);
            assert_eq!(fs::read(files.join("old")).unwrap(), b"01234567abcd");
        },
    },
    Case {
        name: "APPEND",
        struck: 2,
        prepare: a_file,
        ops: |_, old| {
            let object = Ref::Handle(Handle(old));
            vec![BatchOp::Append { object, data: b"one" }, BatchOp::Append { object, data: b"two" }]
        },
        check: |files| assert_eq!(fs::read(files.join("old")).unwrap(), b"0123456789onetwo"),
    },
    Case {
        name: "RENAME over another",
        struck: 1,
        prepare: |files| {
            a_file(files);
            a_taken_name(files);
        },
        ops: |root, old| {
            let (victim, over) = (Some(Ref::Handle(Handle(old))), None);
            let (from_name, to_name, how) = (&b"old"[..], &b"new"[..], RenameHow::Replace);
            vec![BatchOp::Rename { from: root, from_name, to: root, to_name, how, victim, over }]
        },
        check: |files| {
            assert_eq!(names(files), ["new"]);
            assert_eq!(fs::read(files.join("new")).unwrap(), b"0123456789");
        },
    },
    Case {
        name: "RENAME that exchanges a file and a directory",
        struck: 1,
        prepare: |files| {
            a_file(files);
            fs::create_dir(files.join("new")).unwrap();
            fs::write(files.join("new/inside"), b"x").unwrap();
        },
        ops: |root, _| {
            let (from_name, to_name, how) = (&b"old"[..], &b"new"[..], RenameHow::Exchange);
            vec![BatchOp::Rename { from: root, from_name, to: root, to_name, how, victim: None, over: None }]
        },
        check: |files| {
            assert_eq!(names(files), ["new", "old"]);
            assert_eq!(fs::read(files.join("new")).unwrap(), b"0123456789");
            assert_eq!(fs::read(files.join("old/inside")).unwrap(), b"x");
        },
    },
    Case {
        name: "UNLINK, then CREATE of the same name",
        struck: 2,
        prepare: a_file,
        ops: |root, old| {
            let victim = Some(Ref::Handle(Handle(old)));
            vec![BatchOp::Unlink { dir: root, name: b"old", victim }, create(root, b"old", b"second")]
        },
        check: |files| assert_eq!(fs::read(files.join("old")).unwrap(), b"second"),
    },
    Case {
        name: "MKDIR, then RMDIR",
        struck: 2,
        prepare: nothing,
        ops: |root, _| {
            vec![mkdir(root, b"new"), BatchOp::Rmdir { dir: root, name: b"new", victim: Some(own(0)) }]
        },
        check: |files| assert_eq!(names(files), [""; 0]),
    },
    Case {
        name: "SETXATTR, then REMOVEXATTR",
        struck: 2,
        prepare: a_file,
        ops: |_, old| {
            let object = Ref::Handle(Handle(old));
            vec![
                BatchOp::SetXattr { object, how: SetXattrHow::Create, name: b"user.k", value: b"v" },
                BatchOp::RemoveXattr { object, name: b"user.k" },
            ]
        },
        check: |files| assert_eq!(fs::read(files.join("old")).unwrap(), b"0123456789"),
    },
    Case {
        name: "a name used twice",
        struck: 3,
        prepare: nothing,
        ops: |root, _| {
            vec![
                create(root, b"new", b"first"),
                BatchOp::Rename {
                    from: root,
                    from_name: b"new",
                    to: root,
                    to_name: b"moved",
                    how: RenameHow::NoReplace,
                    victim: Some(own(0)),
                    over: None,
                },
                create(root, b"new", b"second"),
            ]
        },
        check: |files| {
            assert_eq!(fs::read(files.join("moved")).unwrap(), b"first");
            assert_eq!(fs::read(files.join("new")).unwrap(), b"second");
        },
    },
];

/// Files that are made beforehand. The handles of two are the operations' second argument, one behind the other: with the process
/// that kept them they are gone, and what was not placed by then is made as by CREATE.
pub(crate) const POOLED: &[Case] = &[
    Case {
        name: "PLACE with data, twice",
        struck: 2,
        prepare: nothing,
        ops: |root, pooled| {
            let (one, other) = pooled.split_at(pooled.len() / 2);
            vec![place(root, b"new", b"ten bytes!", one), place(root, b"other", b"", other)]
        },
        check: |files| {
            assert_eq!(fs::read(files.join("new")).unwrap(), b"ten bytes!");
            assert_eq!((names(files).len(), mode_of(&files.join("new"))), (2, 0o604));
            assert_eq!(fs::metadata(files.join("other")).unwrap().len(), 0);
        },
    },
    Case {
        name: "PLACE beside a name that is taken",
        struck: 1,
        prepare: a_taken_name,
        ops: |root, pooled| vec![place(root, b"new", b"ours", &pooled[..pooled.len() / 2])],
        check: |files| {
            assert_eq!(fs::read(files.join("new")).unwrap(), b"theirs");
            let all = names(files);
            assert_eq!(all.len(), 2, "{all:?}");
            assert_eq!(fs::read(files.join(&all[1])).unwrap(), b"ours");
        },
    },
    Case {
        name: "PLACE, RENAME, and PLACE of the same name",
        struck: 3,
        prepare: nothing,
        ops: |root, pooled| {
            let (one, other) = pooled.split_at(pooled.len() / 2);
            vec![
                place(root, b"new", b"first", one),
                BatchOp::Rename {
                    from: root,
                    from_name: b"new",
                    to: root,
                    to_name: b"moved",
                    how: RenameHow::NoReplace,
                    victim: Some(own(0)),
                    over: None,
                },
                place(root, b"new", b"second", other),
            ]
        },
        check: |files| {
            assert_eq!(fs::read(files.join("moved")).unwrap(), b"first");
            assert_eq!(fs::read(files.join("new")).unwrap(), b"second");
        },
    },
];
