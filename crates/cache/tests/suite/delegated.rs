//! Plain NFSv4 delegations: what comes with opens is used, whoever opens is let in by the server first, and what is
//! recalled is sent and given back.

use bytes::Bytes;
use holdfast_base::{Instant, Timestamp};
use holdfast_cache::*;

const READ: Access = Access { read: true, write: false };
const BOTH: Access = Access { read: true, write: true };

/// What a delegation to read promises, and one to write.
const SHARED: CapSet = CapSet::ALL_S;
const WRITE: CapSet = CapSet(CapSet::ALL_S.0 | CapSet::FILE_X.0);

pub(crate) fn now(ms: u64) -> Now {
    Now { mono: Instant(ms), wall: Timestamp { seconds: 1000, nanos: 0 } }
}

pub(crate) fn attrs(kind: Kind, uid: u32, mode: u32) -> Attrs {
    let time = Timestamp { seconds: 1, nanos: 0 };
    Attrs {
        kind,
        mode,
        nlink: 1,
        uid,
        gid: uid,
        size: 0,
        allocated: 0,
        device: Device::default(),
        atime: time,
        mtime: time,
        ctime: time,
        btime: None,
        change: 7,
        fileid: 2,
    }
}

fn handle() -> Handle {
    Handle::new(b"file")
}

/// A machine that knows a file of user 1000, mode 0640.
fn machine() -> (Machine, NodeId) {
    let root = Object { handle: Handle::new(b"root"), attrs: attrs(Kind::Dir, 0, 0o755), grant: None };
    let mut machine = Machine::new(&root, Settings::default());
    let mut turn = Turn::new(Caller::new(0, 0));
    let Step::Ask(ask) = machine.lookup(&mut turn, NodeId::ROOT, b"f", now(0)) else { panic!("not asked") };
    let object = Object { handle: handle(), attrs: attrs(Kind::File, 1000, 0o640), grant: None };
    machine.absorb(
        &mut turn,
        *ask,
        Ok(Answer::Looked { found: Some(object), dir: None, promise: None }),
        now(0),
    );
    match machine.lookup(&mut turn, NodeId::ROOT, b"f", now(0)) {
        Step::Done(Lookup::Found(entry)) => (machine, entry.node),
        other => panic!("{other:?}"),
    }
}

/// Opens by asking; the answer brings this.
fn open_asking(machine: &mut Machine, node: NodeId, uid: u32, access: Access, grant: Option<Grant>) -> Fh {
    let mut turn = Turn::new(Caller::new(uid, uid));
    let flags = OpenFlags { access, ..OpenFlags::default() };
    let Step::Ask(ask) = machine.open(&mut turn, node, flags, now(1)) else {
        panic!("{uid} was let in unasked")
    };
    let answer = Answer::Opened { open: Some(OpenToken(1)), attrs: attrs(Kind::File, 1000, 0o640), grant };
    machine.absorb(&mut turn, *ask, Ok(answer), now(1));
    match machine.open(&mut turn, node, flags, now(1)) {
        Step::Done(opened) => opened.fh,
        other => panic!("{other:?}"),
    }
}

fn opens_unasked(machine: &mut Machine, node: NodeId, uid: u32, access: Access) -> bool {
    let mut turn = Turn::new(Caller::new(uid, uid));
    match machine.open(&mut turn, node, OpenFlags { access, ..OpenFlags::default() }, now(2)) {
        Step::Done(opened) => {
            machine.release(opened.fh, now(2));
            true
        }
        Step::Ask(_) => false,
        other => panic!("{other:?}"),
    }
}

/// What may be given back, the kernel having forgotten what it was to forget.
fn given_back(machine: &mut Machine, now: Now) -> Vec<Release> {
    for invalidation in machine.take_invalidations() {
        machine.invalidated(invalidation.number);
    }
    machine.take_releases(now)
}

const fn grant(caps: CapSet, seq: u64) -> Option<Grant> {
    Some(Grant {
        caps,
        seq,
        plain: false,
        group_of_directory: false,
        listed: false,
        hands_on_none: false,
        changed_since: false,
    })
}

