use super::*;
use proptest::prelude::*;

fn request(slot: u32, seqid: u32) -> SlotRequest {
    SlotRequest { slot: SlotId(slot), seqid: Seqid(seqid), highest_slot: SlotId(slot), digest: None }
}

#[test]
fn a_retry_of_a_running_request_waits_and_then_gets_its_reply() {
    let mut table = SlotTable::new(2);
    assert_eq!(table.admit(request(0, 1)), Ok(Admission::New));
    assert_eq!(table.admit(request(0, 1)), Ok(Admission::RetryInProgress));
    assert_eq!(table.admit(request(0, 2)), Err(StateError::SeqMisordered));
    assert!(table.complete(SlotId(0), KeptReply::Bytes(b"answer")));
    assert_eq!(table.admit(request(0, 1)), Ok(Admission::Replay(b"answer".to_vec())));
    assert!(!table.complete(SlotId(0), KeptReply::Nothing), "a second completion changes nothing");
    assert_eq!(table.admit(request(0, 1)), Ok(Admission::Replay(b"answer".to_vec())));
}

#[test]
fn the_first_sequence_number_of_a_slot_is_one() {
    let mut table = SlotTable::new(1);
    assert_eq!(table.admit(request(0, 0)), Err(StateError::SeqMisordered));
    assert_eq!(table.admit(request(0, 2)), Err(StateError::SeqMisordered));
    assert_eq!(table.admit(request(1, 1)), Err(StateError::BadSlot));
    assert_eq!(table.admit(request(0, 1)), Ok(Admission::New));
}

#[test]
fn a_reply_not_kept_or_too_long_cannot_be_had_again() {
    let mut table = SlotTable::new(1);
    for (seqid, reply) in [(1, &[0; SLOT_REPLY_BYTES_MAX + 1][..]), (2, &[])] {
        assert_eq!(table.admit(request(0, seqid)), Ok(Admission::New));
        let kept = if reply.is_empty() { KeptReply::Nothing } else { KeptReply::Bytes(reply) };
        table.complete(SlotId(0), kept);
        assert_eq!(table.admit(request(0, seqid)), Err(StateError::RetryUncachedRep));
    }
}

#[test]
fn another_request_under_the_number_of_the_last_is_a_false_retry() {
    let mut table = SlotTable::new(1);
    let with = |digest| SlotRequest { digest: Some(digest), ..request(0, 1) };
    assert_eq!(table.admit(with(7)), Ok(Admission::New));
    assert_eq!(table.admit(with(8)), Err(StateError::SeqFalseRetry));
    table.complete(SlotId(0), KeptReply::Bytes(b"x"));
    assert_eq!(table.admit(with(8)), Err(StateError::SeqFalseRetry));
    assert_eq!(table.admit(with(7)), Ok(Admission::Replay(b"x".to_vec())));
}

#[test]
fn sequence_numbers_wrap_to_zero() {
    let image = [SlotImage { seqid: Seqid(u32::MAX), digest: None, reply: Some(vec![1]), is_exact: true }];
    let mut table = SlotTable::from_image(&image);
    assert_eq!(table.admit(request(0, u32::MAX)), Ok(Admission::Replay(vec![1])));
    assert_eq!(table.admit(request(0, 0)), Ok(Admission::New));
    assert_eq!(table.admit(request(0, 0)), Ok(Admission::RetryInProgress));
    table.complete(SlotId(0), KeptReply::Bytes(b"z"));
    assert_eq!(table.admit(request(0, 0)), Ok(Admission::Replay(b"z".to_vec())));
}

#[test]
fn slots_are_withdrawn_only_when_the_client_uses_none_of_them() {
    let mut table = SlotTable::new(4);
    let used_up_to = |seqid, highest| SlotRequest { highest_slot: SlotId(highest), ..request(0, seqid) };
    assert_eq!(table.admit(request(3, 1)), Ok(Admission::New));
    table.set_target(2);
    assert_eq!((table.highest(), table.target_highest()), (SlotId(3), SlotId(1)));
    assert_eq!(table.admit(used_up_to(1, 1)), Ok(Admission::New));
    assert_eq!(table.highest(), SlotId(3), "slot 3 still runs");
    table.complete(SlotId(3), KeptReply::Nothing);
    table.complete(SlotId(0), KeptReply::Nothing);
    assert_eq!(table.admit(used_up_to(2, 3)), Ok(Admission::New));
    assert_eq!(table.highest(), SlotId(3), "the client says it uses slot 3");
    table.complete(SlotId(0), KeptReply::Nothing);
    assert_eq!(table.admit(used_up_to(3, 1)), Ok(Admission::New));
    assert_eq!(table.highest(), SlotId(1));
    assert_eq!(
        table.admit(request(3, 1)),
        Err(StateError::BadSlot),
        "a retry of what it has had the answer to"
    );
    assert_eq!(table.admit(request(3, 3)), Err(StateError::BadSlot));
    let mut is_behind = table.clone();
    assert_eq!(is_behind.admit(request(2, 1)), Ok(Admission::New), "a reply that took long told of more");
    assert_eq!((is_behind.highest(), is_behind.target_highest()), (SlotId(2), SlotId(1)));
    assert_eq!(is_behind.admit(request(3, 1)), Err(StateError::BadSlot));
    table.set_target(4);
    let mut counts_on = table.clone();
    assert_eq!(counts_on.admit(request(3, 2)), Ok(Admission::New));
    assert_eq!(table.admit(request(3, 1)), Ok(Admission::New), "or begins again");
}

