//! What a slow disk does to those who do not need it: while some wait for it, others' calls of what memory has are answered as
//! ever.

use anyhow::{Context, Result, ensure};
use std::fs::{self, File};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

use super::bouts::{Figures, Stand};
use super::probe::{self, OPS, Seen};
use super::slow_disk::{Cold, Missing, SlowDisk};
use super::slow_image::SlowImage;
use crate::client::nfs3::Nfs3Load;
use crate::client::nfs41::Fleet;
use crate::client::target::Target;
use crate::client::{Amount, Burst, call, pump};
use crate::plan::{ClientKind, Op, Shape};
use crate::rival::{Contender, Server};
use crate::volume::{READ_FILE, Volume};
use crate::wanted::Wanted;

/// What nobody should wait longer for, in 99 of 100 calls.
const P99_MS_MAX: f64 = 1.0;
/// Creates in flight, as a client has that makes many.
const CREATES_IN_FLIGHT: usize = 32;
/// From one to the next the disk of a slow journal takes this long.
const WRITE_TAKES: Duration = Duration::from_millis(100);
/// How long a journal may take to be full.
const FILL_PATIENCE: Duration = Duration::from_secs(20);
/// Both, by how they are called in figures.
const CLIENTS: [(ClientKind, &str); 2] = [(ClientKind::Raw3, "v3"), (ClientKind::Raw41, "4.1")];

impl Stand<'_> {
    /// One client READs what has to come from a slow disk.
    pub(super) fn slow_disk(&self) -> Result<Figures> {
        let server = self.start(Contender::HoldfastAsync)?;
        let target = Target::find(server.ports, 0)?;
        bring_in(self.volume)?;
        let (_, quiet) = probe::watch(&mut probe::probers(&server, &target, None)?, || self.wait(1.0))?;
        let nothing = "  beside nothing, the slowest of them: p99, ms";
        let mut figures = vec![(nothing.into(), Wanted::Shown, slowest_ms(&quiet, |_| true))];
        let _disk = SlowDisk::under(self.volume, &server)?;
        for missing in [Missing::All, Missing::Middle] {
            let mut seen = Vec::new();
            for (client, _) in CLIENTS {
                let cold = Some((client, Cold::on(self.volume, missing)?));
                let mut probers = probe::probers(&server, &target, cold)?;
                seen.extend(probe::watch(&mut probers, || self.wait(1.5))?.1);
            }
            let beside = missing.beside();
            figures.extend(of_others(beside, &seen));
            figures.extend(of_readers(beside, &seen));
            let (median_ms, reads) = probe::waits(&seen);
            figures.push((format!("  READs, {beside}"), Wanted::Shown, reads as f64));
            figures.push((format!("  half of the READs at most, ms, {beside}"), Wanted::Shown, median_ms));
        }
        Ok(figures)
    }

    /// Two clients make names as fast as they can where the disk takes long for each write of the journal: with `sync` they
    /// wait for each; with `async` once it is full, which a local program sees to.
    pub(super) fn slow_journal(&self) -> Result<Figures> {
        let mut figures = Figures::new();
        for (contender, name) in [(Contender::HoldfastAsync, "async"), (Contender::HoldfastSync, "sync")] {
            let scratch = self.scratch.join(name);
            fs::create_dir(&scratch)?;
            let image = SlowImage::serve(&scratch)?;
            let volume = Volume::on_image(self.fs, &image.path(), &scratch, 1)?;
            let turn = Turn { stand: self, image: &image, volume: &volume, is_filled: name == "async" };
            figures.extend(turn.take(contender, name).context(name)?);
        }
        Ok(figures)
    }

    fn wait(&self, times: f64) -> Result<()> {
        std::thread::sleep(self.time.mul_f64(times));
        Ok(())
    }
}

/// A server over a slow journal.
struct Turn<'a> {
    stand: &'a Stand<'a>,
    image: &'a SlowImage,
    volume: &'a Volume,
    /// Whether somebody else fills the journal.
    is_filled: bool,
}

