//! Back channels as plain data.

use std::sync::Arc;

use holdfast_base::{ClientId, Seqid, SessionId};
use holdfast_rpc::{Auth, AuthSys, Connection};
use serde::{Deserialize, Serialize};

use super::{CallSlot, Channel, Channels, Phase};
use crate::callback::call_slot::NOWHERE;
use crate::desc::Minor;

/// The back channel of one session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ChannelImage {
    session: [u8; 16],
    client: u64,
    minor: u32,
    auth: Option<SysImage>,
    slots: Vec<SlotImage>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SysImage {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
    machine: Vec<u8>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct SlotImage {
    seqid: u32,
    /// A call without its answer.
    unanswered: Option<Vec<u8>>,
}

impl Channels {
    pub(crate) fn freeze(&self) -> Vec<ChannelImage> {
        let inner = self.inner.lock();
        inner.channels.iter().map(|(id, channel)| channel.freeze(*id)).collect()
    }

    /// A call that was not answered is made once more before its slot is used again. Its client knows it by its
    /// number, whether it had it or not; an answer to the first sending is nobody's.
    pub(crate) fn thaw(&self, images: Vec<ChannelImage>) {
        let mut inner = self.inner.lock();
        for image in images {
            let id = SessionId(image.session);
            if let Some(channel) = Channel::thaw(image) {
                inner.channels.insert(id, channel);
            }
        }
    }

    pub(crate) fn connection_adopted(&self, connection: &Arc<Connection>) {
        self.inner.lock().remember(connection);
    }
}

impl Channel {
    fn freeze(&self, id: SessionId) -> ChannelImage {
        let slot = |slot: &CallSlot| {
            let unanswered = match &slot.phase {
                Phase::Free => None,
                Phase::Taken(args) | Phase::Lost(args, _) => Some(args.to_vec()),
            };
            SlotImage { seqid: slot.seqid.0, unanswered }
        };
        let auth = self.auth.sys().map(|sys| SysImage {
            uid: sys.uid,
            gid: sys.gid,
            groups: sys.groups.clone(),
            machine: sys.machine.clone(),
        });
        ChannelImage {
            session: id.0,
            client: self.client.0,
            minor: self.minor as u32,
            auth,
            slots: self.slots.iter().map(slot).collect(),
        }
    }

    fn thaw(image: ChannelImage) -> Option<Self> {
        let slot = |slot: SlotImage| CallSlot {
            seqid: Seqid(slot.seqid),
            phase: slot.unanswered.map_or(Phase::Free, |args| Phase::Lost(args.into(), NOWHERE)),
        };
        let auth = image.auth.map_or(Auth::None, |SysImage { uid, gid, groups, machine }| {
            Auth::Sys(AuthSys { uid, gid, groups, machine })
        });
        Some(Self {
            client: ClientId(image.client),
            minor: Minor::from_u32(image.minor)?,
            auth: Arc::new(auth),
            slots: image.slots.into_iter().map(slot).collect(),
        })
    }
}
