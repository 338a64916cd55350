//! State that stays: opens and locks, one more with each call.

use super::session::Session;
use super::{COMPOUND, open_args, put};
use crate::client::call::header_after_xid;
use crate::client::pump::{Lane, Load, succeeded};
use crate::client::target::Target;
use crate::volume::{SMALL_FILES, small_name};
use anyhow::Result;
use holdfast_base::{Length, Offset, Seqid};
use holdfast_wire::nfs4::*;
use holdfast_xdr::Writer;

/// What is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// An open of a small file, each by an owner of its own.
    Opens,
    /// A lock of one byte of the file that is written, each by an owner of its own.
    Locks,
}

/// Opens or locks, numbered from where the last burst ended.
#[derive(Debug)]
pub(crate) struct HoldLoad<'a> {
    what: Held,
    header: Vec<u8>,
    sessions: &'a mut [Session],
    target: &'a Target,
    next: u64,
}

impl<'a> HoldLoad<'a> {
    pub(super) fn new(what: Held, sessions: &'a mut [Session], target: &'a Target, first: u64) -> Self {
        Self { what, header: header_after_xid(COMPOUND), sessions, target, next: first }
    }
}

impl Load for HoldLoad<'_> {
    fn encode(&mut self, lane: Lane, w: &mut Writer) {
        w.put(&self.header);
        let number = self.next;
        self.next += 1;
        let session = &mut self.sessions[lane.connection];
        let (clientid, write_state) = (session.client, session.write_state);
        let sequence = ArgOp::Sequence(session.sequence(lane.slot));
        let owner = format!("holder-{number}");
        match self.what {
            Held::Opens => {
                let name = small_name((number % SMALL_FILES as u64) as usize);
                let access = OPEN4_SHARE_ACCESS_READ;
                let how = OpenFlag4::NoCreate;
                let open = open_args(clientid, owner.as_bytes(), access, how, name.as_bytes());
                encode_compound(w, b"", 1, &[sequence, put(&self.target.small), ArgOp::Open(open)]);
            }
            Held::Locks => {
                let locker = Locker4::New(OpenToLockOwner4 {
                    open_seqid: Seqid(0),
                    open_stateid: write_state,
                    lock_seqid: Seqid(0),
                    lock_owner: StateOwner4 { clientid, owner: owner.as_bytes() },
                });
                let lock = Lock4Args {
                    locktype: LockType4::Write,
                    reclaim: false,
                    // Every other byte, so that no two become one.
                    offset: Offset(2 * number),
                    length: Length(1),
                    locker,
                };
                encode_compound(w, b"", 1, &[sequence, put(&self.target.write_file), ArgOp::Lock(lock)]);
            }
        }
    }

    fn check(&mut self, _: Lane, reply: &[u8]) -> Result<u64> {
        succeeded(reply).map(|_| 1)
    }
}
