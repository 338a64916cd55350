//! Wishes for delegations, and what is asked back when there are too many.

use super::*;

#[test]
fn wishes_are_granted_when_they_can_be_and_once() {
    let mut pair = Pair::new();
    let (a, b) = (pair.a, pair.b);
    let of = pair.world.delegate(a, 1, WRITE);
    pair.world.engine.delegation_want(b, FILE, READ, WantHow::Push).unwrap();
    pair.world.engine.tick(pair.world.now);
    assert_eq!(pair.world.settle(), []);
    pair.give_back(a, of).unwrap();
    pair.world.settle();
    pair.world.engine.tick(pair.world.now);
    assert_eq!(pair.world.settle(), [Effect::PushDelegation { client: b, file: FILE, kind: READ }]);
    pair.world.engine.tick(pair.world.now);
    assert_eq!(pair.world.settle(), []);
    pair.world.engine.set_policy(Policy { delegations_max: 0, ..Policy::default() });
    assert_eq!(pair.world.why_none(b, 1, READ), Some(WhyNone::Resource));
    pair.world.engine.delegation_want(b, FILE, READ, WantHow::Signal).unwrap();
    pair.world.engine.delegation_want(b, FileKey(2), READ, WantHow::Signal).unwrap();
    pair.world.engine.tick(pair.world.now);
    assert_eq!(pair.world.settle(), []);
    pair.world.engine.set_policy(Policy::default());
    pair.world.engine.tick(pair.world.now);
    assert_eq!(pair.world.settle(), [Effect::ObjectAvailable { client: b }], "one word is enough");
    let held = pair.world.delegate(a, 3, WRITE);
    pair.world.engine.delegation_want(b, FileKey(3), READ, WantHow::Signal).unwrap();
    pair.world.engine.tick(pair.world.now);
    assert_eq!(pair.world.settle(), [], "who asked now would only be declined once more");
    pair.world.engine.delegation_return(Caller::V41(a), held.stateid, FileKey(3), pair.world.now).unwrap();
    pair.world.settle();
    pair.world.engine.tick(pair.world.now);
    assert_eq!(pair.world.settle(), [Effect::ObjectAvailable { client: b }]);
    pair.world.engine.delegation_want(b, FILE, READ, WantHow::Push).unwrap();
    pair.world.engine.delegation_want_cancel(b, None);
    pair.world.engine.tick(pair.world.now);
    assert_eq!(pair.world.settle(), []);
    pair.world.engine.delegation_want(b, FILE, READ, WantHow::Push).unwrap();
    pair.world.engine.set_policy(Policy { is_delegating: false, ..Policy::default() });
    pair.world.engine.tick(pair.world.now);
    let cancelled = Effect::WantsCancelled { client: b, pushes: true, signals: false };
    assert_eq!(pair.world.settle(), [cancelled], "nobody is to wait for what will not come");
}

#[test]
fn above_the_budget_those_who_hold_most_are_asked_for_some_back() {
    let mut pair = Pair::new();
    for file in 0..8 {
        pair.world.delegate(pair.a, file, READ);
    }
    for file in 0..2 {
        pair.world.delegate(pair.b, file, READ);
    }
    pair.world.engine.set_policy(Policy { delegations_max: 5, ..Policy::default() });
    pair.world.engine.tick(pair.world.now);
    let ask = |client, keep| Effect::RecallAny { client, keep, files: true, directories: true };
    assert_eq!(pair.world.settle(), [ask(pair.a, 4), ask(pair.b, 1)]);
    pair.world.engine.tick(pair.world.now);
    assert_eq!(pair.world.settle(), [], "not before they had time to answer");
}

#[test]
fn the_last_delegation_that_there_is_room_for_is_not_asked_back_as_it_is_granted() {
    let mut pair = Pair::new();
    pair.world.engine.set_policy(Policy { delegations_max: 2, ..Policy::default() });
    let granted = [1, 2].map(|file| pair.world.delegate(pair.a, file, READ).is_recalled);
    assert_eq!(granted, [false; 2]);
    assert_eq!(pair.world.why_none(pair.b, 3, READ), Some(WhyNone::Resource));
    pair.world.settle();
}

/// RFC 7530 has CB_GETATTR and CB_RECALL, and no other callback.
#[test]
fn a_client_of_4_0_that_holds_most_is_recalled_from_and_keeps_nobody_else_from_being_asked() {
    let mut pair = Pair::new();
    let old = pair.world.client40("old", 1);
    pair.world.engine.callback_path(old, true);
    pair.world.settle();
    let mut oldest = Vec::new();
    for file in 0..8 {
        oldest.push(pair.world.delegate(old, file, READ).token);
        pair.world.pass(1);
    }
    for file in 0..4 {
        pair.world.delegate(pair.a, file, READ);
    }
    pair.world.engine.set_policy(Policy { delegations_max: 6, ..Policy::default() });
    pair.world.engine.tick(pair.world.now);
    let any = Effect::RecallAny { client: pair.a, keep: 2, files: true, directories: true };
    let effects = pair.world.settle();
    assert_eq!(recalled(&effects), oldest[..4]);
    assert!(effects.contains(&any), "{effects:?}");
    pair.world.engine.tick(pair.world.now);
    assert_eq!(pair.world.settle(), [], "those are on their way");
}

