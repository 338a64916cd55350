//! A client that is a Holdfast mount's: what its recovery says and hears is that one's too.

use std::rc::Rc;

use holdfast_base::SessionId;
use holdfast_wire::caps::CAPS_CALLBACK_PROGRAM;

use super::v4::Client4;
use crate::mount::Mount;
use crate::wire::Ops;

impl Client4 {
    /// From now on it is this mount's.
    pub(crate) fn mounted(&self, mount: &Rc<Mount>) {
        *self.mount.borrow_mut() = Rc::downgrade(mount);
    }

    /// Whether it is a mount's.
    pub(super) fn is_mounts(&self) -> bool {
        self.mount.borrow().strong_count() > 0
    }

    fn mount(&self) -> Option<Rc<Mount>> {
        self.mount.borrow().upgrade()
    }

    /// The session there is.
    pub(crate) fn session_id(&self) -> Option<SessionId> {
        self.session.borrow().as_ref().map(|session| session.id)
    }

    /// Asks for nothing, and hears what SEQUENCE says.
    pub(crate) async fn renew(&self) {
        self.act(|| Some(Ops::new(&[]))).await;
    }

    /// Keeps the lease of a mount, which has to hear of it more often than others; and its connection, over which it is called.
    pub(crate) async fn keep_alive_for(self: Rc<Self>, ms: u64) {
        loop {
            self.world.exec.sleep(ms).await;
            self.replace_session().await;
            self.bind().await;
            self.renew().await;
        }
    }

    /// A call of the server's.
    pub(super) fn program_called(
        self: &Rc<Self>,
        (program, procedure): (u32, u32),
        args: &[u8],
    ) -> Option<Vec<u8>> {
        if program == CAPS_CALLBACK_PROGRAM {
            return self.mount()?.called(procedure, args);
        }
        self.call_answered(procedure, args)
    }

    /// Says HELLO, in the middle of recovery. False when the connection broke under that.
    pub(super) async fn mount_greets(&self, is_lost: bool) -> bool {
        match self.mount() {
            Some(mount) => mount.greets(is_lost).await,
            None => true,
        }
    }

    /// It is about to come as another: what a mount was promised is gone.
    pub(super) fn mount_begins_anew(&self) {
        if let Some(mount) = self.mount() {
            mount.begins_anew();
        }
    }

    /// Has back what the mount has open.
    pub(super) async fn mount_reclaims(&self) -> Option<()> {
        match self.mount() {
            Some(mount) => mount.reclaim_opens().await,
            None => Some(()),
        }
    }

    pub(super) fn mount_hears(&self, flags: u32, first_sent: u64) {
        if let Some(mount) = self.mount() {
            mount.heard(flags, first_sent);
        }
    }

    /// The connection is lost: a mount makes another at once, for others may be waiting for what it was promised.
    pub(super) fn mount_is_cut_off(&self) {
        if let Some(mount) = self.mount() {
            let exec = Rc::clone(&self.world.exec);
            exec.spawn(mount.connects_again());
        }
    }
}
