//! What the machine itself costs: run with `--release -- --ignored --nocapture`.

use std::time::Instant as Clock;

use crate::world::World;
use holdfast_cache::*;

const FILES: u32 = 100_000;

/// A mount that holds everything of its root, with nobody else there.
fn mount() -> World {
    let mut world = World::new(1, true, 1);
    *world.clients[0].machine.settings_mut() = Settings::full();
    world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"warm", 0o755, now)).unwrap();
    for name in [b"x", b"y", b"z", b"v"] {
        world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, name, now)).unwrap();
    }
    world
}

fn done<T>(step: Step<T>) -> T {
    match step {
        Step::Done(v) => v,
        other => panic!("asks or waits: {:?}", other.map_name()),
    }
}

trait Named {
    fn map_name(&self) -> String;
}

impl<T> Named for Step<T> {
    fn map_name(&self) -> String {
        match self {
            Self::Done(_) => "done".into(),
            Self::Failed(e) => format!("{e:?}"),
            Self::Ask(a) => format!("{a:?}"),
            Self::Wait(w) => format!("{w:?}"),
        }
    }
}

fn per_file(what: &str, work: impl FnOnce()) -> u128 {
    let begun = Clock::now();
    work();
    let ns = begun.elapsed().as_nanos() / u128::from(FILES);
    println!("{what}: {ns} ns");
    ns
}

#[test]
#[ignore = "a measurement"]
fn what_a_create_a_lookup_and_an_unlink_cost() {
    let mut world = mount();
    let now = world.now();
    let dir = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"dir", 0o755, now)).unwrap().node;
    let machine = &mut world.clients[0].machine;
    let names: Vec<String> = (0..FILES).map(|i| format!("file-{i}")).collect();
    let turn = || Turn::new(Caller::new(7, 0));
    let caller = turn();
    let fresh = || Turn::new(caller.caller.clone());
    let access = Access { read: false, write: true };
    let flags = OpenFlags { access, ..OpenFlags::default() };
    let data = bytes::Bytes::from_static(b"0123456789");
    let mut nodes = Vec::new();
    per_file("lookup (absent), create, write 10 bytes, flush, release", || {
        for name in &names {
            done(machine.lookup(&mut fresh(), dir, name.as_bytes(), now));
            let (entry, opened) = done(machine.create(&mut fresh(), dir, name.as_bytes(), 0o644, flags, now));
            done(machine.write(&mut fresh(), opened.fh, 0, &data, now));
            done(machine.flush(&mut fresh(), opened.fh, now));
            machine.release(opened.fh, now);
            nodes.push(entry.node);
        }
    });
    per_file("lookup", || {
        for name in &names {
            done(machine.lookup(&mut fresh(), dir, name.as_bytes(), now));
        }
    });
    per_file("getattr", || {
        for node in &nodes {
            done(machine.getattr(&mut fresh(), *node, now));
        }
    });
    let mut batches = Vec::new();
    per_file("batches out", || {
        machine.settings_mut().batches_in_flight_max = usize::MAX;
        while let Some(batch) = machine.take_batch(Now { mono: holdfast_base::Instant(10_000), ..now }) {
            let ops = batch.ops.len();
            let made = |i: usize| Born {
                handle: Handle::new(format!("{}-{i}", batch.txn).as_bytes()),
                grant: Some(Grant {
                    caps: CapSet::ALL_X,
                    seq: batch.txn * 1000 + i as u64 + 10_000_000,
                    plain: true,
                    group_of_directory: false,
                    listed: false,
                    hands_on_none: false,
                    changed_since: false,
                }),
            };
            let results =
                (0..ops).map(|i| MutationResult::Done { made: Some(made(i)), other_name: None, attrs: None });
            batches.push((batch.txn, results.collect::<Vec<_>>()));
            let (txn, results) = batches.pop().unwrap();
            machine.batch_done(txn, results, txn, now);
        }
    });
    per_file("unlink", || {
        for name in &names {
            done(machine.unlink(&mut fresh(), dir, name.as_bytes(), now));
        }
    });
}

/// A file that is known by a question, by the number of which its name is made, with the number of its names.
fn found(machine: &mut Machine, like: Attrs, n: u32, now: Now) -> NodeId {
    let (name, mut turn) = (format!("found-{n}"), Turn::new(Caller::new(7, 0)));
    let step = machine.lookup(&mut turn, NodeId::ROOT, name.as_bytes(), now);
    let Step::Ask(ask) = step else { panic!("{}", step.map_name()) };
    let attrs = Attrs { fileid: u64::from(n) + 1000, ..like };
    let (plain, group_of_directory, listed, hands_on_none) = (true, false, false, false);
    let grant = Grant {
        caps: CapSet::ALL_S,
        seq: 1,
        plain,
        group_of_directory,
        listed,
        hands_on_none,
        changed_since: false,
    };
    let object = Object { handle: Handle::new(name.as_bytes()), attrs, grant: Some(grant) };
    let token = Handle::new(format!("token-{n}").as_bytes());
    // There is room for fewer names.
    let promise = (n >= FILES).then_some(Promise { token, seq: 1 });
    let answer = Answer::Looked { found: Some(object), dir: None, promise };
    machine.absorb(&mut turn, *ask, Ok(answer), now);
    match done(machine.lookup(&mut turn, NodeId::ROOT, name.as_bytes(), now)) {
        Lookup::Found(entry) => entry.node,
        other => panic!("{other:?}"),
    }
}

/// A file whose name is known is hidden while it is open, under a name of which nothing is known: all files are gone through.
#[test]
#[ignore = "a measurement"]
fn what_hiding_a_name_costs_beside_many_files() {
    let mut world = World::new(1, true, 1);
    let now = world.now();
    let file = world.server.fs.make(1, b"like", Kind::File, 0o644, 7).unwrap();
    let like = world.server.attrs(file).unwrap();
    let machine = &mut world.clients[0].machine;
    *machine.settings_mut() = Settings { batches: false, preserves_unlinked: false, ..Settings::full() };
    for n in 0..FILES {
        found(machine, like, n, now);
    }
    let flags = OpenFlags { access: Access { read: true, write: false }, ..OpenFlags::default() };
    for n in FILES..FILES + 8 {
        let node = found(machine, like, n, now);
        done(machine.open(&mut Turn::new(Caller::new(7, 0)), node, flags, now));
        let name = format!("found-{n}");
        let begun = Clock::now();
        let step = machine.unlink(&mut Turn::new(Caller::new(7, 0)), NodeId::ROOT, name.as_bytes(), now);
        let us = begun.elapsed().as_micros();
        let Step::Ask(ask) = step else { panic!("{}", step.map_name()) };
        assert!(matches!(ask.question, Question::Rename { .. }), "{ask:?}");
        println!("hide: {us} us");
        machine.absorb(&mut Turn::new(Caller::new(7, 0)), *ask, Err(Errno::EIO), now);
    }
}
