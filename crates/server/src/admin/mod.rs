//! The server as its administrator sees it: what [`holdfast_admin`] asks, answered from the programs.

mod events;
mod holdings;
mod log;
mod process;
mod status;
mod tally;
mod who;
mod words;

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock, Weak};

use holdfast_admin::report::{
    Client, Counters, Holding, HoldingKind, LogLevels, Page, Reloaded, Status, Taken, Upgrading,
};
use holdfast_admin::request::{ClientsWanted, Code, LocksWanted, Refusal, Which};
use holdfast_admin::{Administered, MetricsEndpoint, Service};
use holdfast_base::ClientId;
use holdfast_base::limits::ADMIN_ROWS_MAX;
use holdfast_manager::Agent;
use holdfast_rpc::ServerView;

use crate::handover::Handover;
use crate::programs::Programs;
use crate::reload::Reloader;
use events::Events;
use holdings::{Grip, Spot};
pub use log::{LogControl, control_log_by};
pub use tally::Tally;
use who::Chosen;
pub(crate) use words::unix_ms;

/// What the administrator's view is made of.
pub(crate) struct AdminParts {
    pub(crate) programs: Arc<Programs>,
    pub(crate) reloader: Arc<Reloader>,
    pub(crate) handover: Arc<Handover>,
    pub(crate) view: ServerView,
    pub(crate) listen: Vec<SocketAddr>,
    pub(crate) state_dir: PathBuf,
    /// Where metrics are to be had over HTTP, if anywhere.
    pub(crate) metrics: Option<SocketAddr>,
}

/// The administrator's view, answered on threads of its own.
pub(crate) struct Admin {
    programs: Arc<Programs>,
    reloader: Arc<Reloader>,
    handover: Arc<Handover>,
    view: ServerView,
    listen: Vec<SocketAddr>,
    state_dir: PathBuf,
    events: Arc<Events>,
    calendar: words::Calendar,
    /// Where metrics are to be had over HTTP, once they are.
    metrics: OnceLock<SocketAddr>,
    started_unix_ms: u64,
    instance: String,
}

/// What answers. It ends when dropped.
pub(crate) struct Running {
    _service: Option<Service>,
    _metrics: Option<MetricsEndpoint>,
    _admin: Arc<Admin>,
}

impl Admin {
    /// Answers at the socket of the state directory from now on. What cannot be had is told in the log, and no reason
    /// not to serve: clients wait, and a handover is too late to give up.
    pub(crate) fn start(parts: AdminParts) -> Running {
        let AdminParts { programs, reloader, handover, view, listen, state_dir, metrics } = parts;
        // As others find it who start elsewhere.
        let state_dir = state_dir.canonicalize().unwrap_or(state_dir);
        let events = Arc::new(Events::default());
        let agent: Arc<dyn Agent> = events.clone();
        programs.manager().register(Arc::downgrade(&agent));
        let started_unix_ms = unix_ms();
        let instance = format!("{started_unix_ms:x}-{:x}", std::process::id());
        let admin = Arc::new(Self {
            programs,
            reloader,
            handover,
            view,
            listen,
            state_dir,
            events,
            calendar: words::Calendar::default(),
            metrics: OnceLock::new(),
            started_unix_ms,
            instance,
        });
        let server: Weak<dyn Administered> = Arc::downgrade(&(admin.clone() as Arc<dyn Administered>));
        let service = start_service(&admin.state_dir, server.clone());
        let endpoint = metrics.and_then(|address| start_metrics(address, server));
        if let Some(address) = endpoint.as_ref().and_then(|endpoint| endpoint.address().ok()) {
            // There is one, made once.
            let _ = admin.metrics.set(address);
            println!("metrics {address} ready");
        }
        Running { _service: service, _metrics: endpoint, _admin: admin }
    }

    /// To be held while something is changed: what is written down for another process does not change meanwhile.
    fn changing(&self) -> Result<impl Drop + '_, Refusal> {
        let doing = self.programs.standstill().doing();
        doing.ok_or_else(|| Refusal::new(Code::Busy, "a planned restart is under way: ask again"))
    }

    /// Takes everything from a client; how many holdings that were.
    fn revoke_client(&self, client: &Client) -> Result<u64, Refusal> {
        let Ok(id) = u64::from_str_radix(&client.id, 16) else { return self.revoke_host(client) };
        let gone = self.programs.manager().step(|engine, now| engine.revoke_client(ClientId(id), now));
        gone.map_err(|_| Refusal::new(Code::Failed, "its record cannot be stored: the log says why"))?;
        Ok(client.opens + client.locks + client.delegations)
    }

    /// The same with a host that came through NLM.
    fn revoke_host(&self, client: &Client) -> Result<u64, Refusal> {
        let lockd = self.programs.lockd();
        let its = lockd.report().into_iter().filter(|held| who::nlm_id(held) == client.id);
        Ok(its.filter(|held| lockd.take_away(held.owner, held.file)).count() as u64)
    }

    /// Takes what these grips hold; how much that was.
    fn take(&self, grips: &HashSet<Grip>) -> u64 {
        let mut taken = 0;
        for grip in grips {
            let is_taken = match grip {
                Grip::State(stateid) => {
                    // One may have ended meanwhile.
                    let done = self.programs.manager().step(|engine, now| engine.revoke_state(*stateid, now));
                    matches!(done, Ok(Ok(())))
                }
                Grip::Nlm(owner, file) => self.programs.lockd().take_away(*owner, *file),
                Grip::None => false,
            };
            taken += u64::from(is_taken);
        }
        taken
    }
}

