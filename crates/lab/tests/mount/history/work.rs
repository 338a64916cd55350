//! What is done on a mount: files of its own, fsynced or not, and names that all mounts share.

use super::order::{Client, Deed, Event, Gave};
use super::worker::Word;
use crate::apart;
use crate::model::chance::Chance;
use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The directory of names that all share.
pub(crate) const SHARED: &str = "shared";
/// How many there are.
pub(crate) const NAMES: usize = 5;

/// A file of a worker's own.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
struct Replaced {
    /// The last version whose renaming was begun.
    last: u64,
    fsynced: u64,
}

/// All that was done on a mount while it lived.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Lifetime {
    number: usize,
    files: BTreeMap<String, Own>,
    replaced: Replaced,
    names: BTreeMap<usize, Client>,
    was_killed: bool,
}

struct Doing {
    place: PathBuf,
    own: PathBuf,
    chance: Chance,
    life: Lifetime,
    made: u64,
}

fn content(seed: u64, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (seed.wrapping_mul(31).wrapping_add(at as u64 / 5) % 250) as u8 + 1).collect()
}

fn version(of: u64) -> Vec<u8> {
    let mut all = format!("version {of}\n").into_bytes();
    all.extend(content(of, 3_000));
    all
}

/// Works until it is over, and tells what it did.
pub(super) fn all(number: usize, place: PathBuf, seed: u64, is_over: &AtomicBool) {
    let mut doing = Doing {
        own: place.join(format!("own-{number}")),
        place,
        chance: Chance::new(seed),
        life: Lifetime { number, ..Lifetime::default() },
        made: 0,
    };
    let error = doing.all(is_over).err().map(|error| format!("{error:#}"));
    // Whoever does not listen any more has had another reason to end.
    let _ = apart::say(&Word::Over(doing.life, error));
}

impl Doing {
    fn all(&mut self, is_over: &AtomicBool) -> Result<()> {
        self.doing("begins")?;
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

    fn doing(&self, what: &str) -> Result<()> {
        apart::say(&Word::Doing(what.to_owned()))
    }

    fn make_file(&mut self) -> Result<()> {
        let seed = self.made;
        self.made += 1;
        let name = format!("f{seed}");
        self.doing(&format!("making {name}"))?;
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
        self.doing("removing")?;
        std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))
    }

    /// As an editor saves, but without fsync most of the time.
    fn replace_file(&mut self) -> Result<()> {
        let next = self.life.replaced.last + 1;
        self.doing(&format!("replacing with version {next}"))?;
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

    fn sync_names(&mut self) -> Result<()> {
        self.doing("fsync of the shared directory")?;
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
        self.doing(&format!("{deed:?} of name {number}"))?;
        let from = now();
        // Should it never return, it may have happened.
        let events = &mut self.life.names.entry(number).or_default().events;
        events.push(Event { deed, gave: Gave::Nothing, from, to: u64::MAX });
        let gave = done(deed, &path).with_context(|| format!("{deed:?} of name {number}"))?;
        let to = now();
        let last = self.life.names.get_mut(&number).and_then(|client| client.events.last_mut());
        last.into_iter().for_each(|event| *event = Event { deed, gave, from, to });
        Ok(())
    }
}

/// The time, which is the same for all processes.
fn now() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
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
    /// It has come to its end by itself, so that all it did is there, or not.
    pub(super) fn ended(mut self, was_killed: bool) -> Self {
        self.was_killed = was_killed;
        if !was_killed {
            self.names.values_mut().for_each(|client| client.certain = client.events.len());
        }
        self
    }

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
