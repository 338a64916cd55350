//! What is done on a mount: files of its own, fsynced or not, and names that all mounts share.

use super::is_timeout;
use super::order::{Client, Deed, Event, Gave};
use crate::model::chance::Chance;
use anyhow::{Context as _, Result, bail, ensure};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// The directory of names that all share.
pub(crate) const SHARED: &str = "shared";
/// How many there are.
pub(crate) const NAMES: usize = 5;

/// A file of a worker's own.
#[derive(Debug, Clone)]
struct Own {
    bytes: usize,
    /// Itself and its name: then it is there whatever happens.
    is_fsynced: bool,
    /// It was written in one piece, which travels with the making.
    is_small: bool,
    /// Removed, or about to be.
    is_gone: bool,
}

/// A file that is replaced by another again and again.
#[derive(Debug, Clone, Copy, Default)]
struct Replaced {
    /// The last version whose renaming was begun.
    last: u64,
    fsynced: u64,
}

/// All that was done on a mount while it lived.
#[derive(Debug, Default)]
pub(crate) struct Lifetime {
    number: usize,
    files: BTreeMap<String, Own>,
    replaced: Replaced,
    names: BTreeMap<usize, Client>,
    was_killed: bool,
}

/// Who works on a mount, on a thread of its own: should a call hang, others find out.
pub(crate) struct Worker {
    number: usize,
    is_over: Arc<AtomicBool>,
    is_killed: Arc<AtomicBool>,
    ended: Receiver<Result<Lifetime>>,
    last: Arc<parking_lot::Mutex<(String, Instant)>>,
}

struct Doing {
    place: PathBuf,
    own: PathBuf,
    chance: Chance,
    started: Instant,
    life: Lifetime,
    last: Arc<parking_lot::Mutex<(String, Instant)>>,
    made: u64,
}

/// A call that takes so long hangs.
const HANGS: Duration = Duration::from_secs(90);

fn content(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (seed.wrapping_mul(31).wrapping_add(at as u64 / 5) % 250) as u8 + 1).collect()
}

fn version(of: u64) -> Vec<u8> {
    let mut all = format!("version {of}\n").into_bytes();
    all.extend(content(of, 3_000));
    all
}

impl Worker {
    pub(crate) fn start(number: usize, place: PathBuf, seed: u64, started: Instant) -> Result<Self> {
        let (tell, ended) = channel();
        let [is_over, is_killed] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let last = Arc::new(parking_lot::Mutex::new((String::new(), Instant::now())));
        let (over, killed) = (Arc::clone(&is_over), Arc::clone(&is_killed));
        let mut doing = Doing {
            own: place.join(format!("own-{number}")),
            place,
            chance: Chance::new(seed),
            started,
            life: Lifetime { number, ..Lifetime::default() },
            last: Arc::clone(&last),
            made: 0,
        };
        std::thread::Builder::new().name(format!("worker-{number}")).spawn(move || {
            let done = doing.all(&over);
            let was_killed = killed.load(Ordering::SeqCst);
            let done = match done {
                Err(error) if !was_killed => Err(error.context(format!("worker {number}"))),
                _ => Ok(doing.life_ended(was_killed)),
            };
            let _ = tell.send(done);
        })?;
        Ok(Self { number, is_over, is_killed, ended, last })
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// Errors when it has seen an error, or hangs.
    pub(crate) fn check(&self) -> Result<()> {
        match self.ended.recv_timeout(Duration::ZERO) {
            Ok(Err(error)) => return Err(error),
            Ok(Ok(_)) => bail!("worker {} has ended", self.number),
            Err(error) => ensure!(is_timeout(error), "worker {} panicked", self.number),
        }
        let (what, since) = self.last.lock().clone();
        ensure!(since.elapsed() < HANGS, "worker {}: {what} hangs", self.number);
        Ok(())
    }

    /// From now on errors are no surprise.
    pub(crate) fn will_be_killed(&self) {
        self.is_killed.store(true, Ordering::SeqCst);
    }

    /// Has it come to its end, and gives what it did.
    pub(crate) fn stop(self, patience: Duration) -> Result<Lifetime> {
        self.is_over.store(true, Ordering::SeqCst);
        let what = || format!("worker {} does not end: {}", self.number, self.last.lock().0);
        self.ended.recv_timeout(patience).with_context(what)?
    }
}

impl Doing {
    fn life_ended(self, was_killed: bool) -> Lifetime {
        let mut life = self.life;
        life.was_killed = was_killed;
        if !was_killed {
            life.names.values_mut().for_each(|client| client.certain = client.events.len());
        }
        life
    }

