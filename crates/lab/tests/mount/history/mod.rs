//! Several mounts of one export while daemons and the server are killed, and connections are cut and stall, all at
//! random. What was fsynced is there; what was not, of a mount that was killed, is missing or as it once was; nobody else
//! sees an error; and what all saw of shared names can have happened one after the other.

mod order;
mod work;
mod worker;

use crate::fixture::Served;
use crate::model::chance::Chance;
use anyhow::{Context as _, Result, bail, ensure};
use holdfast_lab::{FsType, LoopFs, Mount, Relay, Scale, ServerUnderTest, Trial};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use work::Lifetime;
use worker::Worker;

pub(crate) use worker::work_apart;

/// Mounts at a time.
const MOUNTS: usize = 3;
/// Short, as a killed mount's promises stand in the others' way for so long; and longer than any stall.
const LEASE_SECONDS: u32 = 6;
const STALL_MAX_MS: usize = 1500;
/// So much is to be begun, however slow the host; or so much longer it goes on.
const ENOUGH: usize = 400;
const SLOW: Duration = Duration::from_secs(240);
/// How long a worker may take to come to its end.
const PATIENCE: Duration = Duration::from_secs(120);

/// Of the case: what it takes on a slow host, and its end.
const LIMIT: Duration = Duration::from_secs(600);

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("history::the_judge_of_histories_knows_good_from_bad", order::check_the_checker),
        Trial::new("history::names_are_linear_and_what_was_fsynced_is_there_whatever_breaks", run)
            .limit(LIMIT),
    ]
}

/// A mount behind a relay of its own, and who works on it.
struct Place {
    relay: Relay,
    mount: Mount,
    worker: Worker,
}

struct Run {
    seed: u64,
    chance: Chance,
    // The server goes before the file system below it.
    served: Served,
    places: Vec<Place>,
    lives: Vec<Lifetime>,
    born: usize,
    told: Vec<String>,
    started: Instant,
}

fn served() -> Result<Served> {
    let filesystem = LoopFs::new(FsType::Xfs, 1 << 30)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir_all(share.join(work::SHARED))?;
    let server = ServerUnderTest::builder(&share)
        .lease_seconds(LEASE_SECONDS)
        .environment("HOLDFAST_NO_SUPERVISE", "true")
        .start()?;
    Ok(Served { server, filesystem })
}

fn run() -> Result<()> {
    let seed = Chance::seed();
    println!("     HOLDFAST_SEED={seed}");
    let mut run = Run {
        seed,
        chance: Chance::new(seed),
        served: served()?,
        places: Vec::new(),
        lives: Vec::new(),
        born: 0,
        told: Vec::new(),
        started: Instant::now(),
    };
    let done = run.all();
    done.map_err(|error| {
        let mounts = run.places.iter().map(|place| (place.worker.number().to_string(), place.mount.log()));
        let logs = mounts.chain([("server".to_owned(), run.served.server.log())]);
        let kept = logs.map(|(what, log)| {
            let path = std::env::temp_dir().join(format!("holdfast-history-{seed}-{what}.log"));
            std::fs::write(&path, log).map_or_else(|e| e.to_string(), |()| path.display().to_string())
        });
        let kept = kept.collect::<Vec<_>>().join(", ");
        error.context(format!("HOLDFAST_SEED={seed}; logs: {kept}\n{}", run.told.join("\n")))
    })
}

impl Run {
    fn all(&mut self) -> Result<()> {
        for _ in 0..MOUNTS {
            let place = self.place()?;
            self.places.push(place);
        }
        let until = self.started + Duration::from_secs(Scale::from_env().pick(60, 1200));
        while Instant::now() < until || (self.begun() < ENOUGH && Instant::now() < until + SLOW) {
            std::thread::sleep(Duration::from_millis(300 + self.chance.below(2000) as u64));
            self.trouble()?;
            for place in &mut self.places {
                place.worker.check()?;
            }
        }
        while let Some(place) = self.places.first_mut() {
            let life = place.worker.stop(PATIENCE)?;
            place.mount.check_alive()?;
            place.mount.unmount(&[])?;
            self.lives.push(life);
            self.places.remove(0);
        }
        self.judge()
    }

    /// What those who live have begun.
    fn begun(&self) -> usize {
        self.places.iter().map(|place| place.worker.begun()).sum()
    }

    /// A new mount, with a worker of its own.
    fn place(&mut self) -> Result<Place> {
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, self.served.server.port()));
        let relay = Relay::start(server, Duration::ZERO)?;
        let mount = Mount::new(relay.port(), &self.served.server.export(), "")?;
        let number = self.born;
        self.born += 1;
        let worker = Worker::start(number, mount.path(), self.chance.next())?;
        Ok(Place { relay, mount, worker })
    }

    fn trouble(&mut self) -> Result<()> {
        let at = self.chance.below(MOUNTS);
        let what = self.chance.below(10);
        self.told.push(format!("{:.1} s: {what} of place {at}", self.started.elapsed().as_secs_f64()));
        match what {
            0..=3 => self.places[at].relay.cut(),
            4..=6 => {
                self.places[at].relay.stall();
                std::thread::sleep(Duration::from_millis(self.chance.below(STALL_MAX_MS) as u64));
                self.places[at].relay.resume();
            }
            7 | 8 => {
                self.served.server.kill()?;
                std::thread::sleep(Duration::from_millis(self.chance.below(500) as u64));
                self.served.server.restart()?;
            }
            _ => {
                let place = self.places.remove(at);
                let life = Self::killed(place)?;
                self.lives.push(life);
                let place = self.place()?;
                self.places.push(place);
            }
        }
        Ok(())
    }

    fn killed(mut place: Place) -> Result<Lifetime> {
        place.worker.will_be_killed();
        let pid = i32::try_from(place.mount.daemon()).ok().and_then(rustix::process::Pid::from_raw);
        rustix::process::kill_process(pid.context("no daemon")?, rustix::process::Signal::KILL)?;
        place.mount.wait_end()?;
        place.worker.stop(PATIENCE)
    }

    fn share(&self) -> PathBuf {
        self.served.share()
    }

    fn judge(&mut self) -> Result<()> {
        // What a killed mount had sent was executed before its connection was seen to be gone, or never will be.
        self.served.server.check_alive()?;
        let (mut files, mut certain) = (0, 0);
        for life in &self.lives {
            let (all, fsynced) = life.check_files(&self.share())?;
            files += all;
            certain += fsynced;
        }
        let events: usize = self.lives.iter().map(Lifetime::events).sum();
        for name in 0..work::NAMES {
            let clients: Vec<_> = self.lives.iter().map(|life| life.history(name)).collect();
            let last = work::text_at(&self.share().join(work::SHARED), name)?;
            if !order::is_possible(&clients, last) {
                let path = std::env::temp_dir().join(format!("holdfast-history-{}-name-{name}", self.seed));
                std::fs::write(&path, format!("{clients:#?}\nlast {last:?}\n"))?;
                bail!("what was seen of name {name} cannot have happened in any order: {}", path.display());
            }
        }
        ensure!(certain > 0 && events > 100, "hardly anything was done: {events} events, {certain} fsynced");
        println!(
            "     {} mounts, {} troubles, {files} files ({certain} fsynced), {events} events of shared names",
            self.lives.len(),
            self.told.len()
        );
        Ok(())
    }
}
