//! Files that go to make room: the kernel is given what was sent from here and it has not read, as long as that is what a read
//! would be answered.

use crate::overtaken::mount;
use crate::world::choice::config;
use crate::world::{Model, Op, World};
use bytes::Bytes;
use holdfast_base::limits::STORES_BYTES_MAX;
use holdfast_cache::*;
use proptest::prelude::*;

mod at_open;

pub(crate) const READ: OpenFlags = OpenFlags {
    access: Access { read: true, write: false },
    append: false,
    truncate: false,
    exclusive: false,
    execute: false,
};
const BOTH: OpenFlags = OpenFlags { access: Access { read: true, write: true }, ..READ };

fn open(world: &mut World, node: NodeId, flags: OpenFlags) -> Fh {
    world.run(0, |m, t, now| m.open(t, node, flags, now)).unwrap().fh
}

fn close(world: &mut World, fh: Fh) {
    world.run(0, |m, t, now| m.flush(t, fh, now)).unwrap();
    let now = world.now();
    world.clients[0].machine.release(fh, now);
}

fn write(world: &mut World, fh: Fh, offset: u64, data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    world.run(0, |m, t, now| m.write(t, fh, offset, &data, now)).unwrap();
}

/// All that is queued goes out, and is known to have been done.
fn send(world: &mut World) {
    let batch = world.one_batch();
    let results = world.server.batch(0, &batch);
    let done = |result: &MutationResult| matches!(result, MutationResult::Done { .. });
    assert!(results.iter().all(done), "{results:?}");
    let now = world.now();
    world.clients[0].machine.batch_done(batch.txn, results, batch.txn, now);
    world.check(0);
}

fn made(world: &mut World, name: &[u8], flags: OpenFlags, data: &[u8]) -> NodeId {
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, name, 0o644, flags, now)).unwrap();
    write(world, made.1.fh, 0, data);
    close(world, made.1.fh);
    made.0.node
}

/// A file that has been sent, and is kept.
fn sent() -> (World, NodeId) {
    let mut world = mount();
    let node = made(&mut world, b"f", BOTH, b"before");
    send(&mut world);
    world.invalidate(0);
    (world, node)
}

/// What the kernel is told when there is no room any more, as another file is kept.
fn told(world: &mut World) -> Vec<Invalidation> {
    world.clients[0].machine.settings_mut().clean_bytes_max = 0;
    made(world, b"last", BOTH, b"x");
    send(world);
    world.clients[0].machine.take_invalidations()
}

fn stores(told: &[Invalidation]) -> usize {
    told.iter().filter(|told| matches!(told.what, Forget::Store(..))).count()
}

fn stored(told: &[Invalidation], node: NodeId) -> Option<Whole> {
    told.iter().find_map(|told| match &told.what {
        Forget::Store(id, whole) if *id == node => Some(whole.clone()),
        _ => None,
    })
}

/// A file that the kernel is about to be given.
fn decided() -> (World, NodeId, Whole) {
    let (mut world, node) = sent();
    let told = told(&mut world);
    let whole = stored(&told, node).expect("it is to be stored");
    assert!(may_store(&mut world, node, &whole));
    (world, node, whole)
}

fn may_store(world: &mut World, node: NodeId, whole: &Whole) -> bool {
    let machine = &mut world.clients[0].machine;
    let may = machine.begin_store(node, whole);
    if may {
        machine.stored(node, false);
    }
    may
}

#[test]
fn what_was_sent_and_goes_to_make_room_the_kernel_keeps() {
    let (mut world, node) = sent();
    let told = told(&mut world);
    let whole = stored(&told, node).expect("it is to be stored");
    assert_eq!(whole.data, b"before"[..]);
    assert_eq!(stores(&told), 2, "with the one that came last");
    let machine = &mut world.clients[0].machine;
    for is_taken in [false, true] {
        assert!(machine.begin_store(node, &whole));
        assert_eq!(machine.stats().stores, 0, "none is done");
        machine.stored(node, is_taken);
        assert_eq!(machine.stats().stores, u64::from(is_taken));
    }
}

