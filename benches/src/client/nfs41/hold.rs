//! State that stays: opens and locks, one more with each call.

use super::session::Session;
use super::{COMPOUND, open_args, put, skip_empty_results};
use crate::client::call::{accepted, header_after_xid};
use crate::client::pump::{Lane, Load};
use crate::client::target::{Handle, Target};
use crate::volume::{SMALL_FILES, small_name};
use anyhow::Result;
use holdfast_base::{Length, Offset, Seqid};
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Writer};

/// What is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// An open of a small file, each by an owner of its own.
    Opens,
    /// A lock of one byte of the file that is written, each by an owner of its own.
    Locks,
    /// The same of the small files in turn, which every client has open.
    LocksOfSmallFiles,
}

/// Opens or locks, numbered from where the last burst ended.
#[derive(Debug)]
pub(crate) struct HoldLoad<'a> {
    what: Held,
    header: Vec<u8>,
    sessions: &'a mut [Session],
    target: &'a Target,
    next: u64,
    /// Which file each call under way is about, by connection and place.
    asked: Vec<Vec<Handle>>,
}

impl<'a> HoldLoad<'a> {
    pub(super) fn new(what: Held, sessions: &'a mut [Session], target: &'a Target, first: u64) -> Self {
        let asked = sessions.iter().map(|session| vec![Handle::new(); session.slots()]).collect();
        Self { what, header: header_after_xid(COMPOUND), sessions, target, next: first, asked }
    }
}

impl Load for HoldLoad<'_> {
    fn encode(&mut self, lane: Lane, w: &mut Writer) {
        w.put(&self.header);
        let number = self.next;
        self.next += 1;
        let session = &mut self.sessions[lane.connection];
        let clientid = session.client;
        let sequence = ArgOp::Sequence(session.sequence(lane.slot));
        let owner = format!("holder-{number}");
        let small = (number % SMALL_FILES as u64) as usize;
        let (file, open_stateid) = match self.what {
            Held::Opens => {
                let name = small_name(small);
                let access = OPEN4_SHARE_ACCESS_READ;
                let how = OpenFlag4::NoCreate;
                let open = open_args(clientid, owner.as_bytes(), access, how, name.as_bytes());
                self.asked[lane.connection][lane.slot].clone_from(&self.target.small_files[small]);
                encode_compound(w, b"", 1, &[sequence, put(&self.target.small), ArgOp::Open(open)]);
                return;
            }
            Held::Locks => (&self.target.write_file, session.write_state),
            Held::LocksOfSmallFiles => (&self.target.small_files[small], session.small_states[small]),
        };
        let locker = Locker4::New(OpenToLockOwner4 {
            open_seqid: Seqid(0),
            open_stateid,
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
        self.asked[lane.connection][lane.slot].clone_from(file);
        encode_compound(w, b"", 1, &[sequence, put(file), ArgOp::Lock(lock)]);
    }

    fn check(&mut self, lane: Lane, reply: &[u8]) -> Result<u64> {
        // The state id is the first field of OPEN's and LOCK's result alike.
        let state = Stateid4::decode(&mut skip_empty_results(accepted(reply)?.rest(), 2)?)?;
        let file = std::mem::take(&mut self.asked[lane.connection][lane.slot]);
        self.sessions[lane.connection].held.push((file, state));
        Ok(1)
    }
}
