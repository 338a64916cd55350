//! Blocking locks: in line, granted in order, told until heard, cancelled.

use holdfast_wire::nlm4::{NLM_PROGRAM, NlmProc4};
use holdfast_wire::nlm4::{NlmRes4, NlmStat4};

use crate::world::{Process, World};

const P: Process = Process(7);
const Q: Process = Process(8);
const ALL: (u64, u64, bool) = (0, 0, true);

#[test]
fn waiters_are_granted_in_the_order_in_which_they_asked() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!(b.wait(&fh, P, ALL), NlmStat4::Blocked);
    assert_eq!(c.wait(&fh, P, ALL), NlmStat4::Blocked);
    assert!(world.next_granted().is_none());
    assert_eq!(a.unlock(&fh, P, ALL), NlmStat4::Granted);
    let told = world.next_granted().expect("B is told");
    assert_eq!((told.call.peer, told.args().lock.svid, told.args().exclusive), (b.ip, 7, true));
    assert_eq!((told.args().lock.fh, told.args().lock.caller_name), (&fh[..], &b.name[..]));
    assert!(world.next_granted().is_none(), "one at a time");
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Denied, "B has it, whether it knows or not");
    told.answer(NlmStat4::Granted);
    world.work();
    assert_eq!(b.unlock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!(world.next_granted().expect("C is told").call.peer, c.ip);
}

#[test]
fn a_client_that_does_not_answer_is_told_again_and_in_the_end_passed_by() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!((b.wait(&fh, P, ALL), c.wait(&fh, P, ALL)), (NlmStat4::Blocked, NlmStat4::Blocked));
    a.unlock(&fh, P, ALL);
    let mut told_b = 0;
    let told_c = loop {
        match world.next_granted() {
            Some(told) if told.call.peer == b.ip => {
                told_b += 1;
                told.lose();
            }
            Some(told) => break told,
            None => world.wait_ms(1000),
        }
        assert!(told_b < 50, "for ever");
    };
    assert!(told_b >= 3, "{told_b}");
    told_c.answer(NlmStat4::Granted);
    world.work();
    // B asks again by itself, and waits behind C.
    assert_eq!(b.wait(&fh, P, ALL), NlmStat4::Blocked);
    c.unlock(&fh, P, ALL);
    world.next_granted().expect("B").answer(NlmStat4::Granted);
    world.work();
    assert_eq!(world.lockd.counts(), (1, 0));
}

#[test]
fn a_client_that_does_not_want_the_lock_any_more_gives_way_at_once() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!((b.wait(&fh, P, ALL), c.wait(&fh, P, ALL)), (NlmStat4::Blocked, NlmStat4::Blocked));
    a.unlock(&fh, P, ALL);
    world.next_granted().expect("B").answer(NlmStat4::Denied);
    assert_eq!(world.next_granted().expect("C").call.peer, c.ip);
}

#[test]
fn a_lock_asked_for_again_while_granted_may_be_refused_late_and_stays() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!((a.lock(&fh, P, ALL), b.wait(&fh, P, ALL)), (NlmStat4::Granted, NlmStat4::Blocked));
    a.unlock(&fh, P, ALL);
    let told = world.next_granted().expect("B");
    // B polls before it hears; the GRANTED then finds nobody waiting there.
    assert_eq!(b.wait(&fh, P, ALL), NlmStat4::Granted);
    told.answer(NlmStat4::Denied);
    world.work();
    assert_eq!(a.test(&fh, P, ALL), Err((7, 0, 0, true)), "B holds it");
    assert_eq!(world.lockd.counts(), (1, 0));
}

#[test]
fn cancel_takes_a_waiter_out_of_the_line() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!((a.lock(&fh, P, ALL), b.wait(&fh, P, ALL)), (NlmStat4::Granted, NlmStat4::Blocked));
    assert_eq!(b.cancel(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!(b.cancel(&fh, P, ALL), NlmStat4::Denied, "nothing waits");
    a.unlock(&fh, P, ALL);
    assert!(world.next_granted().is_none());
    assert_eq!((world.lockd.counts(), world.machine.fs.open_files()), ((0, 0), 0));
}

#[test]
fn cancel_gives_a_lock_back_of_which_the_client_has_not_heard() {
    for is_told in [false, true] {
        let world = World::new();
        let fh = world.fh(&world.file("f"));
        let (mut a, mut b) = (world.client(1), world.client(2));
        assert_eq!((a.lock(&fh, P, ALL), b.wait(&fh, P, ALL)), (NlmStat4::Granted, NlmStat4::Blocked));
        a.unlock(&fh, P, ALL);
        let told = is_told.then(|| world.next_granted().expect("B"));
        assert_eq!(b.cancel(&fh, P, ALL), NlmStat4::Granted);
        if let Some(told) = told {
            // The client found nobody waiting.
            told.answer(NlmStat4::Denied);
        }
        world.work();
        assert!(world.next_granted().is_none());
        assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted, "told: {is_told}");
        assert_eq!(world.lockd.counts(), (1, 0));
    }
}

