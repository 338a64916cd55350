//! A reply under `sync` says that what it tells of is on disk; and what may wait leaves the connection's worker.

use holdfast_vfs::FsError;
use holdfast_wire::nfs3::*;

use crate::world::*;

#[test]
fn a_mutation_whose_commit_fails_is_an_error_for_the_client() {
    let mut w = World::new();
    let root = w.root();
    let f = w.create("a");
    let at = |name: &'static [u8]| DirOpArgs3 { dir: Fh3(&root), name };
    let none = WccData::NONE;
    let io = NfsStat3::Io;
    w.fs.fail_next_commit(FsError::Io);
    let reply = w.call(Proc3::Create, &Create3Args { place: at(b"b"), how: CreateHow3::Guarded(NOTHING) });
    assert_eq!(decode::<Create3Res<'_>>(&reply), Res3::Fail(io, none));
    w.fs.fail_next_commit(FsError::Io);
    assert_eq!(decode::<Remove3Res>(&w.call(Proc3::Remove, &at(b"b"))), Res3::Fail(io, none));
    w.fs.fail_next_commit(FsError::Io);
    let reply = w.call(Proc3::Link, &Link3Args { file: Fh3(&f), link: at(b"c") });
    let both = LinkWcc3 { file_attributes: None, linkdir_wcc: none };
    assert_eq!(decode::<Link3Res>(&reply), Res3::Fail(io, both));
    w.fs.fail_next_commit(FsError::Delay);
    let reply = w.call(Proc3::Rename, &Rename3Args { from: at(b"c"), to: at(b"d") });
    let both = RenameWcc3 { fromdir_wcc: none, todir_wcc: none };
    assert_eq!(decode::<Rename3Res>(&reply), Res3::Fail(io, both), "a rename must not be sent again");
    w.fs.fail_next_commit(FsError::Quota);
    let args = SetAttr3Args { object: Fh3(&f), new_attributes: mode(0o600), guard: None };
    assert_eq!(decode::<SetAttr3Res>(&w.call(Proc3::SetAttr, &args)), Res3::Fail(NfsStat3::Dquot, none));
}

#[test]
fn an_async_export_answers_without_committing() {
    let mut w = World::with(|o| o.is_sync = false);
    let f = w.create("a");
    match w.write(&f, 0, b"x", StableHow::FileSync) {
        Res3::Ok(ok) => assert_eq!(ok.committed, StableHow::FileSync),
        other => panic!("{other:?}"),
    }
    assert_eq!(w.fs.commits(), []);
    assert_eq!(w.fs.uncommitted().len(), 2);
}

#[test]
fn what_would_block_runs_on_the_pool_with_the_same_result() {
    let mut w = World::new();
    let root = w.root();
    let f = w.create("a");
    w.write(&f, 0, b"data", StableHow::FileSync);
    let lookups = |w: &mut World| {
        let attrs = w.getattr(&f);
        let found = w.lookup(&root, b"a").unwrap();
        let args = ReadDirPlus3Args {
            dir: Fh3(&root),
            cookie: holdfast_base::Cookie(0),
            cookieverf: [0; 8],
            dircount: 4096,
            maxcount: 4096,
        };
        let listed = w.call(Proc3::ReadDirPlus, &args);
        let read = Read3Args { file: Fh3(&f), offset: holdfast_base::Offset(0), count: 10 };
        (attrs, found, listed, w.call(Proc3::Read, &read), w.call(Proc3::FsStat, &Fh3(&root)))
    };
    // The first read of new data is noted in the file's atime.
    lookups(&mut w);
    let calm = lookups(&mut w);
    for n in 1..5 {
        w.fs.block_every(n);
        assert_eq!(lookups(&mut w), calm);
    }
}

#[test]
fn a_write_that_would_block_is_written_once() {
    let mut w = World::new();
    let f = w.create("a");
    w.fs.block_every(1);
    let before = w.getattr(&f);
    let wcc = match w.write(&f, 0, b"x", StableHow::FileSync) {
        Res3::Ok(ok) => ok.file_wcc,
        other => panic!("{other:?}"),
    };
    assert_eq!(wcc.before.map(|b| b.ctime), Some(before.ctime));
    assert_eq!(wcc.after, Some(w.getattr(&f)));
    w.assert_durable();
}
