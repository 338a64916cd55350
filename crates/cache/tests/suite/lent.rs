//! What the kernel keeps of a file that others have open for writing: it is asked for until they write, soon given back, and
//! never kept without.

use crate::world;
use crate::world::World;
use bytes::Bytes;
use holdfast_base::CapSet;
use holdfast_base::limits::{LENT_MS, REACQUIRE_PAUSE_MS};
use holdfast_cache::*;

const AB: Access = Access { read: true, write: true };

fn flags() -> OpenFlags {
    OpenFlags { access: AB, ..OpenFlags::default() }
}

/// Two mounts, the second of which has opened for writing what the first one reads.
struct Shared {
    world: World,
    file: NodeId,
    read: Fh,
    written: Fh,
}

fn shared() -> Shared {
    let mut world = World::new(2, true, 1);
    world.server.is_shy = true;
    world.clients.iter_mut().for_each(|c| c.machine.settings_mut().direct = true);
    let (made, read) =
        world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags(), now)).unwrap();
    world.run(0, |m, t, now| m.write(t, read.fh, 0, &Bytes::from_static(b"old"), now)).unwrap();
    world.drain();
    let found = world.run(1, |m, t, now| m.lookup(t, NodeId::ROOT, b"f", now)).unwrap();
    let Lookup::Found(found) = found else { panic!("{found:?}") };
    // As the server hears of all opens.
    let written = world.run(1, |m, t, now| m.open(t, found.node, flags(), now)).unwrap();
    world.run(1, |m, t, now| m.server_open(t, written.fh, now)).unwrap();
    write(&mut world, written.fh, b"abc");
    world.server.asked = Some(Vec::new());
    Shared { world, file: made.node, read: read.fh, written: written.fh }
}

fn write(world: &mut World, fh: Fh, data: &'static [u8]) {
    world.run(1, |m, t, now| m.write(t, fh, 0, &Bytes::from_static(data), now)).unwrap();
    world.drain();
}

impl Shared {
    /// What the kernel gets for its pages, and whether it is to drop that by itself.
    fn page(&mut self) -> (Vec<u8>, bool) {
        let fh = self.read;
        let parts = self.world.run(0, |m, t, now| {
            t.reads_into(ReadInto::Pages);
            m.read(t, fh, 0, 64, now)
        });
        (parts.unwrap().concat(), self.world.clients[0].was_uncovered)
    }

    fn asked(&mut self) -> Vec<Question> {
        std::mem::take(self.world.server.asked.as_mut().unwrap())
    }

    fn is_dropped(&mut self) -> bool {
        let told = self.world.clients[0].machine.take_invalidations();
        told.iter().for_each(|i| self.world.clients[0].machine.invalidated(i.number));
        told.iter().any(|i| i.what == Forget::Data(self.file))
    }
}

impl Shared {
    /// The time for which it is kept is over.
    fn is_given_back(&mut self) {
        self.world.ms += LENT_MS;
        let now = self.world.now();
        let releases = self.world.clients[0].machine.take_releases(now);
        assert!(releases.is_empty(), "not before the kernel has dropped it: {releases:?}");
        assert!(self.is_dropped());
        let releases = self.world.clients[0].machine.take_releases(now);
        assert!(matches!(&releases[..], [one] if !one.keep.intersects(CapSet::FILE_X)), "{releases:?}");
        assert!(self.world.server.release(0, &releases[0]));
        self.world.clients[0].machine.released(&releases);
    }
}

fn is_beside_writers(question: &Question) -> bool {
    let wants = |want: &CapSet| want.contains(CapSet::BESIDE_WRITERS | CapSet::FILE_S);
    matches!(question, Question::Acquire { items } if items.iter().all(|(_, want)| wants(want)))
}

#[test]
fn pages_of_what_others_write_are_kept_until_they_do() {
    let mut shared = shared();
    assert_eq!(shared.page(), (b"abc".to_vec(), false));
    assert!(shared.asked().iter().any(is_beside_writers));
    assert!(!shared.is_dropped());
    let fh = shared.written;
    write(&mut shared.world, fh, b"new");
    assert!(!shared.world.clients[0].kernel.pages.contains_key(&shared.file));
    assert_eq!(shared.page(), (b"new".to_vec(), false));
    let asked = shared.asked();
    let asks = asked.iter().filter(|q| matches!(q, Question::Acquire { .. })).count();
    assert_eq!(asks, 1, "it is known that others write: {asked:?}");
}

#[test]
fn what_was_lent_is_given_back_after_a_while_and_the_kernel_drops_it_first() {
    let mut shared = shared();
    shared.page();
    shared.is_given_back();
    assert_eq!(shared.page(), (b"abc".to_vec(), false), "asked for again");
}

