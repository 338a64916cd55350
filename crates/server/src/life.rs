//! The life of the process: start, readiness, reload, end.

use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use holdfast_base::Timestamp;
use holdfast_rpc::{Limits, Server};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::admin::{Admin, AdminParts};
use crate::config::Config;
use crate::handover::{Arrived, Handover, Inheritance, Successor};
use crate::listening::{Start, listen};
use crate::programs::Programs;
use crate::reload::{Reloadable, Reloader};
use crate::{ServeOptions, exports, handover, lockd, process, ready, state_dir, supervised};

/// How long calls on their way are waited for at the end.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often leases are looked over.
const TICK: Duration = Duration::from_secs(1);

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// What keeps it from starting, naming the thing at fault.
pub fn serve(options: ServeOptions) -> Result<()> {
    if handover::is_asked() {
        return handover::answer(&whole(&options));
    }
    // First of all: it takes descriptors by their numbers.
    let mut arrived = handover::receive();
    arrived.listeners.extend(supervised::receive(handover::is_in_place()));
    process::prepare();
    let runtime = holdfast_rpc::runtime::runtime(None).context("cannot start threads")?;
    runtime.block_on(run(options, arrived))
}

/// The configuration with the exports of the command line.
fn whole(options: &ServeOptions) -> Config {
    let mut config = options.config.clone();
    config.exports.extend(options.exports.iter().cloned());
    config
}

async fn run(options: ServeOptions, arrived: Arrived) -> Result<()> {
    let Arrived { mut inheritance, listeners } = arrived;
    let ServeOptions { mut config, config_file, exports: named } = options;
    let source = config_file.map(|file| Reloadable { file, at_start: config.clone(), named: named.clone() });
    config.exports.extend(named);
    let successor = Successor::of_this()?;
    let mut signals = Signals::hear()?;
    let state_dir = state_dir::prepare(config.state_dir.clone())?;
    let programs = Arc::new(Programs::start(&config, &state_dir, &mut inheritance)?);
    let server = start(&config, &programs, (inheritance, listeners))?;
    for export in programs.namespace().exports() {
        tracing::info!("{}", exports::describe(&export));
    }
    say_who_is_served(&programs.namespace().exports());
    let announced = lockd::announce(&config, server.addresses(), programs.lockd()).await;
    let reloader = Reloader::new(Arc::clone(&programs), source, state_dir.clone());
    let handover = Handover::new(Arc::clone(&programs), successor, state_dir.clone());
    let _admin = Admin::start(AdminParts {
        programs: Arc::clone(&programs),
        reloader: Arc::clone(&reloader),
        handover: Arc::clone(&handover),
        view: server.view(),
        listen: server.addresses().to_vec(),
        state_dir,
        metrics: config.metrics.listen,
    });
    handover::keep_listeners(&server.listening());
    supervised::tell(&server.listening());
    for address in server.addresses() {
        println!("nfs {address} ready");
    }
    keep_time(&programs)?;
    ready::notify("READY=1");
    until_told(&mut signals, &reloader, &handover, &server).await?;
    ready::notify("STOPPING=1");
    if handover::is_stored() {
        match handover.deposit(&server).await {
            Ok(()) => {
                // Whether somebody serves again is not known here; who does registers again.
                announced.withdraw().await;
                std::process::exit(0)
            }
            Err(error) => tracing::warn!("clients will have to reclaim: {error:#}"),
        }
    }
    announced.withdraw().await;
    let dropped = server.shutdown(PATIENCE).await;
    if dropped > 0 {
        tracing::warn!(dropped, "connections closed with calls unanswered");
    }
    Ok(())
}

/// Looks after leases and all else that time brings, on a thread of its own; and on others after grace and records, for that may
/// wait for the disk of the state directory, and after the backends' caches, which may wait for a disk that is served. All end
/// with the programs.
fn keep_time(programs: &Arc<Programs>) -> Result<()> {
    each_tick("tick", programs, Programs::tick)?;
    each_tick("tick-records", programs, Programs::tick_records)?;
    each_tick("tick-caches", programs, Programs::tick_caches)
}

