use holdfast_cache::{Errno, NodeId};

use super::model::{Deed, Look, Outcome};
use super::{DeedId, Mounts, Sureness};

const BASE: NodeId = NodeId(2);

const DIRECTORY: Look = Look { is_dir: true, mode: 0o755, nlink: 0, size: 0 };

const FILE: Look = Look { is_dir: false, mode: 0o644, nlink: 1, size: 0 };

fn two_mounts() -> Mounts {
    let mut mounts = Mounts::default();
    (0..2).for_each(|host| mounts.begins(host, BASE));
    mounts
}

fn mkdir(name: &str) -> Deed {
    Deed::Mkdir { dir: BASE, name: name.into() }
}

fn found(node: u64) -> Outcome {
    Outcome::Found(NodeId(node), DIRECTORY)
}

fn ends(mounts: &mut Mounts, id: DeedId, outcome: Outcome) {
    mounts.ends(0, id, (outcome, Sureness::default()));
}

/// Begins, and ends at once.
fn does(mounts: &mut Mounts, host: usize, deed: Deed, outcome: Outcome) {
    let id = mounts.does(0, host, deed);
    ends(mounts, id, outcome);
}

fn look_up(dir: NodeId, name: &str) -> Deed {
    Deed::Lookup { dir, name: name.into() }
}

/// A directory that another has moved away, and that is answered after that.
fn made_and_moved(sureness: Sureness, fails: bool) -> Mounts {
    let mut mounts = two_mounts();
    let making = mounts.does(0, 0, mkdir("a"));
    does(&mut mounts, 1, look_up(BASE, "a"), found(3));
    let (from, to) = ((BASE, "a".into()), (BASE, "b".into()));
    does(&mut mounts, 1, Deed::Rename { from, to }, Outcome::Done);
    if fails {
        mounts.power_fails();
    }
    mounts.ends(0, making, (found(9), sureness));
    does(&mut mounts, 0, look_up(BASE, "a"), found(9));
    does(&mut mounts, 0, look_up(BASE, "b"), found(10));
    mounts
}

#[test]
fn what_was_asked_for_anew_as_its_session_was_lost_may_be_done_twice_and_nothing_else() {
    let anew = Sureness { may_be_done: true, is_disturbed: false };
    assert!(made_and_moved(anew, false).explain().is_ok());
    assert!(made_and_moved(Sureness::default(), false).explain().is_err());
}

#[test]
fn what_was_under_way_as_power_failed_may_be_kept_and_done_again() {
    let disturbed = Sureness { may_be_done: false, is_disturbed: true };
    assert!(made_and_moved(disturbed, true).explain().is_ok());
    assert!(made_and_moved(Sureness::default(), true).explain().is_err());
}

/// A directory that another has seen, and is gone, after it was answered or before.
fn seen_and_gone(has_power_failed: bool, is_answered: bool) -> Mounts {
    let mut mounts = two_mounts();
    let making = mounts.does(0, 0, mkdir("a"));
    does(&mut mounts, 1, look_up(BASE, "a"), found(3));
    does(&mut mounts, 1, Deed::Mkdir { dir: NodeId(3), name: "in it".into() }, found(4));
    if is_answered {
        ends(&mut mounts, making, found(9));
    }
    if has_power_failed {
        mounts.power_fails();
    }
    does(&mut mounts, 1, look_up(NodeId(4), "c"), Outcome::Failed(Errno::ESTALE));
    does(&mut mounts, 1, look_up(NodeId(3), "c"), Outcome::Failed(Errno::ESTALE));
    if !is_answered {
        mounts.ends(0, making, (found(9), Sureness { may_be_done: false, is_disturbed: true }));
    }
    does(&mut mounts, 0, look_up(BASE, "a"), found(9));
    mounts
}

#[test]
fn what_was_seen_before_it_was_answered_may_go_with_the_power_and_what_was_answered_may_not() {
    assert!(seen_and_gone(true, false).explain().is_ok());
    assert!(seen_and_gone(true, true).explain().is_err());
    assert!(seen_and_gone(false, false).explain().is_err());
}

/// A name that another has seen a file get, and that is gone, after it was answered or before.
fn linked_and_gone(has_power_failed: bool, is_answered: bool) -> Mounts {
    let mut mounts = two_mounts();
    let create = Deed::Create { dir: BASE, name: "a".into(), exclusive: false };
    does(&mut mounts, 0, create, Outcome::Found(NodeId(3), FILE));
    let linking = mounts.does(0, 0, Deed::Link { node: NodeId(3), dir: BASE, name: "b".into() });
    let names = |names: &[&str]| Outcome::Names(names.iter().map(|name| (*name).into()).collect());
    does(&mut mounts, 1, Deed::List { dir: BASE }, names(&["a", "b"]));
    let linked = Outcome::Found(NodeId(3), Look { nlink: 2, ..FILE });
    if is_answered {
        ends(&mut mounts, linking, linked.clone());
    }
    if has_power_failed {
        mounts.power_fails();
    }
    does(&mut mounts, 1, Deed::List { dir: BASE }, names(&["a"]));
    if !is_answered {
        mounts.ends(0, linking, (linked, Sureness { may_be_done: false, is_disturbed: true }));
    }
    does(&mut mounts, 0, Deed::List { dir: BASE }, names(&["a", "b"]));
    mounts
}

