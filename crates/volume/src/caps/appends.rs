//! Appends: the server finds out where the file ends, and writes there.

use bytes::Bytes;
use holdfast_cache::{Answer, Errno, Handle};
use holdfast_wire::caps::{Appended, BatchOp, Features, Ref};

use super::aside::Asking;
use super::{Failure, Inner, convert};
use crate::server::Server as _;

impl Inner {
    /// By a server that cannot it is done as by NFS, in two steps. So it is where the caller may write only because the file is open,
    /// which the program does not see.
    pub(super) fn append(
        &self,
        (object, data): (&Handle, &Bytes),
        is_open: bool,
        asking: Asking<'_>,
    ) -> Result<Answer, Errno> {
        if self.greeting.read().is_some_and(|greeting| greeting.features.contains(Features::APPEND)) {
            match self.append_aside(object, data, asking) {
                Err(Errno::EACCES) if is_open => {}
                other => return other,
            }
        }
        let (ask, _, cancel) = asking;
        self.nfs.perform(ask, cancel)
    }

    fn append_aside(&self, object: &Handle, data: &Bytes, asking: Asking<'_>) -> Result<Answer, Errno> {
        let object = Ref::Handle(holdfast_wire::caps::Handle(object.as_bytes()));
        match self.do_aside(BatchOp::Append { object, data }, asking).map_err(Failure::errno)? {
            Ok(Some(Appended { offset, count, verifier, attrs })) => Ok(Answer::Appended {
                offset,
                count,
                stable: false,
                verifier: u64::from_be_bytes(verifier),
                attrs: attrs.as_ref().map(convert::attrs),
            }),
            Ok(None) => Err(Errno::EIO),
            Err(status) => Err(convert::errno_of(status)),
        }
    }
}