#[test]
fn who_was_let_in_by_the_server_opens_again_unasked_and_nobody_else() {
    let (mut machine, node) = machine();
    open_asking(&mut machine, node, 2000, READ, grant(SHARED, 1));
    assert!(opens_unasked(&mut machine, node, 2000, READ));
    assert!(!opens_unasked(&mut machine, node, 2000, BOTH), "to write, under a delegation to read");
    assert!(
        !opens_unasked(&mut machine, node, 3000, READ),
        "a stranger: the server has a list of rights, maybe"
    );
    assert!(opens_unasked(&mut machine, node, 1000, READ), "the owner's bits say it all");
}

#[test]
fn a_recall_takes_the_admission_with_it() {
    let (mut machine, node) = machine();
    let fh = open_asking(&mut machine, node, 2000, READ, grant(SHARED, 1));
    machine.recalled(&handle(), CapSet::NONE, 2, now(3));
    assert!(!opens_unasked(&mut machine, node, 2000, READ));
    machine.release(fh, now(3));
    assert_eq!(
        given_back(&mut machine, now(3)),
        [Release { handle: handle(), keep: CapSet::NONE, seq: 2, life: 0 }]
    );
    open_asking(&mut machine, node, 3000, READ, grant(SHARED, 3));
    assert!(!opens_unasked(&mut machine, node, 2000, READ), "rights may have changed since");
}

#[test]
fn a_grant_that_a_recall_has_overtaken_is_not_believed() {
    let (mut machine, node) = machine();
    machine.recalled(&handle(), CapSet::NONE, 2, now(0));
    open_asking(&mut machine, node, 1000, READ, grant(SHARED, 1));
    assert!(!opens_unasked(&mut machine, node, 1000, READ));
}

#[test]
fn the_holder_of_one_to_write_is_asked_for_what_it_has_and_sends_it_before_it_gives_it_back() {
    let (mut machine, node) = machine();
    let fh = open_asking(&mut machine, node, 1000, BOTH, grant(WRITE, 1));
    let shown = machine.shown(&handle()).unwrap();
    assert!(shown.is_ours && !shown.is_modified);
    let mut turn = Turn::new(Caller::new(1000, 1000));
    let data = Bytes::from_static(b"ten bytes.");
    assert!(matches!(machine.write(&mut turn, fh, 0, &data, now(4)), Step::Done(10)));
    let shown = machine.shown(&handle()).unwrap();
    assert!(shown.is_ours && shown.is_modified);
    assert_eq!((shown.attrs.size, shown.attrs.mtime.seconds), (10, 1000));
    machine.recalled(&handle(), CapSet::NONE, 2, now(5));
    assert!(given_back(&mut machine, now(5)).is_empty(), "given back before it was sent");
    let write = machine.take_write(now(5)).expect("nothing is sent");
    machine.write_done(write.id, Ok(Written { count: 10, stable: true, verifier: 1 }), now(6));
    assert_eq!(given_back(&mut machine, now(6)).len(), 1);
    assert!(!machine.shown(&handle()).unwrap().is_ours);
}

#[test]
fn what_is_open_without_the_server_is_opened_there_before_it_is_given_back() {
    let (mut machine, node) = machine();
    let first = open_asking(&mut machine, node, 1000, READ, grant(SHARED, 1));
    let mut turn = Turn::new(Caller::new(1000, 1000));
    let flags = OpenFlags { access: READ, ..OpenFlags::default() };
    let Step::Done(second) = machine.open(&mut turn, node, flags, now(2)) else { panic!("asked") };
    machine.recalled(&handle(), CapSet::NONE, 2, now(3));
    assert!(given_back(&mut machine, now(3)).is_empty(), "an open would be lost");
    let opens = machine.take_opens();
    assert_eq!(opens.iter().map(|(fh, ..)| *fh).collect::<Vec<_>>(), [second.fh]);
    machine.opened(second.fh, &handle(), Some(OpenToken(2)));
    assert_eq!(given_back(&mut machine, now(3)).len(), 1);
    machine.release(first, now(4));
    machine.release(second.fh, now(4));
}

