//! What a mount holds exclusively, the server killed over it: a tree that goes name by name goes once and nothing else
//! with it; and nobody is let in between before the mount has had the time to get back what it held.

use std::fs;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use holdfast_base::{ChangeId, SessionId};
use holdfast_ledger::failpoint::Point;
use holdfast_wire::caps::*;
use holdfast_wire::mount3::{DirPath, MOUNT_PROGRAM, MOUNT_V3, MOUNTPROC3_MNT, MountRes3};
use holdfast_xdr::{Decode, Encode, from_bytes, to_bytes};

use crate::nfs4::Client as Nfs4Client;
use crate::server::{World, names};
use crate::wire::{Line, PATIENCE, Procedure};

const TXN: TxnId = TxnId(1);

const fn caps(procedure: CapsProc) -> Procedure {
    Procedure { program: CAPS_PROGRAM, version: CAPS_V1, number: procedure.as_u32() }
}

/// A mount that can be called back: on one connection for as long as the server lives.
pub(crate) struct Mount {
    world: Rc<World>,
    session: SessionId,
    line: Line,
    ticket: Ticket,
    in_grace: bool,
    pub(crate) root: Vec<u8>,
}

impl Mount {
    pub(crate) fn new(world: &Rc<World>, session: SessionId) -> Self {
        let mount = Procedure { program: MOUNT_PROGRAM, version: MOUNT_V3, number: MOUNTPROC3_MNT };
        let results = world.exchange(&world.call(mount, &to_bytes(&DirPath(b"/export"))));
        let MountRes3::Ok(mounted) = from_bytes(&results).unwrap() else { panic!("not mounted") };
        let (root, line) = (mounted.fhandle.to_vec(), world.connect(0));
        let (world, ticket) = (Rc::clone(world), Ticket(0));
        let mut this = Self { world, session, line, ticket, in_grace: false, root };
        this.hello();
        this
    }

    fn hello(&mut self) {
        let (session, features) = (self.session, Features::default());
        let args = HelloArgs { session, incarnation: [3; 16], features, done_through: TxnId(0) };
        let ok: HelloOk = self.call(CapsProc::Hello, &args).unwrap();
        (self.ticket, self.in_grace) = (ok.ticket, ok.in_grace);
    }

    /// After the server's death.
    fn come_back(&mut self) {
        self.line = self.world.connect(0);
        self.hello();
    }

