//! From a source and options to a volume.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context as _, Result};
use holdfast_base::limits::{FORCED_BATCHES_MAX, OPENS_TOLD_MAX};
use holdfast_base::{Entropy as _, SystemEntropy};
use holdfast_client::{Callbacks, Client, Event, Handle, HeldAttributes, Options, Recall};
use holdfast_volume::cache::{Caller, Object, Settings};
use holdfast_volume::{
    AwaySignal, Cancel, CapsServer, Delegations, LossSignal, NfsServer, Volume, VolumeOptions,
};
use rustix::io::Errno;

use crate::options::{CacheMode, MountOptions, Offline, Patience};
use crate::source::{PORT_DEFAULT, ServerName, Source};

/// A volume, and what it stands on.
pub(crate) struct Connected {
    pub(crate) volume: Volume,
    pub(crate) server: Arc<NfsServer>,
    /// Where it makes promises.
    pub(crate) caps: Option<Arc<CapsServer>>,
    /// What tables of mounts show.
    pub(crate) root_name: String,
}

/// Calls of the background under way at once: all the batches, writes and opens that the machine lets be, and always some more,
/// for what is sent may have to wait until this client has given back what others wait for.
pub(crate) const FLUSHERS: usize = 32 + OPENS_TOLD_MAX + 2 * FORCED_BATCHES_MAX;

/// How long the first connection may take, even where operations wait for ever afterwards.
const CONNECT_PATIENCE: Duration = Duration::from_secs(30);

/// A server as the client is to call it.
pub(crate) fn address_of(server: &ServerName, options: &MountOptions) -> String {
    let port = server.port.or(options.port).unwrap_or(PORT_DEFAULT);
    ServerName { host: server.host.clone(), port: Some(port) }.to_string()
}

/// The root of the export. A server hides exports from hosts that it does not admit, so that a wrong path and a wrong host
/// look the same: the bare status would tell neither.
///
/// # Errors
/// With the server and the export's path.
pub(crate) fn root_of(server: &NfsServer, source: &Source, own: &Caller, cancel: &Cancel) -> Result<Object> {
    server.root(&source.export, own, cancel).map_err(|error| match error.errno() {
        Errno::NOENT => {
            anyhow::anyhow!("{source}: the server has no such export, or none for this host")
        }
        Errno::ACCESS => anyhow::anyhow!("{source}: the server does not let this user look there"),
        _ => anyhow::Error::from(error).context(source.to_string()),
    })
}

/// What is wanted of the client.
pub(crate) fn wanted(source: &Source, options: &MountOptions) -> Options {
    let servers = std::iter::once(&source.server).chain(&options.more_servers);
    let mut wanted = Options::new(servers.map(|server| address_of(server, options)).collect());
    wanted.goes_where_told = options.goes_where_told;
    wanted.minor = options.minor_version;
    wanted.connections = options.connections as usize;
    wanted.reserved_port = rustix::process::geteuid().is_root();
    wanted.patience = CONNECT_PATIENCE;
    if let Patience::Soft(patience) = options.patience {
        wanted.soft = true;
        wanted.patience = patience;
    }
    wanted
}

/// Connects and looks up the export.
///
/// # Errors
/// With the server and the export's path.
pub(crate) fn connect(source: &Source, options: &MountOptions) -> Result<Connected> {
    let wanted = wanted(source, options);
    if let Offline::In(file) = &options.offline {
        return crate::offline::connect(source, options, wanted, file.as_deref());
    }
    let cancel = Cancel::new();
    let delegations = Delegations::new();
    let told = Arc::<Told>::default();
    let heard = Heard { delegations: Arc::clone(&delegations), told: Arc::clone(&told) };
    let client = Client::connect(wanted, Arc::new(heard), &cancel)
        .with_context(|| format!("no session with {}", source.server))?;
    let server = Arc::new(NfsServer::new(client));
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let root = root_of(&server, source, &Caller::new(uid, gid), &cancel)?;
    let caps = match options.cache {
        CacheMode::All => greet(&server, &root).with_context(|| source.to_string())?,
        CacheMode::Delegations | CacheMode::None => None,
    };
    let delegations = Some(delegations).filter(|_| caps.is_none() && options.cache != CacheMode::None);
    if let Some(delegations) = &delegations {
        server.use_delegations(Arc::clone(delegations));
    }
    if let Some(caps) = &caps {
        caps.use_same_host(options.same_host.clone());
    }
    let settings = settings(options, &server, caps.as_deref());
    let serving: Arc<dyn holdfast_volume::Server> = match &caps {
        Some(caps) => Arc::clone(caps) as _,
        None => Arc::clone(&server) as _,
    };
    let patience = match options.patience {
        Patience::Soft(patience) => Some(patience),
        Patience::Hard => None,
    };
    let volume = Volume::start(&root, serving, &VolumeOptions { settings, flushers: FLUSHERS, patience })?;
    told.of_losses(&volume);
    if let Some(caps) = &caps {
        caps.serve(&volume)?;
    }
    if caps.is_none() {
        server.serve(&volume);
    }
    if let Some(delegations) = &delegations {
        delegations.serve(&volume, &server)?;
    }
    Ok(Connected { volume, server, caps, root_name: source.to_string() })
}