#[test]
fn a_withdrawn_slot_of_before_a_crash_is_given_out_again_to_who_counts_on_from_what_the_crash_took() {
    let mut before = SlotTable::new(2);
    assert_eq!(before.admit(request(1, 1)), Ok(Admission::New));
    before.complete(SlotId(1), KeptReply::Nothing);
    let image = before.image().into_iter().map(|slot| SlotImage { is_exact: false, ..slot });
    let mut table = SlotTable::from_image(&image.collect::<Vec<_>>());
    table.set_target(1);
    for seqid in [1, 2] {
        assert_eq!(table.admit(request(0, seqid)), Ok(Admission::New));
        table.complete(SlotId(0), KeptReply::Nothing);
    }
    assert_eq!(table.highest(), SlotId(0));
    assert_eq!(
        table.admit(request(1, 1)),
        Err(StateError::BadSlot),
        "a retry of what it has had the answer to"
    );
    assert_eq!(table.admit(request(1, 4)), Ok(Admission::New));
    assert_eq!(table.highest(), SlotId(1));
}

/// Who has one thing to ask at a time uses the first slot alone, target or not: what it sends next may need more.
#[test]
fn slots_are_withdrawn_only_once_the_client_has_heard_that_they_are_to_be() {
    let mut table = SlotTable::new(4);
    assert_eq!(table.admit(request(0, 1)), Ok(Admission::New));
    table.complete(SlotId(0), KeptReply::Nothing);
    table.set_target(2);
    assert_eq!(table.admit(request(0, 2)), Ok(Admission::New));
    assert_eq!(table.admit(request(3, 1)), Ok(Admission::New), "sent before the reply that tells has come");
    table.complete(SlotId(0), KeptReply::Nothing);
    table.complete(SlotId(3), KeptReply::Nothing);
    assert_eq!(table.admit(request(1, 1)), Ok(Admission::New), "nor does another slot show that it has");
    assert_eq!(table.highest(), SlotId(3));
    assert_eq!(table.admit(request(0, 3)), Ok(Admission::New));
    assert_eq!(table.highest(), SlotId(1));
    table.complete(SlotId(0), KeptReply::Nothing);
    table.set_target(1);
    assert_eq!(table.admit(request(0, 4)), Ok(Admission::New));
    assert_eq!(table.highest(), SlotId(1), "it has heard of the first target, not of the second");
}

/// One message of a client's on its way; `seqid` may be of the past.
#[derive(Clone, Copy, Debug)]
enum Event {
    Send(u32),
    Duplicate { slot: u32, back: u32 },
    Finish(u32),
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        (0..4u32).prop_map(Event::Send),
        (0..4u32, 0..3u32).prop_map(|(slot, back)| Event::Duplicate { slot, back }),
        (0..4u32).prop_map(Event::Finish),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// However messages are doubled and delayed, each request runs once and its retry gets its own reply.
    #[test]
    fn each_request_runs_once_under_duplicates_and_reordering(
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut table = SlotTable::new(4);
        let mut last = [0u32; 4];
        let mut running = [false; 4];
        let reply = |slot: u32, seqid: u32| vec![slot as u8, seqid as u8];
        for event in events {
            match event {
                Event::Send(slot) => {
                    let at = slot as usize;
                    let got = table.admit(request(slot, last[at] + 1));
                    if running[at] {
                        prop_assert_eq!(got, Err(StateError::SeqMisordered));
                    } else {
                        prop_assert_eq!(got, Ok(Admission::New));
                        last[at] += 1;
                        running[at] = true;
                    }
                }
                Event::Duplicate { slot, back } => {
                    let at = slot as usize;
                    let Some(seqid) = last[at].checked_sub(back) else { continue };
                    let got = table.admit(request(slot, seqid));
                    let expected = match (back, seqid, running[at]) {
                        (0, 0, _) => Err(StateError::SeqMisordered),
                        (0, _, true) => Ok(Admission::RetryInProgress),
                        (0, _, false) => Ok(Admission::Replay(reply(slot, seqid))),
                        _ => Err(StateError::SeqMisordered),
                    };
                    prop_assert_eq!(got, expected);
                }
                Event::Finish(slot) => {
                    let at = slot as usize;
                    table.complete(SlotId(slot), KeptReply::Bytes(&reply(slot, last[at])));
                    running[at] = false;
                }
            }
            prop_assert_eq!(table.flaw(), None);
        }
        let copy = SlotTable::from_image(&table.image());
        prop_assert_eq!(copy.image(), table.image());
    }
}

#[test]
fn after_a_crash_any_higher_number_is_new_once() {
    let image = [SlotImage { seqid: Seqid(5), digest: None, reply: Some(vec![1]), is_exact: false }];
    let mut table = SlotTable::from_image(&image);
    assert_eq!(table.admit(request(0, 4)), Err(StateError::SeqMisordered));
    assert_eq!(table.admit(request(0, 5)), Ok(Admission::Replay(vec![1])));
    assert!(!table.image()[0].is_exact);
    assert_eq!(table.admit(request(0, 9)), Ok(Admission::New));
    table.complete(SlotId(0), KeptReply::Nothing);
    assert_eq!(table.admit(request(0, 11)), Err(StateError::SeqMisordered));
    assert_eq!(table.admit(request(0, 10)), Ok(Admission::New));
}
