//! Mutations of NFSv4: in 4.0 a retry is known by the cache of replies, in 4.1 and 4.2 by its slot.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::rc::Rc;

use holdfast_base::{ClientId, Length, Offset, Seqid, SessionId, SlotId};
use holdfast_ledger::failpoint::Point;
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Reader, Writer};

use crate::nfs3::clear;
use crate::server::{World, names};
use crate::wire::Procedure;

const COMPOUND: Procedure = Procedure { program: NFS4_PROGRAM, version: NFS_V4, number: NFSPROC4_COMPOUND };

const CHANNEL: ChannelAttrs4 = ChannelAttrs4 {
    headerpadsize: 0,
    maxrequestsize: 1 << 20,
    maxresponsesize: 1 << 20,
    maxresponsesize_cached: 4096,
    maxoperations: 32,
    maxrequests: 4,
    rdma_ird: None,
};

/// The mode 0604 as an attribute.
const MODE: Fattr4<'static> = Fattr4 { mask: Bitmap4::of(&[Attr::Mode]), values: &[0, 0, 1, 0o204] };

const NO_ATTRS: Fattr4<'static> = Fattr4 { mask: Bitmap4::EMPTY, values: b"" };

/// A mutation: what must be there before it, its operations in the exported directory, what must be there after.
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) minors: &'static [u32],
    pub(crate) prepare: fn(&Path),
    pub(crate) ops: fn(&Client) -> Vec<ArgOp<'static>>,
    pub(crate) check: fn(&Path),
}

const ALL: &[u32] = &[0, 1, 2];
const SESSIONS: &[u32] = &[1, 2];

fn nothing(_: &Path) {}

fn a_file(files: &Path) {
    fs::write(files.join("old"), b"0123456789").unwrap();
}

/// The attribute `k` of the file.
fn xattr(files: &Path) -> Option<Vec<u8>> {
    let mut value = Vec::with_capacity(16);
    match rustix::fs::getxattr(files.join("old"), c"user.k", rustix::buffer::spare_capacity(&mut value)) {
        Ok(_) => Some(value),
        Err(rustix::io::Errno::NODATA) => None,
        Err(errno) => panic!("{errno}"),
    }
}

