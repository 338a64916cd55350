//! What one client did in a row, and how much of it a disk shows.

use holdfast_base::Timestamp;
use holdfast_recovery::intent::{NodeKind, Place, name_hash};
use holdfast_recovery::sequence::{Came, Entry, Sequence};
use holdfast_recovery::{Facts, Intent, Look, Seen, Settled};

use Settled::{HappenedAlready, NotHappened, Repeat};

const STARTED: Timestamp = Timestamp { seconds: 1000, nanos: 0 };

const fn place(name: &str) -> Place<'_> {
    Place { dir: b"dir", name: name.as_bytes() }
}

fn doubtful<'a>(intent: Intent<'a>, came: Came<'a>) -> Entry<'a> {
    Entry { intent, came, is_certain: false }
}

fn make<'a>(name: &'a str, handle: &'a str) -> Entry<'a> {
    let intent = Intent::Make { at: place(name), kind: NodeKind::Regular, before: None, started_at: STARTED };
    doubtful(intent, Came::Made(handle.as_bytes()))
}

fn rename<'a>(from: &'a str, to: &'a str, source: &'a str, target: Option<&'a str>) -> Entry<'a> {
    let (from, to, target) = (place(from), place(to), target.map(str::as_bytes));
    let intent = Intent::Rename { from, to, source: source.as_bytes(), target, is_exchange: false };
    doubtful(intent, Came::Done)
}

fn remove<'a>(name: &'a str, victim: &'a str) -> Entry<'a> {
    doubtful(Intent::Remove { at: place(name), victim: victim.as_bytes() }, Came::Done)
}

fn link<'a>(object: &'a str, name: &'a str) -> Entry<'a> {
    doubtful(Intent::Link { object: object.as_bytes(), at: place(name), before: None }, Came::Done)
}

fn mode(object: &str) -> Entry<'_> {
    doubtful(Intent::SetAttr { object: object.as_bytes(), ctime_before: STARTED }, Came::Done)
}

fn removals(names: &[u8]) -> Intent<'_> {
    Intent::Removals { dir: b"dir", names }
}

/// Settles with a disk of these names and objects.
#[track_caller]
fn check(entries: Vec<Entry<'_>>, disk: &[(&str, &str)], expected: &[Settled]) {
    let sequence = Sequence::of(entries);
    let facts = |handle: &'_ [u8]| {
        let (_, handle) = disk.iter().find(|(_, object)| object.as_bytes() == handle)?;
        let (kind, ctime) = (NodeKind::Regular, Timestamp { seconds: 2000, nanos: 0 });
        Some(Facts { handle: handle.as_bytes(), kind, ctime, birth: None })
    };
    let look = |look: &Look<'_>| match look {
        Look::Name(at) => {
            let is_there = at.dir == b"dir" || disk.iter().any(|(_, object)| object.as_bytes() == at.dir);
            let there = disk.iter().find(|(name, _)| is_there && name.as_bytes() == at.name);
            there.and_then(|(_, object)| facts(object.as_bytes()))
        }
        Look::Object(object) => facts(object),
        Look::Xattr { .. } => None,
    };
    let seen: Vec<_> =
        sequence.looks().iter().map(|at| look(at).map_or(Seen::Absent, Seen::Object)).collect();
    assert_eq!(sequence.settle(&seen), expected, "{disk:?}");
}

#[test]
fn the_last_that_shows_tells_what_came_before_it() {
    let all = || vec![make("f", "1"), mode("1"), rename("f", "g", "1", None), make("f", "2")];
    check(all(), &[], &[NotHappened; 4]);
    check(all(), &[("f", "1")], &[HappenedAlready, Repeat, NotHappened, NotHappened]);
    check(all(), &[("g", "1")], &[HappenedAlready, Repeat, HappenedAlready, NotHappened]);
    check(all(), &[("g", "1"), ("f", "2")], &[HappenedAlready, Repeat, HappenedAlready, HappenedAlready]);
}

#[test]
fn what_came_and_went_has_happened_with_what_was_done_to_it() {
    let all = vec![make("f", "1"), mode("1"), link("1", "g"), remove("f", "1"), remove("g", "1")];
    check(all, &[], &[HappenedAlready; 5]);
}

#[test]
fn nothing_has_come_and_gone_after_what_has_never_come() {
    let all = || vec![make("f", "1"), make("g", "2"), remove("g", "2"), make("h", "3"), remove("h", "3")];
    check(all(), &[], &[NotHappened; 5]);
    check(all(), &[("f", "1")], &[HappenedAlready; 5]);
    // What shows has happened all the same: somebody has removed the other.
    let all = vec![make("f", "1"), make("g", "2"), make("h", "3"), remove("h", "3")];
    check(all, &[("g", "2")], &[NotHappened, HappenedAlready, NotHappened, NotHappened]);
}