#[test]
fn cancelling_an_upgrade_leaves_what_was_held_before() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    assert_eq!(
        (a.lock(&fh, P, (0, 10, false)), b.lock(&fh, P, (0, 10, false))),
        (NlmStat4::Granted, NlmStat4::Granted)
    );
    assert_eq!(b.wait(&fh, P, (0, 20, true)), NlmStat4::Blocked);
    a.unlock(&fh, P, ALL);
    let told = world.next_granted().expect("B");
    assert_eq!(c.test(&fh, P, (15, 1, false)), Err((7, 0, 20, true)));
    assert_eq!(b.cancel(&fh, P, (0, 20, true)), NlmStat4::Granted);
    told.lose();
    world.work();
    assert_eq!(c.test(&fh, P, (0, 0, true)), Err((7, 0, 10, false)));
    assert_eq!(c.lock(&fh, P, (10, 0, true)), NlmStat4::Granted);
}

#[test]
fn unlocking_gives_up_waiting_too() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!((a.lock(&fh, P, ALL), b.wait(&fh, P, (0, 10, true))), (NlmStat4::Granted, NlmStat4::Blocked));
    assert_eq!(b.unlock(&fh, P, ALL), NlmStat4::Granted);
    a.unlock(&fh, P, ALL);
    assert!(world.next_granted().is_none());
    assert_eq!(world.lockd.counts(), (0, 0));
}

#[test]
fn a_circle_of_waiters_ends_in_an_error() {
    let world = World::new();
    let (f, g) = (world.fh(&world.file("f")), world.fh(&world.file("g")));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!((a.lock(&f, P, ALL), b.lock(&g, Q, ALL)), (NlmStat4::Granted, NlmStat4::Granted));
    assert_eq!(a.wait(&g, P, ALL), NlmStat4::Blocked);
    assert_eq!(b.wait(&f, Q, ALL), NlmStat4::Deadlck);
    assert_eq!(b.unlock(&g, Q, ALL), NlmStat4::Granted);
    assert_eq!(world.next_granted().expect("A").call.peer, a.ip);
}

/// Its client has an error then, and sends no CANCEL.
#[test]
fn who_asks_again_and_hears_of_a_circle_waits_no_more() {
    let world = World::new();
    let (f, g) = (world.fh(&world.file("f")), world.fh(&world.file("g")));
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    assert_eq!((a.lock(&g, P, ALL), c.lock(&f, P, ALL)), (NlmStat4::Granted, NlmStat4::Granted));
    // Two threads of one process, of which the first will have what another waits for.
    assert_eq!((b.wait(&f, Q, ALL), b.wait(&g, Q, ALL)), (NlmStat4::Blocked, NlmStat4::Blocked));
    assert_eq!(a.wait(&f, P, ALL), NlmStat4::Blocked);
    assert_eq!(c.unlock(&f, P, ALL), NlmStat4::Granted);
    let told = world.next_granted().expect("B");
    assert_eq!(told.call.peer, b.ip);
    told.answer(NlmStat4::Granted);
    world.work();
    assert_eq!(a.wait(&f, P, ALL), NlmStat4::Deadlck);
    assert_eq!(b.unlock(&f, Q, ALL), NlmStat4::Granted);
    assert!(world.next_granted().is_none(), "A does not wait any more");
    assert_eq!(a.unlock(&g, P, ALL), NlmStat4::Granted);
    assert_eq!(world.next_granted().expect("B").call.peer, b.ip);
}

#[test]
fn granted_may_be_answered_by_a_call_of_granted_res_from_that_host_alone() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!((a.lock(&fh, P, ALL), b.wait(&fh, P, ALL)), (NlmStat4::Granted, NlmStat4::Blocked));
    a.unlock(&fh, P, ALL);
    let told = world.next_granted().expect("B");
    let cookie = told.args().cookie.to_vec();
    let refusal = NlmRes4 { cookie: &cookie, stat: NlmStat4::Denied };
    a.call(NLM_PROGRAM, NlmProc4::GrantedRes.as_u32(), &refusal);
    world.work();
    assert_eq!(world.lockd.counts(), (1, 1), "A has no say in it");
    b.call(NLM_PROGRAM, NlmProc4::GrantedRes.as_u32(), &refusal);
    world.work();
    assert_eq!(world.lockd.counts(), (0, 0));
}

