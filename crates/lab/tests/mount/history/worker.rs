//! A worker as the run has it: a process apart, which may hang or be cut off from its files without taking others along.

use super::work::Lifetime;
use crate::apart::{self, Apart};
use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// What a worker is told.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Works until it is told nothing more.
    Work { number: usize, place: PathBuf, seed: u64 },
}

/// What it tells.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Word {
    /// What it is at.
    Doing(String),
    /// What it did in its life, and how that ended.
    Over(Lifetime, Option<String>),
}

/// A call that takes so long hangs.
const HANGS: Duration = Duration::from_secs(90);

/// A process that works on a mount.
pub(crate) struct Worker {
    number: usize,
    apart: Apart,
    is_killed: bool,
    last: (String, Instant),
    begun: usize,
}

impl Worker {
    pub(crate) fn start(number: usize, place: PathBuf, seed: u64) -> Result<Self> {
        let apart = Apart::start("history")?;
        apart.tell(&Order::Work { number, place, seed })?;
        Ok(Self { number, apart, is_killed: false, last: (String::new(), Instant::now()), begun: 0 })
    }

    pub(crate) fn number(&self) -> usize {
        self.number
    }

    /// How many things it has begun, as far as it was heard.
    pub(crate) fn begun(&self) -> usize {
        self.begun
    }

    /// Errors when it has seen an error, or hangs.
    pub(crate) fn check(&mut self) -> Result<()> {
        match self.heard(Duration::ZERO)? {
            None => {}
            Some((_, Some(error))) => return Err(self.failed(&error)),
            Some((_, None)) => bail!("worker {} has ended", self.number),
        }
        let (what, since) = &self.last;
        ensure!(since.elapsed() < HANGS, "worker {}: {what} hangs", self.number);
        Ok(())
    }

    fn failed(&self, error: &str) -> anyhow::Error {
        anyhow!("worker {}: {error}", self.number)
    }

    /// Takes in what it tells, until its end or until it tells nothing for so long.
    fn heard(&mut self, patience: Duration) -> Result<Option<(Lifetime, Option<String>)>> {
        while let Some(word) = self.apart.hear(patience)? {
            match word {
                Word::Doing(what) => {
                    self.last = (what, Instant::now());
                    self.begun += 1;
                }
                Word::Over(life, error) => return Ok(Some((life, error))),
            }
        }
        Ok(None)
    }

    /// From now on errors are no surprise.
    pub(crate) fn will_be_killed(&mut self) {
        self.is_killed = true;
    }

    /// Has it come to its end, and gives what it did.
    pub(crate) fn stop(&mut self, patience: Duration) -> Result<Lifetime> {
        self.apart.tell_no_more();
        let over = self.heard(patience)?;
        let (life, error) =
            over.with_context(|| format!("worker {} does not end: {}", self.number, self.last.0))?;
        match error {
            Some(error) if !self.is_killed => Err(self.failed(&error)),
            _ => Ok(life.ended(self.is_killed)),
        }
    }
}

/// The process that works.
pub(crate) fn work_apart() -> ExitCode {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let mut working = None;
    let done = apart::serve(|order| {
        let (Order::Work { number, place, seed }, over) = (order, Arc::clone(&over));
        let work = move || super::work::all(number, place, seed, &over);
        working = Some(std::thread::Builder::new().name("worker".into()).spawn(work)?);
        Ok(())
    });
    is_over.store(true, Ordering::SeqCst);
    let _ = working.map(std::thread::JoinHandle::join);
    done
}
