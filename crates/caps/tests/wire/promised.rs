//! Names promised by themselves: where they are given instead of the directory, what takes them, and what does not.

use holdfast_state::Grace;
use holdfast_vfs::{AttrMask, CreateHow, CreateMode, FsError, LocalDeed, Name, Pledge, RemoveKind, SetAttrs};
use holdfast_wire::caps::*;

use crate::world::*;

impl Client {
    fn find(&mut self, dir: &[u8], name: &str) -> Result<FindOk<'static>, CapsStat> {
        let (ticket, dir, name) = (self.ticket, Handle(dir), name.as_bytes());
        let args = LookupArgs { ticket, dir, name, want_dir: CapSet::FILE_S, want: CapSet::ALL_S };
        self.call(CapsProc::Find, &args)
    }

    /// The token of a name that must be promised.
    fn promised(&mut self, dir: &[u8], name: &str) -> &'static [u8] {
        let found = self.find(dir, name).unwrap();
        found.promise.expect("a promise").token.0
    }
}

/// A server, one that changes names, one that looks, and a directory that they fight for.
struct World {
    server: Server,
    changer: Client,
    looker: Client,
    root: Vec<u8>,
    txn: u64,
}

impl World {
    fn new() -> Self {
        let server = Server::new();
        let (mut changer, looker) = (Client::new(&server, "a"), Client::new(&server, "b"));
        let root = server.root_handle();
        changer.batch(1, vec![create(at(&root), "here", b""), create(at(&root), "there", b"")]).unwrap();
        let mut world = Self { server, changer, looker, root, txn: 1 };
        for name in ["first", "second"] {
            let answer = world.looker.find(&world.root, "here").unwrap();
            assert!(answer.looked.dir.grant.held.contains(CapSet::FILE_S) && answer.promise.is_none());
            assert_eq!(world.create(name), Err(CapsStat::Delay));
            world.looker.give_back();
            world.create(name).unwrap();
            world.server.pass(10);
        }
        world
    }

    /// By whom changes names. What is put off is not counted.
    fn batch(&mut self, op: BatchOp<'_>) -> Result<(), CapsStat> {
        let done = self.changer.batch(self.txn + 1, vec![op])?;
        self.txn += 1;
        assert_eq!(refused(&done.results[0]), None);
        Ok(())
    }

    fn create(&mut self, name: &str) -> Result<(), CapsStat> {
        let root = self.root.clone();
        self.batch(create(at(&root), name, b""))
    }

    fn recalled(&mut self) -> Vec<Vec<u8>> {
        self.looker.look();
        self.looker.recalls.iter().map(|(token, ..)| token.clone()).collect()
    }
}

#[test]
fn in_a_directory_that_others_change_all_the_time_names_are_promised_and_their_changes_alone_take_them() {
    let mut w = World::new();
    let root = w.root.clone();
    let found = w.looker.find(&root, "here").unwrap();
    assert!(!found.looked.dir.grant.held.contains(CapSet::FILE_S), "it would be taken again at once");
    assert!(matches!(found.looked.found, Looked::Present(_)));
    let here = found.promise.unwrap();
    assert_eq!(w.looker.promised(&root, "here"), here.token.0, "one name has one token");
    // Also to who has the directory for the moment, for its attributes.
    let held = w.looker.acquire(&root, CapSet::FILE_S).unwrap().grant;
    assert_eq!(held.held, CapSet::FILE_S);
    assert_eq!(w.looker.promised(&root, "here"), here.token.0);
    w.looker.release(&root, CapSet::NONE, held.seq).unwrap();
    let none = w.looker.promised(&root, "none");
    assert_ne!(here.token.0, none);
    for n in 0..100 {
        w.create(&format!("other-{n}")).unwrap();
        w.batch(unlink(at(&root), &format!("other-{n}"), None)).unwrap();
    }
    assert!(w.recalled().is_empty(), "nothing of that is about them");
    assert_eq!(w.create("none"), Err(CapsStat::Delay));
    assert_eq!(w.recalled(), [none]);
    assert!(w.looker.find(&root, "none").unwrap().promise.is_none(), "not while it is asked back");
    w.looker.give_back();
    w.create("none").unwrap();
    assert!(matches!(w.looker.find(&root, "none").unwrap().looked.found, Looked::Present(_)));
    // The object's own is in the way as well, and one thing is asked for at a time.
    for _ in 0..2 {
        assert_eq!(w.batch(unlink(at(&root), "here", None)), Err(CapsStat::Delay));
        w.looker.give_back();
    }
    w.batch(unlink(at(&root), "here", None)).unwrap();
    let gone = w.looker.find(&root, "here").unwrap();
    assert!(gone.looked.found == Looked::Absent && gone.promise.is_some());
}

#[test]
fn a_directory_that_is_left_alone_is_promised_as_a_whole_again_and_its_names_stay() {
    let mut w = World::new();
    let root = w.root.clone();
    let token = w.looker.promised(&root, "none");
    w.server.pass(3_000);
    let answer = w.looker.find(&root, "none").unwrap();
    assert!(answer.looked.dir.grant.held.contains(CapSet::FILE_S) && answer.promise.is_none());
    assert_eq!(w.create("none"), Err(CapsStat::Delay));
    assert_eq!(w.recalled(), [&root[..]], "one thing at a time");
    w.looker.give_back();
    assert_eq!(w.create("none"), Err(CapsStat::Delay));
    assert_eq!(w.recalled(), [token]);
    w.looker.give_back();
    w.create("none").unwrap();
}

