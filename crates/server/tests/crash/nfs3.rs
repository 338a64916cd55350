//! Mutations of NFSv3.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::rc::Rc;

use holdfast_base::Offset;
use holdfast_ledger::failpoint::Point;
use holdfast_wire::mount3::{DirPath, MOUNT_PROGRAM, MOUNT_V3, MOUNTPROC3_MNT};
use holdfast_wire::nfs3::*;
use holdfast_xdr::{Encode, Reader, to_bytes};

use crate::server::{World, names};
use crate::wire::Procedure;

const NOTHING: Sattr3 = Sattr3 {
    mode: None,
    uid: None,
    gid: None,
    size: None,
    atime: SetTime3::DontChange,
    mtime: SetTime3::DontChange,
};

pub(crate) const fn mode(mode: u32) -> Sattr3 {
    Sattr3 { mode: Some(mode), ..NOTHING }
}

pub(crate) const fn nfs(procedure: Proc3) -> Procedure {
    Procedure { program: NFS3_PROGRAM, version: NFS_V3, number: procedure as u32 }
}

/// One mutation: what must be there before it, its arguments, and what must be there after it.
struct Case {
    procedure: Proc3,
    prepare: fn(&Path),
    args: fn(&mut Client) -> Vec<u8>,
    check: fn(&Path),
}

pub(crate) struct Client {
    pub(crate) world: Rc<World>,
    root: Vec<u8>,
}

impl Client {
    fn new(point: Point, is_sync: bool) -> Self {
        Self::of(&Rc::new(World::new(point, is_sync)))
    }

    /// One that has mounted the export of a world.
    pub(crate) fn of(world: &Rc<World>) -> Self {
        let mount = Procedure { program: MOUNT_PROGRAM, version: MOUNT_V3, number: MOUNTPROC3_MNT };
        let call = world.call(mount, &to_bytes(&DirPath(b"/export")));
        let results = world.exchange(&call);
        let mut r = Reader::new(&results);
        assert_eq!(r.u32(), Ok(0), "mounted");
        let root = r.opaque(64).unwrap().to_vec();
        Self { world: Rc::clone(world), root }
    }

    /// The handle of a name in the root, and its ctime.
    pub(crate) fn look(&mut self, name: &str) -> (Vec<u8>, NfsTime3) {
        let args = to_bytes(&DirOpArgs3 { dir: Fh3(&self.root), name: name.as_bytes() });
        let call = self.world.call(nfs(Proc3::Lookup), &args);
        let results = self.world.exchange(&call);
        let mut r = Reader::new(&results);
        assert_eq!(r.u32(), Ok(0), "{name} is found");
        let handle = r.opaque(64).unwrap().to_vec();
        let attrs = <PostOpAttr as holdfast_xdr::Decode<'_>>::decode(&mut r).unwrap().unwrap();
        (handle, attrs.ctime)
    }

    /// The exported directory's handle.
    pub(crate) fn root(&self) -> Fh3<'_> {
        Fh3(&self.root)
    }

    pub(crate) fn at<'a>(&'a self, name: &'a str) -> DirOpArgs3<'a> {
        DirOpArgs3 { dir: Fh3(&self.root), name: name.as_bytes() }
    }
}

fn bytes(args: impl Encode) -> Vec<u8> {
    to_bytes(&args)
}

fn nothing(_: &Path) {}

fn a_file(files: &Path) {
    fs::write(files.join("old"), b"0123456789").unwrap();
    fs::set_permissions(files.join("old"), fs::Permissions::from_mode(0o600)).unwrap();
}

