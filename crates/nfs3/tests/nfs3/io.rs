//! READ, WRITE, COMMIT.

use holdfast_base::Offset;
use holdfast_rpc::OutgoingCall;
use holdfast_rpc::detached::Detached;
use holdfast_wire::nfs3::*;
use holdfast_xdr::to_bytes;

use crate::world::*;

fn read(w: &mut World, file: &[u8], offset: u64, count: u32) -> Result<(Vec<u8>, bool), NfsStat3> {
    let reply = w.call(Proc3::Read, &Read3Args { file: Fh3(file), offset: Offset(offset), count });
    match decode::<Read3Res<'_>>(&reply) {
        Res3::Ok(ok) => {
            assert!(ok.file_attributes.is_some());
            assert_eq!(ok.count as usize, ok.data.len());
            Ok((ok.data.to_vec(), ok.eof))
        }
        Res3::Fail(status, _) => Err(status),
    }
}

#[test]
fn what_was_written_is_read_up_to_the_end() {
    let mut w = World::new();
    let f = w.create("a");
    let before = w.getattr(&f);
    let written = match w.write(&f, 3, b"hello", StableHow::Unstable) {
        Res3::Ok(ok) => ok,
        other => panic!("{other:?}"),
    };
    assert_eq!((written.count, written.committed), (5, StableHow::Unstable));
    assert_eq!(written.file_wcc.before, Some(WccAttr { size: 0, mtime: before.mtime, ctime: before.ctime }));
    assert_eq!(written.file_wcc.after.map(|a| a.size), Some(8));
    assert_eq!(read(&mut w, &f, 0, 100), Ok((b"\0\0\0hello".to_vec(), true)));
    assert_eq!(read(&mut w, &f, 4, 2), Ok((b"el".to_vec(), false)));
    assert_eq!(read(&mut w, &f, 6, 2), Ok((b"lo".to_vec(), true)));
    assert_eq!(read(&mut w, &f, 99, 2), Ok((Vec::new(), true)));
    assert_eq!(read(&mut w, &f, 0, 0), Ok((Vec::new(), false)));
}

#[test]
fn large_reads_come_from_the_file_itself_with_their_padding() {
    let mut w = World::new();
    w.fs.give_spans(true);
    let f = w.create("a");
    let data: Vec<u8> = (0..70_001_u32).map(|i| i as u8).collect();
    w.write(&f, 0, &data, StableHow::Unstable);
    assert_eq!(read(&mut w, &f, 0, 70_001), Ok((data.clone(), true)));
    assert_eq!(read(&mut w, &f, 1, 40_001), Ok((data[1..40_002].to_vec(), false)));
    assert_eq!(read(&mut w, &f, 70_000, 40_000), Ok((data[70_000..].to_vec(), true)));
    w.fs.give_spans(false);
    assert_eq!(read(&mut w, &f, 1, 40_001), Ok((data[1..40_002].to_vec(), false)));
}

#[test]
fn reads_and_writes_of_what_is_no_file_are_invalid() {
    let mut w = World::new();
    let (root, top) = (w.root(), w.handle_at(b"/"));
    for fh in [&root, &top] {
        assert_eq!(read(&mut w, fh, 0, 10), Err(NfsStat3::Inval));
    }
    assert!(matches!(w.write(&root, 0, b"x", StableHow::Unstable), Res3::Fail(NfsStat3::Inval, _)));
    assert!(matches!(w.write(&top, 0, b"x", StableHow::Unstable), Res3::Fail(NfsStat3::Rofs, _)));
}

#[test]
fn the_owner_writes_what_he_made_read_only() {
    let mut w = World::new();
    let root = w.root();
    let f = w.create_in(&root, "a", 0o444);
    assert!(matches!(w.write(&f, 0, b"x", StableHow::Unstable), Res3::Ok(_)));
    w.auth = user(2);
    let refused = w.write(&f, 0, b"x", StableHow::Unstable);
    let attrs = w.getattr(&f);
    assert_eq!(refused, Res3::Fail(NfsStat3::Acces, WccData { before: None, after: Some(attrs) }));
}

#[test]
fn a_count_above_the_data_is_invalid_and_one_below_cuts_it() {
    let mut w = World::new();
    let f = w.create("a");
    let args = |count| Write3Args {
        file: Fh3(&f),
        offset: Offset(0),
        count,
        stable: StableHow::Unstable,
        data: b"abcdef",
    };
    assert_eq!(status(&w.call(Proc3::Write, &args(7))), NfsStat3::Inval);
    assert_eq!(status(&w.call(Proc3::Write, &args(2))), NfsStat3::Ok);
    assert_eq!(read(&mut w, &f, 0, 9), Ok((b"ab".to_vec(), true)));
}