fn start_service(state_dir: &Path, server: Weak<dyn Administered>) -> Option<Service> {
    let started = Service::start(state_dir, server);
    let path = holdfast_admin::socket::path_in(state_dir);
    started
        .inspect_err(|error| {
            tracing::error!(path = %path.display(), %error, "no admin socket: `holdfast status` and its like find no server");
        })
        .ok()
}

fn start_metrics(address: SocketAddr, server: Weak<dyn Administered>) -> Option<MetricsEndpoint> {
    let started = MetricsEndpoint::start(address, server);
    let tell = |error: &std::io::Error| {
        tracing::error!(%address, %error, "no metrics: choose another address for `listen` in [metrics]");
    };
    started.inspect_err(tell).ok()
}

impl Administered for Admin {
    fn status(&self) -> Status {
        self.report_status()
    }

    fn clients(&self, wanted: &ClientsWanted) -> Result<Page<Client>, Refusal> {
        let chosen = wanted.client.as_deref().map(Chosen::of);
        let mut rows = self.all_clients();
        rows.retain(|client| chosen.as_ref().is_none_or(|chosen| chosen.is(client)));
        if let Some(client) = wanted.client.as_ref().filter(|_| rows.is_empty()) {
            return Err(no_client(client));
        }
        // Ids of NFSv4 are digits, those of NLM begin with a letter behind them: the order is that of the ids.
        rows.sort_by(|a, b| a.id.cmp(&b.id));
        rows.retain(|client| wanted.after.as_ref().is_none_or(|after| client.id > *after));
        let next = rows.get(ADMIN_ROWS_MAX).is_some().then(|| rows[ADMIN_ROWS_MAX - 1].id.clone());
        rows.truncate(ADMIN_ROWS_MAX);
        Ok(Page { rows, next })
    }

    fn locks(&self, wanted: &LocksWanted) -> Result<Page<Holding>, Refusal> {
        self.page(wanted)
    }

    fn revoke(&self, client: &str) -> Result<Taken, Refusal> {
        let _changing = self.changing()?;
        let chosen = Chosen::of(client);
        let mut taken = Taken::default();
        for client in self.all_clients().iter().filter(|client| chosen.is(client)) {
            tracing::info!(id = client.id, name = client.name, "client revoked by the administrator");
            taken.holdings += self.revoke_client(client)?;
            taken.clients.push(client.name.clone());
        }
        if taken.clients.is_empty() { Err(no_client(client)) } else { Ok(taken) }
    }

    fn release(&self, which: &Which) -> Result<Taken, Refusal> {
        if which.is_everything() {
            return Err(Refusal::new(Code::BadRequest, "say what: a client, a path, an export or an id"));
        }
        let mut which = which.clone();
        if which.kinds.is_empty() && which.id.is_none() {
            which.kinds = vec![HoldingKind::Lock, HoldingKind::Share];
        }
        let mut grips = HashSet::new();
        self.find(&which, Spot::default(), &mut |_, found| {
            grips.insert(found.grip);
            true
        })?;
        let only_waits = grips.remove(&Grip::None);
        if grips.is_empty() && only_waits {
            return Err(Refusal::new(
                Code::NotPossible,
                "who waits for a lock is not turned away: release what is in its way, or revoke the client",
            ));
        }
        if grips.is_empty() {
            return Err(Refusal::new(Code::NotFound, "nothing of that kind is held there"));
        }
        let _changing = self.changing()?;
        let holdings = self.take(&grips);
        tracing::info!(?which, holdings, "released by the administrator");
        Ok(Taken { clients: Vec::new(), holdings })
    }

    fn reload(&self) -> Result<Reloaded, Refusal> {
        if !self.reloader.has_file() {
            return Err(Refusal::new(
                Code::NotPossible,
                "the server was started without a configuration file (--config): there is nothing to read again",
            ));
        }
        let done = self.reloader.reload().map_err(|error| {
            Refusal::new(Code::Failed, format!("not reloaded, the old exports stay: {error:#}"))
        })?;
        Ok(Reloaded {
            file: done.file.display().to_string(),
            exports: done.exports as u64,
            needs_restart: done.needs_restart.iter().map(|key| (*key).to_owned()).collect(),
        })
    }

    fn upgrade(&self) -> Result<Upgrading, Refusal> {
        let begun = self.handover.begin();
        begun.map_err(|error| Refusal::new(Code::Failed, format!("not handed over: {error}")))?;
        Ok(Upgrading { instance: self.instance.clone() })
    }

    fn drop_caches(&self) {
        for export in self.programs.namespace().exports() {
            export.backend.shed(0);
        }
    }

    fn end_grace(&self) -> Result<(), Refusal> {
        let _changing = self.changing()?;
        let durable = self.programs.durable();
        if !durable.end_grace() {
            return Err(Refusal::new(Code::NotFound, "there is no grace period to end".to_owned()));
        }
        if !durable.is_grace_over() {
            let why =
                "who may not reclaim any more cannot be stored yet (see the log): it is tried every second";
            return Err(Refusal::new(Code::Failed, why.to_owned()));
        }
        Ok(())
    }

    fn log(&self, levels: Option<&str>) -> Result<LogLevels, Refusal> {
        log::levels(levels)
    }

    fn counters(&self) -> Counters {
        self.report_counters()
    }

    fn metrics(&self) -> String {
        self.report_metrics()
    }
}

fn no_client(client: &str) -> Refusal {
    Refusal::new(Code::NotFound, format!("no client has the id, name or address {client:?}"))
}