/// Whether the server makes the promises of the caps program, and who asks for them.
fn greet(server: &Arc<NfsServer>, root: &Object) -> Result<Option<Arc<CapsServer>>> {
    let mut incarnation = [0; 16];
    SystemEntropy::new()?.fill(&mut incarnation);
    let caps = CapsServer::greet(server, &root.handle, incarnation, &Cancel::new())?;
    match &caps {
        Some(_) => {
            tracing::info!("the server makes promises: what is known is used, and changes are put off");
        }
        None => tracing::info!(
            "the server promises nothing of it (no Holdfast server, or a directory above exports): what it delegates is used"
        ),
    }
    Ok(caps.map(Arc::new))
}

pub(crate) fn settings(options: &MountOptions, server: &NfsServer, caps: Option<&CapsServer>) -> Settings {
    let limits = server.client().limits();
    let io_bytes = limits.max_read.min(limits.max_write);
    let Some(caps) = caps else {
        let write_back = options.cache != CacheMode::None;
        return Settings { io_bytes, write_back, ..Settings::default() };
    };
    let taken = caps.limits();
    let full = Settings::full();
    Settings {
        io_bytes,
        forces: caps.forces(),
        // A mutation may become several operations, and a call has a head.
        batch_ops_max: full.batch_ops_max.min(taken.batch_ops as usize / 4).max(1),
        batch_parts_max: full.batch_parts_max.min(taken.batch_ops as usize),
        batch_bytes_max: full.batch_bytes_max.min(taken.call_bytes as usize / 2),
        batches_in_flight_max: full.batches_in_flight_max.min(taken.batches as usize).max(1),
        pooled_max: if caps.pools() { full.pooled_max } else { 0 },
        ..full
    }
}

/// The volume, once there is one: before that nothing is held, and nobody works.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Of one that works without the server.
    away: OnceLock<AwaySignal>,
    lost: OnceLock<LossSignal>,
}

impl Told {
    /// It is told of the server's absence.
    pub(crate) fn of_absence(&self, volume: &Volume) {
        // It is said once.
        let _ = self.away.set(volume.away_signal());
    }

    /// It is told of locks that are lost.
    pub(crate) fn of_losses(&self, volume: &Volume) {
        // The same.
        let _ = self.lost.set(volume.loss_signal());
    }
}

/// What the client tells by itself: for the volume, for those who use what is delegated, and for the log.
pub(crate) struct Heard {
    delegations: Arc<Delegations>,
    told: Arc<Told>,
}

impl Heard {
    /// Where there are capabilities nothing is delegated.
    pub(crate) fn without_delegations(told: Arc<Told>) -> Self {
        Self { delegations: Delegations::new(), told }
    }
}

impl Callbacks for Heard {
    fn recall(&self, file: &Handle, recall: Recall) {
        self.delegations.recall(file, recall);
    }

    fn held_attributes(&self, file: &Handle) -> Option<HeldAttributes> {
        self.delegations.held_attributes(file)
    }

    fn recall_any(&self, keep: u32, read: bool, write: bool) {
        self.delegations.recall_any(keep, read, write);
    }

    fn delegation_gone(&self, file: &Handle, number: u64) {
        self.delegations.delegation_gone(file, number);
    }

    fn locks_lost(&self, file: &Handle, _: &[u8]) {
        // With its path it is among the complaints.
        tracing::debug!(?file, "locks were lost");
        if let Some(lost) = self.told.lost.get() {
            lost.locks_lost(file.as_bytes());
        }
    }

    fn happened(&self, event: &Event) {
        match event {
            Event::Connected(server) => tracing::info!(server, "connected"),
            Event::Disconnected(reason) => {
                tracing::warn!(reason, "no server answers; trying again");
                if let Some(away) = self.told.away.get() {
                    away.went_away();
                }
            }
            Event::Moved(servers) => tracing::warn!(?servers, "the server says that the files are there now"),
            Event::Restarted => tracing::info!("the server has restarted"),
            Event::StateLost => {
                tracing::warn!("the server has forgotten what was open here; asking for it again");
            }
            Event::Recovered => tracing::info!("everything is as it was"),
        }
    }
}
