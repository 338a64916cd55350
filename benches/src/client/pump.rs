//! Keeps a fixed number of calls in flight on each of many connections, from one thread. Whatever may be sent to
//! a connection goes with one write, as clients do that batch.

use super::call::{REPLY_PATIENCE, accepted, reserve_xids};
use super::record::{self, Records};
use super::{Amount, Burst};
use crate::cpu;
use crate::histogram::Histogram;
use anyhow::{Context, Result, ensure};
use holdfast_xdr::{Reader, Writer};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use std::io::{ErrorKind, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// Lanes a connection may have: the low bits of a call's number name the lane.
const LANES_MAX: usize = 64;
const LANE_BITS: u32 = LANES_MAX.trailing_zeros();

/// Connections that are told of at once.
const EVENTS: usize = 1024;

/// One place for a call in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    /// The connection, from 0.
    pub(crate) connection: usize,
    /// The place on it, from 0.
    pub(crate) slot: usize,
}

/// What is called, and what is made of the replies.
pub(crate) trait Load {
    /// Whether the lane has another call; asked before each, beside how much is to be done in all.
    fn has_more(&self, _: Lane) -> bool {
        true
    }

    /// Writes a call after its number: header and arguments.
    fn encode(&mut self, lane: Lane, w: &mut Writer);

    /// How many bytes of a reply it looks at.
    fn looks_at(&self) -> usize {
        usize::MAX
    }

    /// Whether the lane stands within something that one goes through with even when the time is up.
    fn is_midway(&self, _: Lane) -> bool {
        false
    }

    /// Looks at the reply to the lane's call, from its start (as much as [`Load::looks_at`] of it); gives how many operations it stands for.
    ///
    /// Errors when it is not what was asked for.
    fn check(&mut self, lane: Lane, reply: &[u8]) -> Result<u64>;
}

/// The results of a reply that must be there and good: a reader after the RPC header and a status of 0.
///
/// Errors with the status otherwise.
pub(crate) fn succeeded(reply: &[u8]) -> Result<Reader<'_>> {
    let mut r = accepted(reply)?;
    let status = r.u32()?;
    ensure!(status == 0, "the server answered with status {status}");
    Ok(r)
}

struct Connection {
    stream: TcpStream,
    records: Records,
    out: Vec<u8>,
    /// Bytes of `out` that have gone.
    sent: usize,
    started: Vec<Instant>,
    in_flight: usize,
    /// Whether it is to be told when more can be sent.
    waits_to_send: bool,
}

struct Tally {
    amount: Amount,
    began: Instant,
    issued: u64,
    answered: u64,
    units: u64,
    latency: Histogram,
}

impl Tally {
    fn may_issue(&self, now: Instant) -> bool {
        match self.amount {
            Amount::For(time) => now.duration_since(self.began) < time,
            Amount::Calls(count) => self.issued < count,
        }
    }
}

/// Runs a load over connections with `depth` calls in flight on each; ends when all replies have come.
///
/// Errors when a connection breaks, a reply does not come in time, or the load does not like one.
pub(crate) fn run(streams: &[TcpStream], depth: usize, amount: Amount, load: &mut dyn Load) -> Result<Burst> {
    ensure!((1..=LANES_MAX).contains(&depth), "a depth of 1 to {LANES_MAX}");
    let mut connections =
        streams.iter().map(|s| Connection::new(s, depth, load.looks_at())).collect::<Result<Vec<_>>>()?;
    let ready = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (number, connection) in connections.iter().enumerate() {
        let data = epoll::EventData::new_u64(number as u64);
        epoll::add(&ready, &connection.stream, data, epoll::EventFlags::IN)?;
    }
    let mut events = Vec::with_capacity(EVENTS);
    let cpu_before = cpu::of_self()?;
    let began = Instant::now();
    let mut tally = Tally { amount, began, issued: 0, answered: 0, units: 0, latency: Histogram::new() };
    for (number, connection) in connections.iter_mut().enumerate() {
        for slot in 0..depth {
            let lane = Lane { connection: number, slot };
            if tally.may_issue(began) && load.has_more(lane) {
                connection.issue(lane, began, load, &mut tally);
            }
        }
        connection.flush(number, &ready)?;
    }
    while tally.answered < tally.issued {
        turn(&mut connections, (&ready, &mut events), load, &mut tally)?;
    }
    let elapsed = began.elapsed();
    for connection in &connections {
        connection.stream.set_nonblocking(false)?;
    }
    Ok(Burst::new(tally.units, elapsed, cpu::of_self()? - cpu_before, tally.latency))
}

/// What one of several clients does that are there at a time.
pub(crate) struct Part<'a> {
    /// Its connections.
    pub(crate) streams: &'a [TcpStream],
    /// Calls in flight on each.
    pub(crate) depth: usize,
    /// How much it does.
    pub(crate) amount: Amount,
    /// What it calls.
    pub(crate) load: &'a mut (dyn Load + Send),
}

