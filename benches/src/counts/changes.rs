//! Changes of names, each recorded in the journal before it is made, with its reply before that is sent, and forced: calls
//! of NFSv3, and compounds as a Linux client sends them.

use crate::scenarios::Once;
use crate::scene::server::directory_in_memory;
use crate::scene::{FRESH, Request, Scene, call3, file_name, want};
use holdfast_base::Seqid;
use holdfast_journal::{Config, EntryId, Journal, Keep};
use holdfast_wire::nfs3::{
    Create3Args, CreateHow3, DirOpArgs3, Fh3, Mkdir3Args, Proc3, Rename3Args, Sattr3, SetTime3,
};
use holdfast_wire::nfs4::{
    ArgOp, Attr, Bitmap4, Close4Args, Create4Args, CreateHow4, CreateType4, Fattr4, OpenFlag4, Remove4Args,
    Rename4Args, Stateid4,
};

const MODE: [u8; 4] = 0o755_u32.to_be_bytes();

fn attributes4() -> Fattr4<'static> {
    Fattr4 { mask: Bitmap4::of(&[Attr::Mode]), values: &MODE }
}

fn attributes3() -> Sattr3 {
    let (atime, mtime) = (SetTime3::DontChange, SetTime3::DontChange);
    Sattr3 { mode: Some(0o755), uid: None, gid: None, size: None, atime, mtime }
}

fn at<'a>(scene: &'a Scene, name: &'a [u8]) -> DirOpArgs3<'a> {
    DirOpArgs3 { dir: Fh3(&scene.root), name }
}

pub(crate) fn create3(scene: &Scene) -> Request {
    let how = CreateHow3::Unchecked(attributes3());
    call3(Proc3::Create, &Create3Args { place: at(scene, FRESH), how })
}

pub(crate) fn mkdir3(scene: &Scene) -> Request {
    call3(Proc3::Mkdir, &Mkdir3Args { place: at(scene, FRESH), attributes: attributes3() })
}

pub(crate) fn remove3(scene: &Scene) -> Request {
    call3(Proc3::Remove, &at(scene, FRESH))
}

/// There, and back.
pub(crate) fn rename3(scene: &Scene) -> [Request; 2] {
    let (old, new) = (file_name(3), file_name(9999));
    let (old, new) = (at(scene, old.as_bytes()), at(scene, new.as_bytes()));
    [(old, new), (new, old)].map(|(from, to)| call3(Proc3::Rename, &Rename3Args { from, to }))
}

/// OPEN that makes the file, and CLOSE.
pub(crate) fn create4(scene: &Scene) -> Request {
    let mut open = scene.open_args(FRESH);
    open.openhow = OpenFlag4::Create(CreateHow4::Unchecked(attributes4()));
    let close = Close4Args { seqid: Seqid(0), open_stateid: Stateid4::CURRENT };
    scene.changing(&[scene.put_root(), ArgOp::Open(open), ArgOp::GetFh, want(), ArgOp::Close(close)])
}

pub(crate) fn mkdir4(scene: &Scene) -> Request {
    let make = Create4Args { objtype: CreateType4::Dir, objname: FRESH, createattrs: attributes4() };
    scene.changing(&[scene.put_root(), ArgOp::Create(make), ArgOp::GetFh, want()])
}

pub(crate) fn remove4(scene: &Scene) -> Request {
    scene.changing(&[scene.put_root(), ArgOp::Remove(Remove4Args { target: FRESH })])
}

/// There, and back.
pub(crate) fn rename4(scene: &Scene) -> [Request; 2] {
    let (old, new) = (file_name(3), file_name(9999));
    let (old, new) = (old.as_bytes(), new.as_bytes());
    [(old, new), (new, old)].map(|(oldname, newname)| {
        let rename = ArgOp::Rename(Rename4Args { oldname, newname });
        scene.changing(&[scene.put_root(), ArgOp::SaveFh, scene.put_root(), rename])
    })
}

/// Mutations that are recorded together.
const MUTATIONS: u64 = 64;

/// The journal alone, with what the scenarios of calls leave out: it is so small that it comes round many times, and copies
/// forward what is alive.
pub(crate) fn journal() -> Once {
    let dir = directory_in_memory();
    let size = Config { bytes: 1 << 20, entries_max: 4096 };
    let (journal, _) = Journal::open(&dir.path().join("journal"), &size).expect("a new journal");
    let mut entries: Vec<EntryId> = Vec::new();
    Box::new(move || {
        let _ = &dir;
        entries.clear();
        for slot in 0..MUTATIONS {
            let key = [slot.to_be_bytes(); 3].concat();
            entries.push(journal.begin(&key, Keep::Latest, &[5; 160]).expect("there is room"));
        }
        entries.iter().for_each(|entry| journal.finish(*entry, &[6; 280]).expect("there is room"));
        journal.force().expect("memory");
        entries.iter().for_each(|entry| journal.seal(*entry).expect("there is room"));
    })
}
