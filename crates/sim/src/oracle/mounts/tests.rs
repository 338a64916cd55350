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
fn made_and_moved(sureness: Sureness) -> Mounts {
    let mut mounts = two_mounts();
    let making = mounts.does(0, 0, mkdir("a"));
    does(&mut mounts, 1, look_up(BASE, "a"), found(3));
    let (from, to) = ((BASE, "a".into()), (BASE, "b".into()));
    does(&mut mounts, 1, Deed::Rename { from, to }, Outcome::Done);
    mounts.ends(0, making, (found(9), sureness));
    does(&mut mounts, 0, look_up(BASE, "a"), found(9));
    does(&mut mounts, 0, look_up(BASE, "b"), found(10));
    mounts
}

#[test]
fn what_was_asked_for_anew_as_its_session_was_lost_may_be_done_twice_and_nothing_else() {
    assert!(made_and_moved(Sureness { may_be_done: true, is_disturbed: false }).explain().is_ok());
    assert!(made_and_moved(Sureness::default()).explain().is_err());
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