#[test]
fn a_link_is_not_made_of_what_is_not_there() {
    let all = || vec![make("f", "1"), link("1", "g"), remove("f", "1")];
    check(all(), &[], &[NotHappened; 3]);
    check(all(), &[("g", "1")], &[HappenedAlready; 3]);
    check(all(), &[("f", "1"), ("g", "1")], &[HappenedAlready, HappenedAlready, NotHappened]);
}

#[test]
fn there_and_back_is_where_it_was() {
    let all = || vec![rename("a", "b", "1", None), rename("b", "a", "1", None)];
    check(all(), &[("a", "1")], &[HappenedAlready; 2]);
    check(all(), &[("b", "1")], &[HappenedAlready, NotHappened]);
}

#[test]
fn names_that_others_have_changed_since_are_judged_by_themselves() {
    // Who was there before has been moved away by somebody.
    let all = vec![rename("a", "b", "1", None), make("a", "2")];
    check(all, &[("c", "1")], &[HappenedAlready, NotHappened]);
    // What shows was done, with what came before it.
    let all = vec![make("f", "1"), rename("f", "g", "1", None), make("f", "2")];
    check(all, &[("f", "2"), ("g", "theirs")], &[HappenedAlready; 3]);
}

#[test]
fn what_was_done_since_the_machine_is_back_was_done_after_all_before_it() {
    let again = Entry { is_certain: true, ..make("f", "3") };
    let all = vec![again, rename("f", "g", "1", None)];
    check(all.clone(), &[("f", "3")], &[HappenedAlready, NotHappened]);
    check(all, &[("g", "3")], &[HappenedAlready; 2]);
    let all = vec![make("f", "1"), Entry { is_certain: true, ..remove("f", "1") }];
    check(all, &[], &[HappenedAlready; 2]);
}

#[test]
fn a_refusal_stands_whatever_is_there() {
    let all = vec![Entry { came: Came::Refused, ..make("f", "1") }, remove("f", "0"), make("f", "2")];
    check(all, &[("f", "0")], &[HappenedAlready, NotHappened, NotHappened]);
    // Behind what is lost, too.
    let all = [make("f", "1"), remove("f", "1"), make("f", "2"), rename("f", "g", "2", None)];
    let refused = Entry { came: Came::Refused, ..make("g", "3") };
    let all = [&all[..], &[refused]].concat();
    check(all, &[("f", "1")], &[HappenedAlready, NotHappened, NotHappened, NotHappened, HappenedAlready]);
}

#[test]
fn names_that_were_removed_together_stay_where_another_has_come_since() {
    let names: Vec<u8> = ["f", "x"].iter().flat_map(|name| name_hash(name.as_bytes())).collect();
    let done = Came::Removed { count: 2, refused: vec![] };
    let all = || vec![doubtful(removals(&names), done.clone()), rename("g", "f", "1", None)];
    check(all(), &[("f", "1")], &[HappenedAlready, HappenedAlready]);
    check(all(), &[("g", "1")], &[Repeat, NotHappened]);
    // That they were begun is no word of their end.
    let cut = vec![doubtful(removals(&names), Came::CutShort), rename("g", "f", "1", None)];
    check(cut, &[("f", "1")], &[Repeat, HappenedAlready]);
    // Of a name that was refused nothing is known by it.
    let refused = Came::Removed { count: 2, refused: vec![0] };
    let all = vec![doubtful(removals(&names), refused), rename("f", "g", "1", None)];
    check(all, &[("f", "1")], &[Repeat, NotHappened]);
}

#[test]
fn a_directory_that_went_again_comes_again_for_what_is_to_be_done_in_it() {
    let inside = |intent: &mut Intent<'_>| match intent {
        Intent::Make { at, .. } | Intent::Rename { from: at, .. } => at.dir = b"1",
        _ => {}
    };
    let all = || {
        let mut all = vec![make("d", "1"), make("f", "2"), rename("f", "g", "2", None), remove("d", "1")];
        all[1..3].iter_mut().for_each(|entry| inside(&mut entry.intent));
        all
    };
    check(all(), &[], &[NotHappened; 4]);
    check(all(), &[("d", "1")], &[HappenedAlready, NotHappened, NotHappened, NotHappened]);
    check(
        all(),
        &[("d", "1"), ("g", "2")],
        &[HappenedAlready, HappenedAlready, HappenedAlready, NotHappened],
    );
    check(all(), &[("g", "2")], &[HappenedAlready; 4]);
}
