//! Hosts that keep to the protocol as Linux does, and what each believes to hold. Two never believe to hold what only
//! one can.

use std::net::IpAddr;

use holdfast_base::{Length, Offset};
use holdfast_nlm::PeerCall;
use holdfast_rpc::detached::Detached;
use holdfast_wire::nlm4::{
    CancelArgs4, LockArgs4, NLM_PROGRAM, NLM_V4, NlmLock4, NlmProc4, NlmRes4, NlmStat4, TestArgs4,
    UnlockArgs4,
};
use holdfast_wire::nsm::{NSM_PROGRAM, NSM_V1, SM_NOTIFY, StatChange};
use holdfast_xdr::{Encode, from_bytes, to_bytes};

use crate::nlm_world::{NlmWorld, call};

/// Hosts.
pub(crate) const HOSTS: usize = 3;

/// Processes of each.
pub(crate) const PROCESSES: usize = 2;

/// Bytes of a file that are locked.
pub(crate) const BYTES: usize = 8;

/// A lock that a process asks for: first byte, last byte, exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub(crate) process: usize,
    pub(crate) file: usize,
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) exclusive: bool,
}

/// A host.
pub(crate) struct Host {
    number: usize,
    name: Vec<u8>,
    connection: Detached,
    xid: u32,
    /// Its status monitor's.
    state: i32,
    waits: Vec<Wish>,
    /// What its processes hold of each file, byte by byte: exclusively or not.
    holds: Vec<[[Option<bool>; BYTES]; PROCESSES]>,
}

impl Host {
    pub(crate) fn new(world: &NlmWorld, number: usize) -> Self {
        Self {
            number,
            name: format!("host{number}").into_bytes(),
            connection: world.connect([192, 0, 2, number as u8 + 1].into(), 700),
            xid: 0,
            state: 1,
            waits: Vec::new(),
            holds: vec![[[None; BYTES]; PROCESSES]; world.files.len()],
        }
    }

    pub(crate) fn ip(&self) -> IpAddr {
        [192, 0, 2, self.number as u8 + 1].into()
    }

    /// Whether a GRANTED arrives before this request is sent. NLM has no order between the two ways: of a GRANTED that
    /// crosses a request of the same process for the same bytes, no server can tell whether its client took it before or
    /// after, and a client cannot tell it from one of its next request for the same range (`nlmclnt_grant`: "must not use
    /// cookie to match it"). A call that crosses anything else does so here.
    pub(crate) fn would_cross(
        &self,
        fhs: &[Vec<u8>],
        wish: Wish,
        is_unlock: bool,
        granted: &TestArgs4<'_>,
    ) -> bool {
        let mine = lock_of(&self.name, fhs, wish);
        let theirs = &granted.lock;
        if (mine.caller_name, mine.fh, mine.oh, mine.svid)
            != (theirs.caller_name, theirs.fh, theirs.oh, theirs.svid)
        {
            return false;
        }
        let (first, last) = (theirs.offset.0, theirs.offset.0 + theirs.length.0 - 1);
        let overlaps = first <= wish.last as u64 && wish.first as u64 <= last;
        let is_same_range = (mine.offset, mine.length) == (theirs.offset, theirs.length);
        let weakens = is_unlock || granted.exclusive && !wish.exclusive;
        is_same_range || overlaps && weakens
    }

    fn set(&mut self, wish: Wish, to: Option<bool>) {
        self.holds[wish.file][wish.process][wish.first..=wish.last].fill(to);
    }

    /// Calls, and sends the same again where asked for: the answer must be the same.
    fn call(&mut self, procedure: NlmProc4, args: &impl Encode, again: bool) -> NlmStat4 {
        self.xid += 1;
        let args = to_bytes(args);
        let proc = (NLM_PROGRAM, NLM_V4, procedure.as_u32());
        let results =
            call(&mut self.connection, self.xid, proc, &args).expect("a call well formed is answered");
        let stat = from_bytes::<NlmRes4<'_>>(&results).expect("results well formed").stat;
        let is_final =
            !matches!(stat, NlmStat4::DeniedGracePeriod | NlmStat4::DeniedNoLocks | NlmStat4::Failed);
        if again && is_final {
            let second = call(&mut self.connection, self.xid, proc, &args);
            assert_eq!(second, Some(results.clone()), "the answer to a call sent again");
        }
        stat
    }

    /// LOCK.
    pub(crate) fn lock(&mut self, fhs: &[Vec<u8>], wish: Wish, block: bool, again: bool) -> NlmStat4 {
        let (name, state) = (self.name.clone(), 0);
        let lock = lock_of(&name, fhs, wish);
        let exclusive = wish.exclusive;
        let args = LockArgs4 { cookie: b"lock", block, exclusive, lock, reclaim: false, state };
        // A process that polls waits on.
        let stat = self.call(NlmProc4::Lock, &args, again);
        match stat {
            NlmStat4::Granted => {
                self.waits.retain(|other| *other != wish);
                self.set(wish, Some(exclusive));
            }
            NlmStat4::Blocked => {
                assert!(block, "who does not wait is told to");
                if !self.waits.contains(&wish) {
                    self.waits.push(wish);
                }
            }
            // Whoever is told no waits no more.
            _ if block => self.waits.retain(|other| *other != wish),
            _ => {}
        }
        stat
    }

