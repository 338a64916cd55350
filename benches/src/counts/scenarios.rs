//! What is counted: one closure each, which does the thing once.

use crate::scene::{FILE_BYTES, Scene, call3, file_name, want};
use holdfast_base::{ByteRange, ClientId, Cookie, FileKey, Instant, Offset, SeededEntropy, Seqid, SlotId};
use holdfast_state::{
    Access, Backing, BootInstance, Caller, ChannelAttrs, Claim, Config, ConnId, CreateSession, Direction,
    Engine, ExchangeId, ExchangeIntent, Grace, KeptReply, LockBy, LockKind, LockRequest, OpenId, OpenRequest,
    Principal, Share, SlotRequest, StateId, Verifier, Wait,
};
use holdfast_vfs::{MemBackend, MemOptions};
use holdfast_wire::nfs3::{
    Access3Args, Entry3, EntryPlus3, Fattr3, Fh3, Proc3, Read3Args, ReadDirPlus3Args, StableHow, Write3Args,
};
use holdfast_wire::nfs4::{
    ACCESS4_READ, Access4Args, ArgOp, Close4Args, CompoundArgsHeader, StableHow4, Stateid4, Write4Args,
};
use holdfast_xdr::{Decode, Encode, Reader, Writer, from_bytes, to_bytes};
use std::hint::black_box;
use std::sync::Arc;

/// One thing, done once a call.
pub(crate) type Once = Box<dyn FnMut()>;

/// A name and how to prepare it.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) prepare: fn() -> Once,
}

macro_rules! scenarios {
    ($($name:literal: $prepare:expr;)*) => {
        /// All of them, in the order in which they are shown.
        pub(crate) const ALL: &[Scenario] = &[$(Scenario { name: $name, prepare: $prepare }),*];
    };
}

scenarios! {
    "codec: getattr3 arguments": || decoding(&Fh3(&[5; 35]), |r| {
        let _ = black_box(Fh3::decode(r));
    });
    "codec: attributes of v3": || encoding(fattr3());
    "codec: entry of READDIRPLUS": || {
        let entry = Entry3 { fileid: 7, name: b"some-name.txt", cookie: Cookie(9) };
        encoding(EntryPlus3 { entry, name_attributes: Some(fattr3()), name_handle: Some(Fh3(&[5; 35])) })
    };
    "codec: WRITE of 4 KiB": || {
        let write = write3(&[5; 35]);
        decoding(&write, |r| {
            let _ = black_box(Write3Args::decode(r));
        })
    };
    "codec: compound of three": || {
        let scene = scene();
        let bytes = scene.getattr4().arguments();
        Box::new(move || decode_compound(black_box(&bytes)))
    };
    "v3: GETATTR": || inline(|scene| scene.getattr3());
    "v3: LOOKUP": || inline(|scene| scene.lookup3());
    "v3: ACCESS": || inline(|scene| call3(Proc3::Access, &Access3Args { object: Fh3(&scene.files[0]), access: 0x3f }));
    "v3: READ of 4 KiB": || inline(|scene| {
        call3(Proc3::Read, &Read3Args { file: Fh3(&scene.files[0]), offset: Offset(0), count: 4096 })
    });
    "v3: WRITE of 4 KiB": || whole(|scene| call3(Proc3::Write, &write3(&scene.files[0])));
    "v3: READDIRPLUS of 32": || whole(|scene| {
        let (dir, dircount, maxcount) = (Fh3(&scene.root), 32 << 10, 32 << 10);
        let list = ReadDirPlus3Args { dir, cookie: Cookie(0), cookieverf: [0; 8], dircount, maxcount };
        call3(Proc3::ReadDirPlus, &list)
    });
    "v4.1: SEQUENCE": || inline(|scene| scene.sequenced(&[]));
    "v4.1: GETATTR": || inline(Scene::getattr4);
    "v4.1: LOOKUP": || inline(Scene::lookup4);
    "v4.1: ACCESS": || inline(|scene| {
        scene.sequenced(&[scene.put_file(), ArgOp::Access(Access4Args { access: ACCESS4_READ }), want()])
    });
    "v4.1: READ of 4 KiB": || inline(Scene::read4);
    "v4.1: WRITE of 4 KiB": || whole(|scene| {
        let data = [7; 4096];
        let (stateid, offset, stable) = (scene.open, Offset(0), StableHow4::Unstable);
        scene.sequenced(&[scene.put_file(), ArgOp::Write(Write4Args { stateid, offset, stable, data: &data })])
    });
    "v4.1: OPEN, CLOSE": || whole(|scene| {
        let name = file_name(3);
        let close = Close4Args { seqid: Seqid(0), open_stateid: Stateid4::CURRENT };
        let open = scene.open_args(name.as_bytes());
        scene.sequenced(&[scene.put_root(), ArgOp::Open(open), ArgOp::GetFh, want(), ArgOp::Close(close)])
    });
    "v4.1: READDIR of 32": || whole(Scene::list4);
    "state: SEQUENCE": sequence;
    "state: open, close": open_close;
    "state: lock, unlock": lock_unlock;
    "state: stateid of a READ": check_stateid;
}

fn scene() -> Scene {
    Scene::new(Arc::new(MemBackend::new(&MemOptions { root_mode: 0o777, ..MemOptions::deterministic() })))
}

fn inline(request: impl Fn(&Scene) -> crate::scene::Request) -> Once {
    let mut scene = scene();
    let mut request = request(&scene);
    Box::new(move || scene.answer_inline(&mut request))
}

