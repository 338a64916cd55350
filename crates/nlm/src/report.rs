//! What there is, for administrators: who has what of which file, and taking it away.

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_base::{ExportId, FileKey};
use holdfast_export::Export;
use holdfast_state::ForeignOwner;
use holdfast_vfs::Handle;

use crate::lockd::Lockd;

/// A lock-owner and a file it has something of, or waits for something of.
#[derive(Clone, Debug)]
pub struct OwnerFileReport {
    /// The owner.
    pub owner: ForeignOwner,
    /// The file.
    pub file: FileKey,
    /// Where it lies.
    pub export: Arc<Export>,
    /// Its handle there.
    pub handle: Handle,
    /// The host's address.
    pub ip: IpAddr,
    /// What the host calls itself.
    pub caller: Vec<u8>,
    /// What the owner is called on its host.
    pub name: Vec<u8>,
    /// The owner's process, as far as it is known there.
    pub svid: Option<i32>,
}

impl Lockd {
    fn all_files(&self) -> Vec<Arc<crate::held::OwnerFile>> {
        let table = self.table.lock();
        let hosts: Vec<_> = table.hosts.keys().cloned().collect();
        hosts.iter().flat_map(|host| table.files_of(host)).collect()
    }

    /// Lets go of all that anybody has in these exports, which are served elsewhere from now on, and of their files.
    pub fn leave(&self, exports: &[ExportId]) {
        for of in self.all_files() {
            if exports.contains(&of.site.export.id) {
                self.let_go_of(&of, &mut of.held.lock());
            }
        }
    }

    /// All lock-owners and files.
    #[must_use]
    pub fn report(&self) -> Vec<OwnerFileReport> {
        let files = self.all_files();
        let report = |of: &Arc<crate::held::OwnerFile>| OwnerFileReport {
            owner: of.owner,
            file: of.file,
            export: Arc::clone(&of.site.export),
            handle: of.site.handle,
            ip: of.host.ip,
            caller: of.host.caller.clone(),
            name: of.name.oh.clone(),
            svid: of.name.svid,
        };
        files.iter().map(report).collect()
    }

    /// Takes all that an owner has of a file, requests that wait included, as an administrator's decision: NLM has no
    /// word to tell its host, which may reclaim nothing from then on (`bar_reclaims`). Whether anything was taken.
    pub fn take_away(&self, owner: ForeignOwner, file: FileKey) -> bool {
        let of = self.table.lock().file_of(owner, file);
        of.is_some_and(|of| self.bar_reclaims(&of.host) && self.let_go_of(&of, &mut of.held.lock()))
    }
}
