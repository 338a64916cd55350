//! One client connection as programs see it: who it is, what they keep with it, calls back to the client; and the
//! bookkeeping by which its calls and replies stay bounded.

mod calls;
mod ticket;

use std::any::{Any, TypeId};
use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

use holdfast_base::limits::STRANGER_OUTPUT_BYTES_MAX;
use parking_lot::Mutex;
use tokio::net::tcp::OwnedWriteHalf;

use crate::callback::BackChannel;
use crate::dispatch::Core;
use crate::handover::Unread;
use crate::kick::Kick;
use crate::output::{Output, Sent};
use crate::pool::Job;
use crate::service::FileBody;

pub(crate) use ticket::Ticket;

/// A connection. It lives as long as somebody holds it; its socket goes when it is closed.
pub struct Connection {
    id: u64,
    peer: SocketAddr,
    local: SocketAddr,
    is_datagram: bool,
    /// Bytes of replies not taken above which no more are made.
    output_bytes_max: usize,
    pub(crate) core: Arc<Core>,
    pub(crate) kick: Kick,
    pub(crate) output: Output,
    pub(crate) back: BackChannel,
    /// While the server holds still: what the task has read and not handled.
    pub(crate) unread: Mutex<Option<Unread>>,
    extensions: Mutex<Vec<(TypeId, Arc<dyn Any + Send + Sync>)>>,
    is_closed: AtomicBool,
    /// The task reads no more until it is kicked.
    pub(crate) is_paused: AtomicBool,
    in_flight: AtomicUsize,
    in_flight_bytes: AtomicUsize,
    parked: AtomicUsize,
    parked_bytes: AtomicUsize,
    /// Parked calls that need no peer to be answered ([`crate::PendingReply::waits_for_no_peer`]).
    sure: AtomicUsize,
    /// Pool jobs held back because the peer does not take its replies.
    deferred: Mutex<VecDeque<Job>>,
    has_deferred: AtomicBool,
    /// It is in the pool's list of those that found it full.
    pub(crate) waits_for_pool: AtomicBool,
    pub(crate) partial_bytes: AtomicUsize,
    /// Ticks of the server's clock: of the last call, of the start of a record not whole yet (0: none), and of
    /// the last progress of a blocked output (0: not blocked).
    pub(crate) active_at: AtomicU32,
    pub(crate) partial_since: AtomicU32,
    pub(crate) blocked_since: AtomicU32,
    /// Of the sweep alone: when it last looked how much of its replies the peer takes, and what it had taken then.
    taken_at: AtomicU32,
    taken_then: AtomicUsize,
}

impl Connection {
    pub(crate) fn new(
        core: &Arc<Core>,
        peer: SocketAddr,
        local: SocketAddr,
        half: Option<OwnedWriteHalf>,
    ) -> Arc<Self> {
        Arc::new(Self::made((core, core.next_connection_id()), (peer, local), false, Output::new(half)))
    }

    /// A connection of a predecessor, under the number it had there.
    pub(crate) fn adopted(
        (core, id): (&Arc<Core>, u64),
        ends: (SocketAddr, SocketAddr),
        output: Output,
    ) -> Arc<Self> {
        Arc::new(Self::made((core, id), ends, false, output))
    }

    /// What stands for the connection of a call that came by UDP: nothing can be sent over it later.
    pub(crate) fn of_datagram(core: &Arc<Core>, peer: SocketAddr, local: SocketAddr) -> Arc<Self> {
        let id = core.next_connection_id();
        Arc::new(Self::made((core, id), (peer, local), true, Output::default()))
    }

    fn made(
        (core, id): (&Arc<Core>, u64),
        (peer, local): (SocketAddr, SocketAddr),
        is_datagram: bool,
        output: Output,
    ) -> Self {
        Self {
            id,
            peer: canonical(peer),
            local: canonical(local),
            is_datagram,
            output_bytes_max: output_bytes_max(core, canonical(peer).ip()),
            core: Arc::clone(core),
            kick: Kick::default(),
            output,
            back: BackChannel::default(),
            unread: Mutex::default(),
            extensions: Mutex::default(),
            is_closed: AtomicBool::new(false),
            is_paused: AtomicBool::new(false),
            in_flight: AtomicUsize::new(0),
            in_flight_bytes: AtomicUsize::new(0),
            parked: AtomicUsize::new(0),
            parked_bytes: AtomicUsize::new(0),
            sure: AtomicUsize::new(0),
            deferred: Mutex::default(),
            has_deferred: AtomicBool::new(false),
            waits_for_pool: AtomicBool::new(false),
            partial_bytes: AtomicUsize::new(0),
            active_at: AtomicU32::new(core.tick()),
            partial_since: AtomicU32::new(0),
            blocked_since: AtomicU32::new(0),
            taken_at: AtomicU32::new(0),
            taken_then: AtomicUsize::new(0),
        }
    }