#[test]
fn an_unstable_write_is_durable_after_commit_and_not_before() {
    let mut w = World::new();
    let f = w.create("a");
    w.write(&f, 0, b"x", StableHow::Unstable);
    assert_eq!(w.fs.uncommitted().len(), 1);
    let args = Commit3Args { file: Fh3(&f), offset: Offset(0), count: 0 };
    let reply = w.call(Proc3::Commit, &args);
    w.assert_durable();
    let attrs = w.getattr(&f);
    match decode::<Commit3Res>(&reply) {
        Res3::Ok(ok) => assert_eq!(ok.file_wcc.after, Some(attrs)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stable_write_is_durable_before_its_reply() {
    for stable in [StableHow::DataSync, StableHow::FileSync] {
        let mut w = World::new();
        let f = w.create("a");
        match w.write(&f, 0, b"x", stable) {
            Res3::Ok(ok) => assert_eq!(ok.committed, StableHow::FileSync),
            other => panic!("{other:?}"),
        }
        w.assert_durable();
    }
}

#[test]
fn a_failed_commit_is_reported_and_changes_the_verifier() {
    let mut w = World::new();
    let f = w.create("a");
    let before = match w.write(&f, 0, b"x", StableHow::Unstable) {
        Res3::Ok(ok) => ok.verf,
        other => panic!("{other:?}"),
    };
    let args = Commit3Args { file: Fh3(&f), offset: Offset(0), count: 0 };
    w.fs.fail_next_commit(holdfast_vfs::FsError::Io);
    let reply: Commit3Res = decode(&w.call(Proc3::Commit, &args));
    assert_eq!(reply, Res3::Fail(NfsStat3::Io, WccData::NONE));
    let after = match decode::<Commit3Res>(&w.call(Proc3::Commit, &args)) {
        Res3::Ok(ok) => ok.verf,
        other => panic!("{other:?}"),
    };
    assert_ne!(before, after, "the client must send its data again");
    w.fs.fail_next_commit(holdfast_vfs::FsError::NoSpace);
    let reply = w.write(&f, 0, b"x", StableHow::FileSync);
    assert_eq!(reply, Res3::Fail(NfsStat3::NoSpc, WccData::NONE));
}

#[test]
fn space_and_size_are_told_apart() {
    let mut w = World::new();
    let f = w.create("a");
    assert!(matches!(w.write(&f, i64::MAX as u64, b"x", StableHow::Unstable), Res3::Fail(NfsStat3::Fbig, _)));
    w.fs.set_quota(1, 0);
    assert!(matches!(w.write(&f, 0, b"x", StableHow::Unstable), Res3::Fail(NfsStat3::Dquot, _)));
}

#[test]
fn what_a_client_of_nfsv4_denies_is_put_off_until_it_closes() {
    let mut w = World::new();
    let (root, f) = (w.root(), w.create("a"));
    w.write(&f, 0, b"hello", StableHow::Unstable);
    w.deny_writing(&f);
    assert!(matches!(w.write(&f, 0, b"x", StableHow::Unstable), Res3::Fail(NfsStat3::Jukebox, _)));
    let new_attributes = Sattr3 { size: Some(0), ..NOTHING };
    let cut = SetAttr3Args { object: Fh3(&f), new_attributes, guard: None };
    assert_eq!(status(&w.call(Proc3::SetAttr, &cut)), NfsStat3::Jukebox);
    let place = DirOpArgs3 { dir: Fh3(&root), name: b"a" };
    let cut = Create3Args { place, how: CreateHow3::Unchecked(new_attributes) };
    assert_eq!(status(&w.call(Proc3::Create, &cut)), NfsStat3::Jukebox);
    let kept = SetAttr3Args { object: Fh3(&f), new_attributes: mode(0o600), guard: None };
    assert_eq!(status(&w.call(Proc3::SetAttr, &kept)), NfsStat3::Ok);
    assert_eq!(read(&mut w, &f, 0, 10), Ok((b"hello".to_vec(), true)));
}

/// WRITEs of one byte each that come together, by whom and to which file: whether each reply has attributes.
fn told_of(w: &mut World, writes: &[(u32, &[u8], StableHow)]) -> Vec<bool> {
    let record = |(n, (uid, file, stable)): (usize, &(u32, &[u8], StableHow))| {
        let (file, offset) = (Fh3(file), Offset(n as u64));
        let args = to_bytes(&Write3Args { file, offset, count: 1, stable: *stable, data: b"x" });
        let (program, procedure) = (NFS3_PROGRAM, Proc3::Write.as_u32());
        let call = OutgoingCall { program, version: 3, procedure, auth: &user(*uid), args: &args };
        Detached::record(1000 + n as u32, &call)
    };
    let records: Vec<_> = writes.iter().enumerate().map(record).collect();
    let replies = w.client.exchange_together(&records);
    assert_eq!(replies.len(), writes.len());
    let told = |reply: &Vec<u8>| match decode::<Write3Res>(Detached::results(reply).unwrap()) {
        Res3::Ok(ok) => {
            assert_eq!((ok.count, ok.file_wcc.before.is_some()), (1, ok.file_wcc.after.is_some()));
            ok.file_wcc.after.is_some()
        }
        Res3::Fail(status, _) => panic!("{status}"),
    };
    replies.iter().map(told).collect()
}

#[test]
fn of_writes_to_one_file_that_come_together_the_last_tells_what_all_have_done() {
    let mut w = World::with(|options| options.is_sync = false);
    let (a, b) = (w.create("a"), w.create("b"));
    let plain = |n: usize| (1, [&a[..], &b[..]][n], StableHow::Unstable);
    assert_eq!(told_of(&mut w, &[plain(0), plain(0), plain(0)]), [false, false, true]);
    assert_eq!(w.getattr(&a).size, 3);
    assert_eq!(told_of(&mut w, &[plain(1)]), [true], "one by itself");
}

#[test]
fn a_write_that_another_caller_or_file_follows_or_that_must_be_stable_tells_for_itself() {
    let mut w = World::with(|options| options.is_sync = false);
    let root = w.root();
    let (a, b) = (w.create_in(&root, "a", 0o666), w.create_in(&root, "b", 0o666));
    let unstable = StableHow::Unstable;
    let writes: [(u32, &[u8], StableHow); 5] = [
        (1, &a, unstable),
        (1, &b, unstable),
        (2, &b, unstable),
        (2, &b, StableHow::FileSync),
        (2, &b, unstable),
    ];
    assert_eq!(told_of(&mut w, &writes), [true, true, false, true, true]);
}
