//! A call that is sent twice is done once, and answered twice alike.

use holdfast_rpc::OutgoingCall;
use holdfast_rpc::detached::Detached;
use holdfast_wire::nfs3::*;
use holdfast_xdr::{Encode, to_bytes};

use crate::world::*;

/// Sends the call, and again under the same xid; returns the reply to both.
fn twice(w: &mut World, procedure: Proc3, args: &impl Encode) -> Vec<u8> {
    let first = w.call(procedure, args);
    assert_eq!(status(&first), NfsStat3::Ok, "{procedure}");
    let (attrs, commits) = (w.getattr(&w.root()), w.fs.commits().len());
    // The lookup above took an xid of its own.
    w.xid -= 1;
    let second = w.call_again(procedure, args);
    assert_eq!(first, second, "{procedure}");
    assert_eq!(w.fs.commits().len(), commits, "{procedure} was done again");
    w.xid += 1;
    assert_eq!(w.getattr(&w.root()), attrs, "{procedure} was done again");
    first
}

#[test]
fn every_mutation_sent_again_gets_its_first_reply() {
    let mut w = World::new();
    let root = w.root();
    let at = |name: &'static [u8]| DirOpArgs3 { dir: Fh3(&root), name };
    let guarded = Create3Args { place: at(b"a"), how: CreateHow3::Guarded(mode(0o644)) };
    let f = new_handle(&twice(&mut w, Proc3::Create, &guarded));
    twice(&mut w, Proc3::Mkdir, &Mkdir3Args { place: at(b"d"), attributes: mode(0o755) });
    twice(&mut w, Proc3::Symlink, &Symlink3Args { place: at(b"l"), attributes: NOTHING, data: b"t" });
    twice(&mut w, Proc3::Mknod, &Mknod3Args { place: at(b"p"), what: MknodData3::Fifo(NOTHING) });
    twice(&mut w, Proc3::Link, &Link3Args { file: Fh3(&f), link: at(b"b") });
    twice(&mut w, Proc3::Rename, &Rename3Args { from: at(b"b"), to: at(b"c") });
    let size = Sattr3 { size: Some(9), ..NOTHING };
    twice(&mut w, Proc3::SetAttr, &SetAttr3Args { object: Fh3(&f), new_attributes: size, guard: None });
    let stable = StableHow::FileSync;
    let write = Write3Args { file: Fh3(&f), offset: holdfast_base::Offset(0), count: 1, stable, data: b"x" };
    twice(&mut w, Proc3::Write, &write);
    twice(&mut w, Proc3::Remove, &at(b"c"));
    twice(&mut w, Proc3::Rmdir, &at(b"d"));
}

#[test]
fn a_call_sent_again_while_it_runs_is_done_once_and_all_wait_for_its_answer() {
    let mut w = World::pumped();
    let root = w.root();
    let place = DirOpArgs3 { dir: Fh3(&root), name: b"d" };
    let mkdir = to_bytes(&Mkdir3Args { place, attributes: mode(0o755) });
    let mut reconnected = w.client.another("127.0.0.1:801".parse().unwrap());
    let auth = w.auth.clone();
    // Done twice, each of them would fail.
    for (procedure, args) in [(Proc3::Mkdir, mkdir), (Proc3::Rmdir, to_bytes(&place))] {
        w.xid += 1;
        let (program, args) = (NFS3_PROGRAM, &args[..]);
        let call = OutgoingCall { program, version: 3, procedure: procedure.as_u32(), auth: &auth, args };
        for sent in [w.client.call(w.xid, &call), w.client.call(w.xid, &call), reconnected.call(w.xid, &call)]
        {
            assert_eq!(sent, Vec::<Vec<u8>>::new(), "nothing leaves before the disk has it");
        }
        assert_eq!(w.committer.pump(), 1, "{procedure}");
        let (here, there) = (w.client.sent(), reconnected.sent());
        assert_eq!((here.len(), there.len()), (2, 1), "each is answered where it was asked");
        let first = Detached::results(&here[0]).unwrap();
        assert_eq!(status(first), NfsStat3::Ok, "{procedure}");
        for again in [&here[1], &there[0], &reconnected.call(w.xid, &call)[0]] {
            assert_eq!(Detached::results(again), Some(first));
        }
    }
    w.assert_durable();
}

#[test]
fn a_reconnected_client_gets_its_first_reply_from_another_port() {
    let mut w = World::new();
    let root = w.root();
    w.create("a");
    let args = DirOpArgs3 { dir: Fh3(&root), name: b"a" };
    let first = w.call(Proc3::Remove, &args);
    w.client = w.client.another("127.0.0.1:801".parse().unwrap());
    assert_eq!(w.call_again(Proc3::Remove, &args), first);
    assert_eq!(status(&w.call(Proc3::Remove, &args)), NfsStat3::NoEnt);
}

#[test]
fn another_caller_or_other_arguments_under_the_same_xid_are_another_call() {
    let mut w = World::new();
    let root = w.root();
    w.create("a");
    w.create("b");
    assert_eq!(status(&w.call(Proc3::Remove, &DirOpArgs3 { dir: Fh3(&root), name: b"a" })), NfsStat3::Ok);
    let again = w.call_again(Proc3::Remove, &DirOpArgs3 { dir: Fh3(&root), name: b"b" });
    assert_eq!(status(&again), NfsStat3::Ok);
    w.auth = user(7);
    let other = w.call_again(Proc3::Remove, &DirOpArgs3 { dir: Fh3(&root), name: b"b" });
    assert_eq!(status(&other), NfsStat3::NoEnt);
}

#[test]
fn failures_are_kept_too_and_who_is_to_come_back_comes_under_another_number() {
    let mut w = World::new();
    let root = w.root();
    let args = DirOpArgs3 { dir: Fh3(&root), name: b"a" };
    assert_eq!(status(&w.call(Proc3::Remove, &args)), NfsStat3::NoEnt);
    let xid = w.xid;
    w.create("a");
    w.xid = xid;
    assert_eq!(status(&w.call_again(Proc3::Remove, &args)), NfsStat3::NoEnt);
    w.xid += 10;
    w.fs.fail_next_call(holdfast_vfs::FsError::Delay);
    assert_eq!(status(&w.call_again(Proc3::Remove, &args)), NfsStat3::Jukebox);
    // A copy of the call that was long on its way is not done, neither before its client asks again nor after.
    assert_eq!(status(&w.call_again(Proc3::Remove, &args)), NfsStat3::Jukebox);
    let put_off = w.xid;
    assert_eq!(status(&w.call(Proc3::Remove, &args)), NfsStat3::Ok);
    w.create("a");
    w.xid = put_off;
    assert_eq!(status(&w.call_again(Proc3::Remove, &args)), NfsStat3::Jukebox);
}
