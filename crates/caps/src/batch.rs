//! BATCH: the order of a client's transactions, and their replies.

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use holdfast_base::limits::CAPS_BATCHES_MAX;
use holdfast_base::{CapSet, ClientId};
use holdfast_export::WireHandle;
use holdfast_ledger::failpoint::{self, Point};
use holdfast_rpc::{Outcome as CallOutcome, PendingReply};
use holdfast_state::{Deed, Engine, StateError};
use holdfast_vfs::{Caller, FileKind, FsError};
use holdfast_wire::caps::{
    self, BatchArgs, BatchHow, BatchOk, BatchOp, CapsStat, DirState, Made, OpResult, Res, Ticket, TxnId,
    Until,
};
use holdfast_xdr::{Decode, Encode, Reader, from_bytes};

use crate::lane::{Lane, Txn, Waiting};
use crate::members::Member;
use crate::ops::{Done, Run};
use crate::outcome::Outcome;
use crate::program::refuse;
use crate::site::{Actor, Site};
use crate::{Caps, attrs};

/// What stands before the operations.
#[derive(Decode)]
pub(crate) struct Head {
    pub(crate) ticket: Ticket,
    pub(crate) txn: TxnId,
    pub(crate) how: BatchHow,
    pub(crate) done_through: TxnId,
    pub(crate) ops: u32,
}

/// Some thread executes a lane, until this ends.
struct Running<'l>(&'l Lane);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.state.lock().is_running = false;
    }
}

/// A batch of a client is being executed, until this ends: meanwhile nothing is taken from the client, nor its place.
struct Executing<'c> {
    caps: &'c Caps,
    client: ClientId,
    /// What it has brought.
    bytes: u64,
}

impl Drop for Executing<'_> {
    fn drop(&mut self) {
        let executed = |engine: &mut Engine, now| engine.caps_executed(self.client, self.bytes, now);
        self.caps.parts.manager.quiet(executed);
    }
}

