//! Batches of the caps program: every kind of operation, the server killed at every step of it and between two; the
//! batch sent again under its number is answered as done once, and the disk shows one effect.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::rc::Rc;

use holdfast_base::SessionId;
use holdfast_ledger::failpoint::Point;
use holdfast_wire::caps::*;
use holdfast_wire::mount3::{DirPath, MOUNT_PROGRAM, MOUNT_V3, MOUNTPROC3_MNT, MountRes3};
use holdfast_xdr::{Decode, Encode, from_bytes, to_bytes};

use crate::nfs3::clear;
use crate::nfs4::Client as Nfs4Client;
use crate::server::{World, names};
use crate::wire::Procedure;

const TXN: TxnId = TxnId(1);

/// A batch: what must be there before it, its operations in the exported directory, what must be there after.
struct Case {
    name: &'static str,
    prepare: fn(&Path),
    ops: for<'a> fn(Ref<'a>, &'a [u8]) -> Vec<BatchOp<'a>>,
    check: fn(&Path),
}

/// What operation `op` of the batch made.
const fn own(op: u32) -> Ref<'static> {
    Ref::Made { txn: TXN, op }
}

fn set(mode: u32) -> SetAttrs {
    SetAttrs { mode: Some(mode), ..SetAttrs::default() }
}

fn create<'a>(dir: Ref<'a>, name: &'a [u8], data: &'a [u8]) -> BatchOp<'a> {
    BatchOp::Create { dir, name, if_taken: IfTaken::Fail, set: set(0o604), want: CapSet::NONE, data }
}

fn place<'a>(dir: Ref<'a>, name: &'a [u8], data: &'a [u8], pooled: &'a [u8]) -> BatchOp<'a> {
    let (set, want, pooled) = (set(0o604), CapSet::NONE, Handle(pooled));
    BatchOp::Place { dir, name, if_taken: IfTaken::KeepBoth, set, want, data, pooled }
}

fn mkdir<'a>(dir: Ref<'a>, name: &'a [u8]) -> BatchOp<'a> {
    BatchOp::Mkdir { dir, name, if_taken: IfTaken::Fail, set: set(0o705), want: CapSet::NONE }
}

fn nothing(_: &Path) {}

fn a_file(files: &Path) {
    fs::write(files.join("old"), b"0123456789").unwrap();
}

fn a_taken_name(files: &Path) {
    fs::write(files.join("new"), b"theirs").unwrap();
}

