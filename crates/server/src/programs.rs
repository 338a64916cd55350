//! The programs that are served, wired to what they stand on.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use holdfast_base::{Clock, SystemClock, SystemEntropy};
use holdfast_export::{Committer, Export, GroupSource, Namespace, Sealer};
use holdfast_nfs3::{Mount3, Nfs3, Nfs3Parts};
use holdfast_nfs4::{Config as Nfs4Config, Nfs4, NoRecords, NumericIds, Seeds};
use holdfast_recovery::{Boot, Identity};
use holdfast_rpc::Program;
use holdfast_rpc::reply_cache::{ReplyCache, ReplyCacheLimits};
use holdfast_state::{BootInstance, Grace};
use holdfast_store::EmbeddedStore;
use parking_lot::Mutex;

use crate::config::Config;
use crate::exports::{self, Opened};
use crate::groups::NssGroups;
use crate::life::wall_clock;

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
}

impl Programs {
    /// Opens exports and records, and makes the programs.
    ///
    /// # Errors
    /// What cannot be opened, by its name and with the way out.
    pub(crate) fn start(config: &Config, state_dir: &Path) -> Result<Self> {
        let lease_ms = u64::from(config.lease.unwrap_or(LEASE_SECONDS_DEFAULT)) * 1000;
        let store = EmbeddedStore::open(&state_dir.join("records.redb"))?;
        let mut entropy = SystemEntropy::new().context("/dev/urandom")?;
        let identity = Identity::load_or_make(&store, &mut entropy)?;
        let boot = Boot::begin(&store, lease_ms)?;
        let opened = exports::open_all(config, state_dir, &[])?;
        let exports = exports_of(&opened);
        let namespace = Arc::new(Namespace::new(Sealer::new(identity.handle_key), exports, wall_clock())?);
        let groups: Arc<dyn GroupSource> = Arc::new(NssGroups::start()?);
        let committer = Committer::new(None);
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let replies = ReplyCache::new(ReplyCacheLimits::default(), Arc::clone(&clock), None);
        let nfs3 = Nfs3::new(Nfs3Parts {
            namespace: Arc::clone(&namespace),
            committer: Arc::clone(&committer),
            replies: Arc::clone(&replies),
            groups: Arc::clone(&groups),
            observer: None,
        });
        let nfs4 = Nfs4::new(
            Nfs4Config {
                namespace: Arc::clone(&namespace),
                groups,
                ids: Arc::new(NumericIds),
                committer,
                replies,
                clock,
                lease_ms,
                boot: BootInstance::from_counter(boot.epoch),
                grace: Grace::Over,
                records: Arc::new(NoRecords),
                journal: None,
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
        let mount = Mount3::new(Arc::clone(&namespace));
        Ok(Self {
            namespace,
            exports: Mutex::new(opened),
            nfs3: Arc::new(nfs3),
            mount: Arc::new(mount),
            nfs4,
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
    }

    /// Replaces the exports. Sources that stay keep their backend, and with it what clients have open there.
    pub(crate) fn reload_exports(&self, config: &Config, state_dir: &Path) -> Result<()> {
        let mut opened = self.exports.lock();
        let fresh = exports::open_all(config, state_dir, &opened)?;
        self.namespace.replace(exports_of(&fresh), wall_clock())?;
        *opened = fresh;
        Ok(())
    }
}

fn exports_of(opened: &[Opened]) -> Vec<Arc<Export>> {
    opened.iter().map(|o| Arc::clone(&o.export)).collect()
}