#[test]
fn what_was_appended_past_the_kernels_pages_is_given_to_it_once_all_of_it_is_sent() {
    let mut world = mount();
    world.clients[0].machine.settings_mut().direct = true;
    let appends = OpenFlags { append: true, ..BOTH };
    let node = made(&mut world, b"f", appends, b"one ");
    send(&mut world);
    let fh = open(&mut world, node, appends);
    write(&mut world, fh, 0, b"two ");
    write(&mut world, fh, 0, b"three");
    close(&mut world, fh);
    send(&mut world);
    world.invalidate(0);
    let whole = stored(&told(&mut world), node).expect("it is to be stored");
    assert_eq!(whole.data, b"one two three"[..]);
}

#[test]
fn what_the_kernel_has_read_it_has() {
    let (mut world, node) = sent();
    let fh = open(&mut world, node, READ);
    let read = world.run(0, |m, t, now| m.read(t, fh, 0, 64, now)).unwrap();
    assert_eq!(read.concat(), b"before");
    close(&mut world, fh);
    assert_eq!(stored(&told(&mut world), node), None);
}

#[test]
fn what_is_open_is_not_stored() {
    for flags in [READ, BOTH] {
        let (mut world, node) = sent();
        let _fh = open(&mut world, node, flags);
        assert_eq!(stored(&told(&mut world), node), None, "{flags:?}");
        let (mut world, node, whole) = decided();
        let fh = open(&mut world, node, flags);
        assert!(!may_store(&mut world, node, &whole), "{flags:?}: when it is about to be done");
        close(&mut world, fh);
        assert!(may_store(&mut world, node, &whole), "{flags:?}: it is what it was");
    }
}

#[test]
fn what_was_changed_since_is_not_stored_though_all_of_it_is_sent_again() {
    let (mut world, node, whole) = decided();
    let fh = open(&mut world, node, BOTH);
    write(&mut world, fh, 0, b"behind");
    close(&mut world, fh);
    assert!(!may_store(&mut world, node, &whole));
    send(&mut world);
    assert!(!may_store(&mut world, node, &whole), "of the same length");
    let told = world.clients[0].machine.take_invalidations();
    let anew = stored(&told, node).expect("what it is now");
    assert_eq!(anew.data, b"behind"[..]);
    assert!(may_store(&mut world, node, &anew));
}

#[test]
fn what_was_cut_off_is_not_stored() {
    for size in [0, 3, 6, 9] {
        let (mut world, node, whole) = decided();
        let changes = Changes { size: Some(size), ..Changes::default() };
        world.run(0, |m, t, now| m.setattr(t, node, &changes, now)).unwrap();
        assert!(!may_store(&mut world, node, &whole), "{size}");
        let changes = Changes { size: Some(6), ..Changes::default() };
        world.run(0, |m, t, now| m.setattr(t, node, &changes, now)).unwrap();
        assert!(!may_store(&mut world, node, &whole), "{size}, and as long as it was");
        send(&mut world);
        assert!(!may_store(&mut world, node, &whole), "{size}, and sent");
    }
    let (mut world, node, whole) = decided();
    let fh = open(&mut world, node, OpenFlags { truncate: true, ..READ });
    close(&mut world, fh);
    assert!(!may_store(&mut world, node, &whole), "by an open to read");
}

#[test]
fn what_is_asked_back_is_not_stored_and_dropped_behind() {
    let (mut world, node) = sent();
    let told = told(&mut world);
    let place = told.iter().position(|told| matches!(&told.what, Forget::Store(id, _) if *id == node));
    let number = told[place.unwrap()].number;
    let whole = stored(&told, node).unwrap();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.recalled(&machine.handle_of(node).unwrap(), CapSet::NONE, u64::MAX, now);
    assert!(!machine.begin_store(node, &whole));
    let told = machine.take_invalidations();
    let dropped = told.iter().find(|told| told.what == Forget::Data(node)).expect("it may have been stored");
    assert!(dropped.number > number);
    assert!(machine.take_releases(now).is_empty(), "the kernel has not dropped it yet");
    machine.invalidated(dropped.number);
    assert_eq!(machine.take_releases(now).len(), 1);
}

#[test]
fn what_nobody_knows_any_more_is_not_stored() {
    let (mut world, node, whole) = decided();
    world.clients[0].machine.forget(node, u64::MAX);
    assert!(!may_store(&mut world, node, &whole));
}