    /// Unique among all connections of this process.
    #[must_use]
    pub const fn id(&self) -> u64 {
        self.id
    }

    /// The client's address; an IPv4 client of an IPv6 listener appears as IPv4.
    #[must_use]
    pub const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// The address the client connected to.
    #[must_use]
    pub const fn local(&self) -> SocketAddr {
        self.local
    }

    /// Whether this is one call by UDP: its peer's address may be anybody's, and nothing can be sent later.
    #[must_use]
    pub const fn is_datagram(&self) -> bool {
        self.is_datagram
    }

    /// Whether it is gone; replies to it go nowhere.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Bytes of replies that the peer has not taken yet.
    #[must_use]
    pub fn output_bytes(&self) -> usize {
        self.output.held_bytes()
    }

    /// Drops the connection, replies on their way included. From any thread.
    pub fn close(&self) {
        if !self.is_closed.swap(true, Ordering::AcqRel) {
            self.output.close();
            self.back.close();
            let deferred = std::mem::take(&mut *self.deferred.lock());
            // The pool drops those that have not begun.
            deferred.into_iter().for_each(|job| self.core.pool.push(job));
            self.kick.kick();
        }
    }

    /// What a program keeps with this connection, by its type.
    #[must_use]
    pub fn extension<T: Any + Send + Sync>(&self) -> Option<Arc<T>> {
        let extensions = self.extensions.lock();
        let (_, value) = extensions.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
        Arc::clone(value).downcast().ok()
    }

