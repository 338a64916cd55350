//! What the kernel believes, and what it does when told not to.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use holdfast_fuse::{Config, End, FOREVER, NodeId, OpenedFlags, Told};

use crate::double::Manner;
use crate::stage::Stage;

fn believing() -> Stage {
    let manner = Manner {
        valid: FOREVER,
        remembers_absence: true,
        opened: OpenedFlags::KEEP_CACHE,
        ..Manner::default()
    };
    Stage::with(manner, &Config::default()).undisturbed()
}

#[test]
fn data_is_believed_until_it_is_invalidated() {
    let stage = believing();
    fs::write(stage.path("a"), b"before").unwrap();
    let node = {
        assert_eq!(fs::read(stage.path("a")).unwrap(), b"before");
        stage.double.node_of(b"a")
    };
    assert_eq!(fs::metadata(stage.path("a")).unwrap().len(), 6);
    stage.double.write_behind(b"a", b"behind!");
    assert_eq!(fs::read(stage.path("a")).unwrap(), b"before");
    let notifier = stage.session.notifier();
    assert_eq!(notifier.inval_attributes(node), Told::Done);
    assert_eq!(fs::metadata(stage.path("a")).unwrap().len(), 7, "attributes are asked for again");
    assert_eq!(notifier.inval_data(node, 0, 0), Told::Done);
    assert_eq!(fs::read(stage.path("a")).unwrap(), b"behind!");
    assert_eq!(notifier.inval_data(NodeId(4711), 0, 0), Told::Unknown);
}

#[test]
fn names_present_and_absent_are_believed_until_invalidated() {
    let stage = believing();
    let notifier = stage.session.notifier();
    assert!(fs::metadata(stage.path("a")).is_err());
    let asked = stage.calls("lookup");
    assert!(fs::metadata(stage.path("a")).is_err());
    assert_eq!(stage.calls("lookup"), asked, "absence is remembered");
    assert_eq!(notifier.inval_entry(NodeId::ROOT, b"a"), Told::Done);
    assert!(fs::metadata(stage.path("a")).is_err());
    assert_eq!(stage.calls("lookup"), asked + 1);

    fs::write(stage.path("b"), b"x").unwrap();
    assert!(fs::symlink_metadata(stage.path("b")).is_ok(), "attributes after the write");
    stage.double.remove_behind(b"b");
    assert!(fs::symlink_metadata(stage.path("b")).is_ok(), "presence is remembered");
    assert_eq!(notifier.expire_entry(NodeId::ROOT, b"b"), Told::Done);
    assert!(fs::symlink_metadata(stage.path("b")).is_err());
    assert_eq!(notifier.inval_entry(NodeId::ROOT, b"never seen"), Told::Unknown);
}

#[test]
fn a_new_epoch_ends_belief_in_all_names() {
    let stage = believing();
    let notifier = stage.session.notifier();
    for name in ["a", "b", "c"] {
        fs::write(stage.path(name), b"x").unwrap();
        assert!(fs::symlink_metadata(stage.path(name)).is_ok());
        stage.double.remove_behind(name.as_bytes());
        assert!(fs::symlink_metadata(stage.path(name)).is_ok());
    }
    if stage.session.connection().minor < 44 {
        assert_eq!(notifier.inc_epoch(), Told::Unserved);
        return;
    }
    assert_eq!(notifier.inc_epoch(), Told::Done);
    for name in ["a", "b", "c"] {
        assert!(fs::symlink_metadata(stage.path(name)).is_err(), "{name}");
    }
}

#[test]
fn a_deletion_is_told_to_who_knows_the_name() {
    let stage = believing();
    fs::write(stage.path("a"), b"x").unwrap();
    let node = stage.double.node_of(b"a");
    stage.double.remove_behind(b"a");
    let notifier = stage.session.notifier();
    assert_eq!(notifier.delete(NodeId::ROOT, b"a", node), Told::Done);
    assert!(fs::symlink_metadata(stage.path("a")).is_err());
}

#[test]
fn stored_data_is_read_without_asking() {
    let stage = believing();
    fs::write(stage.path("a"), b"before").unwrap();
    let file = File::open(stage.path("a")).unwrap();
    let notifier = stage.session.notifier();
    assert_eq!(notifier.store(stage.double.node_of(b"a"), 0, b"stored"), Told::Done);
    let reads = stage.calls("read");
    let mut data = [0; 6];
    file.read_exact_at(&mut data, 0).unwrap();
    assert_eq!((&data, stage.calls("read")), (b"stored", reads));
}

