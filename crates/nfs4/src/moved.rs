//! Exports that are served elsewhere from now on: who held something there is told by SEQUENCE, until it has met
//! NFS4ERR_MOVED (RFC 8881 section 11.10.9.1).

use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_base::{ClientId, ExportId, FileKey};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::Nfs4;

/// Who has not heard of it yet.
#[derive(Default)]
pub(crate) struct Untold {
    /// Looked at by every SEQUENCE: there is seldom anybody.
    clients: AtomicUsize,
    exports: Mutex<FxHashMap<ClientId, Vec<ExportId>>>,
}

impl Untold {
    /// Whether a client is still to find out about some export.
    pub(crate) fn has(&self, client: ClientId) -> bool {
        self.clients.load(Ordering::Relaxed) > 0 && self.exports.lock().contains_key(&client)
    }

    fn add(&self, client: ClientId, export: ExportId) {
        let mut exports = self.exports.lock();
        let of = exports.entry(client).or_default();
        if !of.contains(&export) {
            of.push(export);
        }
        self.clients.store(exports.len(), Ordering::Relaxed);
    }

    /// It has been answered NFS4ERR_MOVED.
    pub(crate) fn heard(&self, client: ClientId, export: ExportId) {
        self.change(client, |of| of.retain(|of| *of != export));
    }

    /// It is gone.
    pub(crate) fn client_gone(&self, client: ClientId) {
        self.change(client, Vec::clear);
    }

    /// As plain data, for another process.
    pub(crate) fn freeze(&self) -> Vec<(u64, Vec<u16>)> {
        let exports = self.exports.lock();
        exports.iter().map(|(client, of)| (client.0, of.iter().map(|export| export.0).collect())).collect()
    }

    /// What another process had.
    pub(crate) fn thaw(&self, image: Vec<(u64, Vec<u16>)>) {
        for (client, of) in image {
            of.into_iter().for_each(|export| self.add(ClientId(client), ExportId(export)));
        }
    }

    fn change(&self, client: ClientId, change: impl FnOnce(&mut Vec<ExportId>)) {
        if self.clients.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut exports = self.exports.lock();
        if let Some(of) = exports.get_mut(&client) {
            change(of);
            if of.is_empty() {
                exports.remove(&client);
            }
        }
        self.clients.store(exports.len(), Ordering::Relaxed);
    }
}

impl Nfs4 {
    /// These files, each of an export that is served elsewhere from now on, are held here no more; who held something is told.
    /// The namespace says already where they are.
    pub fn moved_away(&self, files: &[(FileKey, ExportId)]) {
        let service = self.service();
        for (file, export) in files {
            let mut holders = Vec::new();
            service.tell(|engine, now| {
                holders = engine.moved_away(*file, now);
                // Before what is recalled of them is answered.
                holders.iter().for_each(|client| service.untold.add(*client, *export));
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_not_heard_hears_of_it_from_the_next_process() {
        let (before, after) = (Untold::default(), Untold::default());
        before.add(ClientId(1), ExportId(7));
        before.add(ClientId(1), ExportId(8));
        before.add(ClientId(2), ExportId(7));
        before.heard(ClientId(2), ExportId(7));
        after.thaw(before.freeze());
        assert!(after.has(ClientId(1)) && !after.has(ClientId(2)));
        after.heard(ClientId(1), ExportId(7));
        assert!(after.has(ClientId(1)), "of the other one");
        after.heard(ClientId(1), ExportId(8));
        assert!(!after.has(ClientId(1)));
    }
}
