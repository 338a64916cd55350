//! Opens that the kernel serves by itself: the file of the server's that is behind one of the mount's.

use std::os::fd::OwnedFd;

use holdfast_cache::{Errno, Fh, NodeId};

use crate::running::Waiting;
use crate::volume::Volume;

impl Volume {
    /// A descriptor (`O_PATH`) of the server's file behind an open one, when the server is on this host and lends it to
    /// the caller. The server knows of the open then, and has everything that was written here, on its disk: what is not is sent
    /// again to a server that was killed, over what was written past us meanwhile. Whoever opens it anew is to others what a
    /// local process is.
    ///
    /// # Errors
    /// `EINTR`; what was written and could not be sent; that the server refuses the open.
    pub fn path_behind(&self, who: &dyn Waiting, node: NodeId, fh: Fh) -> Result<Option<OwnedFd>, Errno> {
        self.run_for(who, |machine, turn, now| machine.fsync(turn, node, Some(fh), now))?;
        let object = self.open_at_server(who, fh)?;
        Ok(self.0.server.path_behind(&object, &who.whole_caller(), &who.cancel()))
    }

    /// Has the server know of an open, and judge it.
    ///
    /// # Errors
    /// What it says; `EINTR`.
    pub fn judged_by_server(&self, who: &dyn Waiting, fh: Fh) -> Result<(), Errno> {
        self.open_at_server(who, fh).map(drop)
    }
}