#[test]
fn no_more_waits_to_be_stored_than_there_is_room_for() {
    let mut world = mount();
    let large = vec![7; 60_000];
    let mut all = Vec::new();
    world.clients[0].machine.settings_mut().clean_bytes_max = 0;
    for n in 0..40 {
        made(&mut world, format!("f{n}").as_bytes(), BOTH, &large);
        send(&mut world);
        all.extend(world.clients[0].machine.take_invalidations());
    }
    let (waiting, most) = (stores(&all), STORES_BYTES_MAX / large.len());
    assert!(waiting <= most && waiting + 2 >= most, "{waiting} of {most}");
    world.clients[0].machine.invalidated(all.last().unwrap().number);
    let node = made(&mut world, b"more", BOTH, &large);
    send(&mut world);
    assert!(stored(&world.clients[0].machine.take_invalidations(), node).is_some(), "the others are done");
}

#[test]
fn of_what_nothing_is_promised_nothing_is_stored() {
    let mut world = World::new(1, false, 1);
    world.clients[0].machine.settings_mut().clean_bytes_max = 0;
    made(&mut world, b"f", BOTH, b"before");
    world.drain();
    assert_eq!(world.clients[0].machine.stats().stores, 0);
}

/// What is the case when an operation is called while a file is being stored, and after it.
fn during_and_after<T>(
    world: &mut World,
    (node, whole): (NodeId, &Whole),
    op: impl Fn(&mut Machine, &mut Turn, Now) -> Step<T>,
) -> (Step<T>, Step<T>) {
    let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
    let machine = &mut world.clients[0].machine;
    assert!(machine.begin_store(node, whole));
    let (during, seen) = (op(machine, &mut turn, now), machine.progress());
    machine.stored(node, true);
    assert_eq!(machine.progress() != seen, matches!(during, Step::Wait(_)), "who waits is told");
    (during, op(machine, &mut turn, now))
}

#[test]
fn nobody_opens_what_is_being_stored_nor_sets_its_size() {
    for flags in [READ, BOTH, OpenFlags { truncate: true, ..READ }] {
        let (mut world, node, whole) = decided();
        let (during, after) =
            during_and_after(&mut world, (node, &whole), |m, t, now| m.open(t, node, flags, now));
        assert!(matches!(during, Step::Wait(Wait::Stored)), "{flags:?}: {during:?}");
        assert!(matches!(after, Step::Done(_) | Step::Ask(_)), "{flags:?}: {after:?}");
    }
    let (mut world, node, whole) = decided();
    let size = Changes { size: Some(3), ..Changes::default() };
    let set =
        |changes: Changes| move |m: &mut Machine, t: &mut Turn, now: Now| m.setattr(t, node, &changes, now);
    let (during, after) = during_and_after(&mut world, (node, &whole), set(size));
    assert!(matches!(during, Step::Wait(Wait::Stored)), "{during:?}");
    assert!(matches!(after, Step::Done(_) | Step::Ask(_)), "{after:?}");
    let (mut world, node, whole) = decided();
    let mode = Changes { mode: Some(0o600), ..Changes::default() };
    let set = |m: &mut Machine, t: &mut Turn, now: Now| m.setattr(t, node, &mode, now);
    let (during, _) = during_and_after(&mut world, (node, &whole), set);
    assert!(matches!(during, Step::Done(_)), "no data is concerned: {during:?}");
    let (mut world, node, whole) = decided();
    let other = made(&mut world, b"other", BOTH, b"other");
    let (during, _) = during_and_after(&mut world, (node, &whole), |m, t, now| m.open(t, other, BOTH, now));
    assert!(matches!(during, Step::Done(_)), "another file is: {during:?}");
}

/// The server is asked to open a file, and has answered when that is being stored.
fn opened_there<T>(
    op: impl Fn(NodeId, &mut Machine, &mut Turn, Now) -> Step<T>,
) -> (World, (NodeId, Whole), Turn, Step<T>) {
    let (mut world, node, whole) = decided();
    world.clients[0].machine.settings_mut().write_back = false;
    let (mut turn, now) = (Turn::new(Caller::new(7, 0)), world.now());
    let Step::Ask(ask) = op(node, &mut world.clients[0].machine, &mut turn, now) else {
        panic!("the server is to open it")
    };
    assert!(world.clients[0].machine.begin_store(node, &whole));
    let answer = world.perform(0, &ask);
    let machine = &mut world.clients[0].machine;
    machine.absorb(&mut turn, *ask, answer, now);
    let step = op(node, machine, &mut turn, now);
    (world, (node, whole), turn, step)
}

