//! Two mounts of one file system in memory that ask for capabilities, give them back late or never, send batches with and
//! without sense, and again; and an NFS client that meets what they hold. No two of them ever hold what excludes each other,
//! nothing is answered twice differently, and when all have said goodbye nothing is left.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use holdfast_base::{ClientId, Cookie, ExportId, ManualClock, SeededEntropy, SessionId, Timestamp};
use holdfast_caps::{Caps, CapsProgram, Holders, Parts};
use holdfast_export::{ClientRule, Committer, Export, ExportOptions, Namespace, NoGroups, Sealer, Squash};
use holdfast_manager::{Guarded, Manager, Parts as ManagerParts};
use holdfast_rpc::detached::Detached;
use holdfast_rpc::{Auth, AuthSys, Limits, OutgoingCall, Program};
use holdfast_state::*;
use holdfast_vfs::{
    AttrMask, Backend, Caller, Cx, DirListing, Flow, MemBackend, MemOptions, Name, RemoveKind, Wait,
};
use holdfast_wire::caps::*;
use holdfast_xdr::{Decode, Encode, from_bytes, to_bytes};

use crate::input::Input;

/// Steps in one input at most.
const STEPS_MAX: usize = 100;

const NAMES: [&[u8]; 6] = [b"a", b"b", b"c", b"d", b"..", b"a/b"];

/// Remembers nothing, and nobody may reclaim.
struct Nobody;

impl Holders for Nobody {
    fn may_hold(&self, _: ClientId) -> bool {
        true
    }
    fn will_hold(&self, _: &ClientImage) -> std::io::Result<()> {
        Ok(())
    }
    fn recorded(&self, _: &ClientImage) -> Recorded {
        Recorded::No
    }
}

struct Mount {
    wire: Detached,
    session: SessionId,
    incarnation: [u8; 16],
    ticket: Ticket,
    txn: u64,
    xid: u32,
    /// The last batch and what it was answered, as long as it may be sent again.
    last: Option<(Vec<u8>, Until, Vec<u8>)>,
    recalls: Vec<(Vec<u8>, CapSet, u64)>,
}

struct World {
    manager: Arc<Manager>,
    committer: Arc<Committer>,
    caps: Arc<Caps>,
    clock: Arc<ManualClock>,
    export: Arc<Export>,
    mounts: Vec<Mount>,
    handles: Vec<Vec<u8>>,
}

fn session(manager: &Manager, name: u8) -> SessionId {
    let principal = Principal::new(b"root");
    let attrs = ChannelAttrs {
        header_pad_bytes: 0,
        request_bytes_max: 1 << 20,
        reply_bytes_max: 1 << 20,
        reply_kept_bytes_max: 1 << 16,
        ops_max: 16,
        slots_max: 8,
    };
    let step = |engine: &mut Engine, now| {
        let (owner, verifier, intent) = ([name], Verifier([1; 8]), ExchangeIntent::Establish);
        let request = ExchangeId {
            owner: &owner,
            verifier,
            principal: &principal,
            site: [127, 0, 0, 1].into(),
            intent,
        };
        let known = engine.exchange_id(&request, now).ok()?;
        let request = CreateSession {
            client: known.client,
            seqid: known.next_seqid,
            principal: &principal,
            conn: ConnId(1),
            fore: attrs,
            back: Some(attrs),
            conn_direction: Direction::Both,
            callback_program: 1,
            is_persistent: true,
        };
        let session = engine.create_session(&request, now).ok()?.id;
        engine.reclaim_complete(known.client).ok()?;
        Some(session)
    };
    manager.step(step).ok().flatten().expect("a client fits")
}