    fn call<R: Decode<'static>>(&mut self, procedure: CapsProc, args: &impl Encode) -> Result<R, CapsStat> {
        let record = self.world.call(caps(procedure), &to_bytes(args));
        let results: &'static [u8] = self.line.exchange(&record).expect("the server lives").leak();
        from_bytes::<Res<R>>(results).unwrap().into_result()
    }

    /// The same, until there is no reason any more to come again.
    fn insist<R: Decode<'static>>(&mut self, procedure: CapsProc, args: &impl Encode) -> Result<R, CapsStat> {
        let began = Instant::now();
        loop {
            match self.call(procedure, args) {
                Err(CapsStat::Grace | CapsStat::Delay) if began.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                other => return other,
            }
        }
    }

    /// The same, of arguments that are encoded already; gives all the results.
    fn insist_on(&mut self, procedure: CapsProc, args: &[u8]) -> Vec<u8> {
        let began = Instant::now();
        loop {
            let record = self.world.call(caps(procedure), args);
            let results = self.line.exchange(&record).expect("the server lives");
            let status = u32::from_be_bytes(results[..4].try_into().unwrap());
            let is_passing = [CapsStat::Grace, CapsStat::Delay].map(CapsStat::as_u32).contains(&status);
            if !is_passing || began.elapsed() > PATIENCE {
                return results;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn lookup(&mut self, dir: &[u8], name: &[u8]) -> Vec<u8> {
        let (ticket, dir, want) = (self.ticket, Handle(dir), CapSet::NONE);
        let args = LookupArgs { ticket, dir, name, want_dir: want, want };
        match self.insist::<LookupOk<'_>>(CapsProc::Lookup, &args).unwrap().found {
            Looked::Present(node) => node.handle.0.to_vec(),
            Looked::Absent => panic!("{} is there", name.escape_ascii()),
        }
    }

    /// What is held of it then, and how it looks.
    pub(crate) fn acquire(&mut self, handle: &[u8]) -> (CapSet, ChangeId) {
        let items = vec![AcquireItem { handle: Handle(handle), want: CapSet::ALL_X }];
        let args = AcquireArgs { ticket: self.ticket, items };
        let ok: AcquireOk = self.insist(CapsProc::Acquire, &args).unwrap();
        let acquired = ok.items[0].into_result().unwrap();
        (acquired.grant.held, acquired.attrs.change)
    }

    fn reclaim(&mut self, handles: &[Vec<u8>]) -> Vec<Result<CapSet, CapsStat>> {
        self.claim(handles).into_iter().map(|item| item.map(|grant| grant.held)).collect()
    }

    fn claim(&mut self, handles: &[Vec<u8>]) -> Vec<Result<Grant, CapsStat>> {
        let items = handles.iter().map(|handle| ReclaimItem { handle: Handle(handle), held: CapSet::ALL_X });
        let args = ReclaimArgs { ticket: self.ticket, items: items.collect() };
        let ok: AcquireOk = self.call(CapsProc::Reclaim, &args).unwrap();
        ok.items.iter().map(|item| item.into_result().map(|acquired| acquired.grant)).collect()
    }

    /// Waits for a recall and gives back what it asks for.
    fn give_back(&mut self) {
        while self.line.calls.is_empty() {
            let record = self.line.receive().expect("the server lives");
            self.line.calls.push(record);
        }
        for record in std::mem::take(&mut self.line.calls) {
            let answer = [&record[..4], &[0, 0, 0, 1][..], &[0; 16][..]].concat();
            self.line.send(&answer).expect("the server lives");
            let recall = from_bytes::<RecallArgs<'_>>(&record[40..]).unwrap();
            let items = recall.items.iter();
            let items = items
                .map(|item| ReleaseItem { handle: item.handle, keep: item.keep, seq: item.seq })
                .collect();
            let args = ReleaseArgs { ticket: self.ticket, items };
            self.call::<ReleaseOk>(CapsProc::Release, &args).unwrap();
        }
    }
}

/// `t` with files, a directory in it with files, and an empty one; and a file beside it.
fn plant(files: &Path) {
    fs::create_dir_all(files.join("t/sub/deep")).unwrap();
    for name in ["t/a", "t/b", "t/sub/c", "t/sub/d", "beside"] {
        fs::write(files.join(name), name).unwrap();
    }
}

/// Everything in the tree, by path, and its handle: as `rm -r` goes through it.
const TREE: [&str; 7] = ["t/a", "t/b", "t/sub/c", "t/sub/d", "t/sub/deep", "t/sub", "t"];

/// A tree that a mount has all to itself, and its root.
fn seen(mount: &mut Mount) -> Vec<(&'static str, Vec<u8>)> {
    let mut handles: Vec<(&str, Vec<u8>)> = vec![("", mount.root.clone())];
    for path in TREE.iter().rev() {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = handles.iter().find(|(of, _)| *of == dir).unwrap().1.clone();
        handles.push((path, mount.lookup(&dir, name.as_bytes())));
    }
    for (path, handle) in &handles {
        assert!(mount.acquire(handle).0.contains(CapSet::LINK_X), "{path}");
    }
    handles
}

/// The removal of the tree, name by name: four runs of one directory each.
fn removal(handles: &[(&'static str, Vec<u8>)], ticket: Ticket, is_resent: bool) -> Vec<u8> {
    let of = |path: &str| {
        let (_, handle) = handles.iter().find(|(of, _)| *of == path).unwrap();
        Ref::Handle(Handle(handle))
    };
    let op = |path: &'static str| {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let (dir, name, victim) = (of(dir), name.as_bytes(), Some(of(path)));
        if ["t/sub/deep", "t/sub", "t"].contains(&path) {
            BatchOp::Rmdir { dir, name, victim }
        } else {
            BatchOp::Unlink { dir, name, victim }
        }
    };
    let ops = TREE.iter().map(|path| op(path)).collect();
    let how = if is_resent { BatchHow::AGAIN } else { BatchHow::FIRST };
    to_bytes(&BatchArgs { ticket, txn: TXN, how, done_through: TxnId(0), ops })
}

/// The server killed at this point of the removal of a tree.
pub(crate) fn run(point: Point, is_sync: bool) {
    let what = point.name();
    let world = Rc::new(World::lasting(None, point, is_sync));
    plant(&world.files());
    let mut nfs = Nfs4Client::new(&world, "tree", 1);
    let mut mount = Mount::new(&world, nfs.session());
    let handles = seen(&mut mount);
    let stable = |ticket| StableArgs { ticket, through: TXN, done_through: TxnId(0) };
    let batch = removal(&handles, mount.ticket, false);
    let died = if point == Point::AfterCommit {
        mount.line.exchange(&world.call(caps(CapsProc::Batch), &batch)).expect("the server lives");
        world.call(caps(CapsProc::Stable), &to_bytes(&stable(mount.ticket)))
    } else {
        world.call(caps(CapsProc::Batch), &batch)
    };
    world.kill_over(|| mount.line.exchange(&died).is_none());
    let left = names(&world.files());
    let in_tree = || names(&world.files().join("t"));
    match point {
        Point::BeforeMutation => assert_eq!(in_tree(), ["a", "b", "sub"], "{what}"),
        // Of names that go together one is gone.
        Point::AfterMutation => assert_eq!(in_tree(), ["b", "sub"], "{what}"),
        Point::AfterJournal => assert_eq!(in_tree(), ["sub"], "{what}: and those beside it"),
        _ => assert_eq!(left, ["beside"], "{what}"),
    }
    mount.come_back();
    assert!(mount.in_grace, "{what}: its holder is waited for");
    let held: Vec<_> = handles.iter().map(|(_, handle)| handle.clone()).collect();
    for (reclaimed, (path, _)) in mount.reclaim(&held).iter().zip(&handles) {
        assert!(
            matches!(reclaimed, Ok(CapSet::ALL_X) | Err(CapsStat::Stale)),
            "{what}: {path} {reclaimed:?}"
        );
    }
    nfs.complete_reclaims();
    // Somebody puts a file of his own in the place of one that is gone.
    let theirs = world.files().join("t/a");
    let is_taken = matches!(point, Point::AfterMutation | Point::AfterJournal);
    if is_taken {
        fs::write(&theirs, "precious").unwrap();
    }
    let again = removal(&handles, mount.ticket, true);
    let results = mount.insist_on(CapsProc::Batch, &again);
    let refusals = |results: &[u8]| -> Vec<_> {
        let told = from_bytes::<Res<BatchOk<'_>>>(results).unwrap().into_result().unwrap();
        told.results.iter().map(|result| result.into_result().err()).collect()
    };
    let mut expected = vec![None; TREE.len()];
    if is_taken {
        expected[6] = Some(CapsStat::NotEmpty);
        assert_eq!(fs::read(&theirs).unwrap(), b"precious", "{what}");
        assert_eq!(in_tree(), ["a"], "{what}");
    } else {
        assert_eq!(names(&world.files()), ["beside"], "{what}");
    }
    assert_eq!(refusals(&results), expected, "{what}");
    // A new tree of the same name is none of it.
    plant(&world.files());
    let repeated = mount.insist_on(CapsProc::Batch, &again);
    assert_eq!(refusals(&repeated), expected, "{what}: and gets the same answer ever after");
    let ok = mount.insist::<StableOk>(CapsProc::Stable, &stable(mount.ticket)).unwrap();
    assert_eq!((ok.stable_through, ok.failed.len()), (TXN, 0), "{what}");
    assert_eq!(in_tree(), ["a", "b", "sub"], "{what}");
}

/// The server is killed when it has written what a mount had sent, and before it has said so; a process on its host writes there while
/// it is dead, or does not.
#[test]
fn what_was_changed_while_the_server_was_dead_is_told_from_what_it_was_in_the_middle_of() {
    for is_theirs in [false, true] {
        let world = Rc::new(World::lasting(None, Point::AfterMutation, true));
        plant(&world.files());
        let place = world.files().join("beside");
        let nfs = Nfs4Client::new(&world, "holder", 1);
        let mut mount = Mount::new(&world, nfs.session());
        let root = mount.root.clone();
        let file = mount.lookup(&root, b"beside");
        assert_eq!(mount.acquire(&file).0, CapSet::ALL_X);
        let ops = vec![BatchOp::Data { object: Ref::Handle(Handle(&file)), offset: 0, data: b"BESIDE" }];
        let (ticket, txn, how, done_through) = (mount.ticket, TXN, BatchHow::FIRST, TxnId(0));
        let batch = to_bytes(&BatchArgs { ticket, txn, how, done_through, ops });
        let died = world.call(caps(CapsProc::Batch), &batch);
        world.kill_over(|| {
            let is_dead = mount.line.exchange(&died).is_none();
            assert_eq!(fs::read(&place).unwrap(), b"BESIDE");
            std::thread::sleep(Duration::from_millis(150));
            if is_theirs {
                fs::write(&place, "theirs").unwrap();
            }
            is_dead
        });
        mount.come_back();
        assert!(mount.in_grace);
        let grant = mount.claim(&[file])[0].unwrap();
        assert_eq!(grant.held, CapSet::ALL_X);
        assert_eq!(grant.flags.contains(GrantFlags::CHANGED_SINCE), is_theirs);
    }
}

/// A mount holds a directory and a file for itself; the server dies; a stranger comes before the mount does.
#[test]
fn who_comes_in_grace_waits_for_the_mount_that_held_it() {
    let world = Rc::new(World::lasting(None, Point::BeforeSend, true));
    plant(&world.files());
    let mut nfs = Nfs4Client::new(&world, "holder", 1);
    let mut mount = Mount::new(&world, nfs.session());
    let root = mount.root.clone();
    let held = [root.clone(), mount.lookup(&root, b"beside")];
    for handle in &held {
        assert_eq!(mount.acquire(handle).0, CapSet::ALL_X);
    }
    world.kill();
    // Another mount, which did not hold anything: nothing is its to reclaim, and nothing is given to it.
    let mut stranger = Nfs4Client::introduced(&world, "stranger", 1);
    assert_eq!(stranger.try_open(b"beside"), holdfast_wire::nfs4::NfsStat4::Grace);
    let mut other = Mount::new(&world, stranger.session());
    assert!(other.in_grace);
    let refused = other.reclaim(&held);
    assert!(refused.iter().all(Result::is_err), "{refused:?}");
    stranger.complete_reclaims();
    let items = vec![AcquireItem { handle: Handle(&held[1]), want: CapSet::ALL_S }];
    let args = AcquireArgs { ticket: other.ticket, items };
    assert_eq!(other.call::<AcquireOk>(CapsProc::Acquire, &args).unwrap_err(), CapsStat::Grace);
    // The holder has it all back, exclusively, and grace ends with it.
    mount.come_back();
    assert!(mount.in_grace);
    assert_eq!(mount.reclaim(&held), [Ok(CapSet::ALL_X); 2]);
    nfs.complete_reclaims();
    assert_eq!(stranger.try_open(b"beside"), holdfast_wire::nfs4::NfsStat4::Delay, "it is recalled first");
    mount.give_back();
    let began = Instant::now();
    while stranger.try_open(b"beside") != holdfast_wire::nfs4::NfsStat4::Ok {
        assert!(began.elapsed() < PATIENCE);
        mount.line.be_patient_for(Duration::from_millis(50));
        if let Some(record) = mount.line.receive() {
            mount.line.calls.push(record);
            mount.line.be_patient_for(PATIENCE);
            mount.give_back();
        }
    }
}
