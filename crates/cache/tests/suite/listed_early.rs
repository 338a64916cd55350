//! What was made here and is not answered yet is listed all the same, where promises were lost meanwhile: two nodes bear one handle.

use crate::world::World;
use holdfast_cache::*;

#[test]
fn of_two_nodes_that_bear_one_handle_each_is_told_of_under_its_number() {
    let mut world = World::new(1, true, 1);
    world.server.page = 100;
    let fh = world.run(0, |m, t, now| m.opendir(t, NodeId::ROOT, now)).unwrap().fh;
    let mut turn = Turn::new(Caller::new(7, 0));
    let mut rows = Vec::new();
    let mut list = |m: &mut Machine, t: &mut Turn, now| {
        let mut take = |row: &DirEntry| {
            rows.push(row.clone());
            true
        };
        m.readdir(t, fh, 0, true, &mut take, now)
    };
    let now = world.now();
    let step = list(&mut world.clients[0].machine, &mut turn, now);
    let Step::Ask(ask) = step else { panic!("{step:?}") };
    world.have_root_alone();
    let (made, _) = world.made_and_open(b"f");
    let shown = world.run(0, |m, t, now| m.getattr(t, made, now)).unwrap().attrs.fileid;
    let batch = world.one_batch();
    let results = world.server.batch(0, &batch);
    let answer = world.perform(0, &ask);
    world.server.restart();
    let now = world.now();
    let machine = &mut world.clients[0].machine;
    machine.caps_lost(now);
    machine.absorb(&mut turn, *ask, answer, now);
    assert!(matches!(list(machine, &mut turn, now), Step::Done(())));
    machine.batch_done(batch.txn, results, 0, now);
    world.check(0);
    let listed = rows.iter().find(|row| row.name.as_bytes() == b"f").and_then(|row| row.entry).unwrap();
    assert!(listed.node != made, "else there is nothing to be seen here");
    for (node, number) in [(made, shown), (listed.node, listed.attrs.fileid)] {
        let told = world.run(0, |m, t, now| m.getattr(t, node, now)).unwrap();
        assert_eq!(told.attrs.fileid, number);
    }
    world.drain();
}