impl World {
    fn new() -> Self {
        let clock = Arc::new(ManualClock::default());
        let manager = Manager::new(ManagerParts {
            engine: Config { boot: BootInstance::from_counter(1), lease_ms: 60_000, grace: Grace::Over },
            entropy: Box::new(SeededEntropy(1)),
            clock: Arc::clone(&clock) as Arc<_>,
            pool_threads: 0,
        });
        let fs = MemBackend::new(&MemOptions { root_mode: 0o777, ..MemOptions::deterministic() });
        let backend = Guarded::new(Arc::new(fs), &manager);
        let options = ExportOptions {
            squash: Squash::None,
            clients: vec![ClientRule::All],
            ..ExportOptions::default()
        };
        let root = backend.root().expect("it is there");
        let export = Arc::new(Export { id: ExportId(1), path: vec![b"e".to_vec()], backend, options });
        let at = Timestamp { seconds: 0, nanos: 0 };
        let namespace = Namespace::new(Sealer::new([1; 16]), vec![Arc::clone(&export)], at);
        let namespace = Arc::new(namespace.expect("one export"));
        let handles = vec![namespace.seal_in(&export, &root).as_bytes().to_vec()];
        let committer = Committer::pumped(None);
        let caps = Caps::new(Parts {
            namespace,
            manager: Arc::clone(&manager),
            committer: Arc::clone(&committer),
            ledger: None,
            groups: Arc::new(NoGroups),
            holders: Arc::new(Nobody),
            entropy: Box::new(SeededEntropy(2)),
            wall: Arc::new(|| Timestamp { seconds: 1 << 30, nanos: 0 }),
        });
        let program: Arc<dyn Program> = Arc::new(CapsProgram(Arc::clone(&caps)));
        let wire = Detached::new(vec![program], Limits::default()).expect("it makes no thread");
        let mounts = (0..2).map(|n| Mount {
            wire: wire.another((Ipv4Addr::LOCALHOST, 700 + u16::from(n)).into()),
            session: session(&manager, n),
            incarnation: [n; 16],
            ticket: Ticket(0),
            txn: 0,
            xid: 0,
            last: None,
            recalls: Vec::new(),
        });
        let mounts = mounts.collect();
        Self { manager, committer, caps, clock, export, mounts, handles }
    }

    fn check(&self) {
        if let Err(what) = self.manager.look(invariant::check) {
            panic!("{what}");
        }
    }
}

impl Mount {
    /// The reply, and recalls on the way.
    fn call(&mut self, procedure: u32, args: &[u8]) -> Option<Vec<u8>> {
        self.xid += 1;
        let auth = Auth::Sys(AuthSys { uid: 0, gid: 0, groups: Vec::new(), machine: Vec::new() });
        let call = OutgoingCall { program: CAPS_PROGRAM, version: CAPS_V1, procedure, auth: &auth, args };
        let records = self.wire.call(self.xid, &call);
        self.take(records)
    }

    fn take(&mut self, records: Vec<Vec<u8>>) -> Option<Vec<u8>> {
        let mut reply = None;
        for record in records {
            let word =
                |at: usize| record.get(at..at + 4).and_then(|w| w.try_into().ok()).map(u32::from_be_bytes);
            if word(4) == Some(1) {
                if word(0) == Some(self.xid) {
                    reply = Detached::results(&record).map(<[u8]>::to_vec);
                }
                continue;
            }
            let body = &record[40..];
            if word(20) == Some(CapsCallbackProc::Stable.as_u32()) {
                from_bytes::<StableHint>(body).expect("the server's own call");
            } else {
                let recall = from_bytes::<RecallArgs<'_>>(body).expect("the server's own call");
                let items = recall.items.iter();
                self.recalls.extend(items.map(|item| (item.handle.0.to_vec(), item.keep, item.seq)));
            }
            let xid = word(0).unwrap_or_default();
            let answer: Vec<u8> = [xid, 1, 0, 0, 0, 0].iter().flat_map(|w| w.to_be_bytes()).collect();
            self.wire.deliver(&answer);
        }
        reply
    }

