//! Calls whose answers come late, or not at all, on a connection that stands.

use holdfast_base::Seqid;
use holdfast_rpc::{self as rpc, Auth};
use holdfast_wire::nfs4::*;
use holdfast_wire::rpc::{AuthSys, Groups};

use crate::client::{CalledBack, Peer, Session, create_session, open_create, open_existing};
use crate::delegation::{
    READ, WRITE, close, flags, give_back, is_recall_of, make, name, open, owned, try_open, two,
};
use crate::scene::on;
use crate::world::{LEASE_MS, Making, World};

fn bind_again(session: &mut Session) {
    let bind = BindConnToSession4Args {
        sessionid: session.id,
        dir: ChannelDirFromClient4::BackOrBoth,
        use_conn_in_rdma_mode: false,
    };
    assert_eq!(session.peer.compound(&[ArgOp::BindConnToSession(bind)]).status, NfsStat4::Ok);
}

#[test]
fn a_slot_whose_answer_comes_late_is_used_again() {
    let (world, mut a, mut b) = two();
    let held = name(&open(&mut a, READ));
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Delay);
    let first = a.peer.call();
    a.peer.wire.time_out_calls();
    assert_eq!(flags(&mut a), SEQ4_STATUS_CB_PATH_DOWN);
    a.peer.answer(&first, NfsStat4::BadStateid, b"");
    assert_eq!(flags(&mut a), 0, "callbacks get through");
    let second = a.peer.call();
    assert!(is_recall_of(&second, held), "what is due is sent");
    let (first, second) = (first.sequence(), second.sequence());
    assert_eq!((second.slotid, second.sequenceid), (first.slotid, first.sequenceid.next()));
    world.check();
}

/// Files of which the client has been asked for every delegation it has: as many as its back channel has slots.
const SLOTS: [&[u8]; 4] = [b"0", b"1", b"2", b"3"];

/// A client, and another that wants what it has; the recalls of it, in all slots.
fn recalled() -> (World, Session, Session, Vec<Stateid4>, Vec<CalledBack>) {
    let (world, mut a, mut b) = two();
    let mut held = Vec::new();
    for name in SLOTS {
        let mut reply = on(&mut a, &[], &[ArgOp::Open(open_create(name, b"o", WRITE))]);
        held.push(crate::delegation::name(&owned(reply.ok(OpNum4::Open))));
    }
    let mut calls = Vec::new();
    for name in SLOTS {
        let wanted = [ArgOp::Open(open_existing(name, b"o", READ))];
        assert_eq!(on(&mut b, &[], &wanted).status, NfsStat4::Delay);
        calls.push(a.peer.call());
    }
    (world, a, b, held, calls)
}

#[test]
fn a_client_that_answers_in_no_slot_is_told_to_make_a_new_session() {
    let (world, mut a, _b, held, _calls) = recalled();
    a.peer.wire.time_out_calls();
    assert_eq!(flags(&mut a), SEQ4_STATUS_CB_PATH_DOWN);
    // As Linux does: on the same connection, where nothing may be sent once more.
    bind_again(&mut a);
    assert!(a.peer.calls().is_empty());
    assert_eq!(flags(&mut a), SEQ4_STATUS_BACKCHANNEL_FAULT);
    let session = create_session(a.client, Seqid(2));
    let session = CreateSession4Args { flags: CREATE_SESSION4_FLAG_CONN_BACK_CHAN, ..session };
    let mut reply = a.peer.compound(&[ArgOp::CreateSession(session)]);
    let made: CreateSession4Ok = reply.ok(OpNum4::CreateSession);
    (a.id, a.seqid) = (made.sessionid, Seqid(0));
    world.pass(5_000);
    let calls = a.peer.calls();
    for stateid in held {
        assert!(calls.iter().any(|call| is_recall_of(call, stateid)), "asked for in the new session");
    }
    world.check();
}

