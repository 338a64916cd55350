//! Leases run out: the oldest promises that stand on one are asked back.

use std::sync::Arc;

use holdfast_base::limits::LEASED_ASKED_PAUSE_MS;
use holdfast_base::{CapSet, ClientId};
use holdfast_manager::CapsOn;
use holdfast_state::{CapRequest, Effect};
use holdfast_vfs::{Backend, FileKind, Handle};

use crate::world::World;

fn acquire(w: &World, client: ClientId, (handle, kind): (&Handle, FileKind), want: CapSet) {
    let backend: Arc<dyn Backend> = w.guarded.clone();
    let on = CapsOn { backend: &backend, handle, kind, file: None };
    let request = CapRequest { client, file: handle.key(), want, is_beside_writers: false, reclaim: None };
    let granted = w.manager.acquire_caps(&request, &on, Some(w.manager.caps_patience())).unwrap();
    assert_eq!(granted.held, want);
}

/// What was asked back since this was asked last: which of the files, and what may stay.
fn asked_back(w: &World, files: &[Handle]) -> Vec<(usize, CapSet)> {
    let recalls = w.heard().into_iter().filter_map(|effect| match effect {
        Effect::CapRecall { file, keep, .. } => Some((files.iter().position(|f| f.key() == file), keep)),
        _ => None,
    });
    recalls.map(|(at, keep)| (at.unwrap(), keep)).collect()
}

#[test]
fn where_leases_run_out_the_oldest_exclusive_files_are_asked_for_and_may_be_kept_shared() {
    let w = World::new(4);
    let client = w.client("mount");
    w.manager.step(|engine, _| engine.caps_hello(client).unwrap()).unwrap();
    w.manager.step(|engine, _| engine.caps_reachable(client)).unwrap();
    let root = w.fs.root().unwrap();
    let files: Vec<_> = (0..26).map(|n| w.another(&format!("n{n}"))).collect();
    acquire(&w, client, (&root, FileKind::Directory), CapSet::ALL_X);
    acquire(&w, client, (&files[0], FileKind::Regular), CapSet::ALL_S);
    for handle in &files[1..17] {
        acquire(&w, client, (handle, FileKind::Regular), CapSet::ALL_X);
    }
    assert!(asked_back(&w, &files).is_empty());
    w.fs.set_leases_scarce(true);
    acquire(&w, client, (&files[17], FileKind::Regular), CapSet::ALL_X);
    let rest = CapSet::ALL_X.without(CapSet::FILE_X_ALONE);
    let mut asked = asked_back(&w, &files);
    asked.sort_unstable_by_key(|(at, _)| *at);
    assert_eq!(asked, [(1, rest), (2, rest), (3, rest)], "an eighth of seventeen, and no directory");
    acquire(&w, client, (&files[18], FileKind::Regular), CapSet::ALL_X);
    assert!(asked_back(&w, &files).is_empty(), "these have a moment to come back");
    std::thread::sleep(std::time::Duration::from_millis(2 * LEASED_ASKED_PAUSE_MS));
    acquire(&w, client, (&files[19], FileKind::Regular), CapSet::ALL_X);
    assert_eq!(asked_back(&w, &files), [], "an eighth of nineteen is on its way");
    for handle in &files[20..] {
        std::thread::sleep(std::time::Duration::from_millis(2 * LEASED_ASKED_PAUSE_MS));
        acquire(&w, client, (handle, FileKind::Regular), CapSet::ALL_X);
    }
    assert_eq!(asked_back(&w, &files), [(4, rest)], "of twenty-five one more");
}
