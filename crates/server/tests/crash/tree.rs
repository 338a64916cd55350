//! What a mount holds exclusively, the server killed over it: a tree that goes in one operation goes once and nothing else
//! with it; and nobody is let in between before the mount has had the time to get back what it held.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
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
use crate::wire::Procedure;

const TXN: TxnId = TxnId(1);
const PATIENCE: Duration = Duration::from_secs(30);

const fn caps(procedure: CapsProc) -> Procedure {
    Procedure { program: CAPS_PROGRAM, version: CAPS_V1, number: procedure.as_u32() }
}

/// A mount that can be called back: on one connection for as long as the server lives.
struct Mount {
    world: Rc<World>,
    session: SessionId,
    line: TcpStream,
    ticket: Ticket,
    in_grace: bool,
    root: Vec<u8>,
    /// Calls of the server's that were not answered yet.
    calls: Vec<Vec<u8>>,
}

fn connect(world: &World) -> TcpStream {
    let line = TcpStream::connect(world.address()).unwrap();
    line.set_read_timeout(Some(PATIENCE)).unwrap();
    line
}

impl Mount {
    fn new(world: &Rc<World>, session: SessionId) -> Self {
        let mount = Procedure { program: MOUNT_PROGRAM, version: MOUNT_V3, number: MOUNTPROC3_MNT };
        let results = world.exchange(&world.call(mount, &to_bytes(&DirPath(b"/export"))));
        let MountRes3::Ok(mounted) = from_bytes(&results).unwrap() else { panic!("not mounted") };
        let (root, line) = (mounted.fhandle.to_vec(), connect(world));
        let (world, ticket, calls) = (Rc::clone(world), Ticket(0), Vec::new());
        let mut this = Self { world, session, line, ticket, in_grace: false, root, calls };
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
        self.line = connect(&self.world);
        self.calls.clear();
        self.hello();
    }

    fn send(&mut self, record: &[u8]) {
        let mut framed = (0x8000_0000 | record.len() as u32).to_be_bytes().to_vec();
        framed.extend_from_slice(record);
        self.line.write_all(&framed).unwrap();
    }

