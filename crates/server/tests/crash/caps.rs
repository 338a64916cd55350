//! Batches of the caps program: every kind of operation, the server killed at every step of it and between two; the
//! batch sent again under its number is answered as done once, and the disk shows one effect.

use std::cell::Cell;
use std::rc::Rc;

use holdfast_base::SessionId;
use holdfast_ledger::failpoint::Point;
use holdfast_wire::caps::*;
use holdfast_wire::mount3::{DirPath, MOUNT_PROGRAM, MOUNT_V3, MOUNTPROC3_MNT, MountRes3};
use holdfast_xdr::{Decode, Encode, from_bytes, to_bytes};

use crate::cases::{CASES, Case, POOLED, TXN};
use crate::everything::EVERYTHING;
use crate::nfs3::clear;
use crate::nfs4::Client as Nfs4Client;
use crate::server::World;
use crate::wire::Procedure;

/// Results as far as they are the same whenever a batch is executed.
pub(crate) fn shapes(results: &[Res<OpResult<'static>>]) -> Vec<String> {
    let attrs = |attrs: Option<Attrs>| attrs.map(|a| (a.kind, a.mode, a.nlink, a.size));
    let shape = |result: &Res<OpResult<'static>>| match result {
        Res::Failed(stat) => format!("refused {stat}"),
        Res::Ok(OpResult::Done | OpResult::Changed(None)) => "done".to_owned(),
        Res::Ok(OpResult::Made(made)) => {
            format!("made {} {:?}", made.other_name.is_empty(), attrs(made.attrs))
        }
        Res::Ok(OpResult::Changed(changed)) => format!("changed {:?}", attrs(*changed)),
        Res::Ok(OpResult::Appended(done)) => format!("appended {} {}", done.offset, done.count),
    };
    results.iter().map(shape).collect()
}

