//! Who was let in when he opened a file goes on when its mode or owner is changed here, as on a local file system.

use crate::world::World;
use crate::world::fs::ROOT;
use bytes::Bytes;
use holdfast_cache::*;

/// More than goes with the stream.
const LARGE: usize = 100_000;

fn member() -> Caller {
    Caller::new(8, 0)
}

/// A file that its group may write, which a member has open here, and the server knows of no open.
fn opened_by_a_member(access: Access) -> (World, NodeId, Fh) {
    let mut world = World::new(1, true, 1);
    world.clients[0].machine.settings_mut().io_bytes = 1 << 20;
    world.have_root_alone();
    let owners = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o664, owners, now)).unwrap();
    let (file, fh) = (made.0.node, made.1.fh);
    let now = world.now();
    world.clients[0].machine.release(fh, now);
    world.drain();
    let flags = OpenFlags { access, ..OpenFlags::default() };
    let fh = world.run_as(0, &member(), |m, t, now| m.open(t, file, flags, now)).unwrap().fh;
    assert!(world.server.opens.is_empty(), "it is opened here");
    (world, file, fh)
}

fn write(world: &mut World, fh: Fh, len: usize) {
    let data = Bytes::from(vec![7; len]);
    world.run_as(0, &member(), |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
}

/// What root does then: it is root's alone, by mode and owner.
fn take(world: &mut World, file: NodeId) {
    let changes = Changes { mode: Some(0o600), uid: Some(0), ..Changes::default() };
    world.run_as(0, &Caller::new(0, 0), |m, t, now| m.setattr(t, file, &changes, now)).unwrap();
}

const WRITE: Access = Access { read: false, write: true };
const READ: Access = Access { read: true, write: false };

#[test]
fn what_he_has_written_is_there_before_he_would_be_kept_out() {
    for (len, is_asked) in [(LARGE, false), (10, false), (LARGE, true)] {
        let (mut world, file, fh) = opened_by_a_member(WRITE);
        world.clients[0].machine.settings_mut().batches = !is_asked;
        write(&mut world, fh, len);
        take(&mut world, file);
        let stats = world.clients[0].machine.stats();
        assert_eq!(stats.dirty_bytes, 0, "{len} bytes, asked for: {is_asked}");
        let there = world.server.fs.look(ROOT, b"f").unwrap().unwrap();
        let mode = world.server.attrs(there).unwrap().mode;
        assert_eq!(
            mode,
            if is_asked { 0o600 } else { 0o664 },
            "the change itself is put off, where it may be"
        );
    }
}

#[test]
fn what_he_writes_afterwards_names_his_open() {
    for (len, is_asked) in [(LARGE, false), (10, false), (10, true)] {
        let (mut world, file, fh) = opened_by_a_member(WRITE);
        world.clients[0].machine.settings_mut().batches = !is_asked;
        take(&mut world, file);
        world.clients[0].machine.settings_mut().batches = true;
        assert_eq!(world.server.opens.len(), 1, "the server knows of it");
        world.drain();
        write(&mut world, fh, len);
        let now = world.now();
        let machine = &mut world.clients[0].machine;
        assert!(matches!(machine.flush(&mut Turn::new(member()), fh, now), Step::Done(())));
        let sent: Vec<_> = std::iter::from_fn(|| machine.take_write(now)).collect();
        assert!(!sent.is_empty(), "{len} bytes go by WRITE");
        assert!(sent.iter().all(|write| write.open.is_some() && write.caller == member()), "{sent:?}");
    }
}

#[test]
fn who_reads_is_known_to_the_server_as_well() {
    let (mut world, file, fh) = opened_by_a_member(READ);
    take(&mut world, file);
    assert_eq!(world.server.opens.len(), 1);
    let now = world.now();
    world.clients[0].machine.release(fh, now);
    world.drain();
    assert!(world.server.opens.is_empty(), "and of its end");
}

#[test]
fn who_may_go_on_anyway_costs_nothing() {
    let mode = |mode| Changes { mode: Some(mode), ..Changes::default() };
    let (owner, root) = (Caller::new(7, 0), Caller::new(0, 0));
    for (writer, changer, changes) in [
        // The owner writes his file whatever its mode; whoever may by its new mode, too; and root.
        (&owner, &owner, mode(0o400)),
        (&owner, &root, mode(0o400)),
        (&member(), &owner, mode(0o620)),
        (&root, &owner, mode(0o600)),
        (&member(), &root, Changes { uid: Some(8), ..mode(0o600) }),
    ] {
        let (mut world, file, fh) = opened_by_a_member(READ);
        let now = world.now();
        world.clients[0].machine.release(fh, now);
        let flags = OpenFlags { access: WRITE, ..OpenFlags::default() };
        let fh = world.run_as(0, writer, |m, t, now| m.open(t, file, flags, now)).unwrap().fh;
        let data = Bytes::from(vec![7; LARGE]);
        world.run_as(0, writer, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
        let now = world.now();
        let set = world.clients[0].machine.setattr(&mut Turn::new(changer.clone()), file, &changes, now);
        let whoami = matches!(&set, Step::Ask(ask) if ask.question == Question::WhoAmI);
        assert!(whoami || matches!(set, Step::Done(_)), "{writer:?} {changes:?}: {set:?}");
        world.run_as(0, changer, |m, t, now| m.setattr(t, file, &changes, now)).unwrap();
        assert!(world.server.opens.is_empty());
        assert_eq!(world.clients[0].machine.stats().dirty_bytes, LARGE as u64);
    }
}
