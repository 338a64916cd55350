//! Copies that go on after their reply (RFC 7862 section 4): begun by COPY, asked about by OFFLOAD_STATUS, stopped by
//! OFFLOAD_CANCEL, and told to be over by CB_OFFLOAD.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use holdfast_base::limits::{OFFLOADS_MAX, OFFLOADS_PER_CLIENT_MAX};
use holdfast_base::{ClientId, FileKey, Length, Seqid};
use holdfast_export::WireHandle;
use holdfast_wire::nfs4::{
    CbArgOp, CbOffload4Args, NfsStat4, OffloadInfo4, StableHow4, Stateid4, Verifier4, WriteResponse4,
};
use parking_lot::Mutex;

use crate::service::Service;

#[path = "handover/offloads.rs"]
mod handover;

pub(crate) use handover::OffloadsImage;

/// The copies of all clients that run, or whose end their client has not heard of.
pub(crate) struct Offloads {
    /// Part of their state ids, so that those of an earlier run name nothing.
    run: u32,
    next: AtomicU32,
    all: Mutex<Vec<Arc<Offload>>>,
    /// The server is about to be handed over: copies end after their next step.
    pub(crate) is_stopping: AtomicBool,
}

/// One copy.
pub(crate) struct Offload {
    stateid: Stateid4,
    client: ClientId,
    /// The file copied to.
    file: FileKey,
    copied: AtomicU64,
    is_cancelled: AtomicBool,
    outcome: Mutex<Option<NfsStat4>>,
}

impl Default for Offloads {
    fn default() -> Self {
        let run = RandomState::new().hash_one(0u8) as u32;
        let (all, is_stopping) = (Mutex::default(), AtomicBool::new(false));
        Self { run, next: AtomicU32::new(1), all, is_stopping }
    }
}

impl Offloads {
    /// A copy by this client to this file about to begin; `None` when too many run.
    pub(crate) fn begin(&self, client: ClientId, file: FileKey) -> Option<Arc<Offload>> {
        let mut all = self.all.lock();
        let own = all.iter().filter(|offload| offload.client == client).count();
        if all.len() >= OFFLOADS_MAX || own >= OFFLOADS_PER_CLIENT_MAX {
            return None;
        }
        // The state engine's begin with the number of the run, which is never 0: neither takes the other's for its own.
        let mut other = [0; 12];
        other[4..8].copy_from_slice(&self.run.to_be_bytes());
        other[8..].copy_from_slice(&self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        let offload = Arc::new(Offload {
            stateid: Stateid4 { seqid: Seqid(1), other },
            client,
            file,
            copied: AtomicU64::new(0),
            is_cancelled: AtomicBool::new(false),
            outcome: Mutex::new(None),
        });
        all.push(Arc::clone(&offload));
        Some(offload)
    }

    /// The copy of that name, when it is this client's, to this file, and was not stopped.
    pub(crate) fn find(&self, client: ClientId, file: FileKey, stateid: Stateid4) -> Option<Arc<Offload>> {
        let all = self.all.lock();
        let is_it = |offload: &&Arc<Offload>| {
            (offload.stateid, offload.client, offload.file) == (stateid, client, file)
                && !offload.is_cancelled()
        };
        all.iter().find(is_it).cloned()
    }

    /// Forgets a copy: its state id is bad from now on.
    pub(crate) fn forget(&self, offload: &Offload) {
        self.all.lock().retain(|other| other.stateid != offload.stateid);
    }

    /// Stops a copy: its state id is bad from now on. One that still runs keeps its place until its thread has ended,
    /// for threads are what the bound is on.
    pub(crate) fn cancel(&self, offload: &Offload) {
        offload.is_cancelled.store(true, Ordering::Relaxed);
        if offload.has_ended() {
            self.forget(offload);
        }
    }

    /// Stops those of clients that are gone.
    pub(crate) fn cancel_clients(&self, is_gone: impl Fn(ClientId) -> bool) {
        self.all.lock().retain(|offload| {
            if !is_gone(offload.client) {
                return true;
            }
            offload.is_cancelled.store(true, Ordering::Relaxed);
            !offload.has_ended()
        });
    }
}

impl Offload {
    /// Its name.
    pub(crate) const fn stateid(&self) -> Stateid4 {
        self.stateid
    }

