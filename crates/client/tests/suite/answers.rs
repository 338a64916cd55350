//! What the server by script answers of state: opens, locks, copies, and what is left when they end.

use std::collections::VecDeque;

use holdfast_base::{Length, Seqid};
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Encode, Writer};
use parking_lot::MutexGuard;

use super::script::{DELEGATION, Shared, State};

/// What it says next, and what it was asked.
#[derive(Default)]
pub(crate) struct Stateful {
    /// Statuses of the next OPENs.
    pub(crate) opens: VecDeque<NfsStat4>,
    /// Nothing but what reclaims is opened, until RECLAIM_COMPLETE.
    pub(crate) is_in_grace: bool,
    /// OPENs that were refused for that.
    pub(crate) too_early: u32,
    /// Delegations are wanted back as they are granted.
    pub(crate) recalls_at_once: bool,
    /// OPENs that claim what is covered by a delegation.
    pub(crate) claimed: u32,
    /// For what was opened, and as whom.
    pub(crate) opened: Vec<(u32, u32)>,
    /// Statuses of the next CLOSEs.
    pub(crate) closes: VecDeque<NfsStat4>,
    /// Statuses of the next FREE_STATEIDs.
    pub(crate) frees: VecDeque<NfsStat4>,
    /// What was freed.
    pub(crate) freed: Vec<Stateid4>,
    /// Statuses of the next LOCKs.
    pub(crate) locks: VecDeque<NfsStat4>,
    /// LOCKs and LOCKUs, as they came.
    pub(crate) locking: Vec<Locking>,
    /// The answer to that one of these waits.
    pub(crate) holds_lock: Option<usize>,
    /// Statuses of the next OFFLOAD_STATUSes of COPYs, which go on.
    pub(crate) offloads: VecDeque<NfsStat4>,
    /// Statuses of the next IO_ADVISEs.
    pub(crate) advice: VecDeque<NfsStat4>,
    /// What was advised: hints, where, and of how many bytes.
    pub(crate) advised: Vec<(Bitmap4, u64, u64)>,
}

/// What was asked of a lock; its first byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Locking {
    /// The first lock of an owner, by his name.
    First(Vec<u8>, u64),
    /// One more.
    More(u64),
    /// Unlocked.
    Undone(u64),
}

pub(crate) const OPEN: Stateid4 = Stateid4 { seqid: Seqid(1), other: [5; 12] };
const COPY: Stateid4 = Stateid4 { seqid: Seqid(1), other: [6; 12] };

fn next(statuses: &mut VecDeque<NfsStat4>) -> NfsStat4 {
    statuses.pop_front().unwrap_or(NfsStat4::Ok)
}

impl Shared {
    pub(super) fn open(
        &self,
        state: &mut MutexGuard<'_, State>,
        (args, as_whom): (&Open4Args<'_>, u32),
        w: &mut Writer,
    ) -> NfsStat4 {
        state.opens += 1;
        state.stateful.opened.push((args.share_access & OPEN4_SHARE_ACCESS_BOTH, as_whom));
        let is_reclaim = matches!(args.claim, OpenClaim4::Previous(_));
        state.reclaimed += u32::from(is_reclaim);
        state.stateful.claimed += u32::from(matches!(args.claim, OpenClaim4::DelegCurFh(_)));
        self.hold(state, |state| state.holds_opens);
        if state.stateful.is_in_grace && !is_reclaim {
            state.stateful.too_early += 1;
            return NfsStat4::Grace;
        }
        let recall = state.stateful.recalls_at_once;
        let delegation = if state.delegates_nothing { OpenDelegation4::None } else { delegation(recall) };
        let status = next(&mut state.stateful.opens);
        Open4Ok { delegation, ..opened() }.encode(w);
        status
    }

    /// Whatever is asked of states but OPEN.
    pub(super) fn about_state(
        &self,
        state: &mut MutexGuard<'_, State>,
        op: &ArgOp<'_>,
        w: &mut Writer,
    ) -> NfsStat4 {
        let own = &mut state.stateful;
        match op {
            ArgOp::Close(args) => {
                args.open_stateid.encode(w);
                next(&mut own.closes)
            }
            ArgOp::FreeStateid(args) => {
                own.freed.push(args.stateid);
                next(&mut own.frees)
            }
            ArgOp::Lock(args) => {
                let (lock_stateid, asked) = match &args.locker {
                    Locker4::Exist(known) => (known.lock_stateid, Locking::More(args.offset.0)),
                    Locker4::New(new) => {
                        let first = Locking::First(new.lock_owner.owner.to_vec(), args.offset.0);
                        (Stateid4 { seqid: Seqid(1), other: [10 + own.locking.len() as u8; 12] }, first)
                    }
                };
                Lock4Ok { lock_stateid }.encode(w);
                let status = next(&mut own.locks);
                self.locking(state, asked);
                status
            }
            ArgOp::Locku(args) => {
                Locku4Ok { lock_stateid: args.lock_stateid }.encode(w);
                self.locking(state, Locking::Undone(args.offset.0));
                NfsStat4::Ok
            }
            ArgOp::Copy(_) => {
                let (committed, writeverf) = (StableHow4::Unstable, [0; 8]);
                let response =
                    WriteResponse4 { callback_id: Some(COPY), count: Length(0), committed, writeverf };
                let requirements = CopyRequirements4 { consecutive: true, synchronous: false };
                Copy4Ok { response, requirements }.encode(w);
                NfsStat4::Ok
            }
            ArgOp::Read(_) => {
                Read4Ok { eof: true, data: b"data" }.encode(w);
                NfsStat4::Ok
            }
            ArgOp::IoAdvise(args) => {
                own.advised.push((args.hints, args.offset.0, args.count.0));
                IoAdvise4Ok { hints: args.hints }.encode(w);
                next(&mut own.advice)
            }
            ArgOp::OffloadStatus(_) => {
                OffloadStatus4Ok { count: Length(1), complete: Some(NfsStat4::Ok) }.encode(w);
                next(&mut own.offloads)
            }
            _ => NfsStat4::Ok,
        }
    }

    /// Notes what was asked of a lock, and waits with the answer where it shall.
    fn locking(&self, state: &mut MutexGuard<'_, State>, asked: Locking) {
        let n = state.stateful.locking.len();
        state.stateful.locking.push(asked);
        self.hold(state, |state| state.stateful.holds_lock == Some(n));
    }

    /// Has the answer to another LOCK or LOCKU wait, or none.
    pub(crate) fn hold_lock(&self, n: Option<usize>) {
        self.state.lock().stateful.holds_lock = n;
        self.wake();
    }
}

fn delegation(recall: bool) -> OpenDelegation4<'static> {
    let permissions = NfsAce4 { ace_type: 0, flag: 0, access_mask: 0, who: b"" };
    OpenDelegation4::Read(OpenReadDelegation4 { stateid: DELEGATION, recall, permissions })
}

fn opened() -> Open4Ok<'static> {
    Open4Ok {
        stateid: OPEN,
        cinfo: super::script::unchanged(),
        rflags: 0,
        attrset: Bitmap4::EMPTY,
        delegation: OpenDelegation4::None,
    }
}
