//! What is counted: one closure each, which does the thing once.

use crate::scene::{Request, Scene, call3, file_name, want};
use crate::{ROUNDS, WARM_UPS, changes, codec, stateful};
use holdfast_base::{ClientId, Cookie, FileKey, Offset, Seqid};
use holdfast_manager::Promised;
use holdfast_state::{DelegationKind, DelegationToken};
use holdfast_vfs::{MemBackend, MemOptions};
use holdfast_wire::nfs3::{Fh3, Proc3, ReadDirPlus3Args};
use holdfast_wire::nfs4::{ArgOp, Close4Args, StableHow4, Stateid4, Write4Args};
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
    "codec: 256 getattr3 arguments": codec::getattr3_arguments;
    "codec: 256 attributes of v3": codec::attributes3;
    "codec: 256 of READDIRPLUS": codec::entries_plus3;
    "codec: 256 WRITE of 4 KiB": codec::write3_arguments;
    "codec: 256 compounds": || codec::compounds(&scene());
    "v3: GETATTR": || inline(scene(), Scene::getattr3);
    "v3: LOOKUP": || inline(scene(), Scene::lookup3);
    "v3: ACCESS": || inline(scene(), Scene::access3);
    "v3: READ of 4 KiB": || inline(scene(), |scene| scene.read3(4096));
    "v3: WRITE of 4 KiB": || whole(scene(), write3);
    "v3: READDIRPLUS of 32": || whole(scene(), |scene| {
        let (dir, dircount, maxcount) = (Fh3(&scene.root), 32 << 10, 32 << 10);
        let list = ReadDirPlus3Args { dir, cookie: Cookie(0), cookieverf: [0; 8], dircount, maxcount };
        call3(Proc3::ReadDirPlus, &list)
    });
    "v3: CREATE": || whole(scene(), changes::create3);
    "v3: MKDIR": || whole(scene(), changes::mkdir3);
    "v3: REMOVE": || whole(scene_to_remove(), changes::remove3);
    "v3: RENAME": || in_turn(changes::rename3);
    "v3: GETATTR, others promised": || inline(promised_scene(), Scene::getattr3);
    "v3: READ, others promised": || inline(promised_scene(), |scene| scene.read3(4096));
    "v3: WRITE, others promised": || whole(promised_scene(), write3);
    "v4.1: SEQUENCE": || inline(scene(), |scene| scene.sequenced(&[]));
    "v4.1: GETATTR": || inline(scene(), Scene::getattr4);
    "v4.1: LOOKUP": || inline(scene(), Scene::lookup4);
    "v4.1: ACCESS": || inline(scene(), Scene::access4);
    "v4.1: READ of 4 KiB": || inline(scene(), |scene| scene.read4(4096));
    "v4.1: WRITE of 4 KiB": || whole(scene(), |scene| {
        let data = [7; 4096];
        let (stateid, offset, stable) = (scene.open, Offset(0), StableHow4::Unstable);
        scene.sequenced(&[scene.put_file(), ArgOp::Write(Write4Args { stateid, offset, stable, data: &data })])
    });
    "v4.1: OPEN, CLOSE": || whole(scene(), |scene| {
        let name = file_name(3);
        let close = Close4Args { seqid: Seqid(0), open_stateid: Stateid4::CURRENT };
        let open = scene.open_args(name.as_bytes());
        scene.sequenced(&[scene.put_root(), ArgOp::Open(open), ArgOp::GetFh, want(), ArgOp::Close(close)])
    });
    "v4.1: READDIR of 32": || whole(scene(), Scene::list4);
    "v4.1: CREATE (OPEN, CLOSE)": || whole(scene(), changes::create4);
    "v4.1: MKDIR": || whole(scene(), changes::mkdir4);
    "v4.1: REMOVE": || whole(scene_to_remove(), changes::remove4);
    "v4.1: RENAME": || in_turn(changes::rename4);
    "journal: 64 mutations": changes::journal;
    "state: 32 SEQUENCE": || stateful::sequence(1);
    "state: open, close": || stateful::open_close(1);
    "state: lock, unlock": || stateful::lock_unlock(1);
    "state: 32 stateids of a READ": || stateful::check_stateid(1);
    "state: 32 SEQUENCE, 10,000": || stateful::sequence(MANY);
    "state: open, close, 10,000": || stateful::open_close(MANY);
    "state: lock, unlock, 10,000": || stateful::lock_unlock(MANY);
    "state: 32 stateids, 10,000": || stateful::check_stateid(MANY);
}

/// Clients where there are many.
const MANY: usize = 10_000;

/// What must cost as much among many clients as with one.
pub(crate) const FLAT: [(&str, &str); 4] = [
    ("state: 32 SEQUENCE", "state: 32 SEQUENCE, 10,000"),
    ("state: open, close", "state: open, close, 10,000"),
    ("state: lock, unlock", "state: lock, unlock, 10,000"),
    ("state: 32 stateids of a READ", "state: 32 stateids, 10,000"),
];

fn scene() -> Scene {
    Scene::new(Arc::new(MemBackend::new(&MemOptions { root_mode: 0o777, ..MemOptions::deterministic() })))
}

/// The same, while something is promised to somebody, which none of the calls is about.
fn promised_scene() -> Scene {
    let scene = scene();
    let manager = &scene.server.manager;
    let (other, kind, holder) = (FileKey(12_345), DelegationKind::Read, ClientId(99));
    let promised = manager.promises().promise(other, kind, holder, DelegationToken(1));
    assert_ne!(promised, Promised::Refused);
    // Until the end of the program.
    std::mem::forget(manager.oblige_to_look());
    scene
}

/// With as many files to be removed as will be.
fn scene_to_remove() -> Scene {
    let scene = scene();
    scene.add_fresh(WARM_UPS + ROUNDS);
    scene
}

fn inline(mut scene: Scene, request: impl Fn(&Scene) -> Request) -> Once {
    let mut request = request(&scene);
    Box::new(move || assert!(scene.is_answered_inline(&mut request), "an answer at once"))
}

/// With what runs on the pool and what waits to be durable, and the reply on its way out.
fn whole(mut scene: Scene, request: impl Fn(&Scene) -> Request) -> Once {
    let mut request = request(&scene);
    Box::new(move || drop(black_box(scene.answer(&mut request))))
}

/// The same of two calls, one of which undoes the other: one of them each time.
fn in_turn(requests: fn(&Scene) -> [Request; 2]) -> Once {
    let mut scene = scene();
    let mut requests = requests(&scene);
    Box::new(move || {
        drop(black_box(scene.answer(&mut requests[0])));
        requests.swap(0, 1);
    })
}

fn write3(scene: &Scene) -> Request {
    call3(Proc3::Write, &codec::write3(&scene.files[0], 0))
}