    /// Bytes copied, and the status it ended with, if it has.
    pub(crate) fn status(&self) -> (u64, Option<NfsStat4>) {
        let outcome = *self.outcome.lock();
        (self.copied.load(Ordering::Relaxed), outcome)
    }

    fn has_ended(&self) -> bool {
        self.outcome.lock().is_some()
    }

    /// Whether it is to stop before its next step.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.is_cancelled.load(Ordering::Relaxed)
    }

    /// Notes how far it came.
    pub(crate) fn advance(&self, copied: u64) {
        self.copied.store(copied, Ordering::Relaxed);
    }
}

impl Service {
    /// Ends a copy and tells its client. Who cannot be told asks with OFFLOAD_STATUS: the copy is remembered until the
    /// client has heard of it or is gone.
    pub(crate) fn end_offload(
        self: &Arc<Self>,
        offload: Arc<Offload>,
        to: &WireHandle,
        (status, writeverf): (NfsStat4, Verifier4),
    ) {
        *offload.outcome.lock() = Some(status);
        if offload.is_cancelled() {
            return self.offloads.forget(&offload);
        }
        let count = Length(offload.status().0);
        let info = if status == NfsStat4::Ok {
            let committed = StableHow4::Unstable;
            OffloadInfo4::Done(WriteResponse4 { callback_id: None, count, committed, writeverf })
        } else {
            OffloadInfo4::Failed(status.as_u32(), count)
        };
        let call = CbArgOp::Offload(CbOffload4Args { fh: to.as_bytes(), stateid: offload.stateid, info });
        let service = Arc::clone(self);
        let client = offload.client;
        let told = move |answer: Result<NfsStat4, _>| {
            if answer.is_ok() {
                service.offloads.forget(&offload);
            }
        };
        self.call_back(client, call, Box::new(told));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_bounded_by_client_and_in_all_and_forgetting_one_makes_room() {
        let offloads = Offloads::default();
        let begin = |client| offloads.begin(ClientId(client), FileKey(1));
        let own: Vec<_> = (0..OFFLOADS_PER_CLIENT_MAX).map(|_| begin(1).unwrap()).collect();
        assert!(begin(1).is_none());
        let all = (2u64..).take_while(|client| begin(*client).is_some()).count();
        assert_eq!(own.len() + all, OFFLOADS_MAX);
        offloads.forget(&own[0]);
        assert!(begin(1).is_some());
        assert!(begin(1).is_none());
    }

    #[test]
    fn a_copy_is_found_by_its_client_and_file_alone() {
        let offloads = Offloads::default();
        let offload = offloads.begin(ClientId(1), FileKey(1)).unwrap();
        let find = |client, file| offloads.find(ClientId(client), FileKey(file), offload.stateid()).is_some();
        assert_eq!([find(1, 1), find(2, 1), find(1, 2)], [true, false, false]);
        offloads.cancel_clients(|client| client == ClientId(1));
        assert!(!find(1, 1) && offload.is_cancelled());
    }

    #[test]
    fn a_stopped_copy_keeps_its_place_until_its_thread_has_ended() {
        let offloads = Offloads::default();
        let begin = || offloads.begin(ClientId(1), FileKey(1));
        let own: Vec<_> = (0..OFFLOADS_PER_CLIENT_MAX).map(|_| begin().unwrap()).collect();
        own.iter().for_each(|offload| offloads.cancel(offload));
        assert!(offloads.find(ClientId(1), FileKey(1), own[0].stateid()).is_none());
        assert!(begin().is_none(), "its thread may still be in a step");
        *own[0].outcome.lock() = Some(NfsStat4::Ok);
        offloads.cancel(&own[0]);
        assert!(begin().is_some());
        *own[1].outcome.lock() = Some(NfsStat4::Ok);
        offloads.cancel_clients(|_| true);
        assert_eq!(offloads.all.lock().len(), OFFLOADS_PER_CLIENT_MAX - 1);
    }
}