#[test]
fn what_is_unused_is_told_the_longest_unused_first_and_nothing_that_is_open() {
    let (mut machine, node) = machine();
    let fh = open_asking(&mut machine, node, 1000, READ, grant(SHARED, 1));
    assert!(machine.unused(now(1_000_000), 10).is_empty(), "it is open");
    machine.release(fh, now(2));
    assert!(machine.unused(now(5), 10).is_empty(), "it was used a moment ago");
    assert_eq!(machine.unused(now(1_000_000), 10), [handle()]);
    let number = 9;
    machine.recalled(&handle(), CapSet::NONE, number, now(1_000_000));
    assert_eq!(given_back(&mut machine, now(1_000_000)).len(), 1);
    assert!(machine.unused(now(2_000_000), 10).is_empty(), "it is given back");
}

#[test]
fn a_name_of_what_is_promised_is_known_before_it_is_removed_for_the_number_of_names_is_believed() {
    let (mut machine, node) = machine();
    let promised = Some(Grant {
        caps: SHARED,
        seq: 1,
        plain: false,
        group_of_directory: false,
        listed: false,
        hands_on_none: false,
        changed_since: false,
    });
    let fh = open_asking(&mut machine, node, 1000, READ, promised);
    machine.release(fh, now(2));
    let mut turn = Turn::new(Caller::new(1000, 1000));
    let Step::Ask(ask) = machine.unlink(&mut turn, NodeId::ROOT, b"another", now(3)) else { panic!("asked") };
    assert!(matches!(ask.question, Question::Lookup { .. }), "{ask:?}");
    let object = Object { handle: handle(), attrs: attrs(Kind::File, 1000, 0o640), grant: None };
    machine.absorb(
        &mut turn,
        *ask,
        Ok(Answer::Looked { found: Some(object), dir: None, promise: None }),
        now(3),
    );
    let Step::Ask(ask) = machine.unlink(&mut turn, NodeId::ROOT, b"another", now(3)) else { panic!("asked") };
    assert!(matches!(&ask.question, Question::Remove { victim: Some(_), .. }), "{ask:?}");
    machine.absorb(&mut turn, *ask, Ok(Answer::Gone { dir: None, dir_attrs: None }), now(3));
    assert!(matches!(machine.unlink(&mut turn, NodeId::ROOT, b"another", now(3)), Step::Done(())));
    let mut turn = Turn::new(Caller::new(1000, 1000));
    let shown = machine.getattr(&mut turn, node, now(4));
    assert!(matches!(shown, Step::Ask(_)), "it is not believed any more: {shown:?}");
}

/// No delegation comes with a create, so what is written through it the kernel keeps uncovered.
#[test]
fn what_the_kernel_keeps_of_a_file_that_was_made_is_dropped_at_the_first_open_that_a_delegation_covers() {
    let root = Object { handle: Handle::new(b"root"), attrs: attrs(Kind::Dir, 0, 0o755), grant: None };
    let mut machine = Machine::new(&root, Settings::default());
    let (mut turn, flags) =
        (Turn::new(Caller::new(1000, 1000)), OpenFlags { access: BOTH, ..OpenFlags::default() });
    let Step::Ask(ask) = machine.create(&mut turn, NodeId::ROOT, b"f", 0o640, flags, now(1)) else {
        panic!("not asked")
    };
    let object = Object { handle: handle(), attrs: attrs(Kind::File, 1000, 0o640), grant: None };
    let answer = Answer::Created { object, open: Some(OpenToken(1)), made: true, dir: None, dir_attrs: None };
    machine.absorb(&mut turn, *ask, Ok(answer), now(1));
    let step = machine.create(&mut turn, NodeId::ROOT, b"f", 0o640, flags, now(1));
    let Step::Done((entry, opened)) = step else { panic!("{step:?}") };
    machine.release(opened.fh, now(2));
    assert!(!opened.keep_cache);
    let (mut turn, flags) =
        (Turn::new(Caller::new(1000, 1000)), OpenFlags { access: READ, ..OpenFlags::default() });
    let Step::Ask(ask) = machine.open(&mut turn, entry.node, flags, now(3)) else { panic!("not asked") };
    let attrs = attrs(Kind::File, 1000, 0o640);
    let answer = Answer::Opened { open: Some(OpenToken(2)), attrs, grant: grant(SHARED, 1) };
    machine.absorb(&mut turn, *ask, Ok(answer), now(3));
    match machine.open(&mut turn, entry.node, flags, now(3)) {
        Step::Done(opened) => assert!(!opened.keep_cache, "others may have written since"),
        other => panic!("{other:?}"),
    }
}