fn mode_of(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

const CASES: &[Case] = &[
    Case {
        name: "CREATE with data",
        prepare: nothing,
        ops: |root, _| vec![create(root, b"new", b"ten bytes!")],
        check: |files| {
            assert_eq!(fs::read(files.join("new")).unwrap(), b"ten bytes!");
            assert_eq!(mode_of(&files.join("new")), 0o604);
        },
    },
    Case {
        name: "CREATE beside a name that is taken",
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
        prepare: nothing,
        ops: |root, _| vec![mkdir(root, b"new"), create(own(0), b"inside", b"x")],
        check: |files| {
            assert_eq!(mode_of(&files.join("new")), 0o705);
            assert_eq!(fs::read(files.join("new/inside")).unwrap(), b"x");
        },
    },
    Case {
        name: "SYMLINK",
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
        prepare: a_file,
        ops: |root, old| vec![BatchOp::Link { object: Ref::Handle(Handle(old)), dir: root, name: b"new" }],
        check: |files| assert_eq!(fs::metadata(files.join("new")).unwrap().nlink(), 2),
    },
    Case {
        name: "SETATTR, then DATA",
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
        prepare: a_file,
        ops: |_, old| {
            let object = Ref::Handle(Handle(old));
            vec![BatchOp::Append { object, data: b"one" }, BatchOp::Append { object, data: b"two" }]
        },
        check: |files| assert_eq!(fs::read(files.join("old")).unwrap(), b"0123456789onetwo"),
    },
    Case {
        name: "RENAME over another",
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
        prepare: a_file,
        ops: |root, old| {
            let victim = Some(Ref::Handle(Handle(old)));
            vec![BatchOp::Unlink { dir: root, name: b"old", victim }, create(root, b"old", b"second")]
        },
        check: |files| assert_eq!(fs::read(files.join("old")).unwrap(), b"second"),
    },
    Case {
        name: "MKDIR, then RMDIR",
        prepare: nothing,
        ops: |root, _| {
            vec![mkdir(root, b"new"), BatchOp::Rmdir { dir: root, name: b"new", victim: Some(own(0)) }]
        },
        check: |files| assert_eq!(names(files), [""; 0]),
    },
    Case {
        name: "SETXATTR, then REMOVEXATTR",
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
const POOLED: &[Case] = &[
    Case {
        name: "PLACE with data, twice",
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

/// Results but for times of access: to look at what was done is one.
fn told(results: &[Res<OpResult<'static>>]) -> Vec<Res<OpResult<'static>>> {
    let untouched = |attrs: Attrs| Attrs { atime: Time::default(), ..attrs };
    let one = |result: &Res<OpResult<'static>>| match result {
        Res::Ok(OpResult::Made(made)) => {
            Res::Ok(OpResult::Made(Made { attrs: made.attrs.map(untouched), ..*made }))
        }
        Res::Ok(OpResult::Changed(attrs)) => Res::Ok(OpResult::Changed(attrs.map(untouched))),
        Res::Ok(OpResult::Appended(done)) => {
            Res::Ok(OpResult::Appended(Appended { attrs: done.attrs.map(untouched), ..*done }))
        }
        other => *other,
    };
    results.iter().map(one).collect()
}

/// A mount whose connections last one call.
struct Mount {
    world: Rc<World>,
    session: SessionId,
    incarnation: Cell<u8>,
    root: Vec<u8>,
}

const fn caps(procedure: CapsProc) -> Procedure {
    Procedure { program: CAPS_PROGRAM, version: CAPS_V1, number: procedure.as_u32() }
}

impl Mount {
    fn new(world: &Rc<World>) -> Self {
        let session = Nfs4Client::new(world, "caps", 1).session();
        let mount = Procedure { program: MOUNT_PROGRAM, version: MOUNT_V3, number: MOUNTPROC3_MNT };
        let results = world.exchange(&world.call(mount, &to_bytes(&DirPath(b"/export"))));
        let MountRes3::Ok(mounted) = from_bytes(&results).unwrap() else { panic!("not mounted") };
        let root = mounted.fhandle.to_vec();
        Self { world: Rc::clone(world), session, incarnation: Cell::new(0), root }
    }

    fn call<R: Decode<'static>>(&self, procedure: CapsProc, args: &impl Encode) -> Result<R, CapsStat> {
        let call = self.world.call(caps(procedure), &to_bytes(args));
        let results: &'static [u8] = self.world.exchange(&call).leak();
        from_bytes::<Res<R>>(results).unwrap().into_result()
    }

    fn hello(&self) -> HelloOk {
        let incarnation = [self.incarnation.get(); 16];
        let args = HelloArgs {
            session: self.session,
            incarnation,
            features: Features::default(),
            done_through: TxnId(0),
        };
        self.call(CapsProc::Hello, &args).unwrap()
    }

    fn lookup(&self, ticket: Ticket, name: &[u8]) -> Vec<u8> {
        let (dir, want) = (Handle(&self.root), CapSet::NONE);
        let args = LookupArgs { ticket, dir, name, want_dir: want, want };
        match self.call::<LookupOk<'_>>(CapsProc::Lookup, &args).unwrap().found {
            Looked::Present(node) => node.handle.0.to_vec(),
            Looked::Absent => Vec::new(),
        }
    }

    /// Handles of two files for creates in the exported directory, one behind the other.
    fn pool(&self, ticket: Ticket) -> Vec<u8> {
        let args = PoolArgs { ticket, dir: Handle(&self.root), count: 2, back: Vec::new() };
        let files = self.call::<PoolOk<'_>>(CapsProc::Pool, &args).unwrap().files;
        assert_eq!((files.len(), files[0].handle.0.len()), (2, files[1].handle.0.len()));
        files.iter().flat_map(|file| file.handle.0.to_vec()).collect()
    }

    fn strike(&self, case: &Case, second: fn(&Self, Ticket) -> Vec<u8>, point: Point) {
        let what = format!("{}, {}", case.name, point.name());
        self.incarnation.set(self.incarnation.get() + 1);
        (case.prepare)(&self.world.files());
        let ticket = self.hello().ticket;
        let old = second(self, ticket);
        let ops = || (case.ops)(Ref::Handle(Handle(&self.root)), &old);
        let batch = |ticket, is_resent| {
            let done_through = TxnId(0);
            BatchArgs { ticket, txn: TXN, is_resent, done_through, ops: ops() }
        };
        let stable = |ticket| StableArgs { ticket, through: TXN, done_through: TxnId(0) };
        let sent = self.world.call(caps(CapsProc::Batch), &to_bytes(&batch(ticket, false)));
        if point == Point::AfterCommit {
            self.world.exchange(&sent);
            let call = self.world.call(caps(CapsProc::Stable), &to_bytes(&stable(ticket)));
            assert_eq!(self.world.kill_with(&call), None, "{what}: the server dies");
        } else {
            assert_eq!(self.world.kill_with(&sent), None, "{what}: the server dies");
        }
        let ticket = self.hello().ticket;
        let results = self.call::<BatchOk<'_>>(CapsProc::Batch, &batch(ticket, true)).unwrap().results;
        for (place, result) in results.iter().enumerate() {
            assert!(result.into_result().is_ok(), "{what}: operation {place} is answered {result:?}");
        }
        (case.check)(&self.world.files());
        let again = self.call::<BatchOk<'_>>(CapsProc::Batch, &batch(ticket, true)).unwrap().results;
        assert_eq!(told(&again), told(&results), "{what}: and gets the same answer ever after");
        let ok = self.call::<StableOk>(CapsProc::Stable, &stable(ticket)).unwrap();
        assert_eq!((ok.stable_through, ok.failed.len()), (TXN, 0), "{what}");
        (case.check)(&self.world.files());
        clear(&self.world.files());
    }
}

/// Every kind of operation, with the server killed at this point of the first of its batch.
pub(crate) fn run(point: Point, is_sync: bool) {
    let world = Rc::new(World::lasting(None, point, is_sync));
    let mount = Mount::new(&world);
    for case in CASES {
        mount.strike(case, |mount, ticket| mount.lookup(ticket, b"old"), point);
    }
    for case in POOLED {
        mount.strike(case, Mount::pool, point);
    }
    assert_eq!(world.kills(), CASES.len() + POOLED.len());
}
