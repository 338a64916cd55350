//! Room for files whose size stays, which NFS cannot reserve: asked for beside the stream.

use holdfast_cache::{AllocateMode, Answer, Errno, Handle, Question};
use holdfast_wire::caps::{BatchOp, Features, Ref};

use super::aside::Asking;
use super::{Failure, Inner, convert};
use crate::server::Server;

impl Inner {
    /// Has room reserved for a part of a file. EOPNOTSUPP where the server cannot, and where the caller may write only because the file
    /// is open, which the program does not see: programs go on without.
    pub(super) fn reserve(
        &self,
        object: &Handle,
        (offset, bytes): (u64, u64),
        is_open: bool,
        asking: Asking<'_>,
    ) -> Result<Answer, Errno> {
        if !self.greeting.read().is_some_and(|greeting| greeting.features.contains(Features::RESERVE)) {
            return Err(Errno::EOPNOTSUPP);
        }
        let object = Ref::Handle(holdfast_wire::caps::Handle(object.as_bytes()));
        let done = self.do_aside(BatchOp::Reserve { object, offset, bytes }, asking);
        match done.map_err(Failure::errno)?.map_err(convert::errno_of) {
            Ok(_) => Ok(Answer::Done),
            Err(Errno::EACCES) if is_open => Err(Errno::EOPNOTSUPP),
            Err(errno) => Err(errno),
        }
    }

    /// Has a range made zeros with room reserved for it, and the size left as it is: reserved, freed, and reserved again, so that where
    /// there is no room, or none can be reserved, nothing is freed first. Once it was freed another may have taken the room: then it is
    /// zeros all the same.
    pub(super) fn zero_within_size(&self, (ask, cred, cancel): Asking<'_>) -> Result<Answer, Errno> {
        let Question::Allocate { object, open, offset, length, .. } = &ask.question else {
            return Err(Errno::EOPNOTSUPP);
        };
        let (range, is_open) = ((*offset, *length), open.is_some());
        self.reserve(object, range, is_open, (ask, cred, cancel))?;
        let mut free = ask.clone();
        if let Question::Allocate { mode, .. } = &mut free.question {
            *mode = AllocateMode::PunchHole;
        }
        self.nfs.perform(&free, cancel)?;
        self.reserve(object, range, is_open, (ask, cred, cancel))
    }
}
