//! What others see meanwhile: clients of both versions, each on a connection of its own, call what the server has in memory at
//! a steady pace, one call at a time. A call counts from when it was due, where the one before it has kept it from being sent:
//! so a connection that is held up has all the calls late that it could not make, as its user would have.

use anyhow::{Context, Result, bail, ensure};
use holdfast_xdr::Writer;
use std::io::Write as _;
use std::net::TcpStream;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use super::slow_disk::Cold;
use crate::client::call::{connect, reserve_xids};
use crate::client::nfs3::Nfs3Load;
use crate::client::nfs41::Fleet;
use crate::client::pump::{Lane, Load};
use crate::client::record::{self, Records};
use crate::client::target::Target;
use crate::plan::{ClientKind, Op, Shape};
use crate::rival::Server;

/// What is called, in turn.
pub(super) const OPS: [Op; 4] = [Op::Getattr, Op::Lookup, Op::Access, Op::Read4k];
/// From one call on a connection to the next.
const PACE: Duration = Duration::from_millis(2);
/// Of each version so many to a processor: every thread of a server has some of them.
const TO_A_PROCESSOR: usize = 2;

/// A client on a connection of its own.
pub(super) struct Prober {
    calls: Calls,
    stream: TcpStream,
    records: Records,
    /// READs of what memory does not have: one is always under way beside the other calls.
    cold: Option<Cold>,
    waited_for: Option<(u32, Instant)>,
}

enum Calls {
    V3(Box<Target>),
    V41(Box<Fleet>),
}

/// How it went for one client.
pub(super) struct Seen {
    pub(super) client: ClientKind,
    /// Whether it had READs under way of what memory does not have.
    pub(super) is_reader: bool,
    /// How long each of its calls took, by their place in [`OPS`].
    took: [Vec<Duration>; OPS.len()],
    /// And each of those READs.
    waits: Vec<Duration>,
}

/// Clients of both versions; and one more of `cold`'s, which reads that beside its other calls.
///
/// Errors when the server refuses.
pub(super) fn probers(
    server: &Server,
    target: &Target,
    mut cold: Option<(ClientKind, Cold)>,
) -> Result<Vec<Prober>> {
    let each = TO_A_PROCESSOR * std::thread::available_parallelism().map_or(1, usize::from);
    let reader = cold.as_ref().map(|(client, _)| *client);
    let mut calls = Vec::new();
    // Of the places one is for the calls, and one for the READ beside them.
    let shape = Shape { connections: each + usize::from(reader == Some(ClientKind::Raw41)), depth: 2 };
    for mut fleet in Fleet::new(server.ports.nfs, shape, target)?.apart() {
        let stream = fleet.take_streams().pop().context("a fleet without a connection")?;
        calls.push((Calls::V41(Box::new(fleet)), stream));
    }
    for _ in 0..each + usize::from(reader == Some(ClientKind::Raw3)) {
        calls.push((Calls::V3(Box::new(target.clone())), connect(server.ports.nfs)?));
    }
    let probers = calls.into_iter().map(|(calls, stream)| {
        let is_reader = reader == Some(calls.client());
        let cold = cold.take_if(|_| is_reader).map(|(_, cold)| cold);
        Prober { calls, stream, records: Records::new(), cold, waited_for: None }
    });
    Ok(probers.collect())
}

/// Has all of them call while `work` lasts.
///
/// Errors of `work`, and when a call fails.
pub(super) fn watch<T>(probers: &mut [Prober], work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Seen>)> {
    let over = OnceLock::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            probers.iter_mut().map(|prober| scope.spawn(|| prober.call_until(&over))).collect();
        let done = work();
        let _ = over.set(Instant::now());
        let seen = threads.into_iter().map(|thread| thread.join().ok().context("a prober panicked")?);
        let seen = seen.collect::<Result<_>>()?;
        Ok((done?, seen))
    })
}

/// 99 in 100 of the calls took at most so many milliseconds, of those clients and that operation.
pub(super) fn p99_ms(seen: &[Seen], whose: impl Fn(&Seen) -> bool, op: Op) -> f64 {
    let place = OPS.iter().position(|one| *one == op).unwrap_or_default();
    quantile_ms(seen.iter().filter(|seen| whose(seen)).flat_map(|seen| &seen.took[place]), 0.99)
}

/// Half of the READs that had to wait took at most so many milliseconds; and how many there were.
pub(super) fn waits(seen: &[Seen]) -> (f64, usize) {
    let all = || seen.iter().flat_map(|seen| &seen.waits);
    (quantile_ms(all(), 0.5), all().count())
}

/// None at all is no number.
fn quantile_ms<'a>(took: impl Iterator<Item = &'a Duration>, fraction: f64) -> f64 {
    let mut took: Vec<_> = took.collect();
    took.sort_unstable();
    let place = (took.len() as f64 * fraction).ceil() as usize;
    took.get(place.saturating_sub(1)).map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
}

