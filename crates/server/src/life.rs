//! The life of the process: start, readiness, reload, end.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};
use holdfast_base::Timestamp;
use holdfast_rpc::rpcbind::{self, Mapping};
use holdfast_rpc::{Limits, Server};
use tokio::signal::unix::{SignalKind, signal};

use crate::config::Config;
use crate::programs::Programs;
use crate::{ServeOptions, exports, ready, state_dir};

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
    raise_descriptor_limit();
    let runtime = holdfast_rpc::runtime::runtime(None).context("cannot start threads")?;
    runtime.block_on(run(options))
}

async fn run(options: ServeOptions) -> Result<()> {
    let ServeOptions { config, config_file } = options;
    let state_dir = state_dir::prepare(config.state_dir.clone())?;
    let programs = Programs::start(&config, &state_dir)?;
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
    ready::notify("READY=1");
    until_told(&programs, config_file.as_deref(), &state_dir).await?;
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

/// Ticks and reloads until a signal ends it.
async fn until_told(programs: &Programs, config_file: Option<&Path>, state_dir: &Path) -> Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            _ = hangup.recv() => reload(programs, config_file, state_dir),
            _ = tick.tick() => programs.tick(),
        }
    }
}

/// Reads the exports again. What is wrong with the new file leaves the old exports as they are.
fn reload(programs: &Programs, config_file: Option<&Path>, state_dir: &Path) {
    let Some(file) = config_file else {
        tracing::warn!("asked to reload, but there is no configuration file: nothing done");
        return;
    };
    ready::notify("RELOADING=1");
    let outcome = Config::read(file)
        .map_err(anyhow::Error::from)
        .and_then(|config| programs.reload_exports(&config, state_dir));
    match outcome {
        Ok(()) => tracing::info!(file = %file.display(), "exports reloaded"),
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

/// The caches of descriptors and the connections are bounded by what the system allows: ask for all of it.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let all = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, all) {
        tracing::debug!(%error, "the limit of descriptors stays as it was");
    }
}

/// The time of day, as the pseudo file system's times have it.
pub(crate) fn wall_clock() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp { seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nanos: since.subsec_nanos() }
}
