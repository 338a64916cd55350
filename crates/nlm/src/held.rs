//! What one lock-owner has of one file: locks, a share reservation, requests that wait.

use std::net::IpAddr;

use holdfast_base::{ByteRange, FileKey, Instant, Length, Offset};
use holdfast_state::{ForeignOwner, LockKind, RangeMap};
use holdfast_wire::nlm4::{NlmLock4, TestArgs4};
use holdfast_xdr::to_bytes;
use parking_lot::Mutex;

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
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) outside: Outside,
    pub(crate) ranges: RangeMap<LockKind>,
    pub(crate) has_share: bool,
    /// The state of the client's monitor with its last lock; 0 when it did not know.
    pub(crate) state: i32,
    pub(crate) blocked: Vec<Blocked>,
    /// The table has let go of it: look there again.
    pub(crate) is_gone: bool,
}

impl Held {
    pub(crate) fn is_idle(&self) -> bool {
        self.ranges.is_empty() && !self.has_share && self.blocked.is_empty()
    }

    /// Takes out a request that waits for exactly this lock.
    pub(crate) fn take_blocked(&mut self, range: ByteRange, kind: LockKind) -> Option<Blocked> {
        let at = self.blocked.iter().position(|b| b.range == range && b.kind == kind)?;
        Some(self.blocked.remove(at))
    }

    /// What the client knows that it has of a range: what is held, but for grants that it has not heard of.
    pub(crate) fn known(&self, range: ByteRange) -> Vec<(ByteRange, LockKind)> {
        let mut known = map_of(&self.ranges.within(range));
        for (of, _, before) in self.unheard() {
            known.clear(of);
            before.iter().for_each(|(part, had)| known.set(*part, *had));
        }
        known.within(range)
    }

    /// What is to be left of a range when a grant of it is taken back: what was known, and what other grants are of
    /// which the client may hear yet; never more than is held now.
    pub(crate) fn left_of(
        &self,
        range: ByteRange,
        before: &[(ByteRange, LockKind)],
    ) -> Vec<(ByteRange, LockKind)> {
        let mut left = map_of(before);
        for (of, kind, _) in self.unheard() {
            for (part, had) in map_of(&self.ranges.within(of)).within(range) {
                let kind = kind.min(had);
                let stronger = left.within(part).into_iter().filter(|(_, other)| *other > kind);
                let stronger: Vec<_> = stronger.collect();
                left.set(part, kind);
                stronger.into_iter().for_each(|(part, kind)| left.set(part, kind));
            }
        }
        left.within(range)
    }

    /// Grants that the client has not heard of: their ranges, kinds, and what it knew before.
    fn unheard(&self) -> impl Iterator<Item = (ByteRange, LockKind, &[(ByteRange, LockKind)])> {
        self.blocked.iter().filter_map(|blocked| match &blocked.stage {
            Stage::Granted(granted) => Some((blocked.range, blocked.kind, &*granted.before)),
            Stage::InLine | Stage::Outside => None,
        })
    }

    /// The client knows by another answer what it has of a range now: of that no grant it has not heard of is to be
    /// taken back, should it not want that one.
    pub(crate) fn is_known(&mut self, range: ByteRange, kind: Option<LockKind>) {
        for blocked in &mut self.blocked {
            let Stage::Granted(granted) = &mut blocked.stage else { continue };
            let mut before = map_of(&granted.before);
            match kind {
                Some(kind) => before.set(range, kind),
                None => before.clear(range),
            }
            granted.before = before.within(blocked.range);
        }
    }

    pub(crate) fn blocked(&mut self, number: u64) -> Option<&mut Blocked> {
        self.blocked.iter_mut().find(|b| b.number == number)
    }
}

fn map_of(parts: &[(ByteRange, LockKind)]) -> RangeMap<LockKind> {
    let mut map = RangeMap::default();
    parts.iter().for_each(|(part, kind)| map.set(*part, *kind));
    map
}

/// How far a blocking request has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// In the engine's line.
    InLine,
    /// A process outside has it, of whom nothing is heard when he lets go: it is tried again and again.
    Outside,
    /// It has the lock, and its client is being told.
    Granted(Granted),
}

/// A lock granted to a waiter whose client has not said yet that it knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Granted {
    pub(crate) since: Instant,
    /// When it is told again; nobody is being asked until then.
    pub(crate) next_at: Instant,
    pub(crate) tries: u32,
    /// A call is under way.
    pub(crate) is_asked: bool,
    /// The client may have taken an earlier call whose answer was lost: it then refuses the next one.
    pub(crate) may_be_known: bool,
    /// It has refused, which may mean either: until `next_at` it may cancel.
    pub(crate) is_refused: bool,
    /// What the owner had of the range before: it gets that back should the client not want the lock any more.
    pub(crate) before: Vec<(ByteRange, LockKind)>,
}

impl Granted {
    pub(crate) const fn new(now: Instant, before: Vec<(ByteRange, LockKind)>) -> Self {
        let (tries, is_asked, may_be_known, is_refused) = (0, false, false, false);
        Self { since: now, next_at: now, tries, is_asked, may_be_known, is_refused, before }
    }
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
