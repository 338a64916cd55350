//! What a server's disk has without a record of it is not made again: it would be kept beside itself.

use super::*;

/// How it comes again of which the server has all that it made, and no record. A file is known there by the time that it has.
pub(super) fn known(sent: &[(Batch, Vec<MutationResult>)], told: &[Reclaimed]) -> Vec<Vec<Mutation>> {
    let time_of = |handle: &Handle| {
        let told = told.iter().find(|told| told.handle == *handle)?;
        Some(told.result.as_ref().ok()?.0.mtime)
    };
    let mut there: Vec<(Target, Target)> = Vec::new();
    let mut all = Vec::new();
    for (batch, results) in sent {
        let (mut op, txn) = (0, batch.txn);
        let mut come = Vec::new();
        for (mutation, result) in batch.ops.iter().zip(results) {
            let mut mutation = mutation.clone();
            targets(&mut mutation).into_iter().for_each(|target| {
                let known = there.iter().find(|(made, _)| made == target);
                *target = known.map_or_else(|| target.clone(), |(_, handle)| handle.clone());
            });
            let parts = mutation.operations() as u32;
            if let MutationResult::Done { made: Some(Born { handle, .. }), .. } = result {
                match &mut mutation {
                    Mutation::Make { object: NewObject::File { pooled, .. }, attrs, .. } => {
                        *pooled = Some(handle.clone());
                        attrs.mtime = time_of(handle);
                    }
                    other => {
                        let object = Target::Handle(handle.clone());
                        there.push((Target::Made { txn, op }, object.clone()));
                        *other = Mutation::SetAttr { object, changes: Changes::default() };
                    }
                }
            }
            op += parts;
            come.push(mutation);
        }
        all.push(come);
    }
    all
}

/// What a mutation names.
fn targets(mutation: &mut Mutation) -> Vec<&mut Target> {
    match mutation {
        Mutation::Make { dir, .. } => vec![dir],
        Mutation::SetAttr { object, .. } | Mutation::Write { object, .. } => vec![object],
        Mutation::Link { object, dir, .. } => vec![object, dir],
        Mutation::Unlink { dir, victim, .. } | Mutation::Rmdir { dir, victim, .. } => vec![dir, victim],
        Mutation::Rename { from_dir, to_dir, victim, over, .. } => {
            [from_dir, to_dir, victim].into_iter().chain(over).collect()
        }
    }
}

/// What is in a directory there, by name.
fn entries(world: &World, path: &[&[u8]]) -> Vec<(Vec<u8>, u64)> {
    let step = |dir, name: &&[u8]| world.server.fs.look(dir, name).unwrap().unwrap();
    let dir = path.iter().fold(ROOT, step);
    world.server.fs.inodes[&dir].entries.iter().map(|(name, ino)| (name.to_vec(), *ino)).collect()
}

/// Its power fails, and no record has come to the disk of what was executed behind `through`.
fn forget_all_behind(world: &mut World, through: u64) {
    world.server.unwatched = true;
    let lane = world.server.lanes.get_mut(&0).unwrap();
    lane.executed = through;
    lane.made.retain(|(txn, _), _| *txn <= through);
    lane.results.retain(|txn, _| *txn <= through);
    lane.sent.retain(|txn, _| *txn <= through);
    lane.remembered.retain(|txn, _| *txn <= through);
    begin_anew(world, through);
}

#[test]
fn what_the_disk_has_without_a_record_is_not_kept_beside_itself() {
    let (mut world, dir) = trouble::settled();
    let (file, opened) = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags(), now)).unwrap();
    write(&mut world, opened.fh, b"ours");
    close(&mut world, opened.fh);
    let sub = world.run(0, |m, t, now| m.mkdir(t, dir, b"s", 0o755, now)).unwrap();
    world.run(0, |m, t, now| m.mkdir(t, sub.node, b"within", 0o755, now)).unwrap();
    let text = Bytes::from_static(b"f");
    world.run(0, |m, t, now| m.symlink(t, dir, b"l", &text, now)).unwrap();
    let sent = send(&mut world);
    // It was named by where it was made, and is by its handle.
    world.run(0, |m, t, now| m.mkdir(t, sub.node, b"later", 0o755, now)).unwrap();
    send(&mut world);
    let all = |world: &World| [entries(world, &[b"d"]), entries(world, &[b"d", b"s"])];
    let handles = |world: &World| [file.node, sub.node].map(|id| world.clients[0].machine.handle_of(id));
    let (before, known, f) = (all(&world), handles(&world), number_of(&world));
    let executed = world.server.lanes[&0].executed;
    forget_all_behind(&mut world, sent[0].0.txn - 1);
    world.server.fs.write(f, 0, b"lost").unwrap();
    world.run(0, |m, t, now| m.mkdir(t, sub.node, b"last", 0o755, now)).unwrap();
    send(&mut world);
    assert!(world.server.lanes[&0].executed >= executed, "all of it is sent again");
    let [of_dir, of_sub] = all(&world);
    assert_eq!(of_dir, before[0]);
    assert_eq!(of_sub.into_iter().filter(|(name, _)| name != b"last").collect::<Vec<_>>(), before[1]);
    assert_eq!(handles(&world), known);
    assert!(world.server.fs.inodes[&f].data.starts_with(b"ours"), "its contents come again");
    assert_eq!(world.clients[0].machine.take_reports(), []);
}

