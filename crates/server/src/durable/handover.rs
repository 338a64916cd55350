//! What of the records is not in the store, for the process that goes on with it: what could not be written yet.

use holdfast_base::ClientId;
use serde::{Deserialize, Serialize};

use super::Durable;
use super::clients::Owed;

/// What is owed, by clients' ids. Those that are not on record any more owe nothing.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Image {
    forget: Vec<u64>,
    unmark: Vec<u64>,
    /// With the ticks since.
    doubtful: Vec<(u64, u32)>,
    /// Those that said that they go, and are on record still.
    left: Vec<u64>,
}

impl Durable {
    /// Writes it down. Nothing is being written.
    pub(crate) fn freeze(&self) -> Image {
        let inner = self.inner.lock();
        let Owed { forget, unmark, doubtful, .. } = &inner.owed;
        let ids = |of: &rustc_hash::FxHashSet<ClientId>| of.iter().map(|client| client.0).collect();
        Image {
            forget: ids(forget),
            unmark: ids(unmark),
            doubtful: doubtful.iter().map(|(client, ticks)| (client.0, *ticks)).collect(),
            left: ids(&inner.left),
        }
    }

    /// Goes on with it. Before the first tick.
    pub(crate) fn thaw(&self, image: Image) {
        let mut inner = self.inner.lock();
        let Image { forget, unmark, doubtful, left } = image;
        inner.left.extend(left.into_iter().map(ClientId));
        let owed = &mut inner.owed;
        owed.forget.extend(forget.into_iter().map(ClientId));
        owed.unmark.extend(unmark.into_iter().map(ClientId));
        owed.doubtful.extend(doubtful.into_iter().map(|(client, ticks)| (ClientId(client), ticks)));
    }
}
