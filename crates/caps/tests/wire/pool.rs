//! Files that are made before the creates that they are for.

use holdfast_base::limits::{
    CAPS_POOL_CALL_MAX, CAPS_POOLED_MS, CAPS_POOLED_PART, CAPS_POOLED_PER_CLIENT_MAX, CAPS_POOLED_SHARE,
};
use holdfast_export::ExportOptions;
use holdfast_state::Grace;
use holdfast_vfs::{AttrMask, FsError};
use holdfast_wire::caps::*;

use crate::world::*;

fn pool(
    client: &mut Client,
    dir: &[u8],
    count: u32,
    back: &[Pooled<'_>],
) -> Result<Vec<Pooled<'static>>, CapsStat> {
    let back = back.iter().map(|one| one.handle).collect();
    let args = PoolArgs { ticket: client.ticket, dir: Handle(dir), count, back };
    client.call::<PoolOk<'_>>(CapsProc::Pool, &args).map(|ok| ok.files)
}

fn place<'a>(dir: &'a [u8], name: &'a str, data: &'a [u8], pooled: &Pooled<'a>) -> BatchOp<'a> {
    let set = SetAttrs { mode: Some(0o640), umask: Some(0o077), ..SetAttrs::default() };
    let (dir, name, want) = (at(dir), name.as_bytes(), CapSet::ALL_S);
    BatchOp::Place { dir, name, if_taken: IfTaken::KeepBoth, set, want, data, pooled: pooled.handle }
}

fn is_there(server: &Server, file: &Pooled<'_>) -> Result<(), FsError> {
    server.as_nfs(|fs, cx| fs.getattr(cx, &object(server, file.handle.0), AttrMask::NONE)).map(drop)
}

#[test]
fn a_pooled_file_becomes_the_one_that_is_made_with_its_number_and_all() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    a.auth = user(1000);
    let files = pool(&mut a, &root, 3, &[]).unwrap();
    assert_eq!((files.len(), server.names().len()), (3, 0));
    let ops = vec![place(&root, "first", b"ten bytes!", &files[0]), place(&root, "second", b"", &files[2])];
    let ok = a.batch(1, ops).unwrap();
    for (result, file, size) in [(&ok.results[0], &files[0], 10), (&ok.results[1], &files[2], 0)] {
        let made = made(result);
        let attrs = made.attrs.unwrap();
        assert_eq!((made.handle, attrs.fileid), (file.handle, file.fileid));
        assert_eq!((attrs.mode, attrs.uid, attrs.gid, attrs.nlink, attrs.size), (0o600, 1000, 1000, 1, size));
        assert!(made.grant.held.contains(CapSet::ALL_S) && made.other_name.is_empty());
    }
    assert_eq!(
        (server.names(), server.read("first")),
        (vec!["first".to_owned(), "second".to_owned()], b"ten bytes!".to_vec())
    );
    let Looked::Present(seen) = b.lookup(&root, "first").unwrap().found else { panic!("not there") };
    assert_eq!((seen.handle, seen.attrs.fileid), (files[0].handle, files[0].fileid));
    // What was made is the server's affair no more than any file: it stays when its maker is gone.
    assert_eq!(a.stable(&server, 1).unwrap().stable_through, TxnId(1));
    assert_eq!(server.uncommitted(), []);
    let _: () = a.call(CapsProc::Bye, &ByeArgs { ticket: a.ticket }).unwrap();
    assert_eq!((is_there(&server, &files[0]), is_there(&server, &files[1])), (Ok(()), Err(FsError::Stale)));
}