    fn ask<R: for<'a> Decode<'a>>(&mut self, procedure: CapsProc, args: &impl Encode) -> Option<R> {
        let reply = self.call(procedure.as_u32(), &to_bytes(args))?;
        from_bytes::<Res<R>>(&reply).expect("a result").into_result().ok()
    }

    fn hello(&mut self, done: u64) {
        let (session, incarnation) = (self.session, self.incarnation);
        let args = HelloArgs { session, incarnation, features: Features(!0), done_through: TxnId(done) };
        let Some(ok) = self.ask::<HelloOk>(CapsProc::Hello, &args) else { return };
        if self.ticket != ok.ticket {
            self.recalls.clear();
        }
        self.ticket = ok.ticket;
        self.txn = ok.executed_through.0;
    }

    fn release(&mut self) {
        for (handle, keep, seq) in std::mem::take(&mut self.recalls) {
            let items = vec![ReleaseItem { handle: Handle(&handle), keep, seq }];
            self.ask::<ReleaseOk>(CapsProc::Release, &ReleaseArgs { ticket: self.ticket, items });
        }
    }
}

/// See the module.
///
/// # Panics
/// When something does not hold.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new();
    world.mounts.iter_mut().for_each(|mount| mount.hello(0));
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        step(&mut world, &mut input);
        world.check();
    }
    for mount in &mut world.mounts {
        mount.hello(0);
        let ticket = mount.ticket;
        mount.call(CapsProc::Bye.as_u32(), &to_bytes(&ByeArgs { ticket }));
    }
    world.check();
    assert!(world.manager.promises().is_empty(), "nothing is left in force");
}

fn step(world: &mut World, input: &mut Input<'_>) {
    let which = input.below(2);
    let handle = input.pick_late(&world.handles).cloned().unwrap_or_default();
    let want = CapSet(u32::from(input.u8()));
    match input.u8() % 12 {
        0 | 1 => {
            let mount = &mut world.mounts[which];
            let items = vec![AcquireItem { handle: Handle(&handle), want }];
            mount.ask::<AcquireOk>(CapsProc::Acquire, &AcquireArgs { ticket: mount.ticket, items });
        }
        2 => {
            let mount = &mut world.mounts[which];
            let items = vec![ReleaseItem { handle: Handle(&handle), keep: want, seq: input.u64() % 64 }];
            mount.ask::<ReleaseOk>(CapsProc::Release, &ReleaseArgs { ticket: mount.ticket, items });
        }
        3 => {
            let records = world.mounts[which].wire.sent();
            world.mounts[which].take(records);
            world.mounts[which].release();
        }
        4 => world.mounts[which].hello(input.u64() % 4),
        5 => {
            world.clock.advance(Duration::from_secs(u64::from(input.u8() % 70)));
            world.manager.tick();
            world.caps.tick();
            world.committer.pump();
        }
        6 => nfs(world, input),
        7 => look(world, which, (&handle, want), input),
        8 => {
            let mount = &mut world.mounts[which];
            let (procedure, n) = (u32::from(input.u8() % 13), input.below(120));
            let mut args = to_bytes(&mount.ticket);
            args.extend_from_slice(input.bytes(n));
            mount.call(procedure, &args);
            // It may have been a batch that makes sense.
            mount.hello(0);
            mount.last = None;
        }
        9 => again(world, which),
        10 => pool(world, which, &handle, input),
        _ => batch(world, which, (&handle, want), input),
    }
}

