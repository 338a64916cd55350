//! Calls whose answers come late, or not at all, on a connection that stands.

use holdfast_wire::nfs4::*;

use crate::client::{CalledBack, Session, open_create, open_existing};
use crate::delegation::{READ, WRITE, flags, give_back, is_recall_of, name, open, owned, try_open, two};
use crate::scene::on;
use crate::world::{LEASE_MS, World};

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
    let session = crate::client::create_session(a.client, holdfast_base::Seqid(2));
    let session = CreateSession4Args { flags: CREATE_SESSION4_FLAG_CONN_BACK_CHAN, ..session };
    let mut reply = a.peer.compound(&[ArgOp::CreateSession(session)]);
    let made: CreateSession4Ok = reply.ok(OpNum4::CreateSession);
    (a.id, a.seqid) = (made.sessionid, holdfast_base::Seqid(0));
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
    let mut other = crate::client::Peer::new(&world, 1, 2);
    std::mem::swap(&mut a.peer, &mut other);
    bind_again(&mut a);
    let again = a.peer.call();
    assert_eq!(again.sequence(), first.sequence(), "the same call");
    other.answer(&first, NfsStat4::Ok, b"");
    a.peer.answer(&again, NfsStat4::Ok, b"");
    give_back(&mut a, held);
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Ok);
    world.check();
}