#[test]
fn pruned_nodes_are_forgotten() {
    let stage = believing();
    for i in 0..100 {
        fs::write(stage.path(&format!("f{i}")), b"x").unwrap();
    }
    let nodes: Vec<_> = (0..100).map(|i| stage.double.node_of(format!("f{i}").as_bytes())).collect();
    let told = stage.session.notifier().prune(&nodes);
    if stage.session.connection().minor < 45 {
        assert_eq!(told, Told::Unserved);
        return;
    }
    assert_eq!(told, Told::Done);
    // A file whose RELEASE is still on its way is in use, and stays: hence again and again.
    crate::stage::until("FORGETs came", || {
        let _ = stage.session.notifier().prune(&nodes);
        stage.double.known_nodes() == 1
    });
    assert_eq!(fs::read(stage.path("f7")).unwrap(), b"x");
}

#[test]
fn a_notification_after_the_end_says_so() {
    let stage = believing();
    fs::write(stage.path("a"), b"x").unwrap();
    let (notifier, node) = (stage.session.notifier(), stage.double.node_of(b"a"));
    assert_eq!(stage.finish(), End::Unmounted);
    assert_eq!(notifier.inval_attributes(node), Told::Gone);
    assert_eq!(notifier.prune(&[node]), Told::Gone);
}

#[test]
fn an_invalidation_while_a_lookup_waits_waits_as_well() {
    let stage = believing();
    fs::write(stage.path("a"), b"x").unwrap();
    stage.double.gates.close("lookup", true);
    let path = stage.path("other");
    let looking = std::thread::spawn(move || fs::metadata(path).map(drop));
    crate::stage::until("the lookup waits", || stage.double.gates.waiting("lookup") == 1);
    let notifier = stage.session.notifier();
    let telling = std::thread::spawn(move || notifier.inval_entry(NodeId::ROOT, b"a"));
    std::thread::sleep(Duration::from_millis(50));
    let had_to_wait = !telling.is_finished();
    // Attributes need no lock of the directory's.
    assert_eq!(stage.session.notifier().inval_attributes(NodeId::ROOT), Told::Done);
    stage.double.gates.open("lookup");
    assert_eq!(telling.join().unwrap(), Told::Done);
    assert!(looking.join().unwrap().is_err());
    println!("inval_entry waited for a LOOKUP in its directory: {had_to_wait}");
}

#[test]
fn a_close_is_not_told_of_an_open_that_needs_none() {
    let opened = OpenedFlags::KEEP_CACHE | OpenedFlags::NOFLUSH;
    let stage = Stage::with(Manner { valid: FOREVER, opened, ..Manner::default() }, &Config::default());
    fs::write(stage.path("a"), b"data").unwrap();
    assert_eq!(fs::read(stage.path("a")).unwrap(), b"data");
    assert_eq!(stage.calls("flush"), 0);
}

fn listed(stage: &Stage) -> usize {
    fs::read_dir(stage.root()).unwrap().count()
}

fn listings(stage: &Stage) -> u64 {
    stage.calls("readdir") + stage.calls("readdirplus")
}

fn keeping_listings() -> Stage {
    let opened_dir = OpenedFlags::CACHE_DIR | OpenedFlags::KEEP_CACHE;
    let manner = Manner { valid: FOREVER, opened_dir, ..Manner::default() };
    let stage = Stage::with(manner, &Config::default()).undisturbed();
    for name in ["a", "b", "c"] {
        fs::write(stage.path(name), b"").unwrap();
    }
    stage
}

#[test]
fn a_listing_is_kept_until_its_pages_are_dropped() {
    let stage = keeping_listings();
    assert_eq!(listed(&stage), 3);
    let asked = listings(&stage);
    assert_eq!(listed(&stage), 3);
    assert_eq!(listings(&stage), asked, "it is kept");
    assert_eq!(stage.session.notifier().inval_data(NodeId::ROOT, 0, 0), Told::Done);
    assert_eq!(listed(&stage), 3);
    assert_ne!(listings(&stage), asked, "it is dropped");
    fs::remove_file(stage.path("c")).unwrap();
    assert_eq!(listed(&stage), 2, "its own changes the kernel knows");
}

#[test]
fn any_name_waits_for_those_who_list_its_directory_and_pages_do_not() {
    let stage = keeping_listings();
    let node = NodeId::ROOT;
    stage.double.gates.close("readdirplus", true);
    let root = stage.root().to_path_buf();
    let listing = std::thread::spawn(move || fs::read_dir(root).unwrap().count());
    crate::stage::until("the listing waits", || stage.double.gates.waiting("readdirplus") == 1);
    let notifier = stage.session.notifier();
    let telling = std::thread::spawn(move || notifier.inval_entry(NodeId::ROOT, b"."));
    assert_eq!(stage.session.notifier().inval_data(node, 0, 0), Told::Done);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!telling.is_finished(), "it has to wait");
    stage.double.gates.open("readdirplus");
    assert_eq!(telling.join().unwrap(), Told::Unknown);
    assert_eq!(listing.join().unwrap(), 3);
}