#[test]
fn what_the_server_opens_while_it_is_being_stored_is_handed_out_after_that() {
    let open = |node, m: &mut Machine, t: &mut Turn, now| m.open(t, node, BOTH, now);
    let (mut world, (node, _), mut turn, step) = opened_there(open);
    assert!(matches!(step, Step::Wait(Wait::Stored)), "{step:?}");
    let (now, machine) = (world.now(), &mut world.clients[0].machine);
    machine.stored(node, true);
    let opened = machine.open(&mut turn, NodeId::ROOT, BOTH, now);
    assert!(matches!(opened, Step::Done(_)) && !turn.has_opened(), "{opened:?}");
}

fn step<T>(step: Step<T>) -> Step<()> {
    match step {
        Step::Done(_) => Step::Done(()),
        Step::Failed(errno) => Step::Failed(errno),
        Step::Ask(ask) => Step::Ask(ask),
        Step::Wait(wait) => Step::Wait(wait),
    }
}

type Opens<'o> = &'o dyn Fn(NodeId, &mut Machine, &mut Turn, Now) -> Step<()>;

#[test]
fn what_the_server_opens_for_who_gives_up_while_it_is_being_stored_is_closed() {
    let open = |node, m: &mut Machine, t: &mut Turn, now| step(m.open(t, node, BOTH, now));
    let create =
        |_, m: &mut Machine, t: &mut Turn, now| step(m.create(t, NodeId::ROOT, b"f", 0o644, BOTH, now));
    for op in [&open as Opens<'_>, &create] {
        let (mut world, (node, whole), mut turn, step) = opened_there(op);
        assert!(matches!(step, Step::Wait(Wait::Stored)) && turn.has_opened(), "{step:?}");
        let now = world.now();
        world.clients[0].machine.stored(node, true);
        assert!(!may_store(&mut world, node, &whole), "it is open");
        world.clients[0].machine.abandoned(&mut turn, now);
        assert!(may_store(&mut world, node, &whole));
    }
}

/// What is done with two files whose data is whole, and so is kept when it was sent.
fn op() -> impl Strategy<Value = Op> {
    let (p, s) = (|| 0..2_u8, || 0..2_u8);
    prop_oneof![
        3 => (p(), s(), any::<bool>()).prop_map(|(path, slot, truncate)| {
            Op::Create { path, exclusive: false, truncate, append: false, slot }
        }),
        3 => (p(), any::<bool>(), any::<bool>(), s())
            .prop_map(|(path, truncate, write, slot)| Op::Open { path, truncate, write, slot }),
        6 => (s(), 1..90_u8, any::<u8>())
            .prop_map(|(slot, len, byte)| Op::Write { slot, offset: 0, len, byte }),
        4 => s().prop_map(|slot| Op::Read { slot, offset: 0, len: 100 }),
        6 => s().prop_map(|slot| Op::Close { slot }),
        2 => (p(), 0..90_u8).prop_map(|(path, size)| Op::Truncate { path, size }),
        1 => (p(), p()).prop_map(|(from, to)| Op::Rename { from, to, mode: RenameMode::Replace }),
        1 => p().prop_map(|path| Op::Unlink { path }),
        4 => Just(Op::Sync),
        1 => s().prop_map(|slot| Op::Fsync { slot }),
    ]
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn whatever_is_done_meanwhile_is_what_is_shown(
        ops in prop::collection::vec(op(), 1..60), seed in any::<u64>(), loses in any::<bool>()
    ) {
        let mut world = World::new(1, true, seed);
        world.have_root_alone();
        (world.loses, world.stores_late) = (loses, true);
        world.clients[0].machine.settings_mut().clean_bytes_max = usize::try_from(seed % 3).unwrap() * 250;
        let mut model = Model::default();
        for op in &ops {
            let (shown, expected) = (world.apply(0, op), model.apply(0, op));
            assert_eq!(shown, expected, "{op:?}\n{}", model.canonical());
        }
    }
}
