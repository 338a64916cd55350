//! Names that batches have given or taken and that the server changes by itself: what may come again is put on its disk first.

use crate::world::World;
use crate::world::fs::ROOT;
use holdfast_cache::*;

const RENAME: RenameMode = RenameMode::Replace;

type Asked = fn(&mut Machine, &mut Turn, NodeId, Now) -> Result<Ask, String>;

/// What an operation asks, or what else came of it.
fn asked<T: std::fmt::Debug>(step: Step<T>) -> Result<Ask, String> {
    match step {
        Step::Ask(ask) => Ok(*ask),
        other => Err(format!("{other:?}")),
    }
}

/// A file `x` that a batch has made, which is executed and on no disk. What comes now is asked for.
fn made() -> (World, NodeId, Batch) {
    let mut world = World::new(1, true, 1);
    world.have_root_alone();
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let (made, open) = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"x", 0o644, flags, now)).unwrap();
    let now = world.now();
    world.clients[0].machine.release(open.fh, now);
    let batch = world.one_batch();
    let results = world.server.batch(0, &batch);
    world.clients[0].machine.batch_done(batch.txn, results, 0, now);
    world.clients[0].machine.settings_mut().batches = false;
    (world, made.node, batch)
}

#[test]
fn a_name_that_a_batch_made_is_on_disk_before_the_server_changes_it_by_itself() {
    let all: [Asked; 5] = [
        |m, t, _, now| asked(m.rename(t, (NodeId::ROOT, b"x"), (NodeId::ROOT, b"y"), RENAME, now)),
        |m, t, _, now| asked(m.rename(t, (NodeId::ROOT, b"warm"), (NodeId::ROOT, b"x"), RENAME, now)),
        |m, t, _, now| asked(m.unlink(t, NodeId::ROOT, b"x", now)),
        |m, t, x, now| asked(m.link(t, x, NodeId::ROOT, b"y", now)),
        |m, t, _, now| asked(m.mkdir(t, NodeId::ROOT, b"y", 0o755, now)),
    ];
    // The first three change it, the others leave it as it is.
    for (which, ask) in all.into_iter().enumerate() {
        let (mut world, x, _) = made();
        let (now, mut turn) = (world.now(), Turn::new(Caller::new(7, 0)));
        let machine = &mut world.clients[0].machine;
        let mut step = ask(machine, &mut turn, x, now);
        if which < 3 {
            assert_eq!(step.unwrap_err(), "Wait(Stable)", "{which}");
            let through = machine.take_stable(now).expect("it is put on disk");
            machine.stable_done(through, &[], now);
            step = ask(machine, &mut turn, x, now);
        }
        let ask = step.unwrap();
        assert!(ask.question.is_mutation(), "{which}: {ask:?}");
    }
}

/// The disk has all of it, and the server says that it has executed nothing of that.
#[test]
fn a_file_that_was_renamed_by_a_question_is_not_made_again_after_a_loss_of_power() {
    let (mut world, _, batch) = made();
    let (from, to) = ((NodeId::ROOT, &b"x"[..]), (NodeId::ROOT, &b"y"[..]));
    world.run(0, |m, t, now| m.rename(t, from, to, RENAME, now)).unwrap();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.resume(Some(batch.txn - 1), 0, now);
    let again = machine.take_batch(now);
    assert!(again.is_none(), "{again:?}");
    assert_eq!(world.server.fs.look(ROOT, b"x").unwrap(), None);
    assert!(world.server.fs.look(ROOT, b"y").unwrap().is_some());
}