fn permissions(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

fn is_empty(files: &Path) {
    assert_eq!(names(files), [""; 0]);
}

fn create(objtype: CreateType4<'static>) -> Vec<ArgOp<'static>> {
    vec![ArgOp::Create(Create4Args { objtype, objname: b"new", createattrs: MODE }), ArgOp::GetFh]
}

fn open(client: &Client, how: CreateHow4<'static>) -> Vec<ArgOp<'static>> {
    let open = Open4Args {
        seqid: Seqid(1),
        share_access: OPEN4_SHARE_ACCESS_WRITE,
        share_deny: OPEN4_SHARE_DENY_NONE,
        owner: StateOwner4 { clientid: client.id, owner: b"owner" },
        openhow: OpenFlag4::Create(how),
        claim: OpenClaim4::Null(b"new"),
    };
    vec![ArgOp::Open(open), ArgOp::GetFh]
}

pub(crate) fn lookup(name: &'static [u8]) -> ArgOp<'static> {
    ArgOp::Lookup(Lookup4Args { objname: name })
}

/// What leaves no open behind. The file system's own marks are set anew for each. CLONE, which not every file system
/// can, is in `reflink`.
const PLAIN: &[Case] = &[
    Case {
        name: "CREATE of a directory",
        minors: ALL,
        prepare: nothing,
        ops: |_| create(CreateType4::Dir),
        check: |files| assert_eq!(permissions(&files.join("new")), 0o604),
    },
    Case {
        name: "CREATE of a symbolic link",
        minors: ALL,
        prepare: nothing,
        ops: |_| {
            let objtype = CreateType4::Lnk(b"some/where");
            vec![ArgOp::Create(Create4Args { objtype, objname: b"new", createattrs: NO_ATTRS })]
        },
        check: |files| assert_eq!(fs::read_link(files.join("new")).unwrap(), Path::new("some/where")),
    },
    Case {
        name: "CREATE of a pipe",
        minors: ALL,
        prepare: nothing,
        ops: |_| create(CreateType4::Fifo),
        check: |files| assert!(fs::metadata(files.join("new")).unwrap().file_type().is_fifo()),
    },
    Case {
        name: "CREATE of a socket",
        minors: ALL,
        prepare: nothing,
        ops: |_| create(CreateType4::Sock),
        check: |files| assert!(fs::metadata(files.join("new")).unwrap().file_type().is_socket()),
    },
    Case {
        name: "REMOVE of a file",
        minors: ALL,
        prepare: a_file,
        ops: |_| vec![ArgOp::Remove(Remove4Args { target: b"old" })],
        check: is_empty,
    },
    Case {
        name: "REMOVE of a directory",
        minors: ALL,
        prepare: |files| fs::create_dir(files.join("old")).unwrap(),
        ops: |_| vec![ArgOp::Remove(Remove4Args { target: b"old" })],
        check: is_empty,
    },
    Case {
        name: "RENAME",
        minors: ALL,
        prepare: |files| {
            a_file(files);
            fs::write(files.join("new"), b"in the way").unwrap();
        },
        ops: |_| {
            let rename = Rename4Args { oldname: b"old", newname: b"new" };
            vec![ArgOp::SaveFh, ArgOp::Rename(rename)]
        },
        check: |files| {
            assert_eq!(names(files), ["new"]);
            assert_eq!(fs::read(files.join("new")).unwrap(), b"0123456789");
        },
    },
    Case {
        name: "LINK",
        minors: ALL,
        prepare: a_file,
        ops: |_| {
            let way_back = [ArgOp::PutRootFh, lookup(b"export")];
            let link = ArgOp::Link(Link4Args { newname: b"new" });
            [&[lookup(b"old"), ArgOp::SaveFh][..], &way_back, &[link]].concat()
        },
        check: |files| assert_eq!(fs::metadata(files.join("new")).unwrap().nlink(), 2),
    },
    Case {
        name: "SETATTR",
        minors: ALL,
        prepare: a_file,
        ops: |_| {
            let stateid = Stateid4::ANONYMOUS;
            vec![lookup(b"old"), ArgOp::SetAttr(SetAttr4Args { stateid, obj_attributes: MODE })]
        },
        check: |files| assert_eq!(permissions(&files.join("old")), 0o604),
    },
    Case {
        name: "WRITE",
        minors: ALL,
        prepare: a_file,
        ops: |_| {
            let (stateid, stable) = (Stateid4::ANONYMOUS, StableHow4::FileSync);
            vec![
                lookup(b"old"),
                ArgOp::Write(Write4Args { stateid, offset: Offset(8), stable, data: b"abcd" }),
            ]
        },
        check: |files| assert_eq!(fs::read(files.join("old")).unwrap(), b"01234567abcd"),
    },
    Case {
        name: "WRITE of what is not on disk, then COMMIT",
        minors: ALL,
        prepare: a_file,
        ops: |_| {
            let (stateid, stable) = (Stateid4::ANONYMOUS, StableHow4::Unstable);
            vec![
                lookup(b"old"),
                ArgOp::Write(Write4Args { stateid, offset: Offset(8), stable, data: b"abcd" }),
                ArgOp::Commit(Commit4Args { offset: Offset(0), count: 0 }),
            ]
        },
        check: |files| assert_eq!(fs::read(files.join("old")).unwrap(), b"01234567abcd"),
    },
    Case {
        name: "ALLOCATE",
        minors: &[2],
        prepare: a_file,
        ops: |_| {
            let (stateid, length) = (Stateid4::ANONYMOUS, Length(100));
            vec![lookup(b"old"), ArgOp::Allocate(Allocate4Args { stateid, offset: Offset(0), length })]
        },
        check: |files| assert_eq!(fs::metadata(files.join("old")).unwrap().len(), 100),
    },
    Case {
        name: "DEALLOCATE",
        minors: &[2],
        prepare: a_file,
        ops: |_| {
            let (stateid, length) = (Stateid4::ANONYMOUS, Length(4));
            vec![lookup(b"old"), ArgOp::Deallocate(Deallocate4Args { stateid, offset: Offset(2), length })]
        },
        check: |files| assert_eq!(fs::read(files.join("old")).unwrap(), b"01\x00\x00\x00\x006789"),
    },
    Case {
        name: "COPY to the end of another file, then COMMIT",
        minors: &[2],
        prepare: |files| {
            a_file(files);
            fs::write(files.join("copy"), b"abc").unwrap();
        },
        ops: |_| {
            let copy = ArgOp::Copy(Copy4Args {
                src_stateid: Stateid4::ANONYMOUS,
                dst_stateid: Stateid4::ANONYMOUS,
                src_offset: Offset(2),
                dst_offset: Offset(3),
                count: Length(4),
                consecutive: true,
                synchronous: true,
                source_servers: vec![],
            });
            let way_back = [ArgOp::PutRootFh, lookup(b"export"), lookup(b"copy")];
            let commit = ArgOp::Commit(Commit4Args { offset: Offset(0), count: 0 });
            [&[lookup(b"old"), ArgOp::SaveFh][..], &way_back, &[copy, commit]].concat()
        },
        check: |files| assert_eq!(fs::read(files.join("copy")).unwrap(), b"abc2345"),
    },
    Case {
        name: "REMOVE, then CREATE of the same name",
        minors: ALL,
        prepare: |files| fs::write(files.join("new"), b"in the way").unwrap(),
        ops: |_| [vec![ArgOp::Remove(Remove4Args { target: b"new" })], create(CreateType4::Dir)].concat(),
        check: |files| assert!(fs::metadata(files.join("new")).unwrap().is_dir()),
    },
    Case {
        name: "SETXATTR of a new attribute",
        minors: &[2],
        prepare: a_file,
        ops: |_| {
            let set = SetXattr4Args { option: SetXattrOption4::Create, key: b"k", value: b"v" };
            vec![lookup(b"old"), ArgOp::SetXattr(set)]
        },
        check: |files| assert_eq!(xattr(files), Some(b"v".to_vec())),
    },
    Case {
        name: "SETXATTR, then REMOVEXATTR",
        minors: &[2],
        prepare: a_file,
        ops: |_| {
            let set = SetXattr4Args { option: SetXattrOption4::Either, key: b"k", value: b"v" };
            let remove = RemoveXattr4Args { name: b"k" };
            vec![lookup(b"old"), ArgOp::SetXattr(set), ArgOp::RemoveXattr(remove)]
        },
        check: |files| assert_eq!(xattr(files), None),
    },
];

/// OPENs that make a file. After them the client is recorded as a holder, and a restart has a grace period.
pub(crate) const OPENS: &[Case] = &[
    Case {
        name: "OPEN, unchecked",
        minors: ALL,
        prepare: nothing,
        ops: |c| open(c, CreateHow4::Unchecked(MODE)),
        check: |files| assert_eq!(permissions(&files.join("new")), 0o604),
    },
    Case {
        name: "OPEN, guarded",
        minors: ALL,
        prepare: nothing,
        ops: |c| open(c, CreateHow4::Guarded(MODE)),
        check: |files| assert_eq!(permissions(&files.join("new")), 0o604),
    },
    Case {
        name: "OPEN, exclusive",
        minors: &[0],
        prepare: nothing,
        ops: |c| open(c, CreateHow4::Exclusive([9; 8])),
        check: |files| assert_eq!(fs::read(files.join("new")).unwrap(), b""),
    },
    Case {
        name: "OPEN, exclusive with attributes",
        minors: SESSIONS,
        prepare: nothing,
        ops: |c| open(c, CreateHow4::Exclusive41(CreateVerfAttr { verf: [9; 8], attrs: MODE })),
        check: |files| assert_eq!(permissions(&files.join("new")), 0o604),
    },
];

/// A client of any minor version.
pub(crate) struct Client {
    pub(crate) world: Rc<World>,
    name: &'static str,
    minor: u32,
    /// Whose requests they are.
    pub(crate) uid: u32,
    pub(crate) id: ClientId,
    session: SessionId,
    /// The next number on slot 0, and on slot 1.
    seqids: [Seqid; 2],
    incarnations: u8,
}

pub(crate) fn create_session(clientid: ClientId, sequence: Seqid) -> CreateSession4Args<'static> {
    CreateSession4Args {
        clientid,
        sequence,
        flags: CREATE_SESSION4_FLAG_PERSIST,
        fore_chan_attrs: CHANNEL,
        back_chan_attrs: CHANNEL,
        cb_program: NFS4_CALLBACK_PROGRAM,
        sec_parms: vec![CallbackSecParms4::None],
    }
}

pub(crate) fn status(results: &[u8]) -> NfsStat4 {
    CompoundResHeader::decode(&mut Reader::new(results)).unwrap().status
}

impl Client {
    /// A client that has nothing to reclaim.
    pub(crate) fn new(world: &Rc<World>, name: &'static str, minor: u32) -> Self {
        let mut client = Self::introduced(world, name, minor);
        if minor > 0 {
            client.complete_reclaims();
        }
        client
    }

    /// A client that the server knows.
    pub(crate) fn introduced(world: &Rc<World>, name: &'static str, minor: u32) -> Self {
        let mut client = Self::unknown(world, name, minor);
        client.introduce();
        client
    }

    /// A client of 4.1 that has an id and no session yet.
    pub(crate) fn unconfirmed(world: &Rc<World>, name: &'static str) -> Self {
        let mut client = Self::unknown(world, name, 1);
        client.exchange_id();
        client
    }

    fn unknown(world: &Rc<World>, name: &'static str, minor: u32) -> Self {
        Self {
            world: Rc::clone(world),
            name,
            minor,
            uid: 0,
            id: ClientId(0),
            session: SessionId([0; 16]),
            seqids: [Seqid(1); 2],
            incarnations: 0,
        }
    }

    /// Uses another session from now on.
    pub(crate) const fn goes_on_in(&mut self, session: SessionId) {
        self.session = session;
        self.seqids = [Seqid(1); 2];
    }

    /// A client that makes a session; what the first refusal said.
    pub(crate) fn try_introduce(world: &Rc<World>, name: &str) -> NfsStat4 {
        let ask = |op: ArgOp<'_>| {
            let mut args = Writer::new();
            encode_compound(&mut args, b"", 1, &[op]);
            world.exchange(&world.call(COMPOUND, args.as_slice()))
        };
        let known = ask(ArgOp::ExchangeId(ExchangeId4Args {
            clientowner: ClientOwner4 { verifier: [1; 8], ownerid: name.as_bytes() },
            flags: 0,
            state_protect: StateProtect4A::None,
            client_impl_id: None,
        }));
        let mut r = Reader::new(&known);
        let header = CompoundResHeader::decode(&mut r).unwrap();
        if header.status != NfsStat4::Ok {
            return header.status;
        }
        ResOpHeader::decode(&mut r).unwrap();
        let known = ExchangeId4Ok::decode(&mut r).unwrap();
        status(&ask(ArgOp::CreateSession(create_session(known.clientid, known.sequenceid))))
    }

    /// Its session.
    pub(crate) const fn session(&self) -> SessionId {
        self.session
    }

    fn introduce(&mut self) {
        self.incarnations += 1;
        if self.minor == 0 { self.set_client_id() } else { self.make_session() }
    }

    /// Sends a compound without a session; what follows the head of its one result.
    fn alone(&mut self, op: ArgOp<'_>) -> Vec<u8> {
        let results = self.world.exchange(&self.compound(&[op]));
        let mut r = Reader::new(&results);
        let header = CompoundResHeader::decode(&mut r).unwrap();
        assert_eq!(header.status, NfsStat4::Ok);
        ResOpHeader::decode(&mut r).unwrap();
        r.rest().to_vec()
    }

    /// SETCLIENTID, as the incarnation it is.
    pub(crate) fn set_client_id(&mut self) {
        let answer = self.alone(ArgOp::SetClientId(SetClientId4Args {
            client: NfsClientId4 { verifier: [self.incarnations; 8], id: self.name.as_bytes() },
            callback: CbClient4 { cb_program: 0, cb_location: NetAddr4 { netid: b"tcp", addr: b"" } },
            callback_ident: 0,
        }));
        let known = SetClientId4Ok::decode(&mut Reader::new(&answer)).unwrap();
        self.id = known.clientid;
        self.alone(ArgOp::SetClientIdConfirm(SetClientIdConfirm4Args {
            clientid: known.clientid,
            setclientid_confirm: known.setclientid_confirm,
        }));
    }

    /// EXCHANGE_ID.
    pub(crate) fn who_it_is(&self) -> ArgOp<'static> {
        ArgOp::ExchangeId(ExchangeId4Args {
            clientowner: ClientOwner4 { verifier: [1; 8], ownerid: self.name.as_bytes() },
            flags: 0,
            state_protect: StateProtect4A::None,
            client_impl_id: None,
        })
    }

    /// Gets its id, and the number of its first session.
    fn exchange_id(&mut self) -> Seqid {
        let answer = self.alone(self.who_it_is());
        let known = ExchangeId4Ok::decode(&mut Reader::new(&answer)).unwrap();
        self.id = known.clientid;
        known.sequenceid
    }

    fn make_session(&mut self) {
        let sequence = self.exchange_id();
        let answer = self.alone(ArgOp::CreateSession(create_session(self.id, sequence)));
        let made = CreateSession4Ok::decode(&mut Reader::new(&answer)).unwrap();
        assert_eq!(made.flags & CREATE_SESSION4_FLAG_PERSIST, CREATE_SESSION4_FLAG_PERSIST);
        self.session = made.sessionid;
    }

    /// RECLAIM_COMPLETE, on slot 1: slot 0 is the cases'.
    pub(crate) fn complete_reclaims(&mut self) {
        // A reply from before the crash told of no restart: the client hears of it first.
        let call = self.sequenced(1, &[]);
        self.world.exchange(&call);
        assert_eq!(self.try_complete_reclaims(), NfsStat4::Ok, "RECLAIM_COMPLETE");
    }

    /// Opens a file of the exported directory for reading and writing.
    pub(crate) fn try_open(&mut self, name: &'static [u8]) -> NfsStat4 {
        let open = ArgOp::Open(Open4Args {
            seqid: Seqid(0),
            share_access: OPEN4_SHARE_ACCESS_BOTH,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: StateOwner4 { clientid: self.id, owner: b"owner" },
            openhow: OpenFlag4::NoCreate,
            claim: OpenClaim4::Null(name),
        });
        let call = self.sequenced(0, &[ArgOp::PutRootFh, lookup(b"export"), open]);
        let results = self.world.exchange(&call);
        status(&results)
    }

    pub(crate) fn try_complete_reclaims(&mut self) -> NfsStat4 {
        let complete = ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false });
        let call = self.sequenced(1, &[complete]);
        let results = self.world.exchange(&call);
        status(&results)
    }

    pub(crate) fn compound(&self, ops: &[ArgOp<'_>]) -> Vec<u8> {
        let mut args = Writer::new();
        encode_compound(&mut args, b"", self.minor, ops);
        self.world.call_as(self.uid, COMPOUND, args.as_slice())
    }

    pub(crate) fn sequenced(&mut self, slot: usize, ops: &[ArgOp<'_>]) -> Vec<u8> {
        if self.minor == 0 {
            return self.compound(ops);
        }
        let sequence = Sequence4Args {
            sessionid: self.session,
            sequenceid: self.seqids[slot],
            slotid: SlotId(slot as u32),
            highest_slotid: SlotId(1),
            cachethis: true,
        };
        self.seqids[slot] = self.seqids[slot].next();
        self.compound(&[&[ArgOp::Sequence(sequence)], ops].concat())
    }

    /// A case's compound under a new number.
    fn request(&mut self, case: &Case) -> Vec<u8> {
        let ops = [vec![ArgOp::PutRootFh, lookup(b"export")], (case.ops)(self)].concat();
        self.sequenced(0, &ops)
    }

    pub(crate) fn strike(&mut self, case: &Case, point: Point) {
        self.strike_at(1, case, point);
    }

    /// The same, at the how manieth passing of the point.
    pub(crate) fn strike_at(&mut self, nth: usize, case: &Case, point: Point) {
        let what = format!("{} of 4.{}, {}", case.name, self.minor, point.name());
        (case.prepare)(&self.world.files());
        if self.minor == 0 && case.name.starts_with("OPEN") {
            self.begin_anew();
        }
        let call = self.request(case);
        assert_eq!(self.world.kill_at(nth, &call, || ()), None, "{what}: the server dies");
        let results = self.world.exchange(&call);
        match status(&results) {
            NfsStat4::Ok => {}
            // What the server tells a client whose state it lost, before anything of the request was done.
            NfsStat4::Grace | NfsStat4::StaleClientId if is_nothing_done(case, point) => {
                self.recover_and_repeat(case, &what);
            }
            other => panic!("{what}: the retry is answered {other}"),
        }
        (case.check)(&self.world.files());
        if status(&results) == NfsStat4::Ok {
            assert_eq!(self.world.exchange(&call), results, "{what}: and gets the same answer ever after");
        }
        if self.minor > 0 && status(&results) == NfsStat4::Ok {
            self.complete_reclaims();
        }
        clear(&self.world.files());
    }

    /// Becomes a client of this run of the server, once its grace is over.
    fn begin_anew(&mut self) {
        self.wait_for_grace();
        self.introduce();
    }

    /// Waits until grace is over, by what it forbids.
    pub(crate) fn wait_for_grace(&mut self) {
        fs::write(self.world.files().join("probe"), b"").unwrap();
        let write = Write4Args {
            stateid: Stateid4::ANONYMOUS,
            offset: Offset(0),
            stable: StableHow4::Unstable,
            data: b"x",
        };
        let ops = [ArgOp::PutRootFh, lookup(b"export"), lookup(b"probe"), ArgOp::Write(write)];
        self.repeat_until_granted("a write without an open", |client| client.sequenced(0, &ops));
        fs::remove_file(self.world.files().join("probe")).unwrap();
    }

    /// What a client does that hears of a restart: it says who it is and that it has nothing to reclaim, and asks
    /// anew.
    fn recover_and_repeat(&mut self, case: &Case, what: &str) {
        if self.minor == 0 {
            self.begin_anew();
        } else {
            self.complete_reclaims();
        }
        self.repeat_until_granted(what, |client| client.request(case));
    }

    fn repeat_until_granted(&mut self, what: &str, request: impl Fn(&mut Self) -> Vec<u8>) {
        for _ in 0..200 {
            let call = request(self);
            let results = self.world.exchange(&call);
            match status(&results) {
                NfsStat4::Ok => return,
                NfsStat4::Grace => std::thread::sleep(std::time::Duration::from_millis(50)),
                other => panic!("{what}: asked anew it is answered {other}"),
            }
        }
        panic!("{what}: grace does not end");
    }
}

/// Whether the client may be told to begin anew: the file is not there, or is known again by its verifier.
fn is_nothing_done(case: &Case, point: Point) -> bool {
    point == Point::BeforeMutation || case.name.starts_with("OPEN, exclusive")
}

/// Every mutation of a minor version, with the server killed at this point of it.
pub(crate) fn run(point: Point, minor: u32, is_sync: bool) {
    // Only of 4.0 nobody says that he has reclaimed all.
    let world = if minor == 0 { World::new(point, is_sync) } else { World::lasting(None, point, is_sync) };
    let world = Rc::new(world);
    let mut client = Client::new(&world, "crash", minor);
    for case in PLAIN.iter().chain(OPENS).filter(|case| case.minors.contains(&minor)) {
        client.strike(case, point);
    }
    assert!(world.kills() > PLAIN.len() / 2);
}
