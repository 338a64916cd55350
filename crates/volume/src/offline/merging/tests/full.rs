//! This host's disk is full when the server is back.

use super::*;

/// A file is written and fsynced without the server, which is back then, and deaf.
fn back(journal: &Path) -> Lonely {
    let lonely = Lonely::keeping(journal);
    let never = Cancel::new();
    let who = Plain(another(), &never);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let fh = lonely.volume.open(&who, lonely.nodes[0], flags).unwrap().fh;
    let ours = bytes::Bytes::from_static(b"ours");
    lonely.volume.write(&who, fh, (0, WriteTo::Place), &ours).unwrap();
    assert_eq!(lonely.volume.fsync(&who, lonely.nodes[0], fh), Ok(()), "it is on this host's disk");
    lonely.server.state.lock().is_deaf = true;
    lonely.volume.0.came_back();
    lonely.wait_for("it goes on", Lonely::is_online);
    lonely
}

/// Makes a file of more than there is room for, in a directory that is promised exclusively.
fn write_much(lonely: &Lonely) {
    lonely.volume.0.machine.lock().assume();
    let never = Cancel::new();
    let who = Plain(another(), &never);
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = lonely.volume.create(&who, (NodeId::ROOT, b"much"), 0o644, flags).unwrap();
    let much = bytes::Bytes::from(vec![7; 3 << 20]);
    lonely.volume.write(&who, made.1.fh, (0, WriteTo::Place), &much).unwrap();
}

#[test]
fn a_journal_that_alone_has_what_was_fsynced_is_not_given_up_when_the_server_is_back() {
    let Some(disk) = SmallDisk::new() else { return };
    let journal = disk.path().join("journal");
    let lonely = back(&journal);
    let filler = disk.fill();
    write_much(&lonely);
    let is_kept = || lonely.volume.0.keep().is_ok();
    assert!(!is_kept(), "there is no room");
    assert!(journal.exists(), "the server has nothing of what was fsynced");
    // Who was about to send when that was found out has done so.
    std::thread::sleep(MOMENT);
    let sent = lonely.server.state.lock().sent;
    std::thread::sleep(2 * MOMENT);
    assert!(!lonely.is_online() && !is_kept());
    assert_eq!(lonely.server.state.lock().sent, sent, "nothing is sent that a later life would not know of");
    let records = lonely.volume.0.offline.as_ref().unwrap().journal.records().unwrap();
    assert!(records.values().any(|record| record.windows(4).any(|part| part == b"ours")));
    std::fs::remove_file(filler).unwrap();
    lonely.server.state.lock().is_deaf = false;
    lonely.wait_for("there is room", |lonely| {
        lonely.is_online() && lonely.volume.pending() == Pending::default()
    });
    assert!(journal.exists());
}

#[test]
fn a_journal_is_given_up_once_the_server_has_all_that_was_done_without_it() {
    let Some(disk) = SmallDisk::new() else { return };
    let journal = disk.path().join("journal");
    let lonely = back(&journal);
    lonely.server.state.lock().is_deaf = false;
    lonely.wait_for("all is there", |lonely| lonely.volume.pending() == Pending::default());
    lonely.server.state.lock().is_deaf = true;
    let _filler = disk.fill();
    write_much(&lonely);
    lonely.wait_for("there is no room", |_| !journal.exists());
    assert!(lonely.is_online());
    lonely.server.state.lock().is_deaf = false;
    lonely.wait_for("it goes on without", |lonely| lonely.volume.pending() == Pending::default());
}

/// A later life would send it again, to a server that has been told that it need not know it.
#[test]
fn the_server_is_not_told_to_forget_what_the_journal_has_still_to_hear_of() {
    let Some(disk) = SmallDisk::new() else { return };
    let lonely = Lonely::keeping(&disk.path().join("journal"));
    let (batch, shared) = (sent(&lonely), &lonely.volume.0);
    shared.machine.lock().hold(true);
    shared.keep().unwrap();
    let before = shared.done_through();
    let filler = disk.fill();
    {
        let mut machine = shared.machine.lock();
        let done = MutationResult::Done { made: None, other_name: None, attrs: None };
        machine.batch_done(batch.txn, vec![done; batch.ops.len()], batch.txn, shared.now());
        assert_eq!(machine.done_through(), batch.txn);
    }
    // Something that takes more room than there is.
    write_much(&lonely);
    assert_eq!(shared.done_through(), before);
    std::fs::remove_file(filler).unwrap();
    assert_eq!(shared.done_through(), batch.txn);
}