#[test]
fn what_was_removed_since_and_is_on_the_disk_again_is_removed_and_not_made_beside_itself() {
    let (mut world, dir) = trouble::settled();
    world.run(0, |m, t, now| m.mkdir(t, dir, b"s", 0o755, now)).unwrap();
    let (_, opened) = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags(), now)).unwrap();
    close(&mut world, opened.fh);
    let sent = send(&mut world);
    let disk = world.server.fs.clone();
    world.run(0, |m, t, now| m.rmdir(t, dir, b"s", now)).unwrap();
    world.run(0, |m, t, now| m.unlink(t, dir, b"f", now)).unwrap();
    assert!(!send(&mut world).is_empty(), "and gone");
    world.server.fs = disk;
    forget_all_behind(&mut world, sent[0].0.txn - 1);
    send(&mut world);
    assert_eq!(entries(&world, &[b"d"]), []);
    assert_eq!(world.clients[0].machine.take_reports(), []);
}

/// Whoever has renamed it: nothing is made under the name that it had first.
#[test]
fn what_has_another_name_by_now_is_not_made_under_its_first_one() {
    for is_theirs in [false, true] {
        let (mut world, dir) = trouble::settled();
        let (_, opened) = world.run(0, |m, t, now| m.create(t, dir, b"f", 0o644, flags(), now)).unwrap();
        write(&mut world, opened.fh, b"ours");
        close(&mut world, opened.fh);
        world.run(0, |m, t, now| m.mkdir(t, dir, b"s", 0o755, now)).unwrap();
        let sent = send(&mut world);
        let (d, f) = (world.server.fs.look(ROOT, b"d").unwrap().unwrap(), number_of(&world));
        for (from, to) in [(b"f", b"g"), (b"s", b"t")] {
            if is_theirs {
                world.server.fs.rename((d, &from[..]), (d, &to[..]), RenameMode::Replace).unwrap();
            } else {
                let (from, to) = ((dir, &from[..]), (dir, &to[..]));
                world.run(0, |m, t, now| m.rename(t, from, to, RenameMode::Replace, now)).unwrap();
            }
        }
        assert_eq!(send(&mut world).is_empty(), is_theirs);
        let before = entries(&world, &[b"d"]);
        assert_eq!(before.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), [b"g", b"t"]);
        forget_all_behind(&mut world, sent[0].0.txn - 1);
        world.server.fs.write(f, 0, b"lost").unwrap();
        assert!(!send(&mut world).is_empty(), "it comes again");
        assert_eq!(entries(&world, &[b"d"]), before, "theirs: {is_theirs}");
        assert!(world.server.fs.inodes[&f].data.starts_with(b"ours"), "theirs: {is_theirs}");
        assert_eq!(world.clients[0].machine.take_reports(), []);
    }
}

/// As of a file, whose making comes again.
#[test]
fn a_directorys_mode_that_others_have_set_since_stays() {
    for theirs in [0o700, 0o755] {
        let (mut world, dir) = trouble::settled();
        let sub = world.run(0, |m, t, now| m.mkdir(t, dir, b"s", 0o755, now)).unwrap();
        let changes = Changes { mode: Some(0o777), ..Changes::default() };
        let mut sent = send(&mut world);
        world.run(0, |m, t, now| m.setattr(t, sub.node, &changes, now)).unwrap();
        sent.extend(send(&mut world));
        let d = world.server.fs.look(ROOT, b"d").unwrap().unwrap();
        let s = world.server.fs.look(d, b"s").unwrap().unwrap();
        world.server.fs.get_mut(s).unwrap().mode = theirs;
        begin_anew(&mut world, sent[0].0.txn - 1);
        let batches = again(&mut world, sent);
        let sets =
            |op: &Mutation| matches!(op, Mutation::SetAttr { changes: Changes { mode: Some(_), .. }, .. });
        // What it was made with it may have had when the power went.
        assert_eq!(batches.iter().flat_map(|b| &b.ops).any(sets), theirs == 0o755, "{batches:?}");
    }
}

/// It was made, and whoever has removed it did so after that: nothing of ours is lost by it.
#[test]
fn what_others_remove_when_it_was_found_there_is_gone_and_no_loss() {
    let (mut world, dir) = trouble::settled();
    world.run(0, |m, t, now| m.mkdir(t, dir, b"s", 0o755, now)).unwrap();
    let sent = send(&mut world);
    forget_all_behind(&mut world, sent[0].0.txn - 1);
    let d = world.server.fs.look(ROOT, b"d").unwrap().unwrap();
    world.server.fs.remove(d, b"s", true).unwrap();
    send(&mut world);
    assert_eq!(entries(&world, &[b"d"]), []);
    assert_eq!(world.clients[0].machine.take_reports(), []);
}
