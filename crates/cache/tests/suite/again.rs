//! Batches that come out again: as they were, whatever has become of what they name; and only where something was lost.

use crate::overtaken::mount;
use crate::world::World;
use holdfast_cache::*;

const BOTH: Access = Access { read: true, write: true };

fn create(world: &mut World, dir: NodeId, name: &[u8]) -> NodeId {
    let flags = OpenFlags { access: BOTH, ..OpenFlags::default() };
    let (made, open) = world.run(0, |m, t, now| m.create(t, dir, name, 0o644, flags, now)).unwrap();
    let data = bytes::Bytes::copy_from_slice(name);
    world.run(0, |m, t, now| m.write(t, open.fh, 0, &data, now)).unwrap();
    world.run(0, |m, t, now| m.flush(t, open.fh, now)).unwrap();
    let now = world.now();
    world.clients[0].machine.release(open.fh, now);
    made.node
}

/// The server executes it, and its results are heard.
fn execute(world: &mut World, batch: &Batch, stable_through: u64) {
    let results = world.server.batch(0, batch);
    let done = |result: &MutationResult| matches!(result, MutationResult::Done { .. });
    assert!(results.iter().all(done), "{results:?}");
    let now = world.now();
    world.clients[0].machine.batch_done(batch.txn, results, stable_through, now);
    world.check(0);
}

/// The kernel knows nothing of it any more.
fn forget(world: &mut World, node: NodeId) {
    world.invalidate(0);
    world.clients[0].machine.forget(node, u64::MAX);
    assert_eq!(world.clients[0].machine.handle_of(node), None, "it is known still");
}

/// The server says that it has executed so much, and what comes out for that.
fn resumed(world: &mut World, executed_through: Option<u64>) -> Option<Batch> {
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.resume(executed_through, 0, now);
    let again = machine.take_batch(now);
    world.check(0);
    again
}

#[test]
fn a_file_is_replaced_again_as_it_was_though_what_it_replaced_is_forgotten() {
    let mut world = mount();
    let old = create(&mut world, NodeId::ROOT, b"f");
    world.drain();
    create(&mut world, NodeId::ROOT, b"new");
    let rename = RenameMode::Replace;
    let (from, to) = ((NodeId::ROOT, &b"new"[..]), (NodeId::ROOT, &b"f"[..]));
    world.run(0, |m, t, now| m.rename(t, from, to, rename, now)).unwrap();
    let sent = world.one_batch();
    let replaces = |op: &Mutation| matches!(op, Mutation::Rename { over: Some(_), .. });
    assert!(sent.ops.iter().any(replaces), "{sent:?}");
    execute(&mut world, &sent, 0);
    forget(&mut world, old);
    let again = resumed(&mut world, Some(sent.txn - 1)).expect("it was lost");
    assert_eq!(again.ops, sent.ops);
    // A server that has executed it all the same takes it for what it was.
    execute(&mut world, &again, 0);
    world.drain();
}

#[test]
fn what_was_removed_is_removed_again_from_a_server_that_lost_power() {
    let mut world = mount();
    let file = create(&mut world, NodeId::ROOT, b"f");
    world.drain();
    let disk = world.server.clone();
    world.run(0, |m, t, now| m.unlink(t, NodeId::ROOT, b"f", now)).unwrap();
    let sent = world.one_batch();
    execute(&mut world, &sent, 0);
    forget(&mut world, file);
    world.server = disk;
    let again = resumed(&mut world, Some(sent.txn - 1)).expect("it was lost");
    assert_eq!(again.ops, sent.ops);
    execute(&mut world, &again, 0);
    world.drain();
    assert_eq!(world.server.fs.look(crate::world::fs::ROOT, b"f"), Ok(None));
}

#[test]
fn what_a_batch_names_is_kept_until_that_batch_is_on_disk() {
    let mut world = mount();
    let dir = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap().node;
    let making = world.one_batch();
    create(&mut world, dir, b"f");
    let naming = world.one_batch();
    let in_it = |op: &Mutation| matches!(op, Mutation::Make { dir: Target::Made { txn, .. }, .. } if *txn == making.txn);
    assert!(naming.ops.iter().all(in_it), "{naming:?}");
    execute(&mut world, &making, 0);
    execute(&mut world, &naming, making.txn);
    let again = resumed(&mut world, Some(making.txn)).expect("it was lost");
    assert_eq!(again.ops, naming.ops);
    assert!(again.done_through < making.txn, "the server is to know what it names");
    execute(&mut world, &again, again.txn);
    world.drain();
    assert_eq!(world.clients[0].machine.done_through(), naming.txn, "all is on disk");
}

