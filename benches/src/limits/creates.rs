//! Durable creates beside those of a local program that forces its directory as seldom as they share a force at best.

use anyhow::Result;
use std::fs::{self, File};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use super::bouts::{Figures, Stand, connect};
use super::slow_image::SlowImage;
use crate::client::nfs3::Nfs3Load;
use crate::client::target::Target;
use crate::client::{Amount, pump};
use crate::plan::{Op, Shape};
use crate::rival::Contender;
use crate::volume::{CHANGING, Volume};
use crate::wanted::Wanted;

/// How many, and how many share a force.
const CREATES: u64 = 1000;
const CREATES_IN_FLIGHT: usize = 32;
/// What each write and each flush takes of a disk that is no faster than many are.
const SLOWER_DISK: Duration = Duration::from_millis(1);

/// What the creates took.
struct Took {
    time: Duration,
    flushes: u64,
    /// Of the server.
    cpu: Duration,
}

impl Took {
    fn over(&self, local: &Self) -> f64 {
        self.time.as_secs_f64() / local.time.as_secs_f64()
    }
}

impl Stand<'_> {
    pub(super) fn creates(&self) -> Result<Figures> {
        let ours = || {
            let same = self.creates_with_records_on(self.volume)?;
            Ok((same, served(self.volume, self.scratch, 1)?))
        };
        let ((same, other), local) = self.both(ours, || local(self.volume))?;
        let (slower, slower_local) = self.creates_on_a_slower_disk()?;
        let what = "1,000 durable creates, 32 in flight: time over a local program's";
        let cpu = same.cpu.as_secs_f64() * 1e6 / CREATES as f64;
        let flushes = same.flushes as f64 / local.flushes.max(1) as f64;
        Ok(vec![
            (what.into(), Wanted::AtMost(1.3), same.over(&local)),
            ("  its records on another file system".into(), Wanted::Shown, other.over(&local)),
            ("  the local program's, ms".into(), Wanted::Shown, local.time.as_secs_f64() * 1e3),
            ("  flushes of the disk over its".into(), Wanted::Shown, flushes),
            ("  CPU of the server, us a create".into(), Wanted::Shown, cpu),
            ("  where each write and flush takes 1 ms".into(), Wanted::Shown, slower.over(&slower_local)),
            ("  the local program's there, ms".into(), Wanted::Shown, slower_local.time.as_secs_f64() * 1e3),
        ])
    }

    fn creates_on_a_slower_disk(&self) -> Result<(Took, Took)> {
        let scratch = self.scratch.join("slower");
        fs::create_dir(&scratch)?;
        let image = SlowImage::serve(&scratch)?;
        let volume = Volume::on_image(self.fs, &image.path(), &scratch, 1)?;
        volume.begin_turn(2)?;
        image.takes(SLOWER_DISK);
        let took = self.both(|| self.creates_with_records_on(&volume), || local(&volume));
        image.takes(Duration::ZERO);
        took
    }

    /// The program's files and the server's, records and all, on the same disk.
    fn creates_with_records_on(&self, volume: &Volume) -> Result<Took> {
        let records = volume.beside(&self.round.to_string());
        fs::create_dir(&records)?;
        let took = served(volume, &records, 0);
        fs::remove_dir_all(&records)?;
        took
    }
}

/// By a server that has its records below `at`, in a folder.
fn served(volume: &Volume, at: &Path, folder: usize) -> Result<Took> {
    let server = Contender::HoldfastSync.start(&volume.export(), at)?;
    let target = Target::find(server.ports, folder)?;
    let shape = Shape { connections: 1, depth: CREATES_IN_FLIGHT };
    let streams = connect(&server, shape)?;
    let mut load = Nfs3Load::new(Op::Create, &target, shape);
    let (before, flushes) = (server.cpu_time()?, volume.flushes()?);
    let burst = pump::run(&streams, shape.depth, Amount::Calls(CREATES), &mut load)?;
    let cpu = server.cpu_time()?.saturating_sub(before);
    Ok(Took { time: burst.elapsed, flushes: volume.flushes()? - flushes, cpu })
}

/// What a program on this host does: as many creates, one after the other, and one force of the journal for each 32.
fn local(volume: &Volume) -> Result<Took> {
    let dir = volume.export().join(CHANGING).join("local");
    fs::create_dir(&dir)?;
    let opened = File::open(&dir)?;
    opened.sync_all()?;
    let flushes = volume.flushes()?;
    let began = Instant::now();
    for number in 1..=CREATES {
        File::create_new(dir.join(format!("c{number}")))?;
        if number % CREATES_IN_FLIGHT as u64 == 0 || number == CREATES {
            rustix::fs::fsync(opened.as_fd())?;
        }
    }
    let time = began.elapsed();
    Ok(Took { time, flushes: volume.flushes()? - flushes, cpu: Duration::ZERO })
}
