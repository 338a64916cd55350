//! What of the records is in neither the store nor the journal, for the process that goes on with it: what could not be written
//! yet, and what was found out at the start.

use holdfast_base::ClientId;
use holdfast_recovery::{ClientRecord, Settled};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use super::Durable;
use super::clients::Owed;

/// What is owed, by clients' ids. Those that are not on record any more owe nothing.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Image {
    forget: Vec<u64>,
    unmark: Vec<u64>,
    /// With the ticks since.
    doubtful: Vec<(u64, u32)>,
    /// Those that said that they go, and are on record still.
    left: Vec<u64>,
    /// Clients that are known though the store has not got them so: grace ended without them, and they may yet come back.
    #[serde(default)]
    unstored: Vec<ByteBuf>,
    /// Of requests that a crash before had cut short, and that have not come again: what became of them.
    #[serde(default)]
    cut_short: Vec<(ByteBuf, Settled)>,
}

impl Image {
    /// For [`Durable::go_on_with`]. What cannot be read is as if it had been forgotten.
    pub fn take_unstored(&mut self) -> Vec<ClientRecord> {
        let read = |bytes: ByteBuf| {
            let record = ClientRecord::from_bytes(&bytes);
            record
                .inspect_err(
                    |error| tracing::warn!(%error, "a client's record was handed over and cannot be read"),
                )
                .ok()
        };
        std::mem::take(&mut self.unstored).into_iter().filter_map(read).collect()
    }

    /// For [`holdfast_ledger::Ledger::go_on`].
    pub fn take_cut_short(&mut self) -> Vec<(Vec<u8>, Settled)> {
        let cut_short = std::mem::take(&mut self.cut_short);
        cut_short.into_iter().map(|(key, settled)| (key.into_vec(), settled)).collect()
    }
}

impl Durable {
    /// Writes it down. Nothing is being written.
    #[must_use]
    pub fn freeze(&self) -> Image {
        let inner = self.inner.lock();
        let Owed { forget, unmark, doubtful, .. } = &inner.owed;
        let ids = |of: &rustc_hash::FxHashSet<ClientId>| of.iter().map(|client| client.0).collect();
        Image {
            forget: ids(forget),
            unmark: ids(unmark),
            doubtful: doubtful.iter().map(|(client, ticks)| (client.0, *ticks)).collect(),
            left: ids(&inner.left),
            unstored: inner.clients.unstored().map(|record| record.to_bytes().into()).collect(),
            cut_short: self
                .ledger
                .cut_short()
                .into_iter()
                .map(|(key, settled)| (key.into(), settled))
                .collect(),
        }
    }

    /// Goes on with it. Before the first tick.
    pub fn thaw(&self, image: Image) {
        let mut inner = self.inner.lock();
        let Image { forget, unmark, doubtful, left, .. } = image;
        let left: Vec<_> =
            left.into_iter().map(ClientId).filter(|id| inner.clients.get(*id).is_some()).collect();
        inner.left.extend(left);
        let owed = &mut inner.owed;
        owed.forget.extend(forget.into_iter().map(ClientId));
        owed.unmark.extend(unmark.into_iter().map(ClientId));
        owed.doubtful.extend(doubtful.into_iter().map(|(client, ticks)| (ClientId(client), ticks)));
    }
}