fn each_tick(name: &str, programs: &Arc<Programs>, tick: fn(&Programs)) -> Result<()> {
    let programs = Arc::downgrade(programs);
    let run = move || {
        while let Some(programs) = programs.upgrade() {
            // Leases must go on running out after a panic too, of which the hook has told.
            let _ = catch_unwind(AssertUnwindSafe(|| tick(&programs)));
            drop(programs);
            thread::sleep(TICK);
        }
    };
    thread::Builder::new().name(name.into()).spawn(run).context("cannot start threads")?;
    Ok(())
}

/// What others say to the process.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    /// SIGUSR2: the program on disk is to take this one's place.
    replace: Signal,
    /// Whether one of the first two came.
    is_over: bool,
}

impl Signals {
    /// Hears them from now on. Before anybody is told that the server is ready, and may say something.
    fn hear() -> Result<Self> {
        let signals = Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            replace: signal(SignalKind::user_defined2())?,
            is_over: false,
        };
        handover::unblock_signals();
        Ok(signals)
    }

    fn is_end_asked_for(&mut self) -> bool {
        let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
        self.is_over |= self.terminate.poll_recv(cx).is_ready() | self.interrupt.poll_recv(cx).is_ready();
        self.is_over
    }
}

/// Reloads, and hands over, until a signal ends it.
async fn until_told(
    signals: &mut Signals,
    reloader: &Arc<Reloader>,
    handover: &Arc<Handover>,
    server: &Server,
) -> Result<()> {
    loop {
        tokio::select! {
            _ = signals.terminate.recv() => return Ok(()),
            _ = signals.interrupt.recv() => return Ok(()),
            () = handover.is_asked_for(&mut signals.replace) => {
                let Err(error) = handover.replace(server, || signals.is_end_asked_for()).await;
                if signals.is_end_asked_for() {
                    return Ok(());
                }
                tracing::error!("not replaced, this program serves on: {error:#}");
            }
            _ = signals.hangup.recv() => {
                // Opening a directory may wait for a disk; signals must not wait with it.
                let reloader = Arc::clone(reloader);
                tokio::task::spawn_blocking(move || reloader.reload_and_tell());
            }
        }
    }
}

/// Starts serving, on sockets that are there already where they fit.
fn start(
    config: &Config,
    programs: &Programs,
    (inheritance, kept): (Option<Inheritance>, Vec<OwnedFd>),
) -> Result<Server> {
    let kept = kept.into_iter().map(TcpListener::from);
    let Some(Inheritance { image, listeners, connections, .. }) = inheritance else {
        let listeners = listen(config, kept.collect(), Start::Ordinary)?;
        return Ok(Server::start(listeners, programs.all(), Limits::default())?);
    };
    let count = connections.len();
    let present = listeners.into_iter().map(TcpListener::from).chain(kept).collect();
    let listeners = listen(config, present, Start::InPlace)?;
    let server = Server::go_on(listeners, programs.all(), Limits::default(), connections)?;
    programs.after_handover();
    let ms = |since: u64| handover::boot_time().saturating_sub(since) / 1_000_000;
    tracing::info!(
        connections = count,
        files = image.files.len(),
        still_ms = ms(image.held_at),
        start_ms = ms(image.frozen_at),
        "went on where the process before stopped"
    );
    Ok(server)
}

fn say_who_is_served(exports: &[Arc<holdfast_export::Export>]) {
    if exports.iter().all(|e| e.options.clients == holdfast_export::ClientRule::this_host()) {
        tracing::info!("only this host is served: --allow NETWORK,... or --allow all admits others");
    }
    if !rustix::process::geteuid().is_root() {
        tracing::info!("not root: every caller is served as the user this server runs as");
    }
}

/// The time of day, as the pseudo file system's times have it.
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}