/// With what runs on the pool, and the reply on its way out.
fn whole(request: impl Fn(&Scene) -> crate::scene::Request) -> Once {
    let mut scene = scene();
    let mut request = request(&scene);
    Box::new(move || drop(black_box(scene.answer(&mut request))))
}

fn write3(file: &[u8]) -> Write3Args<'_> {
    const DATA: [u8; 4096] = [7; 4096];
    assert!(DATA.len() <= FILE_BYTES);
    let stable = StableHow::Unstable;
    Write3Args { file: Fh3(file), offset: Offset(0), count: DATA.len() as u32, stable, data: &DATA }
}

fn fattr3() -> Fattr3 {
    from_bytes(&[0, 0, 0, 1].repeat(21)).expect("84 bytes of attributes")
}

fn encoding<E: Encode + 'static>(value: E) -> Once {
    let mut w = Writer::new();
    Box::new(move || {
        w.truncate(0);
        black_box(&value).encode(&mut w);
        black_box(w.as_slice());
    })
}

fn decoding(value: &impl Encode, decode: fn(&mut Reader<'_>)) -> Once {
    let bytes = to_bytes(value);
    Box::new(move || decode(&mut Reader::new(black_box(&bytes))))
}

fn decode_compound(bytes: &[u8]) {
    let mut r = Reader::new(bytes);
    let header = CompoundArgsHeader::decode(&mut r).expect("it was encoded here");
    for _ in 0..header.ops {
        drop(black_box(ArgOp::decode(&mut r)));
    }
}

/// An engine with one client that has a session.
struct Stateful {
    engine: Engine,
    client: ClientId,
    session: holdfast_base::SessionId,
    now: Instant,
    seqid: Seqid,
}

impl Stateful {
    fn new() -> Self {
        let config = Config { boot: BootInstance::from_counter(1), lease_ms: 90_000, grace: Grace::Over };
        let mut engine = Engine::new(config, Box::new(SeededEntropy(7)));
        let (now, principal) = (Instant(1000), Principal::new(b"root"));
        let intent = ExchangeIntent::Establish;
        let request = ExchangeId {
            owner: b"one",
            verifier: Verifier([1; 8]),
            principal: &principal,
            site: [127, 0, 0, 1].into(),
            intent,
        };
        let known = engine.exchange_id(&request, now).expect("a first client");
        let fore = ChannelAttrs {
            header_pad_bytes: 0,
            request_bytes_max: 1 << 20,
            reply_bytes_max: 1 << 20,
            reply_kept_bytes_max: 1 << 16,
            ops_max: 16,
            slots_max: 8,
        };
        let request = CreateSession {
            client: known.client,
            seqid: known.next_seqid,
            principal: &principal,
            conn: ConnId(1),
            fore,
            back: Some(fore),
            conn_direction: Direction::Both,
            callback_program: 0x4000_0000,
            is_persistent: false,
        };
        let session = engine.create_session(&request, now).expect("a first session").id;
        engine.reclaim_complete(known.client).expect("it reclaims nothing");
        drop(engine.take_effects());
        Self { engine, client: known.client, session, now, seqid: Seqid(0) }
    }

    fn open(&mut self, owner: &[u8]) -> StateId {
        let share = Share { access: Access::BOTH, deny: Access::NONE };
        let request = OpenRequest { client: self.client, owner, file: FileKey(1), share, claim: Claim::New };
        let opened = self.engine.open(&request, self.now).expect("nothing is in the way");
        if let Backing::Needed(access) = opened.backing {
            self.engine.attach(&opened.ticket, OpenId(1), access).expect("it was asked for");
        }
        self.engine.open_commit(opened.ticket).expect("it is under way")
    }
}

fn sequence() -> Once {
    let mut s = Stateful::new();
    Box::new(move || {
        s.seqid = s.seqid.next();
        let slot = SlotId(0);
        let request = SlotRequest { slot, seqid: s.seqid, highest_slot: slot, digest: None };
        let sessions = s.engine.sessions_mut();
        drop(black_box(sessions.sequence(s.session, request, ConnId(1), s.now).expect("the next in order")));
        black_box(sessions.complete(s.session, slot, KeptReply::Nothing, s.now));
    })
}

fn open_close() -> Once {
    let mut s = Stateful::new();
    Box::new(move || {
        let open = s.open(b"owner");
        s.engine.close(Caller::V41(s.client), open, FileKey(1), s.now).expect("it is open");
        drop(black_box(s.engine.take_effects()));
    })
}

fn lock_unlock() -> Once {
    let mut s = Stateful::new();
    let open = s.open(b"owner");
    let range = ByteRange::from_bounds(10, 19).expect("ten bytes");
    let caller = Caller::V41(s.client);
    Box::new(move || {
        let request = LockRequest {
            caller,
            file: FileKey(1),
            by: LockBy::Open { open, owner: b"locker", first_seqid: None, client: None },
            range,
            kind: LockKind::Write,
            claim: Claim::New,
            wait: Wait::No,
        };
        let ticket = s.engine.lock_prepare(&request, s.now).expect("nobody else locks");
        let lock = s.engine.lock_commit(ticket, s.now).expect("it is under way");
        let ticket = s.engine.unlock_prepare(caller, lock, FileKey(1), range, s.now).expect("it is locked");
        s.engine.lock_commit(ticket, s.now).expect("it is under way");
        drop(black_box(s.engine.take_effects()));
    })
}

fn check_stateid() -> Once {
    let mut s = Stateful::new();
    let open = s.open(b"owner");
    let caller = Caller::V41(s.client);
    Box::new(move || {
        let _ = black_box(s.engine.check_stateid(caller, open, FileKey(1), Access::READ, s.now));
    })
}