fn look(world: &mut World, which: usize, (handle, want): (&[u8], CapSet), input: &mut Input<'_>) {
    let name = *input.pick(&NAMES).unwrap_or(&NAMES[0]);
    let mount = &mut world.mounts[which];
    let (ticket, dir) = (mount.ticket, Handle(handle));
    let found = if input.one_in(4) {
        let args = LookupArgs { ticket, dir, name, want_dir: want, want };
        let Some(reply) = mount.call(CapsProc::Find.as_u32(), &to_bytes(&args)) else { return };
        let Ok(FindOk { looked, promise }) =
            from_bytes::<Res<FindOk<'_>>>(&reply).expect("a result").into_result()
        else {
            return;
        };
        let object = match looked.found {
            Looked::Present(node) => Some(node.handle),
            Looked::Absent => None,
        };
        // A token is tried wherever handles are.
        let token = promise.map(|promise| promise.token);
        object.into_iter().chain(token).map(|handle| handle.0.to_vec()).collect()
    } else if input.one_in(2) {
        let args = LookupArgs { ticket, dir, name, want_dir: want, want };
        let Some(reply) = mount.call(CapsProc::Lookup.as_u32(), &to_bytes(&args)) else { return };
        match from_bytes::<Res<LookupOk<'_>>>(&reply).expect("a result").into_result() {
            Ok(LookupOk { found: Looked::Present(node), .. }) => vec![node.handle.0.to_vec()],
            _ => Vec::new(),
        }
    } else {
        let args = ListArgs { ticket, dir, cookie: Cookie(0), bytes_max: 4096, want_dir: want, want };
        let Some(reply) = mount.call(CapsProc::List.as_u32(), &to_bytes(&args)) else { return };
        let listed = from_bytes::<Res<ListOk<'_>>>(&reply).expect("a result").into_result();
        let entries = listed.map(|ok| ok.entries).unwrap_or_default();
        entries.iter().filter_map(|e| e.node.into_result().ok()).map(|node| node.handle.0.to_vec()).collect()
    };
    found.into_iter().for_each(|handle| crate::field::remember(&mut world.handles, handle));
}

/// Files for creates to come, of which a batch may name any, and others.
fn pool(world: &mut World, which: usize, handle: &[u8], input: &mut Input<'_>) {
    let back = input.pick_late(&world.handles).cloned().unwrap_or_default();
    let mount = &mut world.mounts[which];
    let (ticket, count) = (mount.ticket, input.below(4) as u32);
    let back = if input.one_in(3) { vec![Handle(&back)] } else { Vec::new() };
    let args = PoolArgs { ticket, dir: Handle(handle), count, back };
    let Some(reply) = mount.call(CapsProc::Pool.as_u32(), &to_bytes(&args)) else { return };
    let files = from_bytes::<Res<PoolOk<'_>>>(&reply).expect("a result").into_result();
    for file in files.map(|ok| ok.files).unwrap_or_default() {
        crate::field::remember(&mut world.handles, file.handle.0.to_vec());
    }
}