    fn all(&mut self, is_over: &AtomicBool) -> Result<()> {
        self.doing("begins");
        std::fs::create_dir(&self.own)?;
        File::open(&self.place)?.sync_all()?;
        while !is_over.load(Ordering::SeqCst) {
            match self.chance.below(12) {
                0..=2 => self.make_file()?,
                3 => self.replace_file()?,
                4 => self.remove_file()?,
                5 if self.chance.once_in(3) => self.sync_names()?,
                _ => self.name()?,
            }
            std::thread::sleep(Duration::from_millis(self.chance.below(20) as u64));
        }
        Ok(())
    }

    fn doing(&self, what: &str) {
        *self.last.lock() = (what.to_owned(), Instant::now());
    }

    fn make_file(&mut self) -> Result<()> {
        let seed = self.made;
        self.made += 1;
        let name = format!("f{seed}");
        self.doing(&format!("making {name}"));
        let is_small = !self.chance.once_in(4);
        let bytes = 1 + self.chance.below(if is_small { 20_000 } else { 400_000 });
        let own = Own { bytes, is_fsynced: false, is_small, is_gone: false };
        self.life.files.insert(name.clone(), own);
        let mut file = File::create(self.own.join(&name)).with_context(|| format!("creating {name}"))?;
        file.write_all(&content(seed, bytes)).with_context(|| format!("writing {name}"))?;
        if self.chance.once_in(3) {
            file.sync_all().with_context(|| format!("fsync of {name}"))?;
            File::open(&self.own)?.sync_all().context("fsync of the directory")?;
            if let Some(own) = self.life.files.get_mut(&name) {
                own.is_fsynced = true;
            }
        }
        Ok(())
    }

    fn remove_file(&mut self) -> Result<()> {
        let Some((name, own)) = self.life.files.iter_mut().find(|(_, own)| !own.is_gone) else {
            return Ok(());
        };
        own.is_gone = true;
        let path = self.own.join(name);
        self.doing("removing");
        std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
    }

    /// As an editor saves, but without fsync most of the time.
    fn replace_file(&mut self) -> Result<()> {
        let next = self.life.replaced.last + 1;
        self.doing(&format!("replacing with version {next}"));
        let (new, name) = (self.own.join("new"), self.own.join("replaced"));
        let mut file = File::create(&new)?;
        file.write_all(&version(next)).context("writing the new version")?;
        let is_fsynced = self.chance.once_in(4);
        if is_fsynced {
            file.sync_all().context("fsync of the new version")?;
        }
        drop(file);
        self.life.replaced.last = next;
        std::fs::rename(&new, &name).context("renaming the new version")?;
        if is_fsynced {
            File::open(&self.own)?.sync_all()?;
            self.life.replaced.fsynced = next;
        }
        let there = std::fs::read(&name)?;
        ensure!(there == version(next), "read {} bytes of another version than {next}", there.len());
        Ok(())
    }

    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn sync_names(&mut self) -> Result<()> {
        self.doing("fsync of the shared directory");
        File::open(self.place.join(SHARED))?.sync_all()?;
        self.life.names.values_mut().for_each(|client| client.certain = client.events.len());
        Ok(())
    }

