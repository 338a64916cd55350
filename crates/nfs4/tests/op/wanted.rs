//! Delegations without an OPEN: asked for, pushed, of directories.

use holdfast_base::ChangeId;
use holdfast_wire::nfs4::*;
use holdfast_xdr::to_bytes;

use crate::client::{Peer, Reply, Session, open_create, user};
use crate::delegation::{
    BOTH, READ, WRITE, close, flags, give_back, is_recall_of, open, owned, try_open, two,
};
use crate::scene::on;

fn want(client: &mut Session, want: u32) -> OpenDelegation4<'static> {
    let args = WantDelegation4Args { want, claim: DelegClaim4::Fh };
    let mut reply = on(client, &[b"f"], &[ArgOp::WantDelegation(args)]);
    let delegation: OpenDelegation4<'_> = reply.ok(OpNum4::WantDelegation);
    owned(Open4Ok {
        stateid: Stateid4::ANONYMOUS,
        cinfo: ChangeInfo4 { atomic: false, before: ChangeId(0), after: ChangeId(0) },
        rflags: 0,
        attrset: Bitmap4::EMPTY,
        delegation,
    })
    .delegation
}

#[test]
fn a_delegation_is_had_without_an_open_and_pushed_when_it_could_not_be_had_before() {
    let (world, mut a, mut b) = two();
    let OpenDelegation4::Read(held) = want(&mut a, OPEN4_SHARE_ACCESS_WANT_READ_DELEG) else {
        panic!("none")
    };
    give_back(&mut a, held.stateid);
    let opened = open(&mut b, WRITE | OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
    let push = OPEN4_SHARE_ACCESS_WANT_READ_DELEG | OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED;
    let later = OpenDelegation4::NoneExt(OpenNoneDelegation4::Contention(true));
    assert_eq!(want(&mut a, push), later);
    close(&mut b, opened.stateid);
    for _ in 0..60 {
        world.pass(1_000);
        flags(&mut a);
        flags(&mut b);
    }
    let call = a.peer.call();
    let CbArgOp::PushDeleg(pushed) = call.op() else { panic!("{:?}", call.op()) };
    assert!(matches!(pushed.delegation, OpenDelegation4::Read(_)));
    a.peer.answer(&call, NfsStat4::RejectDeleg, b"");
    open(&mut b, WRITE);
    assert!(a.peer.calls().is_empty(), "refused, it is in nobody's way");
    world.check();
}

#[test]
fn a_delegation_for_writing_becomes_none_for_reading_and_one_for_reading_does_become_one_for_writing() {
    let none = OpenDelegation4::NoneExt;
    let (world, mut a, _) = two();
    let written = open(&mut a, WRITE | OPEN4_SHARE_ACCESS_WANT_READ_DELEG);
    assert_eq!(written.delegation, none(OpenNoneDelegation4::Resource(false)), "it cannot read");
    close(&mut a, written.stateid);
    let opened = open(&mut a, BOTH | OPEN4_SHARE_ACCESS_WANT_READ_DELEG);
    assert!(matches!(opened.delegation, OpenDelegation4::Read(_)));
    let OpenDelegation4::Write(_) = open(&mut a, BOTH | OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG).delegation
    else {
        panic!("it has nothing better")
    };
    let downgrade = none(OpenNoneDelegation4::NotSuppDowngrade);
    assert_eq!(open(&mut a, READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG).delegation, downgrade);
    assert_eq!(want(&mut a, OPEN4_SHARE_ACCESS_WANT_READ_DELEG), downgrade);
    let has_it = none(OpenNoneDelegation4::Resource(false));
    for wish in [OPEN4_SHARE_ACCESS_WANT_ANY_DELEG, OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG] {
        assert_eq!(open(&mut a, BOTH | wish).delegation, has_it);
        assert_eq!(want(&mut a, wish), has_it);
    }
    world.check();
}

#[test]
fn a_push_whose_answer_is_lost_may_have_been_taken_and_is_recalled() {
    let (world, mut a, mut b) = two();
    let opened = open(&mut b, WRITE | OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
    let push = OPEN4_SHARE_ACCESS_WANT_READ_DELEG | OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED;
    assert_eq!(want(&mut a, push), OpenDelegation4::NoneExt(OpenNoneDelegation4::Contention(true)));
    close(&mut b, opened.stateid);
    for _ in 0..60 {
        world.pass(1_000);
        flags(&mut a);
        flags(&mut b);
    }
    let call = a.peer.call();
    let CbArgOp::PushDeleg(pushed) = call.op() else { panic!("{:?}", call.op()) };
    let OpenDelegation4::Read(pushed) = pushed.delegation else { panic!("{pushed:?}") };
    std::mem::replace(&mut a.peer, Peer::new(&world, 1, 2)).wire.close();
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Delay, "it may be relied upon");
    give_back(&mut a, pushed.stateid);
    open(&mut b, WRITE);
    world.check();
}

#[test]
fn without_an_open_a_delegation_is_for_those_who_may_open() {
    let (world, mut a, _) = two();
    let with_mode = |client: &mut Session, mode: u32| {
        let values = to_bytes(&mode);
        let obj_attributes = Fattr4 { mask: Bitmap4::of(&[Attr::Mode]), values: &values };
        let set = SetAttr4Args { stateid: Stateid4::ANONYMOUS, obj_attributes };
        assert_eq!(on(client, &[b"f"], &[ArgOp::SetAttr(set)]).status, NfsStat4::Ok);
    };
    let mut maker = Session::open(&world, 9, 2);
    let ask = |client: &mut Session, want| {
        let args = WantDelegation4Args { want, claim: DelegClaim4::Fh };
        on(client, &[b"f"], &[ArgOp::WantDelegation(args)]).status
    };
    a.peer.auth = user(4711);
    with_mode(&mut maker, 0o600);
    assert_eq!(ask(&mut a, OPEN4_SHARE_ACCESS_WANT_READ_DELEG), NfsStat4::Access);
    with_mode(&mut maker, 0o644);
    assert_eq!(ask(&mut a, OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG), NfsStat4::Access);
    assert_eq!(ask(&mut a, OPEN4_SHARE_ACCESS_WANT_READ_DELEG), NfsStat4::Ok);
    world.check();
}

pub(crate) fn ask_dir_delegation() -> ArgOp<'static> {
    let zero = NfsTime4 { seconds: 0, nseconds: 0 };
    ArgOp::GetDirDelegation(GetDirDelegation4Args {
        signal_deleg_avail: false,
        notification_types: Bitmap4::from_bits(0x1f),
        child_attr_delay: zero,
        dir_attr_delay: zero,
        child_attributes: Bitmap4::EMPTY,
        dir_attributes: Bitmap4::EMPTY,
    })
}

