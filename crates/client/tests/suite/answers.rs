//! What the server by script answers of state: opens, copies, and what is left when they end.

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
    /// Statuses of the next CLOSEs.
    pub(crate) closes: VecDeque<NfsStat4>,
    /// Statuses of the next FREE_STATEIDs.
    pub(crate) frees: VecDeque<NfsStat4>,
    /// What was freed.
    pub(crate) freed: Vec<Stateid4>,
    /// Statuses of the next OFFLOAD_STATUSes of COPYs, which go on.
    pub(crate) offloads: VecDeque<NfsStat4>,
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
        args: &Open4Args<'_>,
        w: &mut Writer,
    ) -> NfsStat4 {
        state.opens += 1;
        state.reclaimed += u32::from(matches!(args.claim, OpenClaim4::Previous(_)));
        self.hold(state, |state| state.holds_opens);
        let delegation = if state.delegates_nothing { OpenDelegation4::None } else { delegation() };
        let status = next(&mut state.stateful.opens);
        Open4Ok { delegation, ..opened() }.encode(w);
        status
    }
}

impl State {
    /// Whatever is asked of states but OPEN.
    pub(super) fn about_state(&mut self, op: &ArgOp<'_>, w: &mut Writer) -> NfsStat4 {
        let own = &mut self.stateful;
        match op {
            ArgOp::Close(args) => {
                args.open_stateid.encode(w);
                next(&mut own.closes)
            }
            ArgOp::FreeStateid(args) => {
                own.freed.push(args.stateid);
                next(&mut own.frees)
            }
            ArgOp::Copy(_) => {
                let (committed, writeverf) = (StableHow4::Unstable, [0; 8]);
                let response =
                    WriteResponse4 { callback_id: Some(COPY), count: Length(0), committed, writeverf };
                let requirements = CopyRequirements4 { consecutive: true, synchronous: false };
                Copy4Ok { response, requirements }.encode(w);
                NfsStat4::Ok
            }
            ArgOp::OffloadStatus(_) => {
                OffloadStatus4Ok { count: Length(1), complete: Some(NfsStat4::Ok) }.encode(w);
                next(&mut own.offloads)
            }
            _ => NfsStat4::Ok,
        }
    }
}

fn delegation() -> OpenDelegation4<'static> {
    let permissions = NfsAce4 { ace_type: 0, flag: 0, access_mask: 0, who: b"" };
    OpenDelegation4::Read(OpenReadDelegation4 { stateid: DELEGATION, recall: false, permissions })
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