#[test]
fn an_answer_after_all_has_the_rest_sent() {
    let (world, mut a, mut b, held, calls) = recalled();
    a.peer.wire.time_out_calls();
    bind_again(&mut a);
    assert_eq!(flags(&mut a), SEQ4_STATUS_BACKCHANNEL_FAULT);
    for call in &calls {
        a.peer.answer(call, NfsStat4::Ok, b"");
    }
    assert_eq!(flags(&mut a), 0);
    world.pass(5_000);
    let again = a.peer.calls();
    assert!(again.iter().all(|call| held.iter().any(|held| is_recall_of(call, *held))));
    for call in again {
        a.peer.answer(&call, NfsStat4::Ok, b"");
    }
    for (name, deleg_stateid) in SLOTS.iter().zip(held) {
        let back = [ArgOp::DelegReturn(DelegReturn4Args { deleg_stateid })];
        on(&mut a, &[name], &back).ok::<()>(OpNum4::DelegReturn);
    }
    let opened = on(&mut b, &[], &[ArgOp::Open(open_existing(SLOTS[0], b"o", READ))]);
    assert_eq!(opened.status, NfsStat4::Ok);
    world.pass(LEASE_MS / 2);
    assert_eq!(flags(&mut a), 0);
    world.check();
}

#[test]
fn an_answer_to_what_was_sent_again_elsewhere_is_nobodys() {
    let (world, mut a, mut b) = two();
    let held = name(&open(&mut a, READ));
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Delay);
    let first = a.peer.call();
    a.peer.wire.time_out_calls();
    let mut other = Peer::new(&world, 1, 2);
    std::mem::swap(&mut a.peer, &mut other);
    bind_again(&mut a);
    let [again, anew] = a.peer.calls().try_into().unwrap();
    assert_eq!(again.sequence(), first.sequence(), "the same call");
    other.answer(&first, NfsStat4::Ok, b"");
    a.peer.answer(&again, NfsStat4::Ok, b"");
    a.peer.answer(&anew, NfsStat4::Ok, b"");
    give_back(&mut a, held);
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Ok);
    world.check();
}

/// A recall that was lost with its connection: made once more in its slot over another one, and asked for in a slot of its
/// own, which the client cannot do for the moment.
fn recalled_again() -> (World, Session, Session, Stateid4, CalledBack) {
    let (world, mut a, mut b) = two();
    let held = name(&open(&mut a, READ));
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Delay);
    let lost = a.peer.call();
    std::mem::replace(&mut a.peer, Peer::new(&world, 1, 2)).wire.close();
    bind_again(&mut a);
    let [again, other] = a.peer.calls().try_into().unwrap();
    assert_eq!(again.sequence(), lost.sequence());
    assert_ne!(other.sequence().slotid, lost.sequence().slotid);
    a.peer.answer(&other, NfsStat4::ServerFault, b"");
    (world, a, b, held, again)
}

#[test]
fn who_has_not_kept_the_answer_to_what_is_made_again_is_in_step() {
    let refuse = |a: &mut Session, call: &CalledBack| a.peer.refuse(call, NfsStat4::RetryUncachedRep);
    let fail = |a: &mut Session, call: &CalledBack| a.peer.answer(call, NfsStat4::RetryUncachedRep, b"");
    for says in [refuse, fail] {
        let (world, mut a, mut b, held, again) = recalled_again();
        says(&mut a, &again);
        assert_eq!(flags(&mut a), 0);
        world.pass(5_000);
        let call = a.peer.call();
        assert!(is_recall_of(&call, held));
        let (its, former) = (call.sequence(), again.sequence());
        assert_eq!((its.slotid, its.sequenceid), (former.slotid, former.sequenceid.next()));
        a.peer.answer(&call, NfsStat4::Ok, b"");
        give_back(&mut a, held);
        assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Ok);
        world.check();
    }
}