/// A process may wait for one lock in one thread and unlock another in a second.
#[test]
fn what_an_owner_unlocks_before_it_hears_of_a_grant_is_not_taken_from_the_grant() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    assert_eq!(a.lock(&fh, Q, (0, 2, true)), NlmStat4::Granted);
    assert_eq!(b.wait(&fh, P, (0, 8, false)), NlmStat4::Blocked);
    // The engine gives B all of it, and nobody has looked at that when B unlocks a part.
    assert_eq!(a.unlock(&fh, Q, (0, 2, true)), NlmStat4::Granted);
    assert_eq!(b.unlock(&fh, P, (0, 6, false)), NlmStat4::Granted);
    let told = world.next_granted().expect("B");
    assert_eq!((told.args().lock.offset.0, told.args().lock.length.0), (0, 8));
    told.answer(NlmStat4::Granted);
    world.work();
    for byte in 0..8 {
        assert!(c.test(&fh, P, (byte, 1, true)).is_err(), "byte {byte}");
    }
    assert!(a.test(&fh, Q, (0, 1, true)).is_err());
}

#[test]
fn a_client_that_may_have_heard_before_keeps_the_lock_when_it_refuses() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!((b.wait(&fh, P, ALL), c.wait(&fh, P, ALL)), (NlmStat4::Blocked, NlmStat4::Blocked));
    a.unlock(&fh, P, ALL);
    world.next_granted().expect("B").lose_answer();
    world.work();
    world.wait_ms(2000);
    // It took the first one, so nobody waits there any more.
    let again = world.next_granted().expect("B again");
    assert_eq!(again.call.peer, b.ip);
    again.answer(NlmStat4::Denied);
    assert!(world.next_granted().is_none(), "not C's yet");
    world.wait_ms(100_000);
    assert!(world.next_granted().is_none(), "B has not cancelled");
    assert_eq!(world.lockd.counts(), (2, 1));
    assert_eq!(b.unlock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!(world.next_granted().expect("C").call.peer, c.ip);
}

#[test]
fn a_client_that_refuses_what_it_never_heard_of_cancels_and_has_nothing() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!((a.lock(&fh, P, ALL), b.wait(&fh, P, ALL)), (NlmStat4::Granted, NlmStat4::Blocked));
    a.unlock(&fh, P, ALL);
    world.next_granted().expect("B").lose_answer();
    world.work();
    world.wait_ms(2000);
    world.next_granted().expect("B again").answer(NlmStat4::Denied);
    world.work();
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Denied);
    assert_eq!(b.cancel(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
    assert_eq!(world.lockd.counts(), (1, 0));
}

#[test]
fn a_client_that_may_have_the_lock_keeps_it_while_it_is_out_of_reach() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!((a.lock(&fh, P, ALL), b.wait(&fh, P, ALL)), (NlmStat4::Granted, NlmStat4::Blocked));
    a.unlock(&fh, P, ALL);
    world.next_granted().expect("B").lose_answer();
    for _ in 0..100 {
        world.wait_ms(1000);
        if let Some(told) = world.next_granted() {
            told.lose();
        }
    }
    assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Denied);
    assert_eq!(b.wait(&fh, P, ALL), NlmStat4::Granted, "it had not heard, and asks by itself");
    assert_eq!(world.lockd.counts(), (1, 0));
}

/// The worker hears of a grant that was cancelled meanwhile, when the same request waits again.
#[test]
fn a_grant_heard_of_late_is_not_taken_for_one_of_the_next_request() {
    for world in [World::new(), World::without_outsiders()] {
        let fh = world.fh(&world.file("f"));
        let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
        assert_eq!(a.lock(&fh, P, ALL), NlmStat4::Granted);
        assert_eq!((b.wait(&fh, P, ALL), c.wait(&fh, P, ALL)), (NlmStat4::Blocked, NlmStat4::Blocked));
        a.unlock(&fh, P, ALL);
        assert_eq!(b.cancel(&fh, P, ALL), NlmStat4::Granted);
        assert_eq!(b.wait(&fh, P, ALL), NlmStat4::Blocked);
        let told = world.next_granted().expect("C");
        assert_eq!(told.call.peer, c.ip);
        told.answer(NlmStat4::Granted);
        assert!(world.next_granted().is_none(), "B waits");
        c.unlock(&fh, P, ALL);
        assert_eq!(world.next_granted().expect("B").call.peer, b.ip);
    }
}

