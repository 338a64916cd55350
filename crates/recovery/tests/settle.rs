//! Every mutation's rule, as a table: what was intended, what is seen, what follows.

use holdfast_base::Timestamp;
use holdfast_recovery::intent::{NodeKind, Place};
use holdfast_recovery::{Facts, Intent, Seen, Settled, settle};

const A: Place<'_> = Place { dir: b"dir", name: b"a" };
const B: Place<'_> = Place { dir: b"dir", name: b"b" };
const STARTED: Timestamp = Timestamp { seconds: 1000, nanos: 500_000_000 };
const NONE: Seen<'_> = Seen::Absent;

const fn object<'a>(handle: &'a [u8], kind: NodeKind<'a>, birth: Option<Timestamp>) -> Seen<'a> {
    Seen::Object(Facts { handle, kind, ctime: STARTED, birth })
}

const fn file(handle: &[u8]) -> Seen<'_> {
    object(handle, NodeKind::Regular, None)
}

fn make(kind: NodeKind<'_>) -> Intent<'_> {
    Intent::Make { at: A, kind, before: None, started_at: STARTED }
}

#[track_caller]
fn check(intent: Intent<'_>, seen: [Seen<'_>; 2], expected: Settled) {
    assert_eq!(settle(&intent, seen), expected, "{intent:?} {seen:?}");
}

#[test]
fn a_make_happened_when_the_free_name_now_stands_for_such_an_object() {
    check(make(NodeKind::Regular), [NONE, NONE], Settled::NotHappened);
    check(make(NodeKind::Regular), [file(b"x"), NONE], Settled::HappenedAlready);
    check(make(NodeKind::Directory), [file(b"x"), NONE], Settled::NotHappened);
    for (wanted, is, expected) in [
        (NodeKind::Symlink(b"t"), NodeKind::Symlink(b"t"), Settled::HappenedAlready),
        (NodeKind::Symlink(b"t"), NodeKind::Symlink(b"u"), Settled::NotHappened),
        (NodeKind::Char(1, 2), NodeKind::Char(1, 2), Settled::HappenedAlready),
        (NodeKind::Char(1, 2), NodeKind::Block(1, 2), Settled::NotHappened),
        (NodeKind::Fifo, NodeKind::Socket, Settled::NotHappened),
    ] {
        check(make(wanted), [object(b"x", is, None), NONE], expected);
    }
}

#[test]
fn a_make_is_not_taken_for_what_was_born_before_it() {
    let born = |seconds, nanos| [object(b"x", NodeKind::Regular, Some(Timestamp { seconds, nanos })), NONE];
    check(make(NodeKind::Regular), born(999, 0), Settled::NotHappened);
    check(make(NodeKind::Regular), born(1000, 479_000_000), Settled::NotHappened);
    // Within the tick by which file systems stamp.
    check(make(NodeKind::Regular), born(1000, 490_000_000), Settled::HappenedAlready);
    check(make(NodeKind::Regular), born(1001, 0), Settled::HappenedAlready);
}

#[test]
fn what_could_not_be_made_is_tried_again() {
    let taken = Intent::Make { at: A, kind: NodeKind::Regular, before: Some(b"x"), started_at: STARTED };
    check(taken, [file(b"x"), NONE], Settled::NotHappened);
    check(Intent::Link { object: b"o", at: A, before: Some(b"x") }, [file(b"x"), NONE], Settled::NotHappened);
}

#[test]
fn a_removal_happened_unless_the_name_still_stands_for_the_victim() {
    let remove = Intent::Remove { at: A, victim: b"v" };
    check(remove, [file(b"v"), NONE], Settled::NotHappened);
    check(remove, [NONE, NONE], Settled::HappenedAlready);
    check(remove, [file(b"another"), NONE], Settled::HappenedAlready);
}