#[test]
fn a_name_that_was_seen_before_it_was_answered_may_go_with_the_power_and_one_that_was_answered_may_not() {
    assert!(linked_and_gone(true, false).explain().is_ok());
    assert!(linked_and_gone(true, true).explain().is_err());
    assert!(linked_and_gone(false, false).explain().is_err());
}

const ONE: NodeId = NodeId(3);

const WRITTEN: Look = Look { size: 8, ..FILE };

/// Two mounts know a file of one block, and have written it.
fn one_file() -> Mounts {
    let mut mounts = two_mounts();
    let create = Deed::Create { dir: BASE, name: "a".into(), exclusive: false };
    does(&mut mounts, 0, create, Outcome::Found(ONE, FILE));
    does(&mut mounts, 0, Deed::Write { node: ONE, block: 0, mark: 1 }, Outcome::Done);
    does(&mut mounts, 1, look_up(BASE, "a"), Outcome::Found(ONE, WRITTEN));
    does(&mut mounts, 1, Deed::Write { node: ONE, block: 0, mark: 2 }, Outcome::Done);
    does(&mut mounts, 0, mkdir("d"), found(4));
    mounts
}

/// A change, and a look that tells whether it was made: what that has before it, and after.
type Seen = (Deed, Deed, [Outcome; 2]);

fn changes() -> [Seen; 7] {
    let stat = |look| (Deed::Stat { node: ONE }, [Outcome::Looks(WRITTEN), Outcome::Looks(look)]);
    let data = |mark: u64| Outcome::Data(mark.to_be_bytes().into());
    let lost_name = |name, before| (look_up(BASE, name), [before, Outcome::Absent]);
    let (a, b) = ((BASE, "a".into()), (BASE, "b".into()));
    let file = lost_name("a", Outcome::Found(ONE, WRITTEN));
    let directory = lost_name("d", found(5));
    let all = [
        (Deed::Open { node: ONE, truncate: true }, stat(FILE)),
        (Deed::Resize { node: ONE, blocks: 3 }, stat(Look { size: 24, ..FILE })),
        (Deed::Chmod { node: ONE, mode: 0o600 }, stat(Look { mode: 0o600, ..WRITTEN })),
        (
            Deed::Write { node: ONE, block: 0, mark: 9 },
            (Deed::Read { node: ONE, block: 0 }, [data(2), data(9)]),
        ),
        (Deed::Unlink { dir: BASE, name: "a".into() }, file.clone()),
        (Deed::Rename { from: a, to: b }, file),
        (Deed::Rmdir { dir: BASE, name: "d".into() }, directory),
    ];
    all.map(|(deed, (look, outcomes))| (deed, look, outcomes))
}

/// One changes something, another sees that, and then that it is as before; in the end it is done all the same.
fn seen_and_undone(
    (deed, look, [before, after]): Seen,
    is_answered: bool,
    between: fn(&mut Mounts),
) -> Mounts {
    let mut mounts = one_file();
    let done = match deed {
        Deed::Chmod { .. } | Deed::Resize { .. } => after.clone(),
        _ => Outcome::Done,
    };
    let changing = mounts.does(0, 0, deed);
    does(&mut mounts, 1, look.clone(), after.clone());
    if is_answered {
        ends(&mut mounts, changing, done.clone());
    }
    between(&mut mounts);
    does(&mut mounts, 1, look.clone(), before);
    if !is_answered {
        mounts.ends(0, changing, (done, Sureness { may_be_done: false, is_disturbed: true }));
        does(&mut mounts, 1, look, after);
    }
    mounts
}

#[test]
fn a_change_that_was_seen_before_it_was_answered_may_go_with_the_power_and_one_that_was_answered_may_not() {
    for seen in changes() {
        let deed = &seen.0;
        let undone = |is_answered, between| seen_and_undone(seen.clone(), is_answered, between).explain();
        assert_eq!(undone(false, Mounts::power_fails).map(drop), Ok(()), "{deed:?}");
        assert!(undone(true, Mounts::power_fails).is_err(), "{deed:?}: answered");
        assert!(undone(false, |_| {}).is_err(), "{deed:?}: no power failed");
    }
}

#[test]
fn changes_of_one_file_that_were_not_answered_may_all_go_with_the_power() {
    let mut mounts = one_file();
    let cut = mounts.does(0, 0, Deed::Open { node: ONE, truncate: true });
    does(&mut mounts, 1, Deed::Stat { node: ONE }, Outcome::Looks(FILE));
    let changed = Outcome::Looks(Look { mode: 0o600, ..FILE });
    let changing = mounts.does(0, 0, Deed::Chmod { node: ONE, mode: 0o600 });
    does(&mut mounts, 1, Deed::Stat { node: ONE }, changed.clone());
    mounts.power_fails();
    does(&mut mounts, 1, Deed::Stat { node: ONE }, Outcome::Looks(WRITTEN));
    let sureness = Sureness { may_be_done: false, is_disturbed: true };
    mounts.ends(0, changing, (changed, sureness));
    mounts.ends(0, cut, (Outcome::Done, sureness));
    assert_eq!(mounts.explain().map(drop), Ok(()));
}