impl Prober {
    fn call_until(&mut self, over: &OnceLock<Instant>) -> Result<Seen> {
        let mut took: [Vec<Duration>; OPS.len()] = Default::default();
        let mut due = Instant::now();
        for place in (0..OPS.len()).cycle() {
            if self.keep_reading()? {
                due = due.max(Instant::now());
            }
            let early = due.saturating_duration_since(Instant::now());
            if !early.is_zero() {
                std::thread::sleep(early);
                // Waking late is no server's fault.
                due = Instant::now();
            }
            if over.get().is_some_and(|over| due > *over) {
                break;
            }
            self.call(OPS[place])?;
            took[place].push(due.elapsed());
            due += PACE;
        }
        while self.waited_for.is_some() {
            self.receive()?;
        }
        let waits = self.cold.as_mut().map(|cold| std::mem::take(&mut cold.waits)).unwrap_or_default();
        Ok(Seen { client: self.calls.client(), is_reader: self.cold.is_some(), took, waits })
    }

    /// One call, and its reply.
    fn call(&mut self, op: Op) -> Result<()> {
        let lane = Lane { connection: 0, slot: 0 };
        let number = self.send(op, lane)?;
        loop {
            while let Some(reply) = self.records.next()? {
                let answered = number_of(reply)?;
                if answered == number {
                    return self.calls.load(op).check(lane, reply).map(drop);
                }
                take_cold(answered, &mut self.waited_for, self.cold.as_mut())?;
            }
            ensure!(self.records.read_from(&mut self.stream)? > 0, "the server closed the connection");
        }
    }

    /// Sends the next READ of what memory does not have, when none is under way; gives whether it did.
    fn keep_reading(&mut self) -> Result<bool> {
        let Some(cold) = self.cold.as_ref().filter(|_| self.waited_for.is_none()) else { return Ok(false) };
        cold.forget();
        let op = cold.op();
        self.calls.swap_files();
        let sent = self.send(op, Lane { connection: 0, slot: 1 });
        self.calls.swap_files();
        self.waited_for = Some((sent?, Instant::now()));
        Ok(true)
    }

    fn receive(&mut self) -> Result<()> {
        while let Some(reply) = self.records.next()? {
            take_cold(number_of(reply)?, &mut self.waited_for, self.cold.as_mut())?;
        }
        if self.waited_for.is_some() {
            ensure!(self.records.read_from(&mut self.stream)? > 0, "the server closed the connection");
        }
        Ok(())
    }

    fn send(&mut self, op: Op, lane: Lane) -> Result<u32> {
        let number = reserve_xids(1);
        let mut w = Writer::new();
        w.put(&record::mark(0));
        w.u32(number);
        self.calls.load(op).encode(lane, &mut w);
        let mut message = w.into_vec();
        let mark = record::mark(message.len() - 4);
        message[..4].copy_from_slice(&mark);
        self.stream.write_all(&message)?;
        Ok(number)
    }
}

fn number_of(reply: &[u8]) -> Result<u32> {
    Ok(u32::from_be_bytes(*reply.first_chunk::<4>().context("a short reply")?))
}

/// The reply to the READ that was waited for.
fn take_cold(answered: u32, waited_for: &mut Option<(u32, Instant)>, cold: Option<&mut Cold>) -> Result<()> {
    match (waited_for.take(), cold) {
        (Some((number, began)), Some(cold)) if number == answered => cold.waits.push(began.elapsed()),
        _ => bail!("a reply to no call"),
    }
    Ok(())
}

impl Calls {
    const fn client(&self) -> ClientKind {
        match self {
            Self::V3(_) => ClientKind::Raw3,
            Self::V41(_) => ClientKind::Raw41,
        }
    }

    fn load(&mut self, op: Op) -> Box<dyn Load + '_> {
        match self {
            Self::V3(target) => Box::new(Nfs3Load::new(op, target, Shape { connections: 1, depth: 1 })),
            Self::V41(fleet) => Box::new(fleet.load(op)),
        }
    }

    /// See [`Fleet::swap_files`].
    fn swap_files(&mut self) {
        match self {
            Self::V3(target) => {
                let target = &mut **target;
                std::mem::swap(&mut target.read_file, &mut target.write_file);
            }
            Self::V41(fleet) => fleet.swap_files(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_one_of_the_values_and_of_none_no_number() {
        let took: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert!((quantile_ms(took.iter(), 0.99) - 198.0).abs() < 1e-9);
        assert!((quantile_ms(took[..1].iter(), 0.99) - 1.0).abs() < 1e-9);
        assert!(quantile_ms([].iter(), 0.99).is_nan());
    }
}
