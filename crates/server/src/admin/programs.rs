//! What the administrator's view needs of the programs.

use std::collections::HashMap;
use std::sync::Arc;

use holdfast_base::{ExportId, FileKey};
use holdfast_export::WireHandle;
use holdfast_manager::Manager;
use holdfast_nfs4::Nfs4;
use holdfast_rpc::reply_cache::ReplyCache;

use super::Programs;
use crate::admin::Tally;
use crate::durable::Durable;
use crate::memory::MemoryWatch;

impl Programs {
    pub(crate) const fn manager(&self) -> &Arc<Manager> {
        &self.manager
    }

    pub(crate) const fn nfs4(&self) -> &Arc<Nfs4> {
        &self.nfs4
    }

    /// Everything that mounts hold capabilities of, and under which handle they know it.
    pub(crate) fn held_by_mounts(&self) -> Vec<(FileKey, WireHandle)> {
        self.caps.as_ref().map(|caps| caps.held()).unwrap_or_default()
    }

    /// Names that mounts are promised by themselves, and in which exports.
    pub(crate) fn names_of_mounts(&self) -> Vec<(FileKey, ExportId)> {
        self.caps.as_ref().map(|caps| caps.held_names()).unwrap_or_default()
    }

    /// Mounts ask as whom their callers act.
    pub(crate) fn mounts_ask_anew(&self) {
        if let Some(caps) = &self.caps {
            caps.greet_anew();
        }
    }

    /// Mounts' part of leaving exports.
    pub(crate) fn mounts_leave(&self) {
        if let Some(caps) = &self.caps {
            caps.leave();
        }
    }

    pub(crate) const fn durable(&self) -> &Arc<Durable> {
        &self.durable
    }

    pub(crate) const fn replies(&self) -> &Arc<ReplyCache> {
        &self.replies
    }

    pub(crate) const fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    pub(crate) const fn memory(&self) -> &MemoryWatch {
        &self.memory
    }

    pub(crate) const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What is served under which export.
    pub(crate) fn sources(&self) -> HashMap<ExportId, String> {
        self.exports.lock().iter().map(|opened| (opened.export.id, opened.source.to_string())).collect()
    }
}