/// The same by several clients at a time: each a thread that shares with the others no more than the count of calls' numbers.
///
/// Errors as [`run`].
pub(crate) fn run_parts(parts: Vec<Part<'_>>) -> Result<Burst> {
    let (begin, cpu_before) = (Barrier::new(parts.len()), cpu::of_self()?);
    let bursts = thread::scope(|scope| {
        let work = |part: Part<'_>| {
            begin.wait();
            run(part.streams, part.depth, part.amount, part.load)
        };
        let threads: Vec<_> = parts.into_iter().map(|part| scope.spawn(move || work(part))).collect();
        let ends = threads.into_iter().map(|thread| thread.join().ok().context("a thread panicked")?);
        ends.collect::<Result<Vec<_>>>()
    })?;
    // Each has counted the whole process.
    let client_cpu = cpu::of_self()? - cpu_before;
    Ok(Burst { client_cpu, ..Burst::together(&bursts) })
}

/// Waits until something can be done, and does it.
fn turn(
    connections: &mut [Connection],
    (ready, events): (&OwnedFd, &mut Vec<epoll::Event>),
    load: &mut dyn Load,
    tally: &mut Tally,
) -> Result<()> {
    let patience = Timespec { tv_sec: REPLY_PATIENCE.as_secs().try_into()?, tv_nsec: 0 };
    events.clear();
    epoll::wait(ready, spare_capacity(events), Some(&patience))?;
    ensure!(!events.is_empty(), "no reply for {REPLY_PATIENCE:?}");
    for event in events.iter() {
        let number = event.data.u64() as usize;
        let connection = &mut connections[number];
        let flags = event.flags;
        if flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::HUP | epoll::EventFlags::ERR) {
            connection.receive(number, load, tally)?;
        }
        connection.flush(number, ready)?;
    }
    Ok(())
}

impl Connection {
    fn new(stream: &TcpStream, depth: usize, looks_at: usize) -> Result<Self> {
        let stream = stream.try_clone()?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            records: Records::cut_to(looks_at),
            out: Vec::new(),
            sent: 0,
            started: vec![Instant::now(); depth],
            in_flight: 0,
            waits_to_send: false,
        })
    }

    fn issue(&mut self, lane: Lane, now: Instant, load: &mut dyn Load, tally: &mut Tally) {
        let xid = (reserve_xids(1) << LANE_BITS) | lane.slot as u32;
        let start = self.out.len();
        let mut w = Writer::from_vec(std::mem::take(&mut self.out));
        w.put(&record::mark(0));
        w.u32(xid);
        load.encode(lane, &mut w);
        self.out = w.into_vec();
        let mark = record::mark(self.out.len() - start - 4);
        self.out[start..start + 4].copy_from_slice(&mark);
        self.started[lane.slot] = now;
        self.in_flight += 1;
        tally.issued += 1;
    }

    fn receive(&mut self, number: usize, load: &mut dyn Load, tally: &mut Tally) -> Result<()> {
        match self.records.read_from(&mut self.stream) {
            Ok(n) => ensure!(n > 0, "the server closed the connection"),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e).context("reading replies"),
        }
        let now = Instant::now();
        let mut free = 0u64;
        while let Some(reply) = self.records.next()? {
            let xid = reply.first_chunk::<4>().context("a short reply")?;
            let slot = u32::from_be_bytes(*xid) as usize % LANES_MAX;
            let started = self.started.get(slot).context("a reply to no call")?;
            ensure!(free & (1 << slot) == 0, "two replies to one call");
            tally.latency.record(now.duration_since(*started));
            tally.units += load.check(Lane { connection: number, slot }, reply)?;
            self.in_flight = self.in_flight.checked_sub(1).context("a reply to no call")?;
            tally.answered += 1;
            free |= 1 << slot;
        }
        for slot in (0..LANES_MAX).filter(|slot| free & (1 << slot) != 0) {
            let lane = Lane { connection: number, slot };
            if (tally.may_issue(now) && load.has_more(lane)) || load.is_midway(lane) {
                self.issue(lane, now, load, tally);
            }
        }
        Ok(())
    }

    fn flush(&mut self, number: usize, ready: &OwnedFd) -> Result<()> {
        while self.sent < self.out.len() {
            match self.stream.write(&self.out[self.sent..]) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) => return Err(e).context("sending calls"),
            }
        }
        let is_left = self.sent < self.out.len();
        if !is_left {
            self.out.clear();
            self.sent = 0;
        }
        if is_left != self.waits_to_send {
            self.waits_to_send = is_left;
            let out = if is_left { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
            let data = epoll::EventData::new_u64(number as u64);
            epoll::modify(ready, &self.stream, data, epoll::EventFlags::IN | out)?;
        }
        Ok(())
    }
}
