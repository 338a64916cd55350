//! I/O under a delegation's state id: by whose right.

use holdfast_base::Seqid;
use holdfast_wire::nfs4::*;

use crate::client::{Session, open_existing, user};
use crate::delegation::{
    BOTH, READ, close, give_back, name, open, owned, read_with, try_open, two, write_with,
};
use crate::scene::on;
use crate::world::LEASE_MS;

const ALICE: u32 = 1000;
const BOB: u32 = 2000;

fn chmod(client: &mut Session, mode: u32) {
    let values = mode.to_be_bytes();
    let obj_attributes = Fattr4 { mask: Bitmap4::of(&[Attr::Mode]), values: &values };
    let set = SetAttr4Args { stateid: Stateid4::ANONYMOUS, obj_attributes };
    on(client, &[b"f"], &[ArgOp::SetAttr(set)]).ok::<SetAttr4Res>(OpNum4::SetAttr);
}

#[test]
fn what_a_holder_writes_back_after_the_close_was_permitted_by_its_open() {
    let (world, mut a, mut b) = two();
    let opened = open(&mut a, BOTH);
    let held = name(&opened);
    close(&mut a, opened.stateid);
    assert_eq!(world.nfs.census().1, 0, "no open is left");
    chmod(&mut a, 0o400);
    assert_eq!(write_with(&mut a, held), NfsStat4::Ok);
    a.peer.auth = user(BOB);
    assert_eq!(write_with(&mut a, held), NfsStat4::Access, "another user's right is his own");
    assert_eq!(read_with(&mut a, held), NfsStat4::Access);
    a.peer.auth = user(ALICE);
    assert_eq!(try_open(&mut b, READ).status, NfsStat4::Delay);
    give_back(&mut a, held);
    assert_eq!(world.fs.open_files(), 0, "nothing is kept any longer");
    world.check();
}

#[test]
fn each_user_of_a_holder_does_io_by_his_own_open_where_he_has_one() {
    let (world, mut a, _) = two();
    let held = name(&open(&mut a, BOTH));
    a.peer.auth = user(BOB);
    chmod_as_root(&mut a, 0o666);
    let claim = Open4Args { claim: OpenClaim4::DelegCurFh(held), ..open_existing(b"", b"bob", BOTH) };
    let mut reply = on(&mut a, &[b"f"], &[ArgOp::Open(claim)]);
    let bobs = owned(reply.ok(OpNum4::Open));
    chmod_as_root(&mut a, 0o600);
    assert_eq!((read_with(&mut a, held), write_with(&mut a, held)), (NfsStat4::Ok, NfsStat4::Ok));
    let closing = Close4Args { seqid: Seqid(0), open_stateid: bobs.stateid };
    on(&mut a, &[b"f"], &[ArgOp::Close(closing)]).ok::<Close4Ok>(OpNum4::Close);
    assert_eq!(write_with(&mut a, held), NfsStat4::Access, "by alice's open he may not");
    world.pass(LEASE_MS / 2);
    world.check();
}

#[test]
fn the_owner_does_io_by_what_another_user_opened_whatever_the_mode_is_by_now() {
    let (world, mut a, _) = two();
    a.peer.auth = user(0);
    let opened = open(&mut a, BOTH);
    chmod(&mut a, 0);
    for stateid in [opened.stateid, name(&opened)] {
        let mut done_by = |uid| {
            a.peer.auth = user(uid);
            (read_with(&mut a, stateid), write_with(&mut a, stateid))
        };
        assert_eq!(done_by(ALICE), (NfsStat4::Ok, NfsStat4::Ok), "whose file it is");
        assert_eq!(done_by(BOB), (NfsStat4::Access, NfsStat4::Access));
    }
    world.check();
}

fn chmod_as_root(client: &mut Session, mode: u32) {
    let before = std::mem::replace(&mut client.peer.auth, user(0));
    chmod(client, mode);
    client.peer.auth = before;
}

#[test]
fn two_users_of_one_mount_have_a_delegated_file_open() {
    let (world, mut a, _) = two();
    let open = |client: &mut Session, owner: &[u8]| {
        let mut reply = on(client, &[], &[ArgOp::Open(open_existing(b"f", owner, BOTH))]);
        (reply.status == NfsStat4::Ok).then(|| owned(reply.ok(OpNum4::Open)))
    };
    // As Linux names them: by the mount's super block, then by the user.
    let first = open(&mut a, b"open id:\0\0\0\x2a\0\0\0\0\0\0\0\x01").unwrap();
    let held = name(&first);
    chmod_as_root(&mut a, 0o666);
    a.peer.auth = user(BOB);
    let second = open(&mut a, b"open id:\0\0\0\x2a\0\0\0\0\0\0\0\x02").unwrap();
    assert!(a.peer.calls().is_empty(), "nothing is recalled");
    for stateid in [held, second.stateid] {
        assert_eq!((read_with(&mut a, stateid), write_with(&mut a, stateid)), (NfsStat4::Ok, NfsStat4::Ok));
    }
    assert!(
        open(&mut a, b"open id:\0\0\0\x2b\0\0\0\0\0\0\0\x01").is_none(),
        "another mount knows nothing of it"
    );
    assert!(matches!(a.peer.call().op(), CbArgOp::Recall(recall) if recall.stateid == held));
    world.check();
}