pub(crate) fn dir_delegation(client: &mut Session, path: &[&[u8]]) -> Reply {
    on(client, path, &[ask_dir_delegation()])
}

#[test]
fn a_directorys_delegation_is_recalled_by_anothers_change_of_its_entries() {
    let (world, mut a, mut b) = two();
    let granted = |reply: &mut Reply| match reply.ok(OpNum4::GetDirDelegation) {
        GetDirDelegation4Ok::Granted(granted) => granted,
        GetDirDelegation4Ok::Unavail(_) => panic!("none"),
    };
    let held = granted(&mut dir_delegation(&mut a, &[]));
    assert_eq!(held.notification, Bitmap4::EMPTY, "recall alone");
    granted(&mut dir_delegation(&mut b, &[]));
    let make = open_create(b"new", b"o", BOTH);
    assert_eq!(on(&mut b, &[], &[ArgOp::Open(make)]).status, NfsStat4::Delay);
    let call = a.peer.call();
    assert!(is_recall_of(&call, held.stateid));
    a.peer.answer(&call, NfsStat4::Ok, b"");
    assert!(b.peer.calls().is_empty(), "one's own change");
    let back = ArgOp::DelegReturn(DelegReturn4Args { deleg_stateid: held.stateid });
    on(&mut a, &[], &[back]).ok::<()>(OpNum4::DelegReturn);
    assert_eq!(on(&mut b, &[], &[ArgOp::Open(make)]).status, NfsStat4::Ok);
    dir_delegation(&mut a, &[b"f"]).fails::<()>(OpNum4::GetDirDelegation, NfsStat4::NotDir);
    world.check();
}

#[test]
fn what_is_above_the_exports_is_not_delegated() {
    let (_world, mut a, _) = two();
    let zero = NfsTime4 { seconds: 0, nseconds: 0 };
    let args = GetDirDelegation4Args {
        signal_deleg_avail: true,
        notification_types: Bitmap4::EMPTY,
        child_attr_delay: zero,
        dir_attr_delay: zero,
        child_attributes: Bitmap4::EMPTY,
        dir_attributes: Bitmap4::EMPTY,
    };
    let mut reply = a.run(&[ArgOp::PutRootFh, ArgOp::GetDirDelegation(args)]);
    reply.ok::<()>(OpNum4::PutRootFh);
    let none: GetDirDelegation4Ok = reply.ok(OpNum4::GetDirDelegation);
    assert_eq!(none, GetDirDelegation4Ok::Unavail(false));
}

#[test]
fn who_waits_for_what_will_not_come_is_told() {
    let (world, mut a, mut b) = two();
    open(&mut b, WRITE | OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
    let push = OPEN4_SHARE_ACCESS_WANT_READ_DELEG | OPEN4_SHARE_ACCESS_WANT_PUSH_DELEG_WHEN_UNCONTENDED;
    assert_eq!(want(&mut a, push), OpenDelegation4::NoneExt(OpenNoneDelegation4::Contention(true)));
    let off = holdfast_state::Policy { is_delegating: false, ..Default::default() };
    world.manager.quiet(|engine, _| engine.set_policy(off));
    world.pass(1_000);
    let cancelled =
        CbWantsCancelled4Args { contended_wants_cancelled: true, resourced_wants_cancelled: false };
    assert_eq!(a.peer.call().op(), CbArgOp::WantsCancelled(cancelled));
    world.check();
}