    /// Every process asks again for what it waits for, lets go of what it has, and of all of a file of which it has, and
    /// waits for, nothing.
    pub(crate) fn finish(&mut self, fhs: &[Vec<u8>]) {
        for wish in self.waits.clone() {
            self.lock(fhs, wish, true, false);
        }
        for file in 0..fhs.len() {
            for process in 0..PROCESSES {
                let all = Wish { process, file, first: 0, last: BYTES - 1, exclusive: false };
                let held = self.holds[file][process];
                if !self.waits.iter().any(|w| (w.process, w.file) == (process, file)) {
                    self.unlock(fhs, all, false);
                }
                for at in (0..BYTES).filter(|at| held[*at].is_some()) {
                    self.unlock(fhs, Wish { first: at, last: at, ..all }, false);
                }
            }
        }
    }

    pub(crate) fn waits(&self) -> usize {
        self.waits.len()
    }

    /// UNLOCK.
    pub(crate) fn unlock(&mut self, fhs: &[Vec<u8>], wish: Wish, again: bool) {
        self.set(wish, None);
        let name = self.name.clone();
        let args = UnlockArgs4 { cookie: b"unlock", lock: lock_of(&name, fhs, wish) };
        assert_eq!(self.call(NlmProc4::Unlock, &args, again), NlmStat4::Granted);
    }

    /// CANCEL of something that is waited for.
    pub(crate) fn cancel(&mut self, fhs: &[Vec<u8>], which: usize, again: bool) {
        if self.waits.is_empty() {
            return;
        }
        let wish = self.waits.remove(which % self.waits.len());
        let name = self.name.clone();
        let lock = lock_of(&name, fhs, wish);
        let args = CancelArgs4 { cookie: b"cancel", block: true, exclusive: wish.exclusive, lock };
        let stat = self.call(NlmProc4::Cancel, &args, again);
        assert!(matches!(stat, NlmStat4::Granted | NlmStat4::Denied), "{stat}");
    }

    /// It restarts, and tells.
    pub(crate) fn restart(&mut self) {
        self.state += 2;
        self.waits.clear();
        self.holds.fill([[None; BYTES]; PROCESSES]);
        self.xid += 1;
        let name = self.name.clone();
        let args = to_bytes(&StatChange { mon_name: &name, state: self.state });
        let proc = (NSM_PROGRAM, NSM_V1, SM_NOTIFY);
        assert_eq!(call(&mut self.connection, self.xid, proc, &args), Some(Vec::new()), "SM_NOTIFY");
    }

    /// GRANTED arrives; what it is answered.
    pub(crate) fn granted(&mut self, fhs: &[Vec<u8>], args: &TestArgs4<'_>) -> NlmStat4 {
        let is_meant =
            |wish: &Wish| (lock_of(&self.name, fhs, *wish), wish.exclusive) == (args.lock, args.exclusive);
        let Some(at) = self.waits.iter().position(is_meant) else { return NlmStat4::Denied };
        let wish = self.waits.remove(at);
        self.set(wish, Some(wish.exclusive));
        NlmStat4::Granted
    }
}

fn lock_of<'a>(name: &'a [u8], fhs: &'a [Vec<u8>], wish: Wish) -> NlmLock4<'a> {
    let (offset, length) = (Offset(wish.first as u64), Length((wish.last - wish.first + 1) as u64));
    NlmLock4 { caller_name: name, fh: &fhs[wish.file], oh: b"o", svid: wish.process as i32, offset, length }
}

/// The host that a call is for.
pub(crate) fn host_of<'h>(hosts: &'h mut [Host], call: &PeerCall) -> Option<&'h mut Host> {
    hosts.iter_mut().find(|host| call.peer == host.ip())
}

/// Checks that nobody holds what another, or a process outside, holds.
///
/// # Panics
/// When somebody does.
pub(crate) fn check(hosts: &[Host], outside: &[[Option<bool>; BYTES]]) {
    for (file, taken) in outside.iter().enumerate() {
        for byte in 0..BYTES {
            let held = hosts.iter().flat_map(|host| host.holds[file].iter().filter_map(move |p| p[byte]));
            let held: Vec<bool> = held.chain(taken[byte]).collect();
            let is_alone = held.len() < 2 || held.iter().all(|exclusive| !exclusive);
            assert!(is_alone, "byte {byte} of file {file} is held {} times, exclusively", held.len());
        }
    }
}
