//! Capabilities as plain data, for a planned restart: who holds what goes on, numbers and epochs included.

use holdfast_base::{CapSet, ClientId, FileKey, Instant};
use serde::{Deserialize, Serialize};

use crate::caps::{CapClient, CapHold, CapRecall, Caps};
use crate::caps_names::NameKey;
use crate::engine::Engine;
use crate::flushing::Flushing;

/// All of them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FrozenCaps {
    seq: u64,
    clients: Vec<FrozenClient>,
    holds: Vec<FrozenHold>,
    #[serde(with = "crate::plain")]
    recent: Vec<(FileKey, Instant)>,
    /// Which of the holds are of single names.
    names: Vec<FrozenName>,
    /// None of a version that knew no names.
    names_secret: Option<[u64; 2]>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct FrozenName {
    #[serde(with = "crate::plain")]
    dir: FileKey,
    #[serde(with = "crate::plain")]
    name: FileKey,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct FrozenClient {
    #[serde(with = "crate::plain")]
    client: ClientId,
    epoch: u64,
    is_loss_unheard: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct FrozenHold {
    #[serde(with = "crate::plain")]
    client: ClientId,
    #[serde(with = "crate::plain")]
    file: FileKey,
    #[serde(with = "crate::plain")]
    held: CapSet,
    seq: u64,
    granted_seq: u64,
    recall: Option<FrozenRecall>,
    #[serde(default)]
    is_beside_writers: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct FrozenRecall {
    #[serde(with = "crate::plain")]
    keep: CapSet,
    #[serde(with = "crate::plain")]
    since: Instant,
    #[serde(with = "crate::plain")]
    until: Instant,
    #[serde(with = "crate::plain")]
    retry_at: Option<Instant>,
    #[serde(default)]
    flushing: Flushing,
    /// None of a version that took any release at its word.
    #[serde(default)]
    told: Option<u32>,
}

impl Caps {
    /// Whether nothing is offered and not yet granted.
    pub(crate) fn is_quiet(&self) -> bool {
        self.by_file.values().flatten().all(|hold| hold.offered.is_none())
    }

    pub(crate) fn freeze(&self) -> FrozenCaps {
        let clients = self.clients.iter().map(|(client, of)| FrozenClient {
            client: *client,
            epoch: of.epoch,
            is_loss_unheard: of.is_loss_unheard,
        });
        let hold = |(file, hold): (FileKey, &CapHold)| FrozenHold {
            client: hold.client,
            file,
            held: hold.held,
            seq: hold.seq,
            granted_seq: hold.granted_seq,
            recall: hold.recall.map(|CapRecall { keep, told, since, until, retry_at, flushing, .. }| {
                FrozenRecall { keep, since, until, retry_at, flushing, told: Some(told.0) }
            }),
            is_beside_writers: hold.is_beside_writers,
        };
        let all = self.by_file.iter().flat_map(|(file, holds)| holds.iter().map(|hold| (*file, hold)));
        let mut holds: Vec<_> = all.map(hold).collect();
        holds.sort_unstable_by_key(|frozen| (frozen.file, frozen.client));
        let mut names: Vec<_> =
            self.names.all().map(|NameKey { dir, name }| FrozenName { dir, name }).collect();
        names.sort_unstable_by_key(|frozen| frozen.name);
        FrozenCaps {
            seq: self.seq,
            clients: clients.collect(),
            holds,
            recent: self.recent.order.iter().copied().collect(),
            names,
            names_secret: Some(self.names.secret),
        }
    }

    /// Nobody can be called before their connections are there (`Engine::caps_path`).
    pub(crate) fn thaw(frozen: FrozenCaps, names_secret: [u64; 2]) -> Self {
        let mut caps = Self { seq: frozen.seq, ..Self::default() };
        caps.names.secret = frozen.names_secret.unwrap_or(names_secret);
        for FrozenClient { client, epoch, is_loss_unheard } in frozen.clients {
            let of = CapClient { epoch, is_loss_unheard, ..CapClient::default() };
            caps.clients.insert(client, of);
        }
        for FrozenHold { client, file, held, seq, granted_seq, recall, is_beside_writers } in frozen.holds {
            let recall =
                recall.map(|FrozenRecall { keep, since, until, retry_at, flushing, told }| CapRecall {
                    keep,
                    told: told.map_or(keep, CapSet),
                    since,
                    until,
                    retry_at,
                    is_heard: false,
                    flushing,
                });
            if recall.is_some() {
                caps.recalls.insert((client, file));
            }
            caps.objects += 1;
            caps.clients.entry(client).or_default().files.insert(file);
            let offered = None;
            let hold = CapHold { client, held, offered, seq, granted_seq, recall, is_beside_writers };
            caps.by_file.entry(file).or_default().push(hold);
        }
        for FrozenName { dir, name } in frozen.names {
            let holders = caps.by_file.get(&name).map(Vec::as_slice).unwrap_or_default();
            for client in holders.iter().map(|hold| hold.client) {
                caps.names.put(client, NameKey { dir, name });
            }
        }
        for (file, at) in frozen.recent {
            caps.recent.note(file, at);
        }
        caps
    }
}

impl Engine {
    /// Everybody who holds something, of what, and what: for going on with it after a planned restart.
    #[must_use]
    pub fn caps_held(&self) -> Vec<(ClientId, FileKey, CapSet)> {
        let all = self.caps.by_file.iter().flat_map(|(file, holds)| holds.iter().map(|hold| (*file, hold)));
        let mut held: Vec<_> = all.map(|(file, hold)| (hold.client, file, hold.held)).collect();
        held.sort_unstable_by_key(|(client, file, _)| (*client, *file));
        held
    }

    /// After a handover: whether recalls that were sent were heard is not known any more, so all are sent again.
    pub fn caps_recall_again(&mut self, now: Instant) {
        for (client, file) in self.caps.recalls.iter().copied().collect::<Vec<_>>() {
            let recall = self.caps.hold_mut(client, file).and_then(|hold| hold.recall.as_mut());
            if let Some(recall) = recall {
                recall.retry_at = Some(now);
            }
        }
    }

    /// Capabilities are not served any more: nobody holds any.
    pub fn caps_end(&mut self, now: Instant) {
        for client in self.caps.clients.keys().copied().collect::<Vec<_>>() {
            self.caps_forget_client(client, now);
        }
    }
}
