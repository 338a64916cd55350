//! Credentials as calls carry them, made once for each caller.

use std::fmt;

use holdfast_base::limits::MOUNT_CREDENTIALS_MAX;
use holdfast_cache::Caller;
use holdfast_client::Cred;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

/// Those made so far. When there are too many all are forgotten: making one costs a microsecond.
#[derive(Default)]
pub(super) struct Creds(RwLock<FxHashMap<Caller, Cred>>);

impl Creds {
    pub(super) fn of(&self, caller: &Caller) -> Cred {
        if let Some(cred) = self.0.read().get(caller) {
            return cred.clone();
        }
        let cred = Cred::sys(caller.uid, caller.gid, &caller.groups);
        let mut known = self.0.write();
        if known.len() >= MOUNT_CREDENTIALS_MAX {
            known.clear();
        }
        known.insert(caller.clone(), cred.clone());
        cred
    }
}

impl fmt::Debug for Creds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} credentials", self.0.read().len())
    }
}