#[test]
fn a_rename_happened_when_the_old_name_no_longer_stands_for_the_source() {
    let rename = |target| Intent::Rename { from: A, to: B, source: b"s", target, is_exchange: false };
    check(rename(None), [file(b"s"), NONE], Settled::NotHappened);
    check(rename(Some(b"t")), [file(b"s"), file(b"t")], Settled::NotHappened);
    check(rename(None), [NONE, file(b"s")], Settled::HappenedAlready);
    check(rename(Some(b"t")), [NONE, file(b"s")], Settled::HappenedAlready);
    check(rename(None), [file(b"new"), file(b"s")], Settled::HappenedAlready);
    check(rename(None), [NONE, NONE], Settled::HappenedAlready);
}

#[test]
fn a_rename_between_links_of_one_object_does_nothing_and_may_be_repeated() {
    let rename = Intent::Rename { from: A, to: B, source: b"s", target: Some(b"s"), is_exchange: false };
    check(rename, [file(b"s"), file(b"s")], Settled::NotHappened);
}

#[test]
fn an_exchange_happened_when_the_names_are_swapped() {
    let swap = Intent::Rename { from: A, to: B, source: b"s", target: Some(b"t"), is_exchange: true };
    check(swap, [file(b"s"), file(b"t")], Settled::NotHappened);
    check(swap, [file(b"t"), file(b"s")], Settled::HappenedAlready);
}

#[test]
fn a_link_happened_when_the_name_stands_for_the_object() {
    let link = Intent::Link { object: b"o", at: A, before: None };
    check(link, [NONE, NONE], Settled::NotHappened);
    check(link, [file(b"o"), NONE], Settled::HappenedAlready);
    check(link, [file(b"another"), NONE], Settled::NotHappened);
}

#[test]
fn attributes_are_set_again_without_the_guard_once_anything_changed() {
    let set = |nanos| Intent::SetAttr { object: b"o", ctime_before: Timestamp { nanos, ..STARTED } };
    check(set(STARTED.nanos), [file(b"o"), NONE], Settled::NotHappened);
    check(set(1), [file(b"o"), NONE], Settled::Repeat);
    check(set(1), [NONE, NONE], Settled::NotHappened);
}

#[test]
fn extended_attributes_are_told_by_existence_and_value() {
    let make = |existed| Intent::MakeXattr { object: b"o", name: b"n", existed, value_hash: [1; 16] };
    check(make(false), [Seen::Xattr([1; 16]), NONE], Settled::HappenedAlready);
    check(make(false), [Seen::Xattr([2; 16]), NONE], Settled::NotHappened);
    check(make(false), [NONE, NONE], Settled::NotHappened);
    check(make(true), [Seen::Xattr([1; 16]), NONE], Settled::NotHappened);
    let remove = |existed| Intent::RemoveXattr { object: b"o", name: b"n", existed };
    check(remove(true), [NONE, NONE], Settled::HappenedAlready);
    check(remove(true), [Seen::Xattr([1; 16]), NONE], Settled::NotHappened);
    check(remove(false), [NONE, NONE], Settled::NotHappened);
}

#[test]
fn what_gives_the_same_twice_is_repeated_without_looking() {
    assert_eq!(Intent::Repeatable.looks(), [None, None]);
    check(Intent::Repeatable, [Seen::Failed, Seen::Failed], Settled::Repeat);
    // Where it has happened, it is the directory that is to be durable.
    let removals = Intent::Removals { dir: b"d", names: b"" };
    assert_eq!(removals.looks(), [Some(holdfast_recovery::Look::Object(b"d")), None]);
    check(removals, [Seen::Absent, Seen::Absent], Settled::Repeat);
}

#[test]
fn a_failed_look_decides_nothing() {
    check(make(NodeKind::Regular), [Seen::Failed, NONE], Settled::CannotTell);
    let rename = Intent::Rename { from: A, to: B, source: b"s", target: None, is_exchange: false };
    assert!(rename.looks().iter().all(Option::is_some));
    check(rename, [NONE, Seen::Failed], Settled::CannotTell);
}