#[test]
fn who_does_not_know_of_names_is_served_as_ever() {
    let mut w = World::new();
    let root = w.root.clone();
    assert_eq!(w.looker.lookup(&root, "here").unwrap().dir.grant.held, CapSet::FILE_S);
    assert_eq!(w.create("none"), Err(CapsStat::Delay));
    assert_eq!(w.recalled(), [&root[..]]);
}

#[test]
fn what_other_protocols_and_local_processes_do_takes_names_too() {
    let mut w = World::new();
    let (root, dir) = (w.root.clone(), w.server.root());
    let [none, here] = ["none", "here"].map(|name| w.looker.promised(&root, name));
    let name = |name: &'static str| Name::new(name.as_bytes()).unwrap();
    let set = SetAttrs::default();
    let how = CreateHow { mode: CreateMode::Unchecked, set: &set, open: None, want: AttrMask::NONE };
    w.server.as_nfs(|fs, cx| {
        assert!(fs.create(cx, &dir, name("any"), &how).is_ok());
        assert!(fs.remove(cx, &dir, name("any"), RemoveKind::NonDirectory).is_ok());
        assert!(fs.lookup(cx, &dir, name("here"), AttrMask::STAT).is_ok());
        assert_eq!(fs.create(cx, &dir, name("none"), &how).err(), Some(FsError::Delay));
    });
    assert_eq!(w.recalled(), [none]);
    assert_eq!(w.server.pledges_held(&dir), [Pledge::Directory, Pledge::Directory]);
    w.server.deed_outside(&dir, LocalDeed::ChangedEntries);
    let mut recalled: Vec<_> = w.recalled().into_iter().filter(|token| *token != root).collect();
    recalled.dedup();
    assert_eq!(recalled, [none, here]);
    w.looker.give_back();
    assert_eq!(w.server.pledges_held(&dir), []);
    w.server.as_nfs(|fs, cx| assert!(fs.create(cx, &dir, name("none"), &how).is_ok()));
}

#[test]
fn who_wants_the_directory_to_himself_has_names_recalled_and_then_none_is_promised() {
    let mut w = World::new();
    let root = w.root.clone();
    let token = w.looker.promised(&root, "none");
    w.server.pass(3_000);
    assert!(!w.changer.acquire(&root, CapSet::FILE_X).unwrap().grant.held.contains(CapSet::FILE_X));
    assert_eq!(w.recalled(), [token]);
    w.looker.give_back();
    assert_eq!(w.changer.acquire(&root, CapSet::FILE_X).unwrap().grant.held, CapSet::FILE_X);
    assert_eq!(w.looker.find(&root, "none"), Err(CapsStat::Delay), "it is asked what it has changed");
    w.changer.give_back();
    assert!(w.looker.find(&root, "none").is_ok());
}

#[test]
fn nothing_is_promised_to_who_may_not_search() {
    let mut w = World::new();
    let root = w.root.clone();
    let set = SetAttrs { mode: Some(0o700), ..SetAttrs::default() };
    let dir = w.server.root();
    let closed = w.server.as_nfs(|fs, cx| {
        let name = Name::new(b"closed").unwrap();
        fs.make(cx, &dir, name, holdfast_vfs::NewNode::Directory, &set).unwrap().0.handle
    });
    let closed = w.server.sealed(closed);
    w.looker.auth = user(1000);
    let found = w.looker.find(&closed, "any");
    assert_eq!(found, Err(CapsStat::Access));
    assert_eq!(w.server.running.manager.look(holdfast_state::Engine::caps_names), 0);
    assert!(w.looker.find(&root, "here").unwrap().promise.is_some());
}

#[test]
fn a_token_is_good_for_release_alone_and_not_after_a_restart() {
    let mut w = World::new();
    let root = w.root.clone();
    let promise = w.looker.find(&root, "none").unwrap().promise.unwrap();
    let token = promise.token.0;
    assert_eq!(w.looker.acquire(token, CapSet::ALL_S).err(), Some(CapsStat::BadHandle));
    assert_eq!(w.looker.release(token, CapSet::NONE, promise.seq - 1), Err(CapsStat::Crossed));
    // Another's release of it is no concern of whoever holds it.
    assert!(w.changer.release(token, CapSet::NONE, promise.seq).is_ok());
    assert_eq!(w.create("none"), Err(CapsStat::Delay));
    drop(w.changer);
    let mount = w.looker.unplug();
    let server = w.server.restart(Grace::Over);
    let mut looker = mount.again(&server, "b");
    looker.hello(TxnId(0)).unwrap();
    let mut changer = Client::new(&server, "c");
    changer.batch(1, vec![create(at(&root), "none", b"")]).unwrap();
    assert_eq!(looker.release(token, CapSet::NONE, u64::MAX).unwrap().held, CapSet::NONE);
}

/// Of an export that moves: whoever holds nothing but a name in it would go by that for ever.
#[test]
fn it_is_known_in_which_export_a_name_is_promised_and_to_whom() {
    let mut w = World::new();
    let (root, export) = (w.root.clone(), w.server.running.namespace.exports()[0].id);
    assert_eq!(w.server.running.caps.held_names(), []);
    let token = w.looker.promised(&root, "none");
    let [(name, of)] = w.server.running.caps.held_names()[..] else { panic!("one name") };
    assert_eq!(of, export);
    let holders = w.server.running.manager.step(|engine, now| engine.moved_away(name, now)).unwrap();
    assert_eq!(holders.len(), 1, "it is told");
    assert_eq!(w.recalled(), [token]);
    w.looker.give_back();
    assert_eq!(w.server.running.caps.held_names(), []);
}