fn batch(world: &mut World, which: usize, (handle, want): (&[u8], CapSet), input: &mut Input<'_>) {
    let spare = input.pick_late(&world.handles).cloned();
    let mount = &mut world.mounts[which];
    let txn = TxnId(mount.txn + 1);
    let mut ops = Vec::new();
    for _ in 0..=input.below(4) {
        let name = *input.pick(&NAMES).unwrap_or(&NAMES[0]);
        let other = *input.pick(&NAMES).unwrap_or(&NAMES[0]);
        let place = u32::from(input.u8() % 5);
        let dir = if input.one_in(3) { Ref::Made { txn, op: place } } else { Ref::Handle(Handle(handle)) };
        let if_taken = IfTaken::ALL[input.below(3)];
        let set = SetAttrs { mode: Some(0o700), ..SetAttrs::default() };
        let victim = input.one_in(2).then_some(Ref::Made { txn, op: place });
        ops.push(match input.u8() % 9 {
            0 => BatchOp::Create { dir, name, if_taken, set, want, data: b"data" },
            1 => {
                let pooled = Handle(spare.as_deref().unwrap_or(handle));
                BatchOp::Place { dir, name, if_taken, set, want, data: b"data", pooled }
            }
            2 => BatchOp::Mkdir { dir, name, if_taken, set, want },
            3 => BatchOp::Symlink { dir, name, if_taken, set, want, target: b"x" },
            4 => BatchOp::Link { object: dir, dir: Ref::Handle(Handle(handle)), name },
            5 => BatchOp::Unlink { dir, name, victim },
            6 => BatchOp::Rmdir { dir, name, victim },
            7 => {
                let how = RenameHow::ALL[input.below(3)];
                let over = input.one_in(2).then_some(Ref::Made { txn, op: place });
                BatchOp::Rename { from: dir, from_name: name, to: dir, to_name: other, how, victim, over }
            }
            _ => BatchOp::Data { object: dir, offset: u64::from(input.u8()), data: b"more" },
        });
    }
    let done_through = TxnId(0);
    let until = if input.one_in(3) { Until::Stable } else { Until::Executed };
    let how = BatchHow { is_resent: input.one_in(4), until };
    let args = to_bytes(&BatchArgs { ticket: mount.ticket, txn, how, done_through, ops });
    let Some(reply) = send_batch(world, which, (&args, until)) else { return };
    let Ok(ok) = said(&reply, until) else { return };
    assert!(ok.stable_through <= ok.executed_through);
    world.mounts[which].txn = txn.0;
    for result in &ok.results {
        if let Res::Ok(OpResult::Made(made)) = result {
            crate::field::remember(&mut world.handles, made.handle.0.to_vec());
        }
    }
    world.mounts[which].last = Some((args, until, reply));
}

/// Sends a batch; the disk does its part where the answer waits for that.
fn send_batch(world: &mut World, which: usize, (args, until): (&[u8], Until)) -> Option<Vec<u8>> {
    let mount = &mut world.mounts[which];
    let reply = mount.call(CapsProc::Batch.as_u32(), args);
    if reply.is_some() || until == Until::Executed {
        return reply;
    }
    world.committer.pump();
    let records = mount.wire.sent();
    mount.take(records)
}

/// What BATCH has answered.
fn said(reply: &[u8], until: Until) -> Result<BatchOk<'_>, CapsStat> {
    match until {
        Until::Executed => from_bytes::<Res<BatchOk<'_>>>(reply).expect("a result").into_result(),
        Until::Stable => {
            from_bytes::<Res<ForcedOk<'_>>>(reply).expect("a result").into_result().map(|ok| ok.batch)
        }
    }
}

/// The last batch again: the same is said to have been done.
fn again(world: &mut World, which: usize) {
    let Some((args, until, before)) = world.mounts[which].last.clone() else { return };
    let Some(reply) = send_batch(world, which, (&args, until)) else { return };
    let outcome = |reply: &[u8]| -> Option<Vec<Result<Option<Vec<u8>>, CapsStat>>> {
        let ok = said(reply, until).ok()?;
        let made = |result: &Res<OpResult<'_>>| {
            result.into_result().map(|ok| match ok {
                OpResult::Made(made) => Some(made.handle.0.to_vec()),
                _ => None,
            })
        };
        Some(ok.results.iter().map(made).collect())
    };
    if let Some(now) = outcome(&reply) {
        assert_eq!(Some(now), outcome(&before));
    }
}

/// Somebody without capabilities does something.
fn nfs(world: &World, input: &mut Input<'_>) {
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes);
    let fs = world.export.backend.as_ref();
    let Ok(root) = fs.root() else { return };
    let Ok(name) = Name::new(NAMES[input.below(4)]) else { return };
    match input.u8() % 4 {
        0 => drop(fs.lookup(&cx, &root, name, AttrMask::STAT)),
        1 => drop(fs.remove(&cx, &root, name, RemoveKind::Any)),
        2 => drop(fs.getattr(&cx, &root, AttrMask::STAT)),
        _ => {
            let listing = DirListing { dir: &root, from: Cookie(0), want: Some(AttrMask::STAT) };
            let _ = fs.readdir(&cx, listing, &mut |_| Flow::Continue);
        }
    }
}
