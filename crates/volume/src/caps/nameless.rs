//! Files without a name: the server makes one and keeps it until it was opened by NFS, as every file is.

use holdfast_cache::{Access, Answer, Ask, CapSet, Errno, Handle, NewAttrs, Object, Question};
use holdfast_client::{Cancel, Cred};
use holdfast_wire::caps::{CapsProc, NamelessArgs, NamelessOk};

use super::calling::{decode, put};
use super::{Failure, Inner, convert};
use crate::server::Server as _;

/// How often one may be gone before it was opened: the server keeps it for seconds, and may be started anew.
const TRIES_MAX: usize = 4;

impl Inner {
    /// Makes one as if in this directory, and opens it. `EOPNOTSUPP` from servers, and of file systems, that have none.
    pub(super) fn nameless(
        &self,
        (dir, attrs): (&Handle, &NewAttrs),
        access: Access,
        (ask, cred, cancel): (&Ask, &Cred, &Cancel),
    ) -> Result<Answer, Errno> {
        let (dir, set) = (holdfast_wire::caps::Handle(dir.as_bytes()), convert::new_attrs(attrs));
        for _ in 0..TRIES_MAX {
            let reply = self.call(CapsProc::Nameless, cred, cancel, |ticket, w| {
                put(&NamelessArgs { ticket, dir, set }, w);
            });
            let reply = reply.map_err(Failure::errno)?;
            let told: NamelessOk<'_> = decode(&reply).map_err(Failure::errno)?;
            let handle = Handle::new(told.handle.0);
            let question =
                Question::Open { object: handle.clone(), access, truncate: false, want: CapSet::NONE };
            let open = Ask { at: ask.at, caller: ask.caller.clone(), question };
            match self.nfs.perform(&open, cancel) {
                Ok(Answer::Opened { open, attrs, .. }) => {
                    let object = Object { handle, attrs, grant: None };
                    return Ok(Answer::Created { object, open, made: true, dir: None, dir_attrs: None });
                }
                Err(Errno::ESTALE) => {}
                other => return other.and(Err(Errno::EIO)),
            }
        }
        Err(Errno::ESTALE)
    }
}