impl Caps {
    /// What its client hears instead: that it is grace, that it is gone, or DELAY when the time is over in which it was to give
    /// something back.
    fn executes(&self, Member { client, epoch, .. }: Member) -> Result<Executing<'_>, CapsStat> {
        let admitted = self.parts.manager.quiet(|engine, now| {
            if engine.grace().is_on(now) {
                return Err(CapsStat::Grace);
            }
            engine.caps_executes(client, epoch, now).map_err(|why| match why {
                StateError::Delay => CapsStat::Delay,
                _ => CapsStat::BadTicket,
            })
        });
        admitted.map(|()| Executing { caps: self, client, bytes: 0 })
    }

    /// Takes a batch, and executes what can be executed now, in order, on this thread.
    pub(crate) fn submit(
        &self,
        actor: Actor,
        lane: &Arc<Lane>,
        (head, args): (Head, Bytes),
        pending: PendingReply,
    ) {
        self.forget_through(lane, head.done_through);
        let refused = {
            let mut state = lane.state.lock();
            let admitted = state.admit(head.txn, head.ops as usize);
            let is_early = head.txn > state.next() && state.waiting.len() >= CAPS_BATCHES_MAX;
            match admitted {
                Ok(()) if !is_early => {
                    // Sent again while it waits: the first connection may be gone.
                    let former = state
                        .waiting
                        .insert(head.txn, Waiting { actor, args, until: head.how.until, pending });
                    former.map(|former| (former.pending, CapsStat::Delay))
                }
                Ok(()) => Some((pending, CapsStat::Misordered)),
                Err(stat) => Some((pending, stat)),
            }
        };
        if let Some((pending, stat)) = refused {
            refuse(pending, stat);
        }
        self.drain(lane);
    }

    fn drain(&self, lane: &Arc<Lane>) {
        loop {
            let (txn, waiting, running) = {
                let mut state = lane.state.lock();
                let next = state.next();
                let first = state.waiting.keys().next().copied().filter(|first| *first <= next);
                // Whoever executes looks again before it stops.
                if state.is_running {
                    return;
                }
                let Some(first) = first else { return };
                let Some(waiting) = state.waiting.remove(&first) else { return };
                state.is_running = true;
                (first, waiting, Running(lane))
            };
            self.run(lane, txn, waiting);
            drop(running);
        }
    }

    fn run(&self, lane: &Arc<Lane>, txn: TxnId, waiting: Waiting) {
        let Waiting { actor, args, until, mut pending } = waiting;
        let Ok(batch) = from_bytes::<BatchArgs<'_>>(&args) else {
            return pending.finish(CallOutcome::Garbage);
        };
        // It may have lost what it believes it holds while it waited; also where its ticket is just about to end.
        let member = self.members.of(batch.ticket).filter(|member| member.incarnation == lane.incarnation);
        let Some(member) = member else { return refuse(pending, CapsStat::BadTicket) };
        let mut executing = match self.executes(member) {
            Ok(executing) => executing,
            Err(stat) => return refuse(pending, stat),
        };
        let fingerprint = fingerprint(&args);
        let mut is_new = false;
        let is_told;
        let mut this = {
            let mut state = lane.state.lock();
            if txn <= state.done_through {
                // It was sent twice, and its client has the other answer: nothing tells any more that all of it was done.
                drop(state);
                return refuse(pending, CapsStat::Forgotten);
            }
            is_new |= txn > state.executed_through;
            let executed = state.txns.get(&txn).filter(|_| !is_new).and_then(Txn::executed);
            is_told = executed.is_some();
            executed.or_else(|| state.txns.remove(&txn)).unwrap_or_default()
        };
        // Of which nothing was done may be given up, and another come in its place.
        let is_open = is_new && this.outcomes.is_empty() && this.partial.is_none();
        if this.fingerprint.is_some_and(|of| of != fingerprint) && !is_open {
            if !is_told {
                lane.state.lock().txns.insert(txn, this);
            }
            return refuse(pending, CapsStat::Mixed);
        }
        (this.fingerprint, this.ops) = (Some(fingerprint), batch.ops.len());
        lane.is_elsewhere.store(false, Ordering::Relaxed);
        let run =
            Run { caps: self, lane, actor: &actor, txn, is_resent: batch.how.is_resent, this: &mut this };
        let done = run.all(&batch.ops);
        let is_whole = this.outcomes.len() == batch.ops.len();
        let outcomes = this.outcomes.clone();
        let (executed_through, stable_through) = {
            let mut state = lane.state.lock();
            if !is_told {
                state.txns.insert(txn, this);
            }
            if is_whole && is_new {
                state.executed_through = txn;
            }
            (state.executed_through, state.surely_stable_through())
        };
        // One that is sent again, or put off, brings nothing.
        executing.bytes = if is_whole && is_new { args.len() as u64 } else { 0 };
        drop(executing);
        if !is_whole {
            let is_elsewhere = lane.is_elsewhere.load(Ordering::Relaxed);
            return refuse(pending, if is_elsewhere { CapsStat::Moved } else { CapsStat::Delay });
        }
        self.after_batch(lane, txn);
        failpoint::pass(Point::BeforeSend);
        self.answer(&actor, (&batch.ops, &outcomes, &done), (executed_through, stable_through), &mut pending);
        match until {
            Until::Executed => pending.send(),
            Until::Stable => self.answer_when_stable((actor.client, lane), txn, pending),
        }
    }

    fn answer(
        &self,
        actor: &Actor,
        (ops, outcomes, done): (&[BatchOp<'_>], &[Outcome], &Done),
        (executed_through, stable_through): (TxnId, TxnId),
        pending: &mut PendingReply,
    ) {
        let seen_of = |handle: &WireHandle| {
            let site = self.site(actor, handle.as_bytes()).ok()?;
            self.look(actor, &site).map(|seen| attrs::attrs(&seen))
        };
        let made: Vec<Option<(caps::Attrs, caps::Grant)>> = outcomes
            .iter()
            .zip(ops)
            .zip(0u32..)
            .map(|((outcome, op), place)| {
                let handle = outcome.made()?;
                let site = self.site(actor, handle.as_bytes()).ok()?;
                let (kind, want) = making_of(op)?;
                let grant = match done.grants.get(&place) {
                    Some(grant) => *grant,
                    None => self.grant(actor.client, &site, (kind, want, None), None).unwrap_or_default(),
                };
                // Looked at after it is granted: what is granted covers what is told.
                Some((attrs::attrs(&self.look(actor, &site)?), grant))
            })
            .collect();
        let results = outcomes.iter().zip(&made).map(|(outcome, made)| match outcome {
            Outcome::Failed(stat) => Res::Failed(stat.as_u32()),
            Outcome::Done => Res::Ok(OpResult::Done),
            Outcome::Changed(handle) => Res::Ok(OpResult::Changed(seen_of(handle))),
            Outcome::Appended(crate::outcome::Appended { handle, offset, count, verifier }) => {
                let (offset, count, verifier, attrs) = (*offset, *count, *verifier, seen_of(handle));
                Res::Ok(OpResult::Appended(caps::Appended { offset, count, verifier, attrs }))
            }
            Outcome::Made { handle, other_name } => Res::Ok(OpResult::Made(Made {
                handle: caps::Handle(handle.as_bytes()),
                attrs: made.map(|(attrs, _)| attrs),
                grant: made.map(|(_, grant)| grant).unwrap_or_default(),
                other_name,
            })),
        });
        let results = results.collect();
        let sealed: Vec<_> = done.dirs.values().map(|dir| (self.seal(dir), self.look(actor, dir))).collect();
        let state = |(handle, seen): &'_ (WireHandle, Option<holdfast_vfs::Attrs>)| {
            seen.as_ref().map(|seen| (*handle, attrs::attrs(seen)))
        };
        let seen: Vec<_> = sealed.iter().filter_map(state).collect();
        let dirs = seen
            .iter()
            .map(|(handle, attrs)| DirState { dir: caps::Handle(handle.as_bytes()), attrs: *attrs });
        let ok = BatchOk { results, dirs: dirs.collect(), executed_through, stable_through };
        Res::Ok(ok).encode(pending.writer());
    }

    /// An object as it is now, for its changer; `None` when it is gone, or others hold what makes it uncertain.
    pub(crate) fn look(&self, actor: &Actor, site: &Site) -> Option<holdfast_vfs::Attrs> {
        let root = Caller::root();
        let patient = actor.cx(&root);
        let impatient = holdfast_vfs::Cx { wait: holdfast_vfs::Wait::No, ..patient };
        match site.export.backend.getattr(&impatient, &site.handle, attrs::ALL) {
            // A disk may be waited for, a client not.
            Err(FsError::WouldBlock) => {
                let manager = &self.parts.manager;
                manager.contend_if_promised(&site.handle, Deed::LookAttrs, &impatient).ok()?;
                site.export.backend.getattr(&patient, &site.handle, attrs::ALL).ok()
            }
            other => other.ok(),
        }
    }
}

/// What an operation makes, and what is asked for of it.
const fn making_of(op: &BatchOp<'_>) -> Option<(FileKind, CapSet)> {
    match op {
        BatchOp::Create { want, .. } | BatchOp::Place { want, .. } => Some((FileKind::Regular, *want)),
        BatchOp::Mkdir { want, .. } => Some((FileKind::Directory, *want)),
        BatchOp::Symlink { want, .. } => Some((FileKind::Symlink, *want)),
        BatchOp::Mknod { want, kind, .. } => Some((attrs::kind_of(*kind), *want)),
        _ => None,
    }
}

/// Tells a batch's operations from others. Who makes two collide on purpose gets his own results.
fn fingerprint(args: &[u8]) -> u64 {
    let mut r = Reader::new(args);
    // What stands before them may differ each time.
    let _ = Head::decode(&mut r);
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(r.rest());
    hasher.finish()
}

impl Txn {
    /// What an operation of this very transaction made.
    pub(crate) fn made(&self, op: u32) -> Result<WireHandle, CapsStat> {
        crate::lane::made_of(self.outcomes.get(op as usize))
    }
}
