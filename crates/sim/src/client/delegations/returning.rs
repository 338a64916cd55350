//! Delegations on their way back, which the server has until it has answered.

use std::rc::Rc;

use holdfast_wire::nfs4::*;

use super::{Client4, Delegation};
use crate::wire::Ops;

/// One that the client does not go by any more.
pub(crate) struct GivenUp {
    file: usize,
    is_write: bool,
    /// Another life of the server does not have it.
    life: u64,
}

impl Client4 {
    /// Whether the server has given it a delegation of the file beside which nobody else can have locked so, and may not have it
    /// back yet.
    pub(crate) fn excludes_locks(&self, file: usize, is_write: bool) -> bool {
        let (held, given_up) = (self.delegations.borrow(), self.given_up.borrow());
        let excludes = |is_for_writing: bool| is_for_writing || !is_write;
        let is_of_now = |one: &&GivenUp| one.file == file && one.life == self.world.lives();
        held.get(&file).is_some_and(|held| excludes(held.is_write))
            || given_up.values().filter(is_of_now).any(|one| excludes(one.is_write))
    }

    /// Sends DELEGRETURN, after a while.
    pub(super) fn give_back(self: &Rc<Self>, (file, delegation): (usize, Delegation), ms: u64) {
        let (client, epoch) = (Rc::clone(self), self.epoch.get());
        self.returning.borrow_mut().insert(delegation.stateid.other);
        let given_up = GivenUp { file, is_write: delegation.is_write, life: delegation.life };
        self.given_up.borrow_mut().insert(delegation.stateid.other, given_up);
        self.world.exec.spawn(async move {
            client.world.exec.sleep(ms).await;
            let open = client.open_before_return((file, &delegation), epoch).await;
            client.disbelieve(delegation.grant);
            client.returning.borrow_mut().remove(&delegation.stateid.other);
            client.send_back(&delegation, epoch).await;
            if let Some(open) = open {
                client.close_after_return(open, &delegation.handle, epoch).await;
            }
        });
    }

    async fn send_back(&self, delegation: &Delegation, epoch: u64) {
        let back = DelegReturn4Args { deleg_stateid: delegation.stateid };
        let put = ArgOp::PutFh(PutFh4Args { object: &delegation.handle });
        let mut ops = Ops::new(&[put, ArgOp::DelegReturn(back)]);
        loop {
            self.ready().await;
            if self.epoch.get() != epoch {
                // After a recovery it is no more, unless the server is in the same life.
                return;
            }
            let Ok((reply, _)) = self.once(&ops).await else { continue };
            self.world.tell(|| format!("{}: DELEGRETURN: {:?}", self.name(), reply.status));
            match reply.status {
                NfsStat4::Delay | NfsStat4::Grace | NfsStat4::Resource => self.world.exec.sleep(300).await,
                // It was revoked, and is known until that is acknowledged (RFC 8881 section 10.2.1).
                NfsStat4::DelegRevoked => {
                    let free = FreeStateid4Args { stateid: delegation.stateid };
                    ops = Ops::new(&[ArgOp::FreeStateid(free)]);
                }
                // Whatever else is answered is of this delegation: in 4.0, EXPIRED is that it was revoked.
                _ => {
                    self.given_up.borrow_mut().remove(&delegation.stateid.other);
                    return;
                }
            }
        }
    }
}