#[test]
fn what_is_not_there_for_it_any_more_is_made_as_by_a_create() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let dir = made(&a.batch(1, vec![mkdir(at(&root), "d")]).unwrap().results[0]).handle.0;
    let files = pool(&mut a, dir, 8, &[]).unwrap();
    let theirs = pool(&mut b, dir, 1, &[]).unwrap();
    let mut txn = 1;
    let mut is_made_anew = |a: &mut Client, dir: &[u8], file: &Pooled<'_>| {
        txn += 1;
        let name = format!("f{txn}");
        let ok = a.batch(txn, vec![place(dir, &name, b"x", file)]).unwrap();
        let made = made(&ok.results[0]);
        assert_eq!(made.attrs.map(|attrs| (attrs.mode, attrs.size)), Some((0o600, 1)));
        made.handle != file.handle
    };
    assert!(!is_made_anew(&mut a, dir, &files[0]));
    assert!(is_made_anew(&mut a, dir, &files[0]), "it is another's name already");
    assert!(is_made_anew(&mut a, dir, &theirs[0]), "another client's");
    assert!(is_made_anew(&mut a, &root, &files[1]), "of another directory");
    let nonsense = Pooled { handle: Handle(b"nonsense"), fileid: 1 };
    assert!(is_made_anew(&mut a, dir, &nonsense));
    // The directory's own handle is no file's.
    assert!(is_made_anew(&mut a, dir, &Pooled { handle: Handle(dir), fileid: 1 }));
    assert_eq!(pool(&mut a, dir, 0, &files[2..3]).unwrap(), []);
    assert!(is_made_anew(&mut a, dir, &files[2]), "it was given back");
    a.auth = user(1000);
    server.as_nfs(|fs, cx| {
        let open = holdfast_vfs::SetAttrs { mode: Some(0o777), ..holdfast_vfs::SetAttrs::default() };
        fs.setattr(cx, holdfast_vfs::File::Stateless(&object(&server, dir)), &open, None).unwrap();
    });
    assert!(is_made_anew(&mut a, dir, &files[3]), "it was made for another user");
    a.auth = user(0);
    assert!(is_made_anew(&mut a, dir, &files[4]), "the directory has another mode");
    assert_eq!(
        is_there(&server, &files[5]),
        Err(FsError::Stale),
        "and so all that was made in it before goes"
    );
    let files = pool(&mut a, dir, 2, &[]).unwrap();
    server.pass(CAPS_POOLED_MS - 1);
    server.running.caps.tick();
    assert!(!is_made_anew(&mut a, dir, &files[0]));
    server.pass(1);
    server.running.caps.tick();
    assert!(is_made_anew(&mut a, dir, &files[1]), "it was not used for long");
}

#[test]
fn what_only_a_create_can_do_is_done_by_one() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let files = pool(&mut client, &root, 3, &[]).unwrap();
    let sets = [
        SetAttrs { mode: Some(0o4711), ..SetAttrs::default() },
        SetAttrs { uid: Some(7), mode: Some(0o600), ..SetAttrs::default() },
        SetAttrs { size: Some(20), mode: Some(0o600), ..SetAttrs::default() },
    ];
    let names = ["set-id", "owned", "sized"];
    let ops = files.iter().zip(sets).zip(names).map(|((file, set), name)| {
        let (name, if_taken, want) = (name.as_bytes(), IfTaken::Fail, CapSet::NONE);
        BatchOp::Place { dir: at(&root), name, if_taken, set, want, data: b"data", pooled: file.handle }
    });
    let ok = client.batch(1, ops.collect()).unwrap();
    let made: Vec<_> = ok.results.iter().map(made).collect();
    let of = |n: usize| made[n].attrs.map(|attrs| (attrs.mode, attrs.uid, attrs.size));
    assert_eq!([of(0), of(1), of(2)], [Some((0o4711, 0, 4)), Some((0o600, 7, 4)), Some((0o600, 0, 20))]);
    let is_pooled: Vec<_> = made.iter().zip(&files).map(|(made, file)| made.handle == file.handle).collect();
    assert_eq!(is_pooled, [false, false, true]);
}

#[test]
fn a_taken_name_is_as_a_create_finds_it() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let files = pool(&mut client, &root, 2, &[]).unwrap();
    client.batch(1, vec![create(at(&root), "f", b"theirs")]).unwrap();
    let mut failing = place(&root, "f", b"ours", &files[0]);
    let BatchOp::Place { if_taken, .. } = &mut failing else { unreachable!() };
    *if_taken = IfTaken::Fail;
    let ok = client.batch(2, vec![failing, place(&root, "f", b"ours", &files[1])]).unwrap();
    assert_eq!(refused(&ok.results[0]), Some(CapsStat::Exist));
    let both = made(&ok.results[1]);
    assert!(both.handle == files[1].handle && both.other_name.starts_with(b"f-"));
    assert_eq!(server.read("f"), b"theirs");
    assert_eq!(server.read(std::str::from_utf8(both.other_name).unwrap()), b"ours");
}

