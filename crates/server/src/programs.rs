//! The programs that are served, wired to what they stand on.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use holdfast_base::{Clock, SystemClock, SystemEntropy};
use holdfast_export::{Committer, Export, GroupSource, Namespace, Sealer};
use holdfast_nfs3::{Mount3, Nfs3, Nfs3Parts};
use holdfast_nfs4::{Config as Nfs4Config, IdNames, Nfs4, NumericIds, Seeds};
use holdfast_recovery::{Boot, Identity};
use holdfast_rpc::Program;
use holdfast_rpc::reply_cache::{ReplyCache, ReplyCacheLimits};
use holdfast_state::BootInstance;
use holdfast_store::{EmbeddedStore, Store};
use parking_lot::Mutex;

use crate::config::Config;
use crate::durable::{Durable, Former};
use crate::exports::{self, Opened};
use crate::life::wall_clock;
use crate::nss::{NssGroups, NssNames};

/// Programs and versions that rpcbind is told of.
pub(crate) const VERSIONS: [(u32, u32); 3] = [(100_003, 3), (100_003, 4), (100_005, 3)];

/// The highest minor version of NFSv4 that is served.
const NFS4_MINOR_MAX: u32 = 2;

/// The lease when nobody says, in seconds.
const LEASE_SECONDS_DEFAULT: u32 = 60;

/// Everything that is served, and what must be ended with it.
pub(crate) struct Programs {
    namespace: Arc<Namespace>,
    exports: Mutex<Vec<Opened>>,
    nfs3: Arc<Nfs3>,
    mount: Arc<Mount3>,
    nfs4: Arc<Nfs4>,
    durable: Arc<Durable>,
    clock: Arc<dyn Clock>,
    epoch: u64,
}

impl Programs {
    /// Opens exports and records, and makes the programs.
    ///
    /// # Errors
    /// What cannot be opened, by its name and with the way out.
    pub(crate) fn start(config: &Config, state_dir: &Path) -> Result<Self> {
        let lease_ms = u64::from(config.lease.unwrap_or(LEASE_SECONDS_DEFAULT)) * 1000;
        let store: Arc<dyn Store> = Arc::new(EmbeddedStore::open(&state_dir.join("records.redb"))?);
        let mut entropy = SystemEntropy::new().context("/dev/urandom")?;
        let identity = Identity::load_or_make(store.as_ref(), &mut entropy)?;
        let boot = Boot::begin(store.as_ref(), lease_ms)?;
        let opened = exports::open_all(config, state_dir, (&[], boot.epoch))?;
        let exports = exports_of(&opened);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        // What a crash cut short is settled before the first request can change what is looked at.
        let (durable, former) = Durable::open(store, state_dir, &exports, (&boot, lease_ms), clock.as_ref())?;
        let namespace = Arc::new(Namespace::new(Sealer::new(identity.handle_key), exports, wall_clock())?);
        let groups: Arc<dyn GroupSource> = Arc::new(NssGroups::start()?);
        let committer = Committer::new(Some(durable.ledger().clone()));
        let replies = ReplyCache::new(ReplyCacheLimits::default(), Arc::clone(&clock));
        let nfs3 = Nfs3::new(Nfs3Parts {
            namespace: Arc::clone(&namespace),
            committer: Arc::clone(&committer),
            replies: Arc::clone(&replies),
            ledger: Some(durable.ledger().clone()),
            groups: Arc::clone(&groups),
            observer: None,
        });
        let nfs4 = Nfs4::new(
            Nfs4Config {
                namespace: Arc::clone(&namespace),
                groups,
                ids: ids_of(config)?,
                committer,
                replies: Arc::clone(&replies),
                clock: Arc::clone(&clock),
                lease_ms,
                boot: BootInstance::from_counter(boot.epoch),
                grace: durable.grace(),
                records: durable.clone(),
                sessions: Some(durable.clone()),
                ledger: Some(durable.ledger().clone()),
                identity: holdfast_nfs4::Identity {
                    major_id: identity.owner.to_vec(),
                    minor_id: 0,
                    scope: identity.scope.to_vec(),
                },
                minor_max: NFS4_MINOR_MAX,
                observer: None,
            },
            Seeds { entropy: Box::new(entropy) },
        );
        take_in(former, &nfs4, &replies);
        durable.serves(&nfs4);
        let mount = Mount3::new(Arc::clone(&namespace));
        Ok(Self {
            namespace,
            exports: Mutex::new(opened),
            nfs3: Arc::new(nfs3),
            mount: Arc::new(mount),
            nfs4,
            durable,
            clock,
            epoch: boot.epoch,
        })
    }

    /// All of them, to be served.
    pub(crate) fn all(&self) -> Vec<Arc<dyn Program>> {
        vec![self.nfs3.clone(), self.mount.clone(), self.nfs4.clone()]
    }

    /// What is exported.
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// What is due about once a second.
    pub(crate) fn tick(&self) {
        self.nfs4.tick();
        self.durable.tick(self.clock.now());
    }

    /// Replaces the exports. Sources that stay keep their backend, and with it what clients have open there.
    pub(crate) fn reload_exports(&self, config: &Config, state_dir: &Path) -> Result<()> {
        let mut opened = self.exports.lock();
        let fresh = exports::open_all(config, state_dir, (&opened, self.epoch))?;
        self.namespace.replace(exports_of(&fresh), wall_clock())?;
        *opened = fresh;
        Ok(())
    }
}

/// How owners are written: by number, unless a domain is configured.
fn ids_of(config: &Config) -> Result<Arc<dyn IdNames>> {
    Ok(match &config.domain {
        Some(domain) => Arc::new(NssNames::start(domain)?),
        None => Arc::new(NumericIds),
    })
}

/// Gives the programs back what the server knew in its former life.
fn take_in(former: Former, nfs4: &Nfs4, replies: &ReplyCache) {
    let (sessions, calls) = (former.snapshot.sessions.len(), former.replies.len());
    let left_out = nfs4.restore(&former.snapshot);
    replies.restore(former.replies);
    if sessions + calls > 0 {
        tracing::info!(
            sessions,
            calls,
            left_out,
            "went on with sessions and answered calls of the former run"
        );
    }
}

fn exports_of(opened: &[Opened]) -> Vec<Arc<Export>> {
    opened.iter().map(|o| Arc::clone(&o.export)).collect()
}
