//! Reading the configuration again while serving, one at a time: who comes later reads the file later, so that the
//! newest content is what stays.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

use crate::config::Config;
use crate::programs::Programs;
use crate::{ExportConfig, ready};

/// Where exports come from when they are read again.
pub(crate) struct Reloadable {
    pub(crate) file: PathBuf,
    /// What is served since the start, for keys that only a start puts into force.
    pub(crate) at_start: Config,
    /// Exports of the command line, which stay.
    pub(crate) named: Vec<ExportConfig>,
}

/// Reads exports again and puts them into force.
pub(crate) struct Reloader {
    programs: Arc<Programs>,
    source: Option<Reloadable>,
    state_dir: PathBuf,
    /// Held from before the file is read until what it says is in force.
    turn: Mutex<()>,
}

/// What a reload did.
pub(crate) struct Reloaded {
    /// The file that was read.
    pub(crate) file: PathBuf,
    /// Keys that changed and count from the next start on.
    pub(crate) needs_restart: Vec<&'static str>,
    /// How many exports are served now.
    pub(crate) exports: usize,
}

impl Reloader {
    pub(crate) fn new(programs: Arc<Programs>, source: Option<Reloadable>, state_dir: PathBuf) -> Arc<Self> {
        Arc::new(Self { programs, source, state_dir, turn: Mutex::new(()) })
    }

    /// Whether there is a file to read again.
    pub(crate) const fn has_file(&self) -> bool {
        self.source.is_some()
    }

    /// Reads the file again. Waits for disks, and for a reload that is under way.
    ///
    /// # Errors
    /// What is wrong with the file or what it names; the exports stay as they were.
    pub(crate) fn reload(&self) -> Result<Reloaded> {
        let Some(source) = &self.source else {
            bail!("no configuration file was named at the start, so there is nothing to read again");
        };
        let _turn = self.turn.lock();
        let Some(_doing) = self.programs.standstill().doing() else {
            bail!("a planned restart is under way: the program that goes on reads the file");
        };
        ready::notify("RELOADING=1");
        let outcome = self.put_into_force(source);
        ready::notify("READY=1");
        outcome
    }

    /// As [`Self::reload`], for a signal: what comes of it goes to the log.
    pub(crate) fn reload_and_tell(&self) {
        match self.reload() {
            Ok(done) => {
                tracing::info!(file = %done.file.display(), exports = done.exports, "exports reloaded");
            }
            Err(error) => tracing::error!("not reloaded, the old exports stay: {error:#}"),
        }
    }

    fn put_into_force(&self, source: &Reloadable) -> Result<Reloaded> {
        let mut config = Config::read(&source.file)?;
        let needs_restart = config.needs_restart(&source.at_start);
        for key in &needs_restart {
            tracing::warn!(key, "changed in the file, and counts from the next start on");
        }
        config.exports.extend(source.named.iter().cloned());
        self.programs.reload_exports(&config, &self.state_dir).context("exports")?;
        Ok(Reloaded { file: source.file.clone(), needs_restart, exports: config.exports.len() })
    }
}