#[test]
fn what_others_have_changed_or_put_on_the_disk_since_stays() {
    let [cut, .., renamed, _] = changes();
    let (deed, look, [_, after]) = cut.clone();
    let whole = Outcome::Looks(Look { mode: 0o600, ..WRITTEN });
    let changed = seen_and_undone((deed, look, [whole, after]), false, |mounts| {
        does(mounts, 1, Deed::Chmod { node: ONE, mode: 0o600 }, Outcome::Looks(Look { mode: 0o600, ..FILE }));
        mounts.power_fails();
    });
    assert!(changed.explain().is_err(), "the same file");
    let synced = seen_and_undone(cut, false, |mounts| {
        does(mounts, 1, Deed::Fsync { node: ONE }, Outcome::Done);
        mounts.power_fails();
    });
    assert!(synced.explain().is_err(), "put on the disk");
    let renamed = seen_and_undone(renamed, false, |mounts| {
        does(mounts, 1, mkdir("e"), found(6));
        mounts.power_fails();
    });
    assert!(renamed.explain().is_err(), "the same directory");
}

/// What has taken the name since, and was not answered either, is lost with it; what was answered is not.
fn taken_and_given_anew(is_making_answered: bool) -> Mounts {
    let mut mounts = two_mounts();
    let create = Deed::Create { dir: BASE, name: "a".into(), exclusive: true };
    does(&mut mounts, 0, create.clone(), Outcome::Found(NodeId(3), FILE));
    // So that it is told from the other.
    let chmod = Deed::Chmod { node: NodeId(3), mode: 0o600 };
    does(&mut mounts, 0, chmod, Outcome::Looks(Look { mode: 0o600, ..FILE }));
    let making = mounts.does(0, 1, create);
    let taking = mounts.does(0, 0, Deed::Unlink { dir: BASE, name: "a".into() });
    does(&mut mounts, 1, look_up(BASE, "a"), Outcome::Found(NodeId(8), FILE));
    let disturbed = Sureness { may_be_done: false, is_disturbed: true };
    if is_making_answered {
        ends(&mut mounts, making, Outcome::Found(NodeId(8), FILE));
    }
    mounts.power_fails();
    does(&mut mounts, 0, look_up(BASE, "a"), Outcome::Found(NodeId(3), Look { mode: 0o600, ..FILE }));
    mounts.ends(0, taking, (Outcome::Done, disturbed));
    if !is_making_answered {
        mounts.ends(0, making, (Outcome::Found(NodeId(9), FILE), disturbed));
    }
    mounts
}

#[test]
fn a_name_is_back_with_the_power_where_what_has_taken_it_since_is_lost_too() {
    taken_and_given_anew(false).explain().unwrap();
    assert!(taken_and_given_anew(true).explain().is_err());
}

#[test]
fn of_those_that_may_have_done_nothing_there_may_be_many_at_once() {
    let mut mounts = one_file();
    let looks: Vec<_> = (0..12).map(|n| mounts.does(0, n % 2, look_up(BASE, "b"))).collect();
    mounts.power_fails();
    does(&mut mounts, 1, Deed::Write { node: ONE, block: 0, mark: 3 }, Outcome::Done);
    let disturbed = Sureness { may_be_done: false, is_disturbed: true };
    looks.into_iter().for_each(|id| mounts.ends(0, id, (Outcome::Absent, disturbed)));
    assert_eq!(mounts.explain().map(drop), Ok(()));
    let read = |mark: u64| Outcome::Data(mark.to_be_bytes().into());
    does(&mut mounts, 0, Deed::Read { node: ONE, block: 0 }, read(3));
    assert_eq!(mounts.explain().map(drop), Ok(()));
    does(&mut mounts, 0, Deed::Read { node: ONE, block: 0 }, read(2));
    assert!(mounts.explain().is_err());
}

#[test]
fn of_those_that_only_look_there_may_be_many_at_once() {
    let mut mounts = two_mounts();
    let create = Deed::Create { dir: BASE, name: "f".into(), exclusive: false };
    does(&mut mounts, 0, create, Outcome::Found(NodeId(3), FILE));
    let looks: Vec<_> = (0..20).map(|_| mounts.does(0, 0, Deed::Stat { node: NodeId(3) })).collect();
    let write = mounts.does(0, 0, Deed::Write { node: NodeId(3), block: 0, mark: 1 });
    ends(&mut mounts, write, Outcome::Done);
    for (n, id) in looks.into_iter().enumerate() {
        let size = if n % 2 == 0 { 0 } else { 8 };
        ends(&mut mounts, id, Outcome::Looks(Look { size, ..FILE }));
    }
    assert!(mounts.explain().is_ok());
    does(&mut mounts, 0, Deed::Stat { node: NodeId(3) }, Outcome::Looks(FILE));
    assert!(mounts.explain().is_err());
}