#[test]
fn what_has_to_wait_is_placed_when_it_goes_on() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let held = b.acquire(&root, CapSet::FILE_X).unwrap().grant.held;
    let file = pool(&mut a, &root, 1, &[]).unwrap()[0];
    assert!(held.contains(CapSet::FILE_X) && b.recalls.is_empty(), "no entry changes by it");
    assert_eq!(a.batch(1, vec![place(&root, "f", b"data", &file)]), Err(CapsStat::Delay));
    b.give_back();
    let ok = a.batch(1, vec![place(&root, "f", b"data", &file)]).unwrap();
    assert_eq!((made(&ok.results[0]).handle, server.read("f")), (file.handle, b"data".to_vec()));
}

#[test]
fn who_has_to_be_asked_first_is_and_nobody_waits_for_it() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let held = b.acquire(&root, CapSet::AUTH_X).unwrap().grant.held;
    assert!(held.contains(CapSet::AUTH_X), "it may be about to change what is made there");
    assert_eq!(pool(&mut a, &root, 1, &[]).unwrap(), []);
    b.give_back();
    assert_eq!(pool(&mut a, &root, 1, &[]).unwrap().len(), 1);
}

#[test]
fn one_client_fills_its_own_room_and_no_other() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    // As many as this process may have open, or fewer.
    let allowed = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let part = (allowed.unwrap_or(u64::MAX) / CAPS_POOLED_PART / 2) as usize;
    let most = CAPS_POOLED_PER_CLIENT_MAX.min(part / CAPS_POOLED_SHARE);
    let mut its = Vec::new();
    while its.len() < most {
        let files = pool(&mut a, &root, u32::MAX, &[]).unwrap();
        assert_eq!(files.len(), CAPS_POOL_CALL_MAX.min(most - its.len()));
        its.extend(files);
    }
    assert_eq!(pool(&mut a, &root, 1, &[]).unwrap(), []);
    assert_eq!(pool(&mut b, &root, 1, &[]).unwrap().len(), 1);
    // Nobody gives back another's.
    pool(&mut b, &root, 0, &its[..1]).unwrap();
    assert_eq!(is_there(&server, &its[0]), Ok(()));
    assert_eq!(pool(&mut a, &root, 9, &its[..2]).unwrap().len(), 2);
    assert_eq!(is_there(&server, &its[1]), Err(FsError::Stale));

    let server = Server::with(&ExportOptions { is_read_only: true, ..ExportOptions::default() });
    let mut client = Client::new(&server, "a");
    assert_eq!(pool(&mut client, &server.root_handle(), 1, &[]), Err(CapsStat::Rofs));
}

#[test]
fn what_was_placed_before_the_servers_death_is_not_made_again() {
    for is_power_lost in [false, true] {
        let server = Server::new();
        let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
        let files = pool(&mut client, &root, 3, &[]).unwrap();
        let first = || vec![place(&root, "f", b"data", &files[0]), place(&root, "f", b"both", &files[1])];
        let second = || vec![place(&root, "g", b"late", &files[2])];
        let before = client.batch(1, first()).unwrap();
        let mount = client.unplug();
        let server = if is_power_lost {
            server.write("f", b"");
            server.restart_after_power_loss(Grace::Over)
        } else {
            server.restart(Grace::Over)
        };
        let mut client = mount.again(&server, "a");
        client.hello(TxnId(0)).unwrap();
        let again = client.batch(1, first()).unwrap();
        let told = |ok: &BatchOk<'static>| -> Vec<_> {
            ok.results.iter().map(made).map(|made| (made.handle, made.other_name)).collect()
        };
        assert_eq!(told(&again), told(&before));
        assert_eq!((server.names().len(), server.read("f")), (2, b"data".to_vec()));
        // What was not yet is made as by a create, for what it was to be has gone with the server.
        let late = client.batch(2, second()).unwrap();
        assert_eq!(
            (server.read("g"), made(&late.results[0]).handle == files[2].handle),
            (b"late".to_vec(), false)
        );
        client.stable(&server, 2).unwrap();
        assert_eq!(server.uncommitted(), []);
    }
}
