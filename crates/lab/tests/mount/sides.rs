//! A process that works on a mount, in a guest or on this host, and does one thing after the other as it is told
//! (`neighbour.py`).

use anyhow::{Context as _, Result, bail, ensure};
use holdfast_lab::Guest;
use holdfast_lab::scratch::Scratch;
use std::cell::Cell;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// For an answer: more than a lease, which a case that is about time measures itself.
const PATIENCE: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(5);

/// One who is told what to do.
pub(crate) struct Side {
    who: Who,
    told: Cell<usize>,
}

enum Who {
    /// None when it has ended.
    Guest(Option<Box<Guest>>),
    Here {
        worker: Child,
        scratch: Scratch,
    },
}

impl Drop for Who {
    fn drop(&mut self) {
        if let Self::Here { worker, .. } = self {
            let _ = worker.kill();
            // A mount may not let it go at once; the case's end does.
            let _ = worker.try_wait();
        }
    }
}

impl Side {
    /// The program; guests see it at the same path.
    pub(crate) fn program() -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/mount/neighbour.py")
    }

    /// In a guest, whose script runs the program on `$OUT`.
    pub(crate) fn of_guest(guest: Guest) -> Self {
        Self { who: Who::Guest(Some(Box::new(guest))), told: Cell::new(0) }
    }

    /// On this host.
    pub(crate) fn here(mount: &Path) -> Result<Self> {
        let scratch = Scratch::new("side")?;
        let worker = Command::new("python3")
            .arg(Self::program())
            .args([scratch.path(), mount])
            .stdin(Stdio::null())
            .stdout(File::create(scratch.path().join("stdout"))?)
            .stderr(File::create(scratch.path().join("stderr"))?)
            .spawn()
            .context("starting python3")?;
        Ok(Self { who: Who::Here { worker, scratch }, told: Cell::new(0) })
    }

    /// Tells it to do this, and gives what it answers; the name of its error where a call fails.
    ///
    /// Errors when it does not answer.
    pub(crate) fn ask(&self, words: &[&str]) -> Result<String> {
        let number = self.tell(words)?;
        let (began, begin) = (Instant::now(), format!("answer {number}: "));
        loop {
            let said = self.said();
            // The last line may not be whole yet.
            let whole = said.rsplit_once('\n').map_or("", |(lines, _)| lines);
            if let Some(answer) = whole.lines().find_map(|line| line.strip_prefix(&begin)) {
                return Ok(answer.to_owned());
            }
            ensure!(began.elapsed() < PATIENCE, "{words:?} was not answered\n{}", self.last_words());
            std::thread::sleep(POLL);
        }
    }

    /// Writes, has it put on the disk, and closes.
    pub(crate) fn put(&self, name: &str, text: &str) -> Result<()> {
        let answer = self.ask(&["put", name, text])?;
        ensure!(answer == "None", "{name} could not be written: {answer}");
        Ok(())
    }

    /// Errors when the answer is another one.
    pub(crate) fn shows(&self, words: &[&str], wanted: &str) -> Result<()> {
        self.shows_soon(words, wanted, Duration::ZERO)
    }

    /// Asks again until the answer is this one, for so long.
    ///
    /// Errors when it is another one to the end.
    pub(crate) fn shows_soon(&self, words: &[&str], wanted: &str, patience: Duration) -> Result<()> {
        let began = Instant::now();
        loop {
            let answer = self.ask(words)?;
            if answer == wanted {
                return Ok(());
            }
            if began.elapsed() >= patience {
                bail!("{} answered {words:?} with {answer:?}, and not {wanted:?}", self.name());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Lets it end.
    ///
    /// Errors when it fails.
    pub(crate) fn end(mut self) -> Result<()> {
        self.tell(&["end"])?;
        match &mut self.who {
            Who::Guest(guest) => guest.take().context("a guest that is gone")?.wait()?.success().map(drop),
            Who::Here { worker, .. } => {
                let status = worker.wait()?;
                ensure!(status.success(), "the worker ended with {status}\n{}", self.last_words());
                Ok(())
            }
        }
    }

    fn tell(&self, words: &[&str]) -> Result<usize> {
        let number = self.told.replace(self.told.get() + 1);
        let directory = match &self.who {
            Who::Guest(guest) => guest.as_ref().context("a guest that is gone")?.out_dir(),
            Who::Here { scratch, .. } => scratch.path(),
        };
        let (unnamed, named) = (directory.join("order"), directory.join(format!("order-{number}")));
        std::fs::write(&unnamed, serde_json::to_string(words)?)?;
        std::fs::rename(&unnamed, &named)?;
        Ok(number)
    }

    fn said(&self) -> String {
        match &self.who {
            Who::Guest(guest) => guest.as_ref().map(|guest| guest.said()).unwrap_or_default(),
            Who::Here { scratch, .. } => {
                std::fs::read_to_string(scratch.path().join("stdout")).unwrap_or_default()
            }
        }
    }

    fn last_words(&self) -> String {
        match &self.who {
            Who::Guest(guest) => guest.as_ref().map(|guest| guest.last_words()).unwrap_or_default(),
            Who::Here { scratch, .. } => {
                std::fs::read_to_string(scratch.path().join("stderr")).unwrap_or_default()
            }
        }
    }

    const fn name(&self) -> &'static str {
        match self.who {
            Who::Guest(_) => "the kernel's client",
            Who::Here { .. } => "the mount",
        }
    }
}