/// Results but for times of access: to look at what was done is one.
fn told(results: &[Res<OpResult<'static>>]) -> Vec<Res<OpResult<'static>>> {
    let untouched = |attrs: Attrs| Attrs { atime: Time::default(), ..attrs };
    let one = |result: &Res<OpResult<'static>>| match result {
        Res::Ok(OpResult::Made(made)) => {
            Res::Ok(OpResult::Made(Made { attrs: made.attrs.map(untouched), ..*made }))
        }
        Res::Ok(OpResult::Changed(attrs)) => Res::Ok(OpResult::Changed(attrs.map(untouched))),
        Res::Ok(OpResult::Appended(done)) => {
            Res::Ok(OpResult::Appended(Appended { attrs: done.attrs.map(untouched), ..*done }))
        }
        other => *other,
    };
    results.iter().map(one).collect()
}

/// What a batch's operations are told besides the directory: handles that a mount asks for.
type Second = fn(&Mount, Ticket) -> Vec<u8>;

/// A mount whose connections last one call.
pub(crate) struct Mount {
    world: Rc<World>,
    session: SessionId,
    incarnation: Cell<u8>,
    /// The last of those that have said BYE.
    gone: Cell<u8>,
    root: Vec<u8>,
}

const fn caps(procedure: CapsProc) -> Procedure {
    Procedure { program: CAPS_PROGRAM, version: CAPS_V1, number: procedure.as_u32() }
}

impl Mount {
    pub(crate) fn new(world: &Rc<World>) -> Self {
        let session = Nfs4Client::new(world, "caps", 1).session();
        let mount = Procedure { program: MOUNT_PROGRAM, version: MOUNT_V3, number: MOUNTPROC3_MNT };
        let results = world.exchange(&world.call(mount, &to_bytes(&DirPath(b"/export"))));
        let MountRes3::Ok(mounted) = from_bytes(&results).unwrap() else { panic!("not mounted") };
        let root = mounted.fhandle.to_vec();
        let (incarnation, gone) = (Cell::new(0), Cell::new(0));
        Self { world: Rc::clone(world), session, incarnation, gone, root }
    }

    fn call<R: Decode<'static>>(&self, procedure: CapsProc, args: &impl Encode) -> Result<R, CapsStat> {
        let call = self.world.call(caps(procedure), &to_bytes(args));
        let results: &'static [u8] = self.world.exchange(&call).leak();
        from_bytes::<Res<R>>(results).unwrap().into_result()
    }

    pub(crate) fn hello(&self) -> HelloOk {
        self.hello_as(self.incarnation.get())
    }

    fn hello_as(&self, incarnation: u8) -> HelloOk {
        let args = HelloArgs {
            session: self.session,
            incarnation: [incarnation; 16],
            features: Features::default(),
            done_through: TxnId(0),
        };
        self.call(CapsProc::Hello, &args)
            .unwrap_or_else(|stat| panic!("HELLO of mount {incarnation}: {stat:?}"))
    }

    /// All so far go for good: of one client there may be no more than so many at a time.
    fn leave(&self) {
        let last = self.incarnation.get();
        for incarnation in self.gone.replace(last) + 1..=last {
            let ticket = self.hello_as(incarnation).ticket;
            self.call::<()>(CapsProc::Bye, &ByeArgs { ticket }).unwrap();
        }
    }

    pub(crate) fn lookup(&self, ticket: Ticket, name: &[u8]) -> Vec<u8> {
        let (dir, want) = (Handle(&self.root), CapSet::NONE);
        let args = LookupArgs { ticket, dir, name, want_dir: want, want };
        match self.call::<LookupOk<'_>>(CapsProc::Lookup, &args).unwrap().found {
            Looked::Present(node) => node.handle.0.to_vec(),
            Looked::Absent => Vec::new(),
        }
    }

    /// Handles of two files for creates in the exported directory, one behind the other.
    fn pool(&self, ticket: Ticket) -> Vec<u8> {
        let args = PoolArgs { ticket, dir: Handle(&self.root), count: 2, back: Vec::new() };
        let files = self.call::<PoolOk<'_>>(CapsProc::Pool, &args).unwrap().files;
        assert_eq!((files.len(), files[0].handle.0.len()), (2, files[1].handle.0.len()));
        files.iter().flat_map(|file| file.handle.0.to_vec()).collect()
    }

    /// As the next client of its own, with what must be there before the batch.
    pub(crate) fn begin(&self, case: &Case, second: Second) -> (Ticket, Vec<u8>) {
        self.incarnation.set(self.incarnation.get() + 1);
        (case.prepare)(&self.world.files());
        let ticket = self.hello().ticket;
        (ticket, second(self, ticket))
    }

    pub(crate) fn batch(&self, case: &Case, (ticket, old): (Ticket, &[u8]), is_resent: bool) -> Vec<u8> {
        let ops = (case.ops)(Ref::Handle(Handle(&self.root)), old);
        let how = if is_resent { BatchHow::AGAIN } else { BatchHow::FIRST };
        to_bytes(&BatchArgs { ticket, txn: TXN, how, done_through: TxnId(0), ops })
    }

    pub(crate) fn send(&self, batch: &[u8]) -> Vec<Res<OpResult<'static>>> {
        let call = self.world.call(caps(CapsProc::Batch), batch);
        let results: &'static [u8] = self.world.exchange(&call).leak();
        from_bytes::<Res<BatchOk<'_>>>(results).unwrap().into_result().unwrap().results
    }

    /// Sends it to a server that dies when it passes the point for the how manieth time; whether it did.
    pub(crate) fn strike_once(&self, nth: usize, batch: &[u8], between: impl FnOnce()) -> bool {
        let call = self.world.call(caps(CapsProc::Batch), batch);
        self.world.kill_at(nth, &call, between).is_none()
    }

    pub(crate) fn stabilize(&self, ticket: Ticket) {
        let args = StableArgs { ticket, through: TXN, done_through: TxnId(0) };
        let ok = self.call::<StableOk>(CapsProc::Stable, &args).unwrap();
        assert_eq!((ok.stable_through, ok.failed.len()), (TXN, 0));
    }

    /// What a batch is answered and leads to when nothing breaks.
    fn undisturbed(&self, case: &Case, second: Second) -> Vec<String> {
        let (ticket, old) = self.begin(case, second);
        let results = self.send(&self.batch(case, (ticket, &old), false));
        self.stabilize(ticket);
        (case.check)(&self.world.files());
        clear(&self.world.files());
        shapes(&results)
    }

    /// The server dies when it passes the point for the how manieth time; whether it came by it so often. The batch, sent again,
    /// is answered as it would have been.
    fn strike(
        &self,
        (case, second): (&Case, Second),
        (point, nth): (Point, usize),
        expected: &[String],
    ) -> bool {
        let what = format!("{}, {} for the {nth}. time", case.name, point.name());
        let (ticket, old) = self.begin(case, second);
        let stable = |ticket| StableArgs { ticket, through: TXN, done_through: TxnId(0) };
        let batch = self.batch(case, (ticket, &old), false);
        let died = if point == Point::AfterCommit {
            self.send(&batch);
            self.world.call(caps(CapsProc::Stable), &to_bytes(&stable(ticket)))
        } else {
            self.world.call(caps(CapsProc::Batch), &batch)
        };
        let is_struck = self.world.kill_at(nth, &died, || ()).is_none();
        let ticket = self.hello().ticket;
        let again = self.batch(case, (ticket, &old), true);
        let results = self.send(&again);
        assert_eq!(shapes(&results), expected, "{what}");
        (case.check)(&self.world.files());
        assert_eq!(told(&self.send(&again)), told(&results), "{what}: and gets the same answer ever after");
        self.stabilize(ticket);
        (case.check)(&self.world.files());
        clear(&self.world.files());
        is_struck
    }
}

/// How many times a batch comes by a point at least.
fn least(case: &Case, point: Point) -> usize {
    let ops = (case.ops)(Ref::Handle(Handle(b"")), b"");
    match point {
        Point::BeforeMutation | Point::AfterMutation => case.struck,
        // Its file has its name and nothing more; and it has its data, and not its times.
        Point::HalfMade if matches!(ops[..], [BatchOp::Create { data: [_, ..], .. }]) => 2,
        Point::HalfMade => 0,
        Point::AfterJournal | Point::AfterCommit | Point::BeforeSend => 1,
    }
}

/// Every kind of operation, with the server killed each time that a batch comes by this point.
pub(crate) fn run(point: Point, is_sync: bool) {
    let world = Rc::new(World::lasting(None, point, is_sync));
    let mount = Mount::new(&world);
    let old: Second = |mount, ticket| mount.lookup(ticket, b"old");
    let of_old = CASES.iter().chain([&EVERYTHING]).map(|case| (case, old));
    let all = of_old.chain(POOLED.iter().map(|case| (case, Mount::pool as _)));
    for (case, second) in all {
        let expected = mount.undisturbed(case, second);
        let mut nth = 1;
        while mount.strike((case, second), (point, nth), &expected) {
            nth += 1;
        }
        let least = least(case, point);
        assert!(nth > least, "{}: {} came {} times", case.name, point.name(), nth - 1);
        mount.leave();
    }
}