#[test]
fn what_is_opened_beside_writers_goes_past_the_pages_and_what_it_maps_does_not() {
    let mut shared = shared();
    shared.page();
    let file = shared.file;
    let reads = OpenFlags { access: Access { read: true, write: false }, ..OpenFlags::default() };
    let opened = shared.world.run(0, |m, t, now| m.open(t, file, reads, now)).unwrap();
    assert!(opened.is_direct, "what is lent is no ground to keep pages for long");
    shared.is_given_back();
    shared.asked();
    for (into, is_asked) in [(ReadInto::Memory, false), (ReadInto::Pages, true)] {
        let read = shared.world.run(0, |m, t, now| {
            t.reads_into(into);
            m.read(t, opened.fh, 0, 64, now)
        });
        assert_eq!(read.unwrap().concat(), b"abc");
        assert!(!shared.world.clients[0].was_uncovered, "nothing is kept, or all is covered");
        let asked = shared.asked();
        assert_eq!(asked.iter().any(is_beside_writers), is_asked, "{into:?}: {asked:?}");
    }
}

#[test]
fn a_server_that_lends_nothing_is_asked_once_in_a_while_and_pages_go_by_themselves() {
    let mut shared = shared();
    shared.world.server.lends = false;
    shared.page();
    let asks = |asked: Vec<Question>| -> Vec<bool> {
        asked.iter().filter(|q| matches!(q, Question::Acquire { .. })).map(is_beside_writers).collect()
    };
    let first = asks(shared.asked());
    assert!(matches!(first[..], [false, .., true]), "as ever, then beside writers: {first:?}");
    for _ in 0..10 {
        assert!(shared.page().1, "nothing covers it");
    }
    assert_eq!(asks(shared.asked()), []);
    shared.world.ms += REACQUIRE_PAUSE_MS;
    shared.page();
    assert_eq!(asks(shared.asked()), [false, true]);
}

#[test]
fn a_write_of_less_than_a_page_leaves_nothing_that_would_have_to_be_covered() {
    let mut shared = shared();
    shared.page();
    let fh = shared.written;
    write(&mut shared.world, fh, b"new");
    shared.asked();
    for (bytes, is_asked) in [(100, false), (8192, true)] {
        let fh = shared.read;
        let data = Bytes::from(vec![1; bytes]);
        shared.world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
        assert_eq!(shared.asked().iter().any(is_beside_writers), is_asked, "{bytes}");
    }
}

/// The kernel does not believe the size in an answer to GETATTR that a drop has overtaken: none is made for nothing.
#[test]
fn behind_a_write_of_less_than_a_page_nothing_is_dropped() {
    let mut shared = shared();
    shared.world.server.lends = false;
    shared.page();
    let fh = shared.written;
    write(&mut shared.world, fh, b"new");
    let fh = shared.read;
    shared.world.drain();
    for (bytes, is_dropped) in [(100, false), (8192, true)] {
        let (file, client) = (shared.file, &mut shared.world.clients[0]);
        client.kernel.pages.insert(file, Vec::new());
        let data = Bytes::from(vec![1; bytes]);
        shared.world.run(0, |m, t, now| m.write(t, fh, 0, &data, now)).unwrap();
        shared.world.invalidate(0);
        let dropped = !shared.world.clients[0].kernel.pages.contains_key(&file);
        assert_eq!(dropped, is_dropped, "{bytes}");
    }
}

/// A server with a lease of its kernel's to get cannot promise what is open for writing, even by whom it would be promised to.
#[test]
fn the_first_file_made_in_a_directory_is_not_opened_at_the_server_where_it_need_not_be() {
    let mut world = World::new(1, true, 1);
    world.server.is_shy = true;
    world.run(0, |m, t, now| m.lookup(t, NodeId::ROOT, b"f", now)).unwrap();
    world.server.asked = Some(Vec::new());
    let (_, opened) = world.run(0, |m, t, now| m.create(t, NodeId::ROOT, b"f", 0o644, flags(), now)).unwrap();
    for n in 0..10 {
        let data = Bytes::from_static(b"0123456789");
        world.run(0, |m, t, now| m.write(t, opened.fh, 10 * n, &data, now)).unwrap();
    }
    let asked = world.server.asked.take().unwrap();
    let is_of_file = |q: &&Question| !matches!(q, Question::Acquire { .. } | Question::WhoAmI);
    assert_eq!(asked.iter().find(is_of_file), None, "{asked:?}");
    world.drain();
    let made = world.server.fs.look(world::fs::ROOT, b"f").unwrap().unwrap();
    assert_eq!(world.server.attrs(made).unwrap().size, 100);
}

#[test]
fn who_writes_what_others_use_asks_for_it_once_in_a_while() {
    let mut shared = shared();
    let mut asks = |pause_ms: u64| {
        shared.asked();
        shared.world.ms += pause_ms;
        for _ in 0..10 {
            let fh = shared.read;
            shared.world.run(0, |m, t, now| m.write(t, fh, 0, &Bytes::from_static(b"x"), now)).unwrap();
        }
        let mut asked = shared.asked();
        // One that has to wait for others is put again here.
        asked.dedup();
        let all = |items: &[(Handle, CapSet)]| items[0].1.contains(CapSet::FILE_X);
        asked.iter().filter(|q| matches!(q, Question::Acquire { items } if all(items))).count()
    };
    asks(0);
    assert_eq!(asks(0), 0);
    assert_eq!(asks(REACQUIRE_PAUSE_MS), 1);
}
