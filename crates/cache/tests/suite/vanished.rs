//! What another mount removes before the reply comes that tells of it: it was done, and is no more.

use bytes::Bytes;
use holdfast_cache::*;

use crate::delegated::{self, now};

fn attrs(kind: Kind, fileid: u64) -> Attrs {
    Attrs { fileid, ..delegated::attrs(kind, 0, 0o777) }
}

fn machine() -> Machine {
    let root = Object { handle: Handle::new(b"root"), attrs: attrs(Kind::Dir, 1), grant: None };
    Machine::new(&root, Settings::default())
}

/// Has an operation done, whose only question gets this answer.
fn answered<T: std::fmt::Debug>(
    machine: &mut Machine,
    answer: Answer,
    act: impl Fn(&mut Machine, &mut Turn) -> Step<T>,
) -> T {
    let mut turn = Turn::new(Caller::new(7, 8));
    turn.umask = 0o022;
    let Step::Ask(ask) = act(machine, &mut turn) else { panic!("it is for the server to do") };
    machine.absorb(&mut turn, *ask, Ok(answer), now(0));
    match act(machine, &mut turn) {
        Step::Done(done) => done,
        other => panic!("{other:?}"),
    }
}

fn is_gone(machine: &mut Machine, entry: &Entry) {
    assert_eq!(entry.attrs.nlink, 0);
    let look = |m: &mut Machine| m.getattr(&mut Turn::new(Caller::new(7, 8)), entry.node, now(0));
    assert!(matches!(look(machine), Step::Failed(Errno::ESTALE) | Step::Ask(_)));
}

#[test]
fn who_made_it_is_not_told_that_he_did_not() {
    let mut machine = machine();
    let text = Bytes::from_static(b"to/nowhere");
    let link = answered(&mut machine, Answer::Done, |m, t| m.symlink(t, NodeId::ROOT, b"n", &text, now(0)));
    let was = (link.attrs.kind, link.attrs.size, link.attrs.uid, link.attrs.gid);
    assert_eq!(was, (Kind::Symlink, 10, 7, 8));
    is_gone(&mut machine, &link);
    let dir = answered(&mut machine, Answer::Done, |m, t| m.mkdir(t, NodeId::ROOT, b"n", 0o777, now(0)));
    assert_eq!((dir.attrs.kind, dir.attrs.mode), (Kind::Dir, 0o755));
    assert_ne!((dir.node, dir.attrs.fileid), (link.node, link.attrs.fileid));
    is_gone(&mut machine, &dir);
    // And nothing is believed of the name.
    let again = machine.lookup(&mut Turn::new(Caller::new(7, 8)), NodeId::ROOT, b"n", now(0));
    assert!(matches!(again, Step::Ask(_)));
}

#[test]
fn who_gave_it_a_name_is_not_told_that_he_did_not() {
    let mut machine = machine();
    let object = Object { handle: Handle::new(b"file"), attrs: attrs(Kind::File, 2), grant: None };
    let found = Answer::Looked { found: Some(object), dir: None, promise: None };
    let found = answered(&mut machine, found, |m, t| m.lookup(t, NodeId::ROOT, b"old", now(0)));
    let Lookup::Found(file) = found else { panic!("{found:?}") };
    let link =
        answered(&mut machine, Answer::Done, |m, t| m.link(t, file.node, NodeId::ROOT, b"new", now(0)));
    assert_eq!(link.node, file.node);
    is_gone(&mut machine, &link);
}