#[test]
fn who_took_a_lock_gave_up_a_part_and_waits_for_all_again_is_not_told_of_the_first_grant() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    assert_eq!((a.lock(&fh, P, ALL), b.wait(&fh, P, (0, 10, true))), (NlmStat4::Granted, NlmStat4::Blocked));
    a.unlock(&fh, P, ALL);
    world.next_granted().expect("B").lose_answer();
    world.work();
    b.unlock(&fh, P, (0, 5, true));
    assert_eq!(c.lock(&fh, P, (0, 5, true)), NlmStat4::Granted);
    assert_eq!(b.wait(&fh, P, (0, 10, true)), NlmStat4::Blocked);
    world.wait_ms(2000);
    assert!(world.next_granted().is_none(), "C has a part");
    c.unlock(&fh, P, ALL);
    world.next_granted().expect("B").answer(NlmStat4::Granted);
    assert_eq!(a.test(&fh, P, (0, 5, true)), Err((7, 0, 10, true)));
}

#[test]
fn a_cancel_does_not_take_back_what_was_asked_for_and_had_since() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    let (both, first, second) = ((1, 2, true), (1, 1, true), (2, 1, true));
    assert_eq!(a.lock(&fh, P, both), NlmStat4::Granted);
    assert_eq!(b.wait(&fh, P, both), NlmStat4::Blocked);
    a.unlock(&fh, P, both);
    world.next_granted().expect("B is told").lose();
    world.work();
    // Not knowing of the grant, B asks for a part, and knows that it has that.
    assert_eq!(b.lock(&fh, P, (1, 1, false)), NlmStat4::Granted);
    assert_eq!(b.cancel(&fh, P, both), NlmStat4::Granted);
    assert_eq!(c.lock(&fh, P, first), NlmStat4::Denied, "B has it shared");
    assert_eq!(c.lock(&fh, P, second), NlmStat4::Granted);
    assert_eq!(b.unlock(&fh, P, both), NlmStat4::Granted);
    assert_eq!(c.lock(&fh, P, first), NlmStat4::Granted);
}

#[test]
fn a_cancel_does_not_bring_back_what_was_let_go_since() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    let (both, first, second) = ((1, 2, true), (1, 1, true), (2, 1, true));
    assert_eq!(a.lock(&fh, P, second), NlmStat4::Granted);
    assert_eq!(b.lock(&fh, P, first), NlmStat4::Granted);
    assert_eq!(b.wait(&fh, P, both), NlmStat4::Blocked);
    a.unlock(&fh, P, second);
    world.next_granted().expect("B is told").lose();
    b.unlock(&fh, P, first);
    assert_eq!(c.lock(&fh, P, first), NlmStat4::Granted);
    b.cancel(&fh, P, both);
    b.unlock(&fh, P, second);
    assert_eq!(a.lock(&fh, P, first), NlmStat4::Denied, "C has it, and only C");
    assert_eq!(c.unlock(&fh, P, first), NlmStat4::Granted);
    assert_eq!(a.lock(&fh, P, both), NlmStat4::Granted, "nothing is left of B's");
}

#[test]
fn a_cancel_leaves_what_another_grant_of_its_owner_has() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    let (wide, part) = ((1, 7, true), (3, 2, true));
    assert_eq!(a.lock(&fh, P, wide), NlmStat4::Granted);
    assert_eq!((b.wait(&fh, P, wide), b.wait(&fh, P, part)), (NlmStat4::Blocked, NlmStat4::Blocked));
    a.unlock(&fh, P, wide);
    let (first, second) = (world.next_granted().expect("one"), world.next_granted().expect("the other"));
    assert_eq!(b.cancel(&fh, P, wide), NlmStat4::Granted);
    assert_eq!(c.lock(&fh, P, part), NlmStat4::Denied, "its GRANTED is on its way");
    first.answer(NlmStat4::Denied);
    world.work();
    assert_eq!(c.lock(&fh, P, (1, 2, true)), NlmStat4::Granted);
    second.answer(NlmStat4::Granted);
    world.work();
    assert_eq!(c.lock(&fh, P, part), NlmStat4::Denied);
    assert_eq!(b.unlock(&fh, P, part), NlmStat4::Granted);
    assert_eq!(c.lock(&fh, P, part), NlmStat4::Granted, "nothing more is left of B's");
}