#[test]
fn who_was_asked_in_vain_while_there_is_no_room_is_recalled_from() {
    let mut pair = Pair::new();
    for file in 0..10 {
        pair.world.delegate(pair.a, file, READ);
    }
    pair.world.engine.set_policy(Policy { delegations_max: 10, ..Policy::default() });
    pair.world.engine.tick(pair.world.now);
    let any = Effect::RecallAny { client: pair.a, keep: 9, files: true, directories: true };
    assert_eq!(pair.world.settle(), [any]);
    pair.pass(RECALL_ANY_PAUSE_MS);
    pair.world.engine.tick(pair.world.now);
    assert_eq!(recalled(&pair.world.settle()).len(), 1);
}

#[test]
fn above_the_budget_those_who_are_away_go_before_anybody_is_asked() {
    let mut pair = Pair::new();
    let (c, _) = pair.world.client("c", 1);
    for file in 0..4 {
        pair.world.delegate(c, file, READ);
    }
    pair.world.pass(1000);
    let (d, _) = pair.world.client("d", 1);
    for file in 0..4 {
        pair.world.delegate(d, file, READ);
    }
    for file in 0..4 {
        pair.world.delegate(pair.a, file, READ);
    }
    pair.world.settle();
    for _ in 0..3 {
        pair.pass(LEASE_MS / 2);
        pair.world.engine.tick(pair.world.now);
    }
    assert_eq!((pair.world.settle(), pair.world.engine.census().courteous), (vec![], 2));
    pair.world.engine.set_policy(Policy { delegations_max: 11, ..Policy::default() });
    pair.world.engine.tick(pair.world.now);
    let gone = |client| Effect::ForgetClient(client);
    let is_session = |effect: &Effect| matches!(effect, Effect::SessionGone(_));
    let effects = |pair: &mut Pair| {
        let all = pair.world.settle().into_iter();
        all.filter(|effect| !is_session(effect)).collect::<Vec<_>>()
    };
    assert_eq!(effects(&mut pair), [gone(c)], "away for longest, and that is enough");
    pair.world.engine.tick(pair.world.now);
    assert_eq!(ended(&effects(&mut pair)).len(), 4);
    let any = |client, keep| Effect::RecallAny { client, keep, files: true, directories: true };
    pair.world.engine.set_policy(Policy { delegations_max: 2, ..Policy::default() });
    pair.world.engine.tick(pair.world.now);
    assert_eq!(effects(&mut pair), [gone(d), any(pair.a, 2)], "nobody else is left to go");
}

#[test]
fn some_are_asked_for_while_there_is_room_left() {
    let mut pair = Pair::new();
    pair.world.engine.set_policy(Policy { delegations_max: 10, ..Policy::default() });
    for file in 0..9 {
        pair.world.delegate(pair.a, file, READ);
    }
    pair.world.engine.tick(pair.world.now);
    assert_eq!(pair.world.settle(), []);
    pair.world.delegate(pair.b, 9, READ);
    pair.world.engine.tick(pair.world.now);
    let any = Effect::RecallAny { client: pair.a, keep: 8, files: true, directories: true };
    assert_eq!(pair.world.settle(), [any], "or who holds all would keep all others out for good");
}

#[test]
fn slots_are_asked_back_above_the_budget_and_given_back_below() {
    let mut pair = Pair::new();
    pair.world.engine.set_policy(Policy { slots_max: 12, ..Policy::default() });
    pair.world.engine.tick(pair.world.now);
    let effects = pair.world.settle();
    let [Effect::RecallSlots { session, target }] = effects[..] else { panic!("{effects:?}") };
    assert_eq!(target.0, 3, "half of eight, counted from 0");
    let target_of = |world: &mut World| world.sequence(session, 0, 1).unwrap().target_highest_slot.0;
    assert_eq!(target_of(&mut pair.world), 3);
    pair.world.engine.set_policy(Policy::default());
    pair.world.engine.tick(pair.world.now);
    let now = pair.world.now;
    pair.world.engine.sessions_mut().complete(session, holdfast_base::SlotId(0), KeptReply::Nothing, now);
    assert_eq!(pair.world.sequence(session, 0, 2).unwrap().target_highest_slot.0, 7);
}
