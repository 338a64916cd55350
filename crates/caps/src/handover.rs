//! What the service has besides the state engine, as plain data for another process that goes on with it: tickets, under
//! which handles clients know what they hold, and their transactions (`docs/design/handover.md`).

mod held;
mod lanes;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_base::ClientId;
use holdfast_rpc::Connection;
use holdfast_wire::caps::Ticket;
use serde::{Deserialize, Serialize};

use self::held::HeldImage;
use self::lanes::LaneImage;
use crate::Caps;
use crate::members::Member;

/// The service's own state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Image {
    /// The run's part of epochs: clients are to see no other.
    run: u64,
    members: Vec<MemberImage>,
    /// Clients, and the numbers of connections to call them over.
    connections: Vec<(u64, u64)>,
    held: Vec<HeldImage>,
    lanes: Vec<LaneImage>,
    /// What clients were told that the server can do.
    told: u32,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct MemberImage {
    ticket: u64,
    client: u64,
    incarnation: [u8; 16],
    epoch: u64,
}

/// What is left to be done once clients can be called.
#[derive(Default)]
pub struct Thawed {
    held: Vec<HeldImage>,
}

/// Why nothing can be written down now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Stuck {
    /// A file system with objects that are held does not answer.
    #[error("a file system with files that mounts hold does not answer: try again")]
    Looking,
    /// What mounts have changed is on its way to the disk: how that ends the next process would not hear.
    #[error("what mounts have changed is not on the disk yet: try again")]
    Forcing,
}

/// How long objects that are held may take to be looked at.
const LOOK_PATIENCE: Duration = Duration::from_secs(3);

impl Caps {
    /// Whether anything is on its way to the disk, also for nobody who waits for it (the tick's, or one whose answer went out early).
    #[must_use]
    pub fn is_forcing(&self) -> bool {
        self.lanes.lock().values().any(|lane| lane.state.lock().is_committing)
    }

    /// Everything as plain data, while no call is on its way and nothing is forced.
    ///
    /// # Errors
    /// [`Stuck`].
    pub fn freeze(&self) -> Result<Image, Stuck> {
        if self.is_forcing() {
            return Err(Stuck::Forcing);
        }
        let member = |(ticket, member): (Ticket, Member)| MemberImage {
            ticket: ticket.0,
            client: member.client.0,
            incarnation: member.incarnation,
            epoch: member.epoch,
        };
        Ok(Image {
            run: self.run.load(Ordering::Relaxed),
            members: self.members.tickets().into_iter().map(member).collect(),
            connections: self.members.bound().into_iter().map(|(client, id)| (client.0, id)).collect(),
            held: self.freeze_held(LOOK_PATIENCE).ok_or(Stuck::Looking)?,
            lanes: self.freeze_lanes(),
            told: self.told.load(Ordering::Relaxed),
        })
    }

    /// Goes on with it. Before the first request, and after the engine was thawed.
    pub fn thaw(&self, image: Image) -> Thawed {
        self.run.store(image.run, Ordering::Relaxed);
        for MemberImage { ticket, client, incarnation, epoch } in image.members {
            self.members.adopt(Ticket(ticket), Member { client: ClientId(client), incarnation, epoch });
        }
        *self.arriving.lock() =
            image.connections.into_iter().map(|(client, id)| (id, ClientId(client))).collect();
        self.thaw_lanes(image.lanes);
        self.thaw_held(&image.held);
        self.told.store(image.told, Ordering::Relaxed);
        // They would send what is not known here, until they are told what is.
        if image.told & !self.features().0 != 0 {
            self.greet_anew();
            self.told.store(0, Ordering::Relaxed);
        }
        Thawed { held: image.held }
    }

    /// A connection of the former process goes on, and recalls go over it as they did.
    pub(crate) fn connection_adopted(&self, connection: &Arc<Connection>) {
        let arriving = self.arriving.lock();
        for (_, client) in arriving.iter().filter(|(id, _)| *id == connection.id()) {
            self.members.bind(*client, connection);
        }
    }

    /// Does the rest, when connections are there: guards what is held against local processes, recalls what cannot be
    /// relied on any more, and what was being recalled.
    pub fn go_on(&self, thawed: Thawed) {
        let manager = &self.parts.manager;
        manager.quiet(holdfast_state::Engine::caps_recall_again);
        let clients: Vec<_> = std::mem::take(&mut *self.arriving.lock());
        for (_, client) in clients {
            if self.members.connection(client).is_some() {
                let _ = manager.step(|engine, _| engine.caps_path(client, true));
            }
        }
        self.guard(thawed.held);
    }
}
