//! The life of the process: start, readiness, reload, end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use holdfast_base::Timestamp;
use holdfast_rpc::rpcbind::{self, Mapping};
use holdfast_rpc::{Limits, Server};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Config;
use crate::programs::Programs;
use crate::{ExportConfig, ServeOptions, exports, process, ready, state_dir};

/// How long calls on their way are waited for at the end.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often leases are looked over.
const TICK: Duration = Duration::from_secs(1);

/// NFS's port, and the one that an ordinary user can have.
const NFS_PORT: u16 = 2049;
const USER_NFS_PORT: u16 = 20490;

/// Serves until SIGTERM or SIGINT.
///
/// # Errors
/// What keeps it from starting, naming the thing at fault.
pub fn serve(options: ServeOptions) -> Result<()> {
    process::prepare();
    let runtime = holdfast_rpc::runtime::runtime(None).context("cannot start threads")?;
    runtime.block_on(run(options))
}

async fn run(options: ServeOptions) -> Result<()> {
    let ServeOptions { mut config, config_file, exports: named } = options;
    let source = config_file.map(|file| Reloadable { file, at_start: config.clone(), named: named.clone() });
    config.exports.extend(named);
    let state_dir = state_dir::prepare(config.state_dir.clone())?;
    let programs = Arc::new(Programs::start(&config, &state_dir)?);
    let listeners = listen(&config)?;
    let server = Server::start(listeners, programs.all(), Limits::default())?;
    for export in programs.namespace().exports() {
        tracing::info!("{}", exports::describe(&export));
    }
    say_who_is_served(&programs.namespace().exports());
    let mappings = register(&config, &server).await;
    for address in server.addresses() {
        println!("nfs {address} ready");
    }
    keep_time(&programs)?;
    ready::notify("READY=1");
    until_told(&programs, source, state_dir).await?;
    ready::notify("STOPPING=1");
    if !mappings.is_empty() {
        // That rpcbind went away meanwhile is no reason to complain at the end.
        let _ = rpcbind::unregister(&mappings).await;
    }
    let dropped = server.shutdown(PATIENCE).await;
    if dropped > 0 {
        tracing::warn!(dropped, "connections closed with calls unanswered");
    }
    Ok(())
}

/// Where exports come from when they are read again.
#[derive(Clone)]
struct Reloadable {
    file: PathBuf,
    at_start: Config,
    named: Vec<ExportConfig>,
}

/// Looks after leases, grace and records on a thread of its own: it may wait for the disk of the state directory,
/// which signals must not wait for. It ends with the programs.
fn keep_time(programs: &Arc<Programs>) -> Result<()> {
    let programs = Arc::downgrade(programs);
    let tick = move || {
        while let Some(programs) = programs.upgrade() {
            // Leases must go on running out after a panic too, of which the hook has told.
            let _ = catch_unwind(AssertUnwindSafe(|| programs.tick()));
            drop(programs);
            thread::sleep(TICK);
        }
    };
    thread::Builder::new().name("tick".into()).spawn(tick).context("cannot start threads")?;
    Ok(())
}

/// Reloads until a signal ends it.
async fn until_told(programs: &Arc<Programs>, source: Option<Reloadable>, state_dir: PathBuf) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => match source.clone() {
                // Opening a directory may wait for a disk; signals must not wait with it.
                Some(source) => {
                    let (programs, state_dir) = (Arc::clone(programs), state_dir.clone());
                    tokio::task::spawn_blocking(move || reload(&programs, &source, &state_dir));
                }
                None => tracing::warn!("asked to reload, but there is no configuration file: nothing done"),
            },
        }
    }
}

/// Reads the exports again. What is wrong with the new file leaves the old exports as they are.
fn reload(programs: &Programs, source: &Reloadable, state_dir: &Path) {
    ready::notify("RELOADING=1");
    let outcome = Config::read(&source.file).map_err(anyhow::Error::from).and_then(|mut config| {
        for key in config.needs_restart(&source.at_start) {
            tracing::warn!(key, "changed in the file, and counts from the next start on");
        }
        config.exports.extend(source.named.iter().cloned());
        programs.reload_exports(&config, state_dir)
    });
    match outcome {
        Ok(()) => tracing::info!(file = %source.file.display(), "exports reloaded"),
        Err(error) => tracing::error!("not reloaded, the old exports stay: {error:#}"),
    }
    ready::notify("READY=1");
}

fn listen(config: &Config) -> Result<Vec<TcpListener>> {
    if !config.listen.is_empty() {
        return config.listen.iter().map(|address| listen_on(*address)).collect();
    }
    let port = if rustix::process::geteuid().is_root() { NFS_PORT } else { USER_NFS_PORT };
    let v4 = listen_on(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port))?;
    match listen_on(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)) {
        Ok(v6) => Ok(vec![v4, v6]),
        Err(error) => {
            tracing::warn!("IPv4 only: {error:#}");
            Ok(vec![v4])
        }
    }
}

fn listen_on(address: SocketAddr) -> Result<TcpListener> {
    holdfast_rpc::server::listen(address)
        .with_context(|| format!("cannot listen on {address}: choose another with --listen ADDR:PORT"))
}

/// Registers with rpcbind where one runs; not being able to is no error, as Linux clients can name ports.
async fn register(config: &Config, server: &Server) -> Vec<Mapping> {
    if config.rpcbind == Some(false) {
        return Vec::new();
    }
    let mappings: Vec<_> = server
        .addresses()
        .iter()
        .flat_map(|&address| {
            crate::programs::VERSIONS.map(|(program, version)| Mapping { program, version, address })
        })
        .collect();
    match rpcbind::register(&mappings).await {
        Ok(()) => mappings,
        Err(error) => {
            tracing::warn!(
                "not registered with rpcbind ({error}): clients of NFSv3 name the port themselves"
            );
            Vec::new()
        }
    }
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