#[test]
fn who_has_not_kept_the_answer_to_what_was_never_asked_is_out_of_step() {
    let (world, mut a, mut b) = two();
    open(&mut a, READ);
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Delay);
    let call = a.peer.call();
    a.peer.refuse(&call, NfsStat4::RetryUncachedRep);
    assert_ne!(flags(&mut a) & SEQ4_STATUS_BACKCHANNEL_FAULT, 0);
    world.check();
}

#[test]
fn what_is_made_again_and_put_off_is_made_again_before_anything_else_in_its_slot() {
    let (world, mut a, mut b, held, again) = recalled_again();
    // As Linux does while it is still at what it was asked first.
    a.peer.refuse(&again, NfsStat4::Delay);
    assert_eq!(flags(&mut a), 0);
    world.pass(5_000);
    let [once_more, other] = a.peer.calls().try_into().unwrap();
    assert_eq!(once_more.sequence(), again.sequence());
    assert_ne!(other.sequence().slotid, again.sequence().slotid);
    a.peer.answer(&once_more, NfsStat4::Ok, b"");
    a.peer.answer(&other, NfsStat4::ServerFault, b"");
    world.pass(5_000);
    let (its, former) = (a.peer.call().sequence(), again.sequence());
    assert_eq!((its.slotid, its.sequenceid), (former.slotid, former.sequenceid.next()));
    give_back(&mut a, held);
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Ok);
    world.check();
}

#[test]
fn callbacks_go_to_the_program_that_backchannel_ctl_names() {
    let (world, mut a, mut b) = two();
    let held = name(&open(&mut a, READ));
    let change = [ArgOp::BackchannelCtl(BackchannelCtl4Args {
        cb_program: 0x4000_0077,
        sec_parms: vec![CallbackSecParms4::None],
    })];
    *world.sessions.is_broken.lock() = true;
    a.run(&change).fails::<()>(OpNum4::BackchannelCtl, NfsStat4::Delay);
    assert!(!a.peer.is_called(), "nothing has changed");
    *world.sessions.is_broken.lock() = false;
    a.run(&change).ok::<()>(OpNum4::BackchannelCtl);
    assert_eq!(*world.sessions.programs.lock(), [(a.id, 0x4000_0077)], "in the next life too");
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Delay);
    let recall = a.peer.call();
    assert!(is_recall_of(&recall, held));
    assert_eq!(recall.program(), 0x4000_0077);
    a.peer.answer(&recall, NfsStat4::Ok, b"");
    give_back(&mut a, held);
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Ok);
    world.check();
}

/// RFC 8881 sections 18.33.3 and 18.36.3.
#[test]
fn callbacks_are_made_as_whom_the_client_says() {
    let sys = |uid| AuthSys { stamp: 0, machine_name: b"box", uid, gid: 5, gids: Groups::new(&[6, 7]) };
    let machine = b"box".to_vec();
    let auth = |uid| Auth::Sys(rpc::AuthSys { uid, gid: 5, groups: vec![6, 7], machine: machine.clone() });
    let world = World::new();
    make(&world);
    let mut a = Session::with(&world, 1, 2, |args| CreateSession4Args {
        flags: CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
        sec_parms: vec![CallbackSecParms4::Sys(sys(1234))],
        ..args
    });
    a.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]);
    let mut b = Session::with_back(&world, 2, 2);
    let change = |sec_parms| {
        ArgOp::BackchannelCtl(BackchannelCtl4Args { cb_program: NFS4_CALLBACK_PROGRAM, sec_parms })
    };
    let none = CallbackSecParms4::None;
    for (changed, said) in [
        (None, auth(1234)),
        (Some(vec![CallbackSecParms4::Sys(sys(77))]), auth(77)),
        (Some(vec![none]), Auth::None),
    ] {
        if let Some(sec_parms) = changed {
            a.run(&[change(sec_parms)]).ok::<()>(OpNum4::BackchannelCtl);
        }
        let opened = open(&mut a, READ);
        let held = name(&opened);
        let refused = try_open(&mut b, WRITE);
        assert_eq!(refused.status, NfsStat4::Delay);
        let recall = a.peer.call();
        assert!(is_recall_of(&recall, held));
        assert_eq!(recall.credential(), said);
        a.peer.answer(&recall, NfsStat4::Ok, b"");
        give_back(&mut a, held);
        close(&mut a, opened.stateid);
        // What was just recalled is given again after a while.
        world.pass(LEASE_MS / 2);
        flags(&mut b);
    }
    world.check();
}

