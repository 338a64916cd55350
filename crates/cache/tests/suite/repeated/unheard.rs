//! What came out again, and was not heard of: it is not to be another than it was.

use super::*;

/// Compared once more, as what the server promised meanwhile is void, and without another word of what it has executed.
#[test]
fn what_was_sent_since_the_server_told_what_it_has_executed_comes_out_again_as_it_was() {
    let mut world = knowing(1);
    world.server.unwatched = true;
    let found = world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, b"f", now)).unwrap();
    let Lookup::Found(entry) = found else { panic!("it is there") };
    let opened = world.run(0, |m, t, now| m.open(t, entry.node, flags(), now)).unwrap();
    write(&mut world, opened.fh, b"ours");
    let now = world.now();
    world.clients[0].machine.release(opened.fh, now);
    let sent = send(&mut world);
    let compare = |world: &mut World| {
        let claims = world.clients[0].machine.claims();
        let told: Vec<_> = claims.iter().map(|claim| world.server.reclaim(0, claim)).collect();
        let now = world.now();
        let machine = &mut world.clients[0].machine;
        machine.merge(&told, Vec::new(), now);
        machine.reclaimed(told, now);
        machine.hold(false);
        world.check(0);
    };
    world.clients[0].machine.hold(true);
    world.clients[0].machine.assume();
    world.server.restart();
    world.clients[0].machine.resume(Some(sent[0].0.txn - 1), 0, now);
    compare(&mut world);
    // It is executed, and not answered; and somebody writes.
    let batch = world.clients[0].machine.take_batch(now).expect("it comes out again");
    assert_eq!(batch.ops, sent[0].0.ops);
    let results = world.server.batch(0, &batch);
    world.clients[0].machine.batch_lost(batch.txn);
    world.clients[0].machine.hold(true);
    world.clients[0].machine.assume();
    let f = world.server.fs.look(ROOT, b"f").unwrap().unwrap();
    written_by_others(&mut world, f);
    compare(&mut world);
    let batches = again(&mut world, vec![(batch.clone(), results)]);
    assert_eq!(batches[0].ops, batch.ops, "another in its place would be refused");
}
