//! What a way between a client and a server is like, and when what has set out on it has arrived.

use parking_lot::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// Bytes that pass at once where the way has a rate.
pub(crate) const NARROW_PIECE_BYTES: usize = 32 << 10;

/// So many of those wait at most: a queue is no longer than a switch's.
pub(crate) const NARROW_PIECES_MAX: usize = 32;

/// A sleep ends late by about this much with a timer slack of a microsecond; the rest is waited for awake.
const SLEEP_ERROR: Duration = Duration::from_micros(60);

/// What a way is like.
#[derive(Clone, Copy, Debug)]
pub struct Way {
    /// What it adds to the time of a call and its answer.
    pub round_trip: Duration,
    /// Bytes a second, each way, of all connections together; `None`: what the machine can do.
    pub rate: Option<u64>,
}

impl From<Duration> for Way {
    fn from(round_trip: Duration) -> Self {
        Self { round_trip, rate: None }
    }
}

/// One direction of a way.
#[derive(Debug)]
pub(crate) struct Lane {
    one_way: Duration,
    rate: Option<u64>,
    /// From when on it is free, where it has a rate.
    free: Mutex<Instant>,
}

impl Lane {
    pub(crate) fn of(way: Way) -> Self {
        Self { one_way: way.round_trip / 2, rate: way.rate, free: Mutex::new(Instant::now()) }
    }

    pub(crate) fn is_narrow(&self) -> bool {
        self.rate.is_some()
    }

    /// When what sets out now is at the other end, if it need not wait for what is before it.
    pub(crate) fn due(&self) -> Instant {
        Instant::now() + self.one_way
    }

    /// Waits until the last byte has passed of a piece that is there at `due`.
    pub(crate) fn pass(&self, due: Instant, bytes: usize) {
        wait_until(self.passed_at(due, bytes));
    }

    fn passed_at(&self, due: Instant, bytes: usize) -> Instant {
        let Some(rate) = self.rate else { return due };
        let mut free = self.free.lock();
        *free = due.max(*free) + Duration::from_secs_f64(bytes as f64 / rate as f64);
        *free
    }
}

/// Has this thread's sleeps end as soon as they can.
pub(crate) fn sleep_exactly() {
    // The least: what is smaller is taken for "as usual".
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

fn wait_until(due: Instant) {
    let left = due.saturating_duration_since(Instant::now());
    if left > SLEEP_ERROR {
        thread::sleep(left - SLEEP_ERROR);
    }
    while Instant::now() < due {
        thread::yield_now();
    }
}

/// How long it takes to have 1 MiB echoed by each of two connections side by side.
#[cfg(test)]
pub(crate) fn echoed_on_both(connections: [std::net::TcpStream; 2]) -> Duration {
    use std::io::{Read as _, Write as _};
    let started = Instant::now();
    let sending = connections.map(|mut stream| {
        thread::spawn(move || {
            let mut back = stream.try_clone().unwrap();
            let reading = thread::spawn(move || back.read_exact(&mut vec![0; 1 << 20]).unwrap());
            stream.write_all(&vec![7; 1 << 20]).unwrap();
            reading.join().unwrap();
        })
    });
    sending.into_iter().for_each(|one| one.join().unwrap());
    started.elapsed()
}
