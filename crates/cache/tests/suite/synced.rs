//! What a `sync` of all has to be done.

use crate::world::World;
use bytes::Bytes;
use holdfast_cache::*;

/// More than goes with the stream.
const LARGE: usize = 100_000;

/// Else it takes as many forces of the server's disk, one after the other, as there are files.
#[test]
fn all_files_are_committed_together() {
    let mut world = World::new(1, true, 1);
    world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, b"x", now)).unwrap();
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let data = Bytes::from(vec![7; LARGE]);
    let mut opens = Vec::new();
    for name in [b"x", b"y", b"z"] {
        let made = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, name, 0o644, flags, now)).unwrap();
        opens.push(made.1.fh);
    }
    world.drain();
    for fh in opens {
        world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
    }
    let mut turn = Turn::new(Caller::new(7, 0));
    let now = world.now();
    assert!(matches!(world.clients[0].machine.sync(&mut turn, now), Step::Wait(_)));
    let mut written = 0;
    while let Some(out) = world.clients[0].machine.take_write(now) {
        let Ok(done) = world.server.write(0, &out) else { panic!("nobody else holds anything") };
        world.clients[0].machine.write_done(out.id, done, now);
        written += 1;
    }
    assert!(written >= 3);
    let verifier = world.server.verifier;
    let machine = &mut world.clients[0].machine;
    for _ in 0..2 {
        // Woken in between or not.
        assert!(matches!(machine.sync(&mut turn, now), Step::Wait(_)));
    }
    let commits: Vec<_> = std::iter::from_fn(|| machine.take_commit(now)).collect();
    assert_eq!(commits.len(), 3);
    assert!(matches!(machine.sync(&mut turn, now), Step::Wait(_)));
    assert!(machine.take_commit(now).is_none(), "they are under way");
    for commit in commits {
        assert!(matches!(machine.sync(&mut turn, now), Step::Wait(_)));
        machine.commit_done(commit.id, Ok(verifier), now);
    }
    world.run(0, |m, t, now| m.sync(t, now)).unwrap();
    world.check(0);
}
