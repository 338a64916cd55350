//! One batch with an operation of each kind, each on what those before it have left: how it is answered and where it leads,
//! wherever the server or the machine dies.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use holdfast_base::CapSet;
use holdfast_wire::caps::*;

use crate::cases::{Case, a_file, create, mkdir, own, set};

pub(crate) const EVERYTHING: Case = Case {
    name: "one of everything",
    struck: 19,
    prepare: a_file,
    ops: |root, old| {
        let old = Ref::Handle(Handle(old));
        let (victim, how, if_taken, want) = (None, RenameHow::Replace, IfTaken::Fail, CapSet::NONE);
        let size = SetAttrs { size: Some(2), ..SetAttrs::default() };
        let (kind, rdev_major, rdev_minor) = (NodeKind::Fifo, 0, 0);
        vec![
            create(root, b"new", b"ten bytes!"),
            mkdir(root, b"dir"),
            create(own(1), b"inside", b""),
            BatchOp::Data { object: own(2), offset: 0, data: b"abc" },
            BatchOp::SetAttr { object: own(2), set: size },
            BatchOp::Link { object: own(2), dir: root, name: b"link" },
            BatchOp::Symlink {
                dir: root,
                name: b"text",
                if_taken,
                set: SetAttrs::default(),
                want,
                target: b"to",
            },
            BatchOp::Mknod {
                dir: root,
                name: b"pipe",
                if_taken,
                set: set(0o600),
                want,
                kind,
                rdev_major,
                rdev_minor,
            },
            BatchOp::Rename {
                from: own(1),
                from_name: b"inside",
                to: root,
                to_name: b"outside",
                how,
                victim: Some(own(2)),
                over: None,
            },
            BatchOp::Rmdir { dir: root, name: b"dir", victim },
            // An editor's save.
            BatchOp::Rename {
                from: root,
                from_name: b"new",
                to: root,
                to_name: b"old",
                how,
                victim: Some(own(0)),
                over: Some(old),
            },
            BatchOp::SetAttr { object: own(0), set: set(0o640) },
            BatchOp::Unlink { dir: root, name: b"text", victim },
            BatchOp::SetXattr { object: own(0), how: SetXattrHow::Create, name: b"user.k", value: b"v" },
            BatchOp::RemoveXattr { object: own(0), name: b"user.k" },
            BatchOp::Append { object: own(0), data: b" and more" },
            BatchOp::Unlink { dir: root, name: b"link", victim: Some(own(2)) },
            create(root, b"text", b"again"),
            create(root, b"text", b"refused"),
            BatchOp::Unlink { dir: root, name: b"pipe", victim: Some(own(7)) },
            mkdir(root, b"dir"),
        ]
    },
    check: |files| {
        let mut expected = BTreeMap::new();
        let mut add = |name: &str, what: &str| expected.insert(name.to_owned(), what.to_owned());
        add("dir", "d 705");
        add("old", "f 640 1 ten bytes! and more");
        add("outside", "f 604 1 ab");
        add("text", "f 604 1 again");
        assert_eq!(seen(files), expected);
    },
};

/// What a directory's names stand for.
fn seen(files: &Path) -> BTreeMap<String, String> {
    let seen = |entry: fs::DirEntry| {
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        let is = fs::symlink_metadata(&path).unwrap();
        let (kind, mode) = (is.file_type(), is.mode() & 0o7777);
        let what = if kind.is_file() {
            format!("f {mode:o} {} {}", is.nlink(), fs::read_to_string(&path).unwrap())
        } else if kind.is_dir() {
            format!("d {mode:o}")
        } else if kind.is_symlink() {
            format!("l {}", fs::read_link(&path).unwrap().display())
        } else {
            format!("p {}", kind.is_fifo())
        };
        (name, what)
    };
    fs::read_dir(files).unwrap().map(|entry| seen(entry.unwrap())).collect()
}
