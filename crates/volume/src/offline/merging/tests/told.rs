//! Losses that are known are told while the server is away, by whatever tells of them while it is there.

use super::*;

/// Removes a name without the server, so that something is to be put on this host's disk alone.
fn removed_alone(lonely: &Lonely) {
    let never = Cancel::new();
    lonely.volume.unlink(&Plain(another(), &never), (NodeId::ROOT, b"1")).unwrap();
}

/// A batch is on its way when the server goes, and is heard to have failed.
fn fails(lonely: &Lonely) {
    let (batch, shared) = (sent(lonely), &lonely.volume.0);
    shared.machine.lock().hold(true);
    removed_alone(lonely);
    let failed = vec![MutationResult::Failed(Errno::EDQUOT); batch.ops.len()];
    shared.machine.lock().batch_done(batch.txn, failed, 0, shared.now());
}

#[test]
fn sync_tells_what_is_known_to_be_lost_though_the_server_is_away() {
    let lonely = Lonely::new();
    fails(&lonely);
    let never = Cancel::new();
    assert_eq!(lonely.volume.sync(&never), Err(Errno::EDQUOT));
    assert_eq!(lonely.volume.sync(&never), Ok(()), "it was heard");
}

#[test]
fn close_tells_what_is_known_to_be_lost_though_the_server_is_away() {
    let lonely = Lonely::new();
    let (never, shared) = (Cancel::new(), &lonely.volume.0);
    let who = Plain(another(), &never);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let fh = lonely.volume.open(&who, lonely.nodes[0], flags).unwrap().fh;
    // As much as does not go with the stream: some of it was refused when the server went, which had just asked for the file back.
    let much = bytes::Bytes::from(vec![7; 3 << 20]);
    lonely.volume.write(&who, fh, (0, WriteTo::Place), &much).unwrap();
    let mut machine = shared.machine.lock();
    machine.hold(false);
    let _ = machine.sync(&mut Turn::new(another()), shared.now());
    let write = machine.take_write(shared.now()).unwrap();
    machine.write_done(write.id, Err(Errno::ENOSPC), shared.now());
    let handle = machine.handle_of(lonely.nodes[0]).unwrap();
    machine.recalled(&handle, CapSet::AUTH_S | CapSet::LINK_S, 2, shared.now());
    machine.hold(true);
    drop(machine);
    assert_eq!(lonely.volume.flush(&who, fh), Err(Errno::ENOSPC));
}
