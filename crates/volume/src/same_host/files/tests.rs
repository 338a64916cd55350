use super::*;

fn handle(n: u8) -> Handle {
    Handle::new(&[n])
}

fn caller() -> Caller {
    Caller::new(1000, 1000)
}

/// Asks as often as it takes; gives the question.
fn asked(files: &mut Files<u8>, n: u8, writes: bool, now: Instant) -> Asking {
    for _ in 0..SAME_HOST_AFTER {
        assert!(matches!(files.way(&handle(n), &caller(), writes, (true, now)), Way::Wire));
    }
    match files.way(&handle(n), &caller(), writes, (true, now)) {
        Way::Ask(asking) => asking,
        other => panic!("{other:?}"),
    }
}

fn with(files: &mut Files<u8>, n: u8, writes: bool, now: Instant) -> Arc<Lent<u8>> {
    let asking = asked(files, n, writes, now);
    files.lent(&asking, Ok(n), now).unwrap()
}

fn is_lent(files: &mut Files<u8>, n: u8, writes: bool, now: Instant) -> bool {
    matches!(files.way(&handle(n), &caller(), writes, (false, now)), Way::Lent(_))
}

#[test]
fn a_descriptor_is_asked_for_after_some_questions_and_by_one_at_a_time() {
    let (mut files, now) = (Files::default(), Instant::now());
    let asking = asked(&mut files, 1, false, now);
    assert!(matches!(files.way(&handle(1), &caller(), false, (true, now)), Way::Wire), "one is asking");
    assert!(files.lent(&asking, Ok(7), now).is_some());
    assert!(is_lent(&mut files, 1, false, now));
    assert_eq!(files.held(), 1);
}

#[test]
fn one_callers_descriptor_is_not_used_for_another() {
    let (mut files, now) = (Files::default(), Instant::now());
    with(&mut files, 1, true, now);
    let other = Caller::new(0, 0);
    assert!(!matches!(files.way(&handle(1), &other, false, (true, now)), Way::Lent(_)));
}

#[test]
fn what_was_refused_is_not_asked_for_again_at_once() {
    let (mut files, now) = (Files::<u8>::default(), Instant::now());
    let asking = asked(&mut files, 1, false, now);
    assert!(files.lent(&asking, Err(Duration::from_secs(1)), now).is_none());
    assert!(matches!(files.way(&handle(1), &caller(), false, (true, now)), Way::Wire));
    let later = now + Duration::from_secs(1);
    assert!(matches!(files.way(&handle(1), &caller(), false, (true, later)), Way::Ask(_)));
}

#[test]
fn a_recall_takes_what_it_takes() {
    let (mut files, now) = (Files::default(), Instant::now());
    with(&mut files, 1, false, now);
    with(&mut files, 2, true, now);
    files.keep(&handle(1), CapSet::FILE_S);
    files.keep(&handle(2), CapSet::FILE_X);
    assert!(is_lent(&mut files, 1, false, now) && is_lent(&mut files, 2, true, now));
    files.keep(&handle(2), CapSet::FILE_S);
    assert!(!is_lent(&mut files, 2, false, now), "one that can write keeps others from reading");
    files.keep(&handle(1), CapSet::NONE);
    assert!(!is_lent(&mut files, 1, false, now));
    assert_eq!(files.held(), 0);
}

#[test]
fn a_recall_that_overtakes_the_descriptor_voids_it() {
    let (mut files, now) = (Files::default(), Instant::now());
    let asking = asked(&mut files, 1, false, now);
    files.keep(&handle(1), CapSet::NONE);
    assert!(files.lent(&asking, Ok(1), now).is_none());
    let asking = asked(&mut files, 2, false, now);
    files.lose_all();
    assert!(files.lent(&asking, Ok(2), now).is_none());
    assert_eq!(files.held(), 0);
}

#[test]
fn who_wants_to_write_gives_readers_up_first() {
    let (mut files, now) = (Files::default(), Instant::now());
    with(&mut files, 1, false, now);
    files.make_way(&handle(1));
    assert!(!is_lent(&mut files, 1, false, now));
    with(&mut files, 2, true, now);
    files.make_way(&handle(2));
    assert!(is_lent(&mut files, 2, true, now));
}

#[test]
fn what_was_written_is_put_on_disk_through_what_it_was_written_by() {
    let (mut files, now) = (Files::default(), Instant::now());
    let lent = with(&mut files, 1, true, now);
    lent.writing();
    files.keep(&handle(1), CapSet::NONE);
    let (to_commit, by_server) = files.uncommitted(&handle(1));
    assert_eq!((to_commit.len(), by_server), (1, true), "what went over the network before counts as well");
    assert!(!files.uncommitted(&handle(1)).1, "once");
    lent.sync(|_| Ok(()));
    files.committed(&handle(1));
    assert!(files.uncommitted(&handle(1)).0.is_empty());
    files.wrote_by_wire(&handle(1), now);
    assert!(files.uncommitted(&handle(1)).1);
    assert!(files.uncommitted(&handle(9)).1, "of what nothing is known the server is asked");
}

#[test]
fn an_error_stays_until_somebody_was_told() {
    let (mut files, now) = (Files::default(), Instant::now());
    let lent = with(&mut files, 1, true, now);
    lent.writing();
    lent.sync(|_| Err(5));
    files.keep(&handle(1), CapSet::NONE);
    assert!(files.tidy(now).is_empty(), "to put it on disk once more would forget the error");
    files.committed(&handle(1));
    assert_eq!(files.uncommitted(&handle(1)).0[0].take_failure(), Some(5));
    files.committed(&handle(1));
    assert!(files.uncommitted(&handle(1)).0.is_empty());
}

#[test]
fn what_is_not_used_is_closed_unless_it_has_something_to_put_on_disk() {
    let (mut files, now) = (Files::default(), Instant::now());
    let lent = with(&mut files, 1, true, now);
    with(&mut files, 2, false, now);
    lent.writing();
    assert!(files.tidy(now + IDLE / 2).is_empty());
    assert_eq!(files.held(), 2);
    let later = now + IDLE;
    assert!(files.tidy(later).is_empty());
    assert_eq!(files.held(), 1);
    files.keep(&handle(1), CapSet::NONE);
    assert_eq!(files.tidy(later).len(), 1, "retired, and still to be put on disk");
    lent.sync(|_| Ok(()));
    files.committed(&handle(1));
    files.tidy(later);
    assert!(files.is_empty());
}

#[test]
fn what_was_taken_back_with_nothing_owing_is_not_kept_for_what_is_written_after() {
    let (mut files, now) = (Files::default(), Instant::now());
    let (idle, busy) = (with(&mut files, 1, true, now), with(&mut files, 2, true, now));
    assert!(files.keeps(&handle(1), &idle) && !files.keeps(&handle(2), &idle));
    busy.writing();
    files.lose_all();
    assert!(!files.keeps(&handle(1), &idle));
    assert!(files.keeps(&handle(2), &busy), "it has something to put on disk");
}