    /// The same, made on first use. `make` runs under a lock: it must not call back into this connection.
    pub fn extension_or_insert<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let mut extensions = self.extensions.lock();
        let known = extensions.iter().find(|(id, _)| *id == TypeId::of::<T>());
        if let Some(value) = known.and_then(|(_, v)| Arc::clone(v).downcast().ok()) {
            return value;
        }
        let value = Arc::new(make());
        extensions.push((TypeId::of::<T>(), Arc::clone(&value) as Arc<dyn Any + Send + Sync>));
        value
    }

    /// Whether one more call may wait for a peer (see [`crate::service::Outcome::Park`]).
    #[must_use]
    pub fn may_park(&self) -> bool {
        self.may_park_times(1)
    }

    fn may_park_times(&self, factor: usize) -> bool {
        let limits = &self.core.limits;
        self.parked.load(Ordering::SeqCst) < factor * limits.parked_calls
            && self.parked_bytes.load(Ordering::SeqCst) < factor * limits.parked_bytes
    }

    /// Sends bytes, then perhaps a stretch of a file.
    pub(crate) fn send(&self, head: &[u8], file: Option<FileBody>) {
        let sent = self.output.send(head, file);
        self.after(sent);
    }

    /// Sends what is queued as far as the socket takes it.
    pub(crate) fn drain(&self) {
        let sent = self.output.drain();
        self.after(sent);
    }

    fn after(&self, sent: Sent) {
        match sent {
            Sent::Broken => self.close(),
            Sent::Blocked => {
                self.blocked_since.store(self.core.tick(), Ordering::Relaxed);
                self.kick.kick();
            }
            Sent::Done => {
                if self.output.chunks() == 0 && self.blocked_since.load(Ordering::Relaxed) != 0 {
                    self.blocked_since.store(0, Ordering::Relaxed);
                }
                self.resume_reading();
            }
        }
        if self.has_deferred.load(Ordering::Acquire) {
            self.release_deferred();
        }
    }

    /// Whether the peer takes its replies too slowly to make more of them.
    pub(crate) fn is_output_full(&self) -> bool {
        self.output.held_bytes() > self.output_bytes_max
            || self.output.chunks() > self.core.limits.output_chunks
    }

    /// Whether the next call may be taken.
    pub(crate) fn may_read(&self) -> bool {
        let limits = &self.core.limits;
        let (calls, bytes) =
            (self.in_flight.load(Ordering::Acquire), self.in_flight_bytes.load(Ordering::Acquire));
        // What lies here of calls that came is only worked off by going on: that must always be possible.
        let is_idle = calls == 0 && self.output.chunks() == 0;
        calls < limits.calls_in_flight
            && bytes < limits.call_bytes_in_flight
            && self.may_park_times(2)
            && !self.is_output_full()
            && (is_idle || !self.core.is_under_pressure() || self.held_bytes() <= self.core.share())
    }

    /// Whether nothing is on its way but calls that wait for a peer.
    pub(crate) fn is_quiet(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) == 0
            && self.sure.load(Ordering::Acquire) == 0
            && self.output.chunks() == 0
    }

    /// Calls that are not answered: those on their way, and those that wait for a peer.
    pub(crate) fn unanswered(&self) -> (usize, usize) {
        (self.in_flight.load(Ordering::SeqCst), self.parked.load(Ordering::SeqCst))
    }

    /// Bytes held on behalf of this connection.
    pub(crate) fn held_bytes(&self) -> usize {
        self.output.held_bytes()
            + self.in_flight_bytes.load(Ordering::Relaxed)
            + self.parked_bytes.load(Ordering::Relaxed)
            + self.partial_bytes.load(Ordering::Relaxed)
    }

    /// Under pressure: bytes of replies that the peer leaves to us, when in so many seconds it took fewer of them
    /// than lie here and they are more than its share. To be asked by one thread, time and again.
    pub(crate) fn left_lying(&self, seconds: u32) -> Option<usize> {
        let (lying, tick) = (self.output.held_bytes(), self.core.tick());
        let since = self.taken_at.load(Ordering::Relaxed);
        let is_over = lying > self.core.share();
        if is_over && since != 0 && tick.saturating_sub(since) < seconds {
            return None;
        }
        let taken = self.output.taken_bytes();
        let then = self.taken_then.swap(taken, Ordering::Relaxed);
        self.taken_at.store(if is_over { tick } else { 0 }, Ordering::Relaxed);
        (is_over && since != 0 && taken.wrapping_sub(then) < lying).then_some(lying)
    }

    /// Moves the start of a record that is not whole by so many ticks in which we did not read it. Not while its
    /// own bytes are what keeps us from reading: those must not lie here for ever.
    pub(crate) fn excuse_partial(&self, ticks: u32) {
        let since = self.partial_since.load(Ordering::Relaxed);
        let is_ours = self.is_paused.load(Ordering::Relaxed) || self.waits_for_pool.load(Ordering::Relaxed);
        let is_own_fault =
            self.core.is_under_pressure() && self.partial_bytes.load(Ordering::Relaxed) > self.core.share();
        if since != 0 && ticks != 0 && is_ours && !is_own_fault {
            // When the task has written another value meanwhile, that one holds.
            let moved = since.saturating_add(ticks);
            let _ = self.partial_since.compare_exchange(since, moved, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Keeps a job back until the peer has taken replies; runs it at once when that happened meanwhile.
    pub(crate) fn defer(&self, job: Job) {
        self.deferred.lock().push_back(job);
        self.has_deferred.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        self.release_deferred();
    }

    pub(crate) fn release_deferred(&self) {
        let is_closed = self.is_closed();
        // While the server holds still all that has begun must come to its end, and no more can come.
        if self.is_output_full() && !is_closed && !self.core.is_holding() {
            return;
        }
        let mut deferred = self.deferred.lock();
        let jobs = std::mem::take(&mut *deferred);
        self.has_deferred.store(false, Ordering::SeqCst);
        drop(deferred);
        if is_closed {
            // Each holds this connection, which would hold itself.
            return;
        }
        for job in jobs {
            self.core.pool.push(job);
        }
    }

    /// Tells the task that it stops reading; it has to look once more whether it must, for what changes after
    /// this kicks it ([`Connection::resume_reading`]), and what changed before does not.
    pub(crate) fn pause_reading(&self) {
        self.is_paused.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// Lets the task read again if it had stopped. To be called after whatever may let it.
    pub(crate) fn resume_reading(&self) {
        fence(Ordering::SeqCst);
        if self.is_paused.load(Ordering::SeqCst) {
            self.kick.kick();
        }
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("id", &self.id).field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// Strangers get errors and lists, which are short.
fn output_bytes_max(core: &Core, peer: IpAddr) -> usize {
    let all = core.limits.output_bytes;
    if core.is_stranger(peer) { all.min(STRANGER_OUTPUT_BYTES_MAX) } else { all }
}

/// IPv4 addresses inside IPv6 ones, as listeners for both families give them, become plain IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    let ip: IpAddr = address.ip().to_canonical();
    if ip == address.ip() { address } else { SocketAddr::new(ip, address.port()) }
}
