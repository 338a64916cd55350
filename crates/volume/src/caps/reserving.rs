//! Room for files whose size stays, which NFS cannot reserve: asked for beside the stream.

use holdfast_cache::{Answer, Errno, Handle};
use holdfast_wire::caps::{BatchOp, Features, Ref};

use super::aside::Asking;
use super::{Failure, Inner, convert};

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
}
