//! The caps program, wired to what it stands on.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use holdfast_base::{ClientId, SystemEntropy};
use holdfast_caps::{Caps, Holders, Parts};
use holdfast_export::{Committer, GroupSource, Namespace};
use holdfast_manager::Manager;
use holdfast_nfs4::ClientRecords;
use holdfast_state::{ClientImage, Recorded};

use crate::config::Config;
use crate::durable::Durable;
use crate::same_host::Neighbourhood;

/// What it stands on.
pub(crate) struct Foundation<'a> {
    pub(crate) namespace: &'a Arc<Namespace>,
    pub(crate) manager: &'a Arc<Manager>,
    pub(crate) groups: &'a Arc<dyn GroupSource>,
    pub(crate) committer: &'a Arc<Committer>,
    pub(crate) durable: &'a Arc<Durable>,
}

/// Starts the service, unless it is switched off.
pub(crate) fn start(config: &Config, state_dir: &Path, on: &Foundation<'_>) -> Result<Option<Arc<Caps>>> {
    if config.caps == Some(false) {
        return Ok(None);
    }
    let caps = Caps::new(Parts {
        namespace: Arc::clone(on.namespace),
        manager: Arc::clone(on.manager),
        committer: Arc::clone(on.committer),
        ledger: Some(Arc::clone(on.durable.ledger())),
        groups: Arc::clone(on.groups),
        holders: Arc::clone(on.durable) as Arc<dyn Holders>,
        entropy: Box::new(SystemEntropy::new().context("/dev/urandom")?),
        wall: Arc::new(crate::life::wall_clock),
    });
    if config.same_host != Some(false) {
        match Neighbourhood::open(state_dir) {
            Ok(neighbourhood) => caps.meet(neighbourhood),
            // Everything goes over the network then, as from other hosts.
            Err(error) => tracing::warn!(%error, "mounts of this host are served as those of others"),
        }
    }
    Ok(Some(caps))
}

/// What caps clients hold is state of their NFSv4.1 client, on the same record, which says that it may be capabilities.
impl Holders for Durable {
    fn may_hold(&self, client: ClientId) -> bool {
        self.may_hold_caps(client)
    }

    fn will_hold(&self, client: &ClientImage) -> io::Result<()> {
        self.will_hold_caps(client)
    }

    fn recorded(&self, client: &ClientImage) -> Recorded {
        ClientRecords::recorded(self, client)
    }
}
