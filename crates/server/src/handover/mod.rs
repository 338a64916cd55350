//! The planned restart: this process becomes, or is followed by, another one that goes on with its sockets, its
//! state and its open files, and clients notice nothing (`docs/design/handover.md`).
//!
//! Never half: until the new program runs everything can be taken back, and a new program that cannot read what it
//! is given starts as after a crash, which its clients survive too.

mod arrival;
mod check;
mod engine;
mod image;
mod memory;
mod store;
mod successor;
mod sys;

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use holdfast_rpc::Server;
use holdfast_vfs::handover::Outgoing;

use crate::programs::Programs;
use crate::ready;

pub(crate) use arrival::{Arrived, Inheritance, is_in_place, receive};
pub(crate) use check::{answer, is_asked};
pub(crate) use engine::Leaving;
pub(crate) use image::{Image, pack};
pub(crate) use store::{forget_listeners, is_stored, keep_listeners, places};
pub(crate) use successor::Successor;
pub(crate) use sys::{boot_time, take, unblock_signals};

/// How long calls may take to come to their end; a disk may keep them. Then the handover is called off.
const HOLD_PATIENCE: Duration = Duration::from_secs(3);

/// How long whoever asks for a handover has to be answered before it begins.
const ANSWER_PAUSE: Duration = Duration::from_millis(100);

/// How long a signal may take from the process to whoever waits for it here.
const SIGNAL_PAUSE: Duration = Duration::from_millis(1);

/// How long copies in the background may take to end their step.
const COPIES_PATIENCE: Duration = Duration::from_secs(2);

/// Everything, written down or about to be.
pub(crate) struct Frozen {
    pub(crate) image: Image,
    pub(crate) outgoing: Outgoing,
    pub(crate) engine: Leaving,
}

/// Hands this process' work over.
pub(crate) struct Handover {
    programs: Arc<Programs>,
    successor: Successor,
    state_dir: PathBuf,
    /// Somebody other than a signal wants it.
    asked: tokio::sync::Notify,
}

impl Handover {
    pub(crate) fn new(programs: Arc<Programs>, successor: Successor, state_dir: PathBuf) -> Arc<Self> {
        Arc::new(Self { programs, successor, state_dir, asked: tokio::sync::Notify::new() })
    }

    /// Waits until somebody wants it.
    pub(crate) async fn is_asked_for(&self, signal: &mut tokio::signal::unix::Signal) {
        tokio::select! {
            _ = signal.recv() => {}
            () = self.asked.notified() => {}
        }
    }

    /// Replaces this program a moment later, so that whoever asks can be answered. Waits, for the check.
    ///
    /// # Errors
    /// What stands against it, for people.
    pub(crate) fn begin(self: &Arc<Self>) -> Result<(), String> {
        self.check().map_err(|error| format!("{error:#}"))?;
        let this = Arc::clone(self);
        let later = move || {
            std::thread::sleep(ANSWER_PAUSE);
            this.asked.notify_one();
        };
        std::thread::Builder::new()
            .name("handover".into())
            .spawn(later)
            .map_err(|error| error.to_string())?;
        Ok(())
    }

    /// Whether a handover would come about. Runs the new program for a moment: waits.
    ///
    /// # Errors
    /// What stands against it.
    pub(crate) fn check(&self) -> Result<()> {
        self.programs.may_be_handed_over()?;
        self.successor.check(&self.state_dir)
    }

    /// Replaces this program by the one on disk, in this process. Returns only when that failed; the server then
    /// serves on. `is_over` tells whether the process is to end instead: a signal that came meanwhile would not be
    /// heard by the new program.
    ///
    /// # Errors
    /// What stood against it.
    pub(crate) async fn replace(
        self: &Arc<Self>,
        server: &Server,
        mut is_over: impl FnMut() -> bool,
    ) -> Result<Infallible> {
        let this = Arc::clone(self);
        tokio::task::spawn_blocking(move || this.check()).await.context("the check failed")??;
        ready::notify("RELOADING=1");
        let frozen = match self.freeze(server).await {
            Ok(frozen) => frozen,
            Err(error) => {
                self.thaw(server);
                return Err(error);
            }
        };
        // A signal of the last moment has come to this process and not yet to where it is asked for.
        tokio::time::sleep(SIGNAL_PAUSE).await;
        let error = match is_over() {
            false => self.successor.replace(frozen),
            true => anyhow!("the server is to end"),
        };
        self.thaw(server);
        Err(error)
    }

    /// Leaves everything with the service manager, for the next process it starts. When this has succeeded this
    /// process must end without closing anything in an orderly way: an orderly close tells the peer.
    ///
    /// # Errors
    /// What stood against it; the server then serves on.
    pub(crate) async fn deposit(self: &Arc<Self>, server: &Server) -> Result<()> {
        let places = places().context("the service manager keeps no descriptors")?;
        self.programs.may_be_handed_over()?;
        let deposited = match self.freeze(server).await {
            Ok(frozen) => store::deposit(frozen, places),
            Err(error) => Err(error),
        };
        if deposited.is_err() {
            self.thaw(server);
        }
        deposited
    }

    /// Brings everything to a stop and writes it down.
    async fn freeze(&self, server: &Server) -> Result<Frozen> {
        let until = Instant::now() + COPIES_PATIENCE;
        while !self.programs.stop_copies() {
            if Instant::now() > until {
                bail!("a copy in the background does not come to the end of its step");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let held_at = boot_time();
        // That of records may be waiting for a disk, and is waited for when everything else is still.
        tokio::task::block_in_place(|| self.programs.stop_time())?;
        server.hold(HOLD_PATIENCE).await.context("calls do not come to their end: try again")?;
        // Nobody waits for it, and yet the next process would not hear how it ended.
        let until = Instant::now() + HOLD_PATIENCE;
        while self.programs.is_forcing() {
            if Instant::now() > until {
                bail!("what mounts have changed does not come to the disk: try again");
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let handed = server.hand_over().context("no descriptors to be had")?;
        tokio::task::block_in_place(|| {
            let frozen = self.programs.freeze(handed, held_at);
            // Looks at files were taken on this thread, as callers; the next program is to start as this one did.
            holdfast_backend_local::release_thread();
            frozen
        })
    }

    /// Goes on after all.
    fn thaw(&self, server: &Server) {
        self.programs.go_on();
        server.release();
        ready::notify("READY=1");
    }
}