    /// Does something to a name that others use.
    fn name(&mut self) -> Result<()> {
        let number = self.chance.below(NAMES);
        let path = self.place.join(SHARED).join(format!("n{number}"));
        let deed = match self.chance.below(5) {
            0 | 1 => {
                self.made += 1;
                Deed::Make(self.life.number as u64 * 1_000_000 + self.made)
            }
            2 => Deed::Remove,
            _ => Deed::Look,
        };
        self.doing(&format!("{deed:?} of name {number}"));
        let from = self.now();
        // Should it never return, it may have happened.
        let events = &mut self.life.names.entry(number).or_default().events;
        events.push(Event { deed, gave: Gave::Nothing, from, to: u64::MAX });
        let gave = done(deed, &path).with_context(|| format!("{deed:?} of name {number}"))?;
        let to = self.now();
        let last = self.life.names.get_mut(&number).and_then(|client| client.events.last_mut());
        last.into_iter().for_each(|event| *event = Event { deed, gave, from, to });
        Ok(())
    }
}

fn done(deed: Deed, path: &Path) -> Result<Gave> {
    let result = match deed {
        Deed::Make(text) => std::os::unix::fs::symlink(text.to_string(), path).map(|()| Gave::Done),
        Deed::Remove => std::fs::remove_file(path).map(|()| Gave::Done),
        Deed::Look => std::fs::read_link(path).map(|text| Gave::Text(number_of(&text))),
    };
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Gave::Absent),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Gave::There),
        other => Ok(other?),
    }
}

fn number_of(text: &Path) -> u64 {
    text.to_string_lossy().parse().unwrap_or(0)
}

/// The text that a name has.
///
/// Errors when it cannot be read though it is there.
pub(crate) fn text_at(shared: &Path, number: usize) -> Result<Option<u64>> {
    match std::fs::read_link(shared.join(format!("n{number}"))) {
        Ok(text) => Ok(Some(number_of(&text))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Lifetime {
    /// What it saw of a name.
    pub(crate) fn history(&self, number: usize) -> Client {
        self.names.get(&number).cloned().unwrap_or_default()
    }

    pub(crate) fn events(&self) -> usize {
        self.names.values().map(|client| client.events.len()).sum()
    }

    /// Compares the files on the server's own file system with what was written; says how many were written, and how
    /// many of them fsynced.
    pub(crate) fn check_files(&self, share: &Path) -> Result<(usize, usize)> {
        let own = share.join(format!("own-{}", self.number));
        for (name, file) in &self.files {
            let told = || format!("{name} of mount {} ({file:?}, killed: {})", self.number, self.was_killed);
            let there = match std::fs::read(own.join(name)) {
                Ok(there) => there,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    let may_miss = file.is_gone || (self.was_killed && !file.is_fsynced);
                    ensure!(may_miss, "{} is missing", told());
                    continue;
                }
                Err(error) => return Err(error).with_context(told),
            };
            ensure!(!file.is_gone || self.was_killed, "{} is still there", told());
            let seed = name.trim_start_matches('f').parse()?;
            let want = content(seed, file.bytes);
            let is_whole = there == want;
            // Made and not yet written; or, in pieces, written in part.
            let is_begun = there.is_empty()
                || (!file.is_small
                    && there.len() <= want.len()
                    && there.iter().zip(&want).all(|(there, want)| there == want || *there == 0));
            let may_be_begun = self.was_killed && !file.is_fsynced;
            ensure!(is_whole || (may_be_begun && is_begun), "{} has {} other bytes", told(), there.len());
        }
        self.check_replaced(&own)?;
        Ok((self.files.len(), self.files.values().filter(|file| file.is_fsynced).count()))
    }

    fn check_replaced(&self, own: &Path) -> Result<()> {
        let Replaced { last, fsynced } = self.replaced;
        let told = || format!("the replaced file of mount {}, killed: {}", self.number, self.was_killed);
        let there = match std::fs::read(own.join("replaced")) {
            Ok(there) => there,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                ensure!(fsynced == 0 && (last == 0 || self.was_killed), "{} is missing", told());
                return Ok(());
            }
            Err(error) => return Err(error).with_context(told),
        };
        let line = there.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let of = String::from_utf8_lossy(line).trim_start_matches("version ").parse::<u64>();
        let of = of.with_context(|| format!("{}: {} bytes without a version", told(), there.len()))?;
        ensure!(there == version(of), "{}: version {of} is torn", told());
        let may_be = if self.was_killed { fsynced..=last } else { last..=last };
        ensure!(may_be.contains(&of), "{}: version {of}, and not in {may_be:?}", told());
        Ok(())
    }
}