impl Turn<'_> {
    fn take(&self, contender: Contender, name: &str) -> Result<Figures> {
        self.volume.begin_turn(2)?;
        let server = contender.start(&self.volume.export(), &self.stand.scratch.join(name))?;
        bring_in(self.volume)?;
        let (creates, seen) = self.creates(&server)?;
        let beside = format!("{name} creates over a slow journal");
        let mut figures = of_others(&beside, &seen);
        let count = creates.iter().map(|burst| burst.units).sum::<u64>();
        figures.push((format!("  {name} creates"), Wanted::Shown, count as f64));
        let slowest = creates.iter().map(|burst| burst.p99_us / 1e3).fold(0.0, f64::max);
        figures.push((format!("  {name} creates: p99, ms"), Wanted::Shown, slowest));
        Ok(figures)
    }

    /// Creates in two folders, over 3 and over 4.1, while each write of the disk takes long; and what others see of it.
    fn creates(&self, server: &Server) -> Result<([Burst; 2], Vec<Seen>)> {
        let (three, four) = (Target::find(server.ports, 0)?, Target::find(server.ports, 1)?);
        let shape = Shape { connections: 1, depth: CREATES_IN_FLIGHT };
        let amount = Amount::For(self.stand.time * 3);
        let mut fleet = Fleet::of("creates", server.ports.nfs, shape, &four)?;
        let streams = [vec![call::connect(server.ports.nfs)?], fleet.take_streams()];
        let mut probers = probe::probers(server, &three, None)?;
        let [of_three, of_four] = &streams;
        let slowed = Slowed::new(self.image);
        std::thread::scope(|scope| {
            let lifted = slowed.lifted_at_end();
            if self.is_filled {
                slowed.fill_journal(scope, &self.volume.beside("filler"))?;
            }
            let three = scope.spawn(|| {
                pump::run(of_three, shape.depth, amount, &mut Nfs3Load::new(Op::Create, &three, shape))
            });
            let four = scope.spawn(|| pump::run(of_four, shape.depth, amount, &mut fleet.load(Op::Create)));
            let ((), seen) = probe::watch(&mut probers, || {
                self.stand.wait(3.0)?;
                // Else those who make names would wait for the disk long after their time.
                drop(lifted);
                Ok(())
            })?;
            let [three, four] = [three, four].map(|burst| burst.join().ok().context("a client panicked")?);
            Ok(([three?, four?], seen))
        })
    }
}

/// A disk that is slow for a time.
struct Slowed<'a> {
    image: &'a SlowImage,
    is_over: AtomicBool,
    /// Names that were made to fill the journal.
    filled: AtomicU64,
}

/// When dropped, the disk is fast again.
struct Lifted<'a>(&'a Slowed<'a>);

impl Drop for Lifted<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::SeqCst);
        self.0.image.takes(Duration::ZERO);
    }
}

impl<'a> Slowed<'a> {
    fn new(image: &'a SlowImage) -> Self {
        image.takes(WRITE_TAKES);
        Self { image, is_over: AtomicBool::new(false), filled: AtomicU64::new(0) }
    }

    fn lifted_at_end(&self) -> Lifted<'_> {
        Lifted(self)
    }

    /// Has a local program make names as long as it is slow, and waits until that one has to wait.
    fn fill_journal<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, at: &Path) -> Result<()> {
        fs::create_dir(at)?;
        let at = at.to_owned();
        scope.spawn(move || -> Result<()> {
            while !self.is_over.load(Ordering::SeqCst) {
                let number = self.filled.fetch_add(1, Ordering::SeqCst);
                File::create_new(at.join(number.to_string()))?;
            }
            Ok(())
        });
        let deadline = Instant::now() + FILL_PATIENCE;
        loop {
            let before = self.filled.load(Ordering::SeqCst);
            std::thread::sleep(WRITE_TAKES);
            if self.filled.load(Ordering::SeqCst) == before {
                return Ok(());
            }
            ensure!(Instant::now() < deadline, "the journal takes all that {before} names are");
        }
    }
}

/// Has the file that is read in memory, and its time of last access as new as it needs to be: else the first READ would
/// change it, which is for the journal.
fn bring_in(volume: &Volume) -> Result<()> {
    let read = fs::read(volume.export().join(READ_FILE))?;
    ensure!(!read.is_empty(), "{READ_FILE} is empty");
    Ok(())
}

/// A figure for each version and operation of those who do not wait for the disk.
fn of_others(beside: &str, seen: &[Seen]) -> Figures {
    let mut figures = Figures::new();
    for (client, name) in CLIENTS {
        for op in OPS {
            let p99 = probe::p99_ms(seen, |seen| seen.client == client && !seen.is_reader, op);
            let what = format!("{name} {}, {beside}: p99, ms", op.name());
            figures.push((what, Wanted::AtMost(P99_MS_MAX), p99));
        }
    }
    figures
}

/// The operation that takes longest, of those who have such a READ under way on the same connection.
fn of_readers(beside: &str, seen: &[Seen]) -> Figures {
    let mut figures = Figures::new();
    for (client, name) in CLIENTS {
        let p99 = slowest_ms(seen, |seen| seen.client == client && seen.is_reader);
        let what = format!("{name} on the same connection, {beside}: p99, ms");
        figures.push((what, Wanted::AtMost(P99_MS_MAX), p99));
    }
    figures
}

/// What 99 in 100 calls take of the operation that takes longest.
fn slowest_ms(seen: &[Seen], whose: impl Fn(&Seen) -> bool) -> f64 {
    OPS.map(|op| probe::p99_ms(seen, &whose, op)).into_iter().fold(0.0, f64::max)
}