    /// The next record; `None` when the server is gone.
    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut mark = [0; 4];
        self.line.read_exact(&mut mark).ok()?;
        let mut record = vec![0; (u32::from_be_bytes(mark) & 0x7fff_ffff) as usize];
        self.line.read_exact(&mut record).ok()?;
        Some(record)
    }

    /// The results of a call that was sent; `None` when the server died over it.
    fn results(&mut self) -> Option<Vec<u8>> {
        loop {
            let record = self.receive()?;
            if record[4..8] == [0, 0, 0, 1] {
                return Some(record[24..].to_vec());
            }
            self.calls.push(record);
        }
    }

    fn call<R: Decode<'static>>(&mut self, procedure: CapsProc, args: &impl Encode) -> Result<R, CapsStat> {
        let record = self.world.call(caps(procedure), &to_bytes(args));
        self.send(&record);
        let results: &'static [u8] = self.results().expect("the server lives").leak();
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

    fn lookup(&mut self, dir: &[u8], name: &[u8]) -> Vec<u8> {
        let (ticket, dir, want) = (self.ticket, Handle(dir), CapSet::NONE);
        let args = LookupArgs { ticket, dir, name, want_dir: want, want };
        match self.insist::<LookupOk<'_>>(CapsProc::Lookup, &args).unwrap().found {
            Looked::Present(node) => node.handle.0.to_vec(),
            Looked::Absent => panic!("{} is there", name.escape_ascii()),
        }
    }

    /// What is held of it then, and how it looks.
    fn acquire(&mut self, handle: &[u8]) -> (CapSet, ChangeId) {
        let items = vec![AcquireItem { handle: Handle(handle), want: CapSet::ALL_X }];
        let args = AcquireArgs { ticket: self.ticket, items };
        let ok: AcquireOk = self.insist(CapsProc::Acquire, &args).unwrap();
        let acquired = ok.items[0].into_result().unwrap();
        (acquired.grant.held, acquired.attrs.change)
    }

    fn reclaim(&mut self, handles: &[Vec<u8>]) -> Vec<Result<CapSet, CapsStat>> {
        let item = |handle: &'_ Vec<u8>| (handle.clone(), CapSet::ALL_X);
        let held: Vec<_> = handles.iter().map(item).collect();
        let items = held.iter().map(|(handle, held)| ReclaimItem { handle: Handle(handle), held: *held });
        let args = ReclaimArgs { ticket: self.ticket, items: items.collect() };
        let ok: AcquireOk = self.call(CapsProc::Reclaim, &args).unwrap();
        ok.items.iter().map(|item| item.into_result().map(|acquired| acquired.grant.held)).collect()
    }

    /// Waits for a recall and gives back what it asks for.
    fn give_back(&mut self) {
        while self.calls.is_empty() {
            let record = self.receive().expect("the server lives");
            self.calls.push(record);
        }
        for record in std::mem::take(&mut self.calls) {
            let answer = [&record[..4], &[0, 0, 0, 1][..], &[0; 16][..]].concat();
            self.send(&answer);
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

/// The server killed at this point of the removal of a tree.
pub(crate) fn run(point: Point, is_sync: bool) {
    let what = point.name();
    let world = Rc::new(World::new(point, is_sync));
    plant(&world.files());
    let mut nfs = Nfs4Client::new(&world, "tree", 1);
    let mut mount = Mount::new(&world, nfs.session());
    let root = mount.root.clone();
    let tree = mount.lookup(&root, b"t");
    let sub = mount.lookup(&tree, b"sub");
    let dirs = [tree, sub.clone(), mount.lookup(&sub, b"deep")];
    let seen: Vec<_> = dirs.iter().map(|dir| (dir.clone(), mount.acquire(dir))).collect();
    assert!(seen.iter().all(|(_, (held, _))| held.contains(CapSet::FILE_X)), "{seen:?}");
    let batch = |ticket, is_resent| {
        let dirs = seen.iter().map(|(dir, (_, change))| DirSeen { dir: Handle(dir), change: *change });
        let ops =
            vec![BatchOp::RemoveTree { dir: Ref::Handle(Handle(&root)), name: b"t", dirs: dirs.collect() }];
        BatchArgs { ticket, txn: TXN, is_resent, done_through: TxnId(0), ops }
    };
    let stable = |ticket| StableArgs { ticket, through: TXN, done_through: TxnId(0) };
    if point == Point::AfterCommit {
        mount.call::<BatchOk<'_>>(CapsProc::Batch, &batch(mount.ticket, false)).unwrap();
        let sent = to_bytes(&stable(mount.ticket));
        world.kill_over(|| {
            mount.send(&world.call(caps(CapsProc::Stable), &sent));
            mount.results().is_none()
        });
    } else {
        let sent = to_bytes(&batch(mount.ticket, false));
        world.kill_over(|| {
            mount.send(&world.call(caps(CapsProc::Batch), &sent));
            mount.results().is_none()
        });
    }
    let left = names(&world.files());
    match point {
        Point::BeforeMutation => assert_eq!(left, ["beside", "t"], "{what}"),
        // One name of the deepest that has any is gone.
        Point::AfterMutation => assert_eq!(names(&world.files().join("t/sub")).len(), 2, "{what}"),
        _ => assert_eq!(left, ["beside"], "{what}"),
    }
    mount.come_back();
    assert!(mount.in_grace, "{what}: its holder is waited for");
    let reclaimed = mount.reclaim(&dirs);
    for (dir, got) in reclaimed.iter().enumerate() {
        assert!(matches!(got, Ok(CapSet::ALL_X) | Err(CapsStat::Stale)), "{what}: {dir} {got:?}");
    }
    nfs.complete_reclaims();
    let again = batch(mount.ticket, true);
    let result = mount.insist::<BatchOk<'_>>(CapsProc::Batch, &again).unwrap().results[0];
    let Res::Ok(OpResult::Tree(TreeRemoved { left: 0, .. })) = result else { panic!("{what}: {result:?}") };
    assert_eq!(names(&world.files()), ["beside"], "{what}");
    // A new tree of the same name is none of it.
    plant(&world.files());
    let repeated = mount.insist::<BatchOk<'_>>(CapsProc::Batch, &again).unwrap().results[0];
    assert_eq!(repeated, result, "{what}: and gets the same answer ever after");
    let ok = mount.insist::<StableOk>(CapsProc::Stable, &stable(mount.ticket)).unwrap();
    assert_eq!((ok.stable_through, ok.failed.len()), (TXN, 0), "{what}");
    assert_eq!(names(&world.files().join("t")), ["a", "b", "sub"], "{what}");
}

/// A tree whose removal was cut short, and of which its remover did not get everything back, is left alone.
#[test]
fn what_somebody_may_have_put_into_a_tree_meanwhile_does_not_go_with_it() {
    let world = Rc::new(World::new(Point::AfterMutation, true));
    plant(&world.files());
    let mut nfs = Nfs4Client::new(&world, "tree", 1);
    let mut mount = Mount::new(&world, nfs.session());
    let root = mount.root.clone();
    let tree = mount.lookup(&root, b"t");
    let sub = mount.lookup(&tree, b"sub");
    let dirs = [tree, sub.clone(), mount.lookup(&sub, b"deep")];
    let seen: Vec<_> = dirs.iter().map(|dir| (dir.clone(), mount.acquire(dir).1)).collect();
    let batch = |ticket, is_resent| {
        let dirs = seen.iter().map(|(dir, change)| DirSeen { dir: Handle(dir), change: *change });
        let ops =
            vec![BatchOp::RemoveTree { dir: Ref::Handle(Handle(&root)), name: b"t", dirs: dirs.collect() }];
        BatchArgs { ticket, txn: TXN, is_resent, done_through: TxnId(0), ops }
    };
    let sent = to_bytes(&batch(mount.ticket, false));
    world.kill_over(|| {
        mount.send(&world.call(caps(CapsProc::Batch), &sent));
        mount.results().is_none()
    });
    mount.come_back();
    nfs.complete_reclaims();
    fs::write(world.files().join("t/somebody's"), "precious").unwrap();
    let again = batch(mount.ticket, true);
    let result = mount.insist::<BatchOk<'_>>(CapsProc::Batch, &again).unwrap().results[0];
    assert_eq!(result.into_result(), Err(CapsStat::NotHeld));
    assert_eq!(fs::read(world.files().join("t/somebody's")).unwrap(), b"precious");
}

/// A mount holds a directory and a file for itself; the server dies; a stranger comes before the mount does.
#[test]
fn who_comes_in_grace_waits_for_the_mount_that_held_it() {
    let world = Rc::new(World::new(Point::BeforeSend, true));
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
        mount.line.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        if let Some(record) = mount.receive() {
            mount.calls.push(record);
            mount.give_back();
        }
    }
}