#[test]
fn of_a_server_that_has_lost_nothing_nothing_comes_again() {
    let mut world = mount();
    create(&mut world, NodeId::ROOT, b"f");
    let sent = world.one_batch();
    execute(&mut world, &sent, 0);
    // It said through which it had executed, and then executed this one.
    assert_eq!(resumed(&mut world, None), None);
    create(&mut world, NodeId::ROOT, b"g");
    let lost = world.one_batch();
    assert_eq!(resumed(&mut world, None).expect("no result was heard").ops, lost.ops);
    execute(&mut world, &lost, 0);
    world.drain();
}

#[test]
fn who_has_sent_a_batch_before_it_came_out_again_is_not_listened_to() {
    let mut world = mount();
    create(&mut world, NodeId::ROOT, b"f");
    let first = world.one_batch();
    assert!(world.clients[0].machine.awaits(&first));
    let now = world.now();
    world.clients[0].machine.resume(Some(first.txn - 1), 0, now);
    // A server that is gone may have executed it. The one that there is has not yet.
    assert!(!world.clients[0].machine.awaits(&first));
    let again = world.clients[0].machine.take_batch(now).expect("it comes out again");
    assert!(!world.clients[0].machine.awaits(&first));
    assert!(world.clients[0].machine.awaits(&again));
    execute(&mut world, &again, 0);
    assert!(!world.clients[0].machine.awaits(&again), "that is heard");
    world.drain();
}

#[test]
fn to_a_server_that_knows_nothing_nothing_comes_that_is_on_disk_and_handles_name_what_was_made() {
    for is_forgotten_here in [false, true] {
        let mut world = mount();
        let file = create(&mut world, NodeId::ROOT, b"f");
        let making = world.one_batch();
        match is_forgotten_here {
            false => world.run(0, |m, t, now| m.link(t, file, NodeId::ROOT, b"g", now)).map(drop).unwrap(),
            true => world.run(0, |m, t, now| m.unlink(t, NodeId::ROOT, b"f", now)).map(drop).unwrap(),
        }
        let naming = world.one_batch();
        let made = Target::Made { txn: making.txn, op: 0 };
        let names = |op: &Mutation, by: &Target| match op {
            Mutation::Link { object, .. } => object == by,
            Mutation::Unlink { victim, .. } => victim == by,
            _ => false,
        };
        assert!(naming.ops.iter().all(|op| names(op, &made)), "{naming:?}");
        execute(&mut world, &making, 0);
        let handle = world.clients[0].machine.handle_of(file).unwrap();
        let disk = world.server.clone();
        execute(&mut world, &naming, making.txn);
        if is_forgotten_here {
            forget(&mut world, file);
        }
        world.server = disk;
        let machine = &mut world.clients[0].machine;
        let told = machine.done_through();
        assert!(told < making.txn, "the server was to know what is named");
        machine.forgotten();
        let again = resumed(&mut world, Some(told)).expect("it was lost");
        assert_eq!((again.txn, again.done_through), (naming.txn, making.txn));
        assert!(again.ops.iter().all(|op| names(op, &Target::Handle(handle.clone()))), "{again:?}");
        execute(&mut world, &again, again.txn);
        world.drain();
    }
}

impl World {
    /// The server is killed: it has done all of it, and knows of it what is on record behind what its client was done with.
    fn kill(&mut self) {
        let now = self.now();
        let machine = &mut self.clients[0].machine;
        let told = machine.done_through();
        let lane = self.server.lanes.get_mut(&0).unwrap();
        (lane.executed, lane.done) = (told, told);
        lane.made.clear();
        lane.sent.clear();
        self.server.restart();
        machine.caps_lost(now);
        machine.resume(Some(told), told, now);
    }
}

/// What comes out when the server was killed, up to the last that was sent.
fn killed(world: &mut World) -> Vec<Batch> {
    world.kill();
    let (mut again, now) = (Vec::new(), world.now());
    while let Some(batch) = world.clients[0].machine.take_batch(now) {
        again.push(batch);
    }
    world.check(0);
    again
}

