//! Listings of directories with files that somebody else has write delegations of.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_base::limits::LISTING_ASKED_MAX;
use holdfast_base::{ChangeId, Cookie, FileKey};
use holdfast_manager::{AttributeHolder, Granted, HeldAnswer, HeldAttributes, PledgeOn};
use holdfast_state::{DelegationKind, DelegationRequest, Grounds, Seen, WriteHolder};
use holdfast_vfs::{AttrMask, Backend, DirListing, Flow, FsError, FsResult, ListEnd};
use parking_lot::Mutex;

use crate::world::World;

/// Answers after a while, or never.
struct Slow(Option<Duration>, Mutex<Vec<HeldAnswer>>);

const HELD: HeldAttributes =
    HeldAttributes { change: ChangeId(u64::MAX - 7), size: 77, mtime: None, atime: None };

impl AttributeHolder for Slow {
    fn ask(&self, _: &WriteHolder, _: FileKey, answer: HeldAnswer) {
        let Some(pause) = self.0 else { return self.1.lock().push(answer) };
        std::thread::spawn(move || {
            std::thread::sleep(pause);
            answer.give(Some(HELD));
        });
    }
}

/// A world with so many files that one client has write delegations of, and the asker of it.
fn world(files: usize, pause: Option<Duration>) -> (World, Arc<Slow>) {
    let world = World::new(8);
    let holder = world.client("a");
    for number in 0..files {
        let file = world.another(&format!("{number:04}"));
        let attrs = world.fs.getattr(&world.cx(None), &file, AttrMask::ALL).unwrap();
        let request = DelegationRequest {
            client: holder,
            file: file.key(),
            kind: DelegationKind::Write,
            grounds: Grounds::Want,
            delegates_timestamps: false,
            seen: Some(Seen { change: attrs.change, size: attrs.size }),
            unchanged_ms: u64::MAX,
        };
        let on = PledgeOn { backend: &*world.guarded, handle: &file, open: None, change: None };
        let granted = world.manager.delegate(&request, &on).unwrap();
        assert!(matches!(granted, Granted::Delegated(_)), "{granted:?}");
    }
    let slow = Arc::new(Slow(pause, Mutex::default()));
    let asker: Arc<dyn AttributeHolder> = slow.clone();
    world.manager.set_attribute_holder(Arc::downgrade(&asker));
    (world, slow)
}

/// Sizes as they are listed, up to so many.
fn list(world: &World, most: usize) -> (Vec<u64>, FsResult<ListEnd>) {
    let root = world.guarded.root().unwrap();
    let listing = DirListing { dir: &root, from: Cookie(0), want: Some(AttrMask::STAT | AttrMask::CHANGE) };
    let mut sizes = Vec::new();
    let end = world.guarded.readdir(&world.cx(None), listing, &mut |entry| {
        if sizes.len() == most {
            return Flow::Stop;
        }
        sizes.push(entry.node.unwrap().unwrap().attrs.size);
        Flow::Continue
    });
    (sizes, end)
}

#[test]
fn the_holders_of_several_entries_are_asked_at_once() {
    let files = LISTING_ASKED_MAX + 10;
    let (world, _asker) = world(files, Some(Duration::from_millis(100)));
    let began = Instant::now();
    let (sizes, end) = list(&world, usize::MAX);
    assert!(matches!(end, Ok(ListEnd::Eof)), "{end:?}");
    // The file that every world has is nobody's.
    assert_eq!(sizes.iter().filter(|size| **size == 77).count(), files);
    assert_eq!(sizes.len(), files + 1);
    assert!(began.elapsed() < Duration::from_millis(100) * files as u32 / 4, "{:?}", began.elapsed());
    assert_eq!(list(&world, 5).0.len(), 5, "who has enough gets no more");
}

#[test]
fn what_a_silent_holder_has_in_a_directory_is_recalled_at_once() {
    let files = 3 * LISTING_ASKED_MAX;
    let (world, _asker) = world(files, None);
    world.recalls();
    let began = Instant::now();
    let (sizes, end) = list(&world, usize::MAX);
    assert!(sizes.len() <= 1 && matches!(end, Err(FsError::Delay) | Ok(ListEnd::Stopped)), "{end:?}");
    assert!(began.elapsed() < Duration::from_secs(5));
    assert_eq!(world.recalls(), files, "all of them");
}
