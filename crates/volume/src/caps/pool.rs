//! Files that the server makes for creates to come.

use holdfast_cache::{Handle, PoolOut, Spare};
use holdfast_client::Cancel;
use holdfast_wire::caps::{self as wire, CapsProc, Features, PoolArgs, PoolOk};

use super::calling::{decode, put};
use super::{CapsServer, Inner};
use crate::server::Undone;

impl CapsServer {
    /// Whether the server makes files for creates to come.
    #[must_use]
    pub fn pools(&self) -> bool {
        self.0.pools()
    }
}

impl Inner {
    pub(super) fn pools(&self) -> bool {
        self.greeting.read().is_some_and(|greeting| greeting.features.contains(Features::POOL))
    }

    pub(super) fn pool(&self, out: &PoolOut, cancel: &Cancel) -> Result<Vec<Spare>, Undone> {
        // Another server may have come in the place of the one that could.
        if !self.pools() {
            return Err(Undone::Failed(holdfast_cache::Errno::EOPNOTSUPP));
        }
        let cred = self.nfs.cred(&out.caller);
        let back: Vec<_> = out.back.iter().map(|handle| wire::Handle(handle.as_bytes())).collect();
        let reply = self.call(CapsProc::Pool, &cred, cancel, |ticket, w| {
            let (dir, back) = (wire::Handle(out.dir.as_bytes()), back.clone());
            put(&PoolArgs { ticket, dir, count: out.count, back }, w);
        });
        let reply = reply.map_err(|failure| failure.undone())?;
        let told: PoolOk<'_> = decode(&reply).map_err(|failure| failure.undone())?;
        let spare =
            |file: &wire::Pooled<'_>| Spare { handle: Handle::new(file.handle.0), fileid: file.fileid };
        Ok(told.files.iter().map(spare).collect())
    }
}
