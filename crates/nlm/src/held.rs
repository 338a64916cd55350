//! What one lock-owner has of one file: locks, a share reservation, requests that wait.

use std::net::IpAddr;

use holdfast_base::{ByteRange, FileKey, Length, Offset};
use holdfast_state::{ForeignOwner, LockKind, RangeMap};
use holdfast_wire::nlm4::{NlmLock4, TestArgs4};
use holdfast_xdr::to_bytes;
use parking_lot::Mutex;

use crate::claim::{Granted, strengthen};
use crate::names::{HostName, OwnerName};
use crate::outside::{Outside, Site};

/// A lock-owner and a file.
pub(crate) struct OwnerFile {
    // Constant.
    pub(crate) owner: ForeignOwner,
    pub(crate) host: HostName,
    pub(crate) name: OwnerName,
    pub(crate) file: FileKey,
    pub(crate) site: Site,
    /// Held through every change, the backend's part included: the backend sees changes in the order in which the
    /// engine does. Never while another one's is waited for.
    pub(crate) held: Mutex<Held>,
}

/// What changes of it.
///
/// The invariant: whatever its client may believe to have is locked, in the engine and on the backend. What it may believe
/// is `sure` and the claims of all grants ([`Held::due`]); only [`Lockd::settle`](crate::lockd::Lockd::settle) lets go of
/// anything, and never of what is due.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) outside: Outside,
    /// What the engine and the backend have for it.
    pub(crate) locked: RangeMap<LockKind>,
    /// So many ranges of that are on its site's account.
    pub(crate) counted: usize,
    /// What its client has been answered that it has, and has not let go of.
    pub(crate) sure: RangeMap<LockKind>,
    pub(crate) has_share: bool,
    /// The state of the client's monitor with its last lock; 0 when it did not know.
    pub(crate) state: i32,
    pub(crate) blocked: Vec<Blocked>,
    /// The table has let go of it: look there again.
    pub(crate) is_gone: bool,
}

impl Held {
    pub(crate) fn is_idle(&self) -> bool {
        self.locked.is_empty() && !self.has_share && self.blocked.is_empty()
    }

    /// What its client may believe to have of a range, at its strongest.
    pub(crate) fn due(&self, range: ByteRange) -> RangeMap<LockKind> {
        let mut due = RangeMap::default();
        self.sure.within(range).into_iter().for_each(|(part, kind)| due.set(part, kind));
        for granted in self.grants() {
            granted.claim.within(range).into_iter().for_each(|claim| strengthen(&mut due, claim));
        }
        due
    }

    /// Its client has heard, by an answer to its own request, that it has a lock, or has let go of a range.
    pub(crate) fn is_known(&mut self, range: ByteRange, kind: Option<LockKind>) {
        self.blocked.iter_mut().filter_map(Blocked::granted_mut).for_each(|granted| granted.yield_to(range));
        match kind {
            Some(kind) => self.sure.set(range, kind),
            None => self.sure.clear(range),
        }
    }

    /// Whether the client is to hear of something else before it is told of a grant. Of two grants that differ in kind it
    /// hears one at a time, or there would be no telling which was the last. And Linux takes a GRANTED of a range for any
    /// request of that range, shared or not (`nlmclnt_grant`): it hears of no shared lock while it wants an exclusive one.
    pub(crate) fn must_wait(&self, number: u64, range: ByteRange, kind: LockKind) -> bool {
        let mut others = self.blocked.iter().filter(|other| other.number != number);
        others.any(|other| match other.granted() {
            Some(told) if told.is_told() => told.claim.overlapping(range).any(|(_, its)| its != kind),
            Some(_) => false,
            None => kind == LockKind::Read && other.is_for(range, LockKind::Write),
        })
    }

    /// The request for exactly this lock that is not granted yet.
    pub(crate) fn waiting(&self, range: ByteRange, kind: LockKind) -> Option<usize> {
        self.blocked.iter().position(|b| b.is_for(range, kind) && b.granted().is_none())
    }

    /// Whether a request for exactly this lock was granted, and all of that is still kept for its client.
    pub(crate) fn is_granted(&self, range: ByteRange, kind: LockKind) -> bool {
        let mut same = self.blocked.iter().filter(|b| b.is_for(range, kind));
        same.any(|b| b.granted().is_some_and(|granted| granted.is_whole(range, kind)))
    }

    /// Whether a request may stand in the engine's line. What the engine grants replaces what its owner has of the range: a
    /// shared lock would weaken an exclusive one before its client hears, and while that may yet cancel.
    pub(crate) fn may_stand_in_line(&self, range: ByteRange, kind: LockKind) -> bool {
        let is_write = |b: &Blocked| b.kind == LockKind::Write && b.granted().is_none();
        kind == LockKind::Write
            || !self.locked.overlapping(range).any(|(_, had)| had == LockKind::Write)
                && !self.blocked.iter().any(|b| b.range.overlaps(range) && is_write(b))
    }

    /// The engine has taken a request for exactly this out of its line, as the owner has got that lock otherwise.
    pub(crate) fn is_out_of_line(&mut self, range: ByteRange, kind: LockKind) {
        let same = self.blocked.iter_mut().filter(|b| b.is_for(range, kind) && b.stage == Stage::InLine);
        same.for_each(|blocked| blocked.stage = Stage::Tried);
    }

    fn grants(&self) -> impl Iterator<Item = &Granted> {
        self.blocked.iter().filter_map(Blocked::granted)
    }

    pub(crate) fn position(&self, number: u64) -> Option<usize> {
        self.blocked.iter().position(|b| b.number == number)
    }
}

/// How far a blocking request has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In the engine's line.
    InLine,
    /// It is tried again and again: a process outside has it, of whom nothing is heard when he lets go, or it may not stand
    /// in the engine's line.
    Tried,
    /// It has the lock, and it is not known yet whether its client knows.
    Granted(Granted),
}

/// A blocking request that was not granted at once.
#[derive(Clone, Debug)]
pub(crate) struct Blocked {
    // Constant. The number is our cookie in GRANTED.
    pub(crate) number: u64,
    pub(crate) range: ByteRange,
    pub(crate) kind: LockKind,
    /// As the client wrote them: it compares.
    pub(crate) offset: Offset,
    pub(crate) length: Length,
    /// The handle as it was sent.
    pub(crate) fh: Vec<u8>,
    /// Where the client reached us.
    pub(crate) local: IpAddr,
    // Changing.
    pub(crate) stage: Stage,
}

impl Blocked {
    pub(crate) fn is_for(&self, range: ByteRange, kind: LockKind) -> bool {
        (self.range, self.kind) == (range, kind)
    }

    pub(crate) const fn granted(&self) -> Option<&Granted> {
        match &self.stage {
            Stage::Granted(granted) => Some(granted),
            Stage::InLine | Stage::Tried => None,
        }
    }

    pub(crate) const fn granted_mut(&mut self) -> Option<&mut Granted> {
        match &mut self.stage {
            Stage::Granted(granted) => Some(granted),
            Stage::InLine | Stage::Tried => None,
        }
    }

    /// The arguments of GRANTED.
    pub(crate) fn granted_args(&self, of: &OwnerFile) -> Vec<u8> {
        let lock = NlmLock4 {
            caller_name: &of.host.caller,
            fh: &self.fh,
            oh: &of.name.oh,
            svid: of.name.svid.unwrap_or(0),
            offset: self.offset,
            length: self.length,
        };
        let cookie = self.number.to_be_bytes();
        to_bytes(&TestArgs4 { cookie: &cookie, exclusive: self.kind == LockKind::Write, lock })
    }
}