fn permissions(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

const CASES: &[Case] = &[
    Case {
        procedure: Proc3::SetAttr,
        prepare: a_file,
        args: |c| {
            let (object, ctime) = c.look("old");
            let new_attributes = Sattr3 { size: Some(3), ..mode(0o640) };
            bytes(SetAttr3Args { object: Fh3(&object), new_attributes, guard: Some(ctime) })
        },
        check: |files| {
            assert_eq!(fs::read(files.join("old")).unwrap(), b"012");
            assert_eq!(permissions(&files.join("old")), 0o640);
        },
    },
    Case {
        procedure: Proc3::Write,
        prepare: a_file,
        args: |c| {
            let (file, _) = c.look("old");
            let (offset, stable) = (Offset(8), StableHow::FileSync);
            bytes(Write3Args { file: Fh3(&file), offset, count: 4, stable, data: b"abcd" })
        },
        check: |files| assert_eq!(fs::read(files.join("old")).unwrap(), b"01234567abcd"),
    },
    Case {
        procedure: Proc3::Create,
        prepare: nothing,
        args: |c| bytes(Create3Args { place: c.at("new"), how: CreateHow3::Unchecked(mode(0o604)) }),
        check: |files| assert_eq!(permissions(&files.join("new")), 0o604),
    },
    Case {
        procedure: Proc3::Create,
        prepare: nothing,
        args: |c| bytes(Create3Args { place: c.at("new"), how: CreateHow3::Guarded(mode(0o604)) }),
        check: |files| assert_eq!(permissions(&files.join("new")), 0o604),
    },
    Case {
        procedure: Proc3::Create,
        prepare: nothing,
        args: |c| bytes(Create3Args { place: c.at("new"), how: CreateHow3::Exclusive([7; 8]) }),
        check: |files| assert_eq!(fs::read(files.join("new")).unwrap(), b""),
    },
    Case {
        procedure: Proc3::Mkdir,
        prepare: nothing,
        args: |c| bytes(Mkdir3Args { place: c.at("new"), attributes: mode(0o711) }),
        check: |files| assert_eq!(permissions(&files.join("new")), 0o711),
    },
    Case {
        procedure: Proc3::Symlink,
        prepare: nothing,
        args: |c| bytes(Symlink3Args { place: c.at("new"), attributes: NOTHING, data: b"some/where" }),
        check: |files| assert_eq!(fs::read_link(files.join("new")).unwrap(), Path::new("some/where")),
    },
    Case {
        procedure: Proc3::Mknod,
        prepare: nothing,
        args: |c| bytes(Mknod3Args { place: c.at("new"), what: MknodData3::Fifo(mode(0o620)) }),
        check: |files| {
            assert!(fs::symlink_metadata(files.join("new")).unwrap().file_type().is_fifo());
            assert_eq!(permissions(&files.join("new")), 0o620);
        },
    },
    Case {
        procedure: Proc3::Remove,
        prepare: a_file,
        args: |c| bytes(c.at("old")),
        check: |files| assert_eq!(names(files), [""; 0]),
    },
    Case {
        procedure: Proc3::Rmdir,
        prepare: |files| fs::create_dir(files.join("old")).unwrap(),
        args: |c| bytes(c.at("old")),
        check: |files| assert_eq!(names(files), [""; 0]),
    },
    Case {
        procedure: Proc3::Rename,
        prepare: |files| {
            a_file(files);
            symlink("somewhere", files.join("new")).unwrap();
        },
        args: |c| bytes(Rename3Args { from: c.at("old"), to: c.at("new") }),
        check: |files| {
            assert_eq!(names(files), ["new"]);
            assert_eq!(fs::read(files.join("new")).unwrap(), b"0123456789");
        },
    },
    Case {
        procedure: Proc3::Link,
        prepare: a_file,
        args: |c| {
            let (file, _) = c.look("old");
            bytes(Link3Args { file: Fh3(&file), link: c.at("new") })
        },
        check: |files| {
            assert_eq!(names(files), ["new", "old"]);
            assert_eq!(fs::metadata(files.join("new")).unwrap().nlink(), 2);
        },
    },
    Case {
        procedure: Proc3::Commit,
        prepare: a_file,
        args: |c| {
            let (file, _) = c.look("old");
            bytes(Commit3Args { file: Fh3(&file), offset: Offset(0), count: 0 })
        },
        check: |files| assert_eq!(fs::read(files.join("old")).unwrap(), b"0123456789"),
    },
];

/// Every mutation, with the server killed at this point of it.
pub(crate) fn run(point: Point, is_sync: bool) {
    let mut client = Client::new(point, is_sync);
    for (number, case) in CASES.iter().enumerate() {
        let what = format!("{} (case {number}), {}", case.procedure, point.name());
        (case.prepare)(&client.world.files());
        let args = (case.args)(&mut client);
        let call = client.world.call(nfs(case.procedure), &args);
        let answered = client.world.kill_with(&call);
        let changes_nothing =
            case.procedure == Proc3::Commit && matches!(point, Point::BeforeMutation | Point::AfterMutation);
        assert_eq!(answered.is_some(), changes_nothing, "{what}: where the server dies");
        let results = client.world.exchange(&call);
        assert_eq!(results[..4], [0; 4], "{what}: the retry succeeds");
        (case.check)(&client.world.files());
        let is_kept = !matches!(case.procedure, Proc3::Commit);
        if is_kept {
            assert_eq!(client.world.exchange(&call), results, "{what}: and gets the same answer ever after");
        }
        clear(&client.world.files());
    }
}

/// Leaves nothing of a case.
pub(crate) fn clear(files: &Path) {
    for name in names(files) {
        let path = files.join(name);
        let is_dir = fs::symlink_metadata(&path).unwrap().is_dir();
        if is_dir { fs::remove_dir_all(path).unwrap() } else { fs::remove_file(path).unwrap() }
    }
}
