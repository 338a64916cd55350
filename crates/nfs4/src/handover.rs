//! What the service has besides the state engine, as plain data for another process that goes on with it: open files
//! and lock files, back channels, copies (`docs/design/handover.md`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use holdfast_rpc::Connection;
use holdfast_state::ConnId;
use holdfast_vfs::handover::{Incoming, Outgoing};
use serde::{Deserialize, Serialize};

use crate::callback::ChannelImage;
use crate::delegation::{DelegationsImage, Unguarded};
use crate::files::FilesImage;
use crate::offload::OffloadsImage;
use crate::program::Nfs4;
use crate::service::Service;

/// The service's own state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Image {
    files: FilesImage,
    channels: Vec<ChannelImage>,
    offloads: OffloadsImage,
    delegations: DelegationsImage,
    /// Whose connections of 4.0 are.
    attribution: Vec<(u64, u64)>,
    /// Who is to hear of exports that have moved.
    untold: Vec<(u64, Vec<u16>)>,
}

/// What is left to be done once clients can be called.
#[derive(Default)]
pub struct Thawed {
    /// Open and lock files that did not come along.
    pub files_lost: usize,
    unguarded: Vec<Unguarded>,
}

/// Why nothing can be handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFrozen {
    /// An open or lock file's backend keeps it in this process.
    #[error("a file is open on a backend whose files cannot be handed over")]
    NotPortable,
    /// A file system with delegated objects does not answer.
    #[error("a file system with delegated files does not answer: try again")]
    Stuck,
}

/// How long delegated objects may take to be looked at.
const LOOK_PATIENCE: Duration = Duration::from_secs(3);

impl Nfs4 {
    /// Lets copies that go on after their reply end with what they have copied, which is told to their clients. While
    /// serving; to be called until it says that none runs any more, and then [`Nfs4::freeze`].
    pub fn stop_copies(&self) -> bool {
        self.service().offloads.is_stopping.store(true, Ordering::Relaxed);
        self.service().offloads.are_quiet()
    }

    /// Copies may go on in the background again.
    pub fn allow_copies(&self) {
        self.service().offloads.is_stopping.store(false, Ordering::Relaxed);
    }

    /// Everything as plain data, while no call is on its way. Open files go to `outgoing`.
    ///
    /// # Errors
    /// [`NotFrozen`].
    pub fn freeze(&self, outgoing: &mut Outgoing) -> Result<Image, NotFrozen> {
        use NotFrozen::NotPortable;
        let service = self.service();
        let looks = service.look_at_delegated(LOOK_PATIENCE).ok_or(NotFrozen::Stuck)?;
        Ok(Image {
            files: service.files.freeze(outgoing).ok_or(NotPortable)?,
            channels: service.callbacks.freeze(),
            offloads: service.offloads.freeze(),
            delegations: service.freeze_delegations(outgoing, &looks).ok_or(NotPortable)?,
            attribution: service.attribution.freeze(),
            untold: service.untold.freeze(),
        })
    }

    /// Goes on with it. Before the first request, and after the engine was thawed. `lost` are the connections that
    /// did not come along.
    pub fn thaw(&self, image: Image, incoming: &Incoming, lost: &[u64]) -> Thawed {
        let service = self.service();
        let files_lost = service.files.thaw(image.files, incoming);
        service.callbacks.thaw(image.channels);
        service.offloads.thaw(image.offloads);
        service.attribution.thaw(&image.attribution);
        service.untold.thaw(image.untold);
        let unguarded = service.thaw_delegations(image.delegations, incoming);
        for conn in lost {
            service.forget_connection(ConnId(*conn));
        }
        Thawed { files_lost, unguarded }
    }

    /// Does the rest, when connections are there: guards delegations against local processes, recalls those that cannot
    /// be relied on any more, tells those who wait for locks of local processes, and finds out which clients of 4.0 can be called.
    pub fn go_on(&self, thawed: Thawed) {
        let service = self.service();
        service.guard(thawed.unguarded);
        // What the process before watched for them nobody watches now.
        service.tell(|engine, now| engine.meet_outsiders_anew(now));
        let clients = service.config.manager.quiet(|engine, now| engine.report_clients(now));
        // What was to be let go of may not have been.
        clients.iter().for_each(|client| service.let_go_again(client.id));
        // They are called over connections of our own, which are made anew.
        for client in clients.iter().filter(|client| client.is_confirmed && client.callback.is_some()) {
            service.callback_confirmed(client.id);
        }
    }
}

impl Service {
    /// A connection of the former process goes on, and carries the callbacks that it carried.
    pub(crate) fn connection_adopted(&self, connection: &Arc<Connection>) {
        self.callbacks.connection_adopted(connection);
    }
}