/// A file that is made in a directory, and gets another name: each names what the one before it has made, and the first two are on
/// the disk. With it a file's contents that are on the disk, and others have written since.
fn named_one_by_the_other() -> (World, [Batch; 3], Handle, u64) {
    let mut world = mount();
    let (other, open) = {
        let flags = OpenFlags { access: BOTH, ..OpenFlags::default() };
        let (made, open) =
            world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"o", 0o644, flags, now)).unwrap();
        world.drain();
        (made.node, open)
    };
    let dir = world.run(0, |m, t, now| m.mkdir(t, NodeId::ROOT, b"d", 0o755, now)).unwrap().node;
    let first = world.one_batch();
    let file = create(&mut world, dir, b"f");
    let data = bytes::Bytes::from_static(b"ours");
    world.run(0, |m, t, now| m.write(t, open.fh, 0, &data, now)).unwrap();
    world.run(0, |m, t, now| m.flush(t, open.fh, now)).unwrap();
    let second = world.one_batch();
    let writes = |op: &Mutation| matches!(op, Mutation::Write { .. });
    assert!(second.ops.iter().any(writes), "{second:?}");
    world.run(0, |m, t, now| m.link(t, file, NodeId::ROOT, b"g", now)).unwrap();
    let third = world.one_batch();
    execute(&mut world, &first, 0);
    execute(&mut world, &second, second.txn);
    let machine = &world.clients[0].machine;
    assert_eq!(machine.done_through(), first.txn, "the second is kept for its names");
    let (handle, other) = (machine.handle_of(file).unwrap(), machine.handle_of(other).unwrap());
    let other = u64::from_be_bytes(other.as_bytes().try_into().unwrap());
    (world, [first, second, third], handle, other)
}

#[test]
fn what_is_on_disk_does_not_come_again_to_a_server_that_was_killed_whatever_names_it() {
    for is_heard in [false, true] {
        let (mut world, [_, second, third], handle, other) = named_one_by_the_other();
        if is_heard {
            let disk = world.server.clone();
            execute(&mut world, &third, 0);
            world.server = disk;
        }
        world.server.fs.write(other, 0, b"theirs").unwrap();
        let again = killed(&mut world);
        let [again] = &again[..] else { panic!("{again:?}") };
        assert_eq!((again.txn, again.done_through), (third.txn, second.txn), "heard: {is_heard}");
        let by_handle =
            |op: &Mutation| matches!(op, Mutation::Link { object: Target::Handle(of), .. } if *of == handle);
        assert!(again.ops.iter().all(by_handle), "{again:?}");
        execute(&mut world, again, again.txn);
        world.drain();
        assert_eq!(world.server.fs.inodes[&other].data, b"theirs", "who came after it was on the disk");
        assert_eq!(world.clients[0].machine.take_reports(), []);
        assert_eq!(world.clients[0].machine.done_through(), third.txn);
    }
}

/// Nor does it come again where what it was to make failed, and something names that.
#[test]
fn what_was_never_made_is_named_by_nothing_to_a_server_that_was_killed() {
    let mut world = mount();
    let file = create(&mut world, NodeId::ROOT, b"f");
    let making = world.one_batch();
    world.run(0, |m, t, now| m.link(t, file, NodeId::ROOT, b"g", now)).unwrap();
    let naming = world.one_batch();
    let now = world.now();
    let failed = vec![MutationResult::Failed(Errno::EDQUOT); making.ops.len()];
    world.clients[0].machine.batch_done(making.txn, failed, making.txn, now);
    world.server.lanes.entry(0).or_default();
    let again = killed(&mut world);
    let [again] = &again[..] else { panic!("{again:?}") };
    assert_eq!((again.txn, again.done_through), (naming.txn, making.txn));
    let nothing = Target::Made { txn: 0, op: 0 };
    let names = |op: &Mutation| matches!(op, Mutation::Link { object, .. } if *object == nothing);
    assert!(again.ops.iter().all(names), "{again:?}");
}

/// Its daemon may be killed next: the next one names it so, too, for it has no word of what was kept no longer.
#[test]
fn what_is_named_otherwise_is_so_in_the_records() {
    let records = [false, true].map(|is_heard| {
        let (mut world, [_, _, third], handle, _) = named_one_by_the_other();
        world.kept = Some(Default::default());
        world.clients[0].machine.follow();
        if is_heard {
            let disk = world.server.clone();
            execute(&mut world, &third, 0);
            world.server = disk;
        }
        world.keep(0);
        world.kill();
        world.keep(0);
        let (records, now) = (world.kept.clone().unwrap(), world.now());
        let mut next = Machine::restore(&records, Settings::full(), now).unwrap();
        next.resume(Some(next.done_through()), 0, now);
        let again = next.take_batch(now).expect("it is not on the disk");
        assert_eq!(again.txn, third.txn);
        let by_handle =
            |op: &Mutation| matches!(op, Mutation::Link { object: Target::Handle(of), .. } if *of == handle);
        assert!(again.ops.iter().all(by_handle), "{again:?}");
        records.into_keys().collect::<std::collections::BTreeSet<_>>()
    });
    let [unheard, heard] = records;
    assert_eq!(heard, unheard, "nothing tells that it was executed, for that is lost");
}
