//! What is counted: one closure each, which does the thing once.

use crate::scene::{FILE_BYTES, Scene, call3, file_name, want};
use crate::stateful;
use holdfast_base::{Cookie, Offset, Seqid};
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
    "state: SEQUENCE": || stateful::sequence(1);
    "state: open, close": || stateful::open_close(1);
    "state: lock, unlock": || stateful::lock_unlock(1);
    "state: stateid of a READ": || stateful::check_stateid(1);
    "state: SEQUENCE, 10,000 clients": || stateful::sequence(MANY);
    "state: open, close, 10,000": || stateful::open_close(MANY);
    "state: lock, unlock, 10,000": || stateful::lock_unlock(MANY);
    "state: stateid, 10,000": || stateful::check_stateid(MANY);
}

/// Clients where there are many.
const MANY: usize = 10_000;

/// What must cost as much among many clients as with one.
pub(crate) const FLAT: [(&str, &str); 4] = [
    ("state: SEQUENCE", "state: SEQUENCE, 10,000 clients"),
    ("state: open, close", "state: open, close, 10,000"),
    ("state: lock, unlock", "state: lock, unlock, 10,000"),
    ("state: stateid of a READ", "state: stateid, 10,000"),
];

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