const LASTING: u32 = CREATE_SESSION4_FLAG_PERSIST | CREATE_SESSION4_FLAG_CONN_BACK_CHAN;

/// A client whose session outlived a kill of the server.
fn returned() -> (World, Session) {
    let before = World::new();
    let mut a = Session::with(&before, 1, 1, |args| CreateSession4Args { flags: LASTING, ..args });
    let world = World::made(Making { boot: 2, ..Making::default() });
    assert_eq!(world.nfs.restore(&before.nfs.inspect(holdfast_state::Engine::snapshot)), 0);
    a.peer = Peer::new(&world, 1, 1);
    (world, a)
}

/// What it is called for when it has bound a connection.
fn outlived() -> (World, Session, Vec<CalledBack>) {
    let (world, mut a) = returned();
    assert_eq!(flags(&mut a) & SEQ4_STATUS_RESTART_RECLAIM_NEEDED, SEQ4_STATUS_RESTART_RECLAIM_NEEDED);
    a.run(&[ArgOp::PutRootFh]).ok::<()>(OpNum4::PutRootFh);
    a.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })])
        .ok::<()>(OpNum4::ReclaimComplete);
    bind_again(&mut a);
    let calls = steps(&mut a);
    (world, a, calls)
}

fn steps(client: &mut Session) -> Vec<CalledBack> {
    let calls = client.peer.calls();
    assert_eq!(calls.len(), SLOTS.len());
    for (call, slot) in calls.iter().zip(0..) {
        let its = call.sequence();
        assert_eq!((call.ops().len(), its.slotid.0, its.sequenceid.0), (1, slot, 1), "nothing but a number");
    }
    calls
}

#[test]
fn slots_of_a_former_life_are_brought_into_step_when_create_session_is_sent_again() {
    let (world, mut a) = returned();
    let again = CreateSession4Args { flags: LASTING, ..create_session(a.client, Seqid(1)) };
    let made: CreateSession4Ok = a.peer.compound(&[ArgOp::CreateSession(again)]).ok(OpNum4::CreateSession);
    assert_eq!(made.sessionid, a.id);
    assert_eq!(steps(&mut a).len(), SLOTS.len());
    world.check();
}

#[test]
fn slots_of_a_former_life_are_brought_into_step_before_they_are_used() {
    let (world, mut a, calls) = outlived();
    make(&world);
    let mut b = Session::with_back(&world, 2, 1);
    // It stands at 1 here, and gives the answer of then; or has not kept it; or has counted nothing.
    a.peer.count(&calls[0], b"what it was");
    a.peer.refuse(&calls[1], NfsStat4::RetryUncachedRep);
    a.peer.count(&calls[2], b"");
    let held = name(&open(&mut a, READ));
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Delay);
    let recall = a.peer.call();
    assert!(is_recall_of(&recall, held));
    assert_eq!((recall.sequence().slotid.0, recall.sequence().sequenceid.0), (0, 2));
    a.peer.answer(&recall, NfsStat4::Ok, b"");
    give_back(&mut a, held);
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Ok);
    assert_eq!(flags(&mut a), 0);
    world.check();
}

#[test]
fn whose_slots_of_a_former_life_stand_elsewhere_is_told_to_make_a_new_session() {
    let (world, mut a, calls) = outlived();
    a.peer.count(&calls[0], b"");
    a.peer.refuse(&calls[1], NfsStat4::SeqMisordered);
    assert_eq!(flags(&mut a), SEQ4_STATUS_BACKCHANNEL_FAULT);
    bind_again(&mut a);
    assert!(a.peer.calls().is_empty(), "it is not called there any more");
    world.check();
}
