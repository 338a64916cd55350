//! Data that the server took and may have lost since: asked for before anything is compared. What was lost is ours to be kept beside
//! what others have made of the file; what was on the disk they have changed, or replaced, as they may.

use crate::ask::Generation;
use crate::errno::Errno;
use crate::extent::Progress;
use crate::ids::{Caller, Handle, Now};
use crate::machine::Machine;
use crate::mutation::{CommitOut, WriteId};

impl Machine {
    /// COMMITs that are due before what is relied upon is claimed from a server that is back, and what they cover: for
    /// [`committed_there`](Self::committed_there).
    pub fn uncommitted(&mut self) -> (Generation, Vec<CommitOut>) {
        let files = self.nodes.values().filter(|n| n.data.extents.weights().unstable > 0);
        let commit = |n: &crate::node::Node| {
            let caller = n.data.writer.clone().unwrap_or_else(|| Caller::new(0, 0));
            Some(CommitOut { id: WriteId::default(), object: n.handle.clone()?, open: None, caller })
        };
        let commits = files.filter_map(|n| commit(n)).collect();
        (self.tick(), commits)
    }

    /// What came of them: the server's verifier, or an error.
    pub fn committed_there(&mut self, told: &[(Handle, Result<u64, Errno>)], at: Generation, now: Now) {
        let stable = self.stream.stable();
        for (handle, result) in told {
            let verifier = match result {
                Ok(verifier) => Some(*verifier),
                Err(Errno::ESTALE | Errno::ENOENT) => None,
                // It is asked for again, as ever.
                Err(_) => continue,
            };
            let Some(id) = self.handles.get(handle).copied() else { continue };
            let moved = self.tick();
            self.with_data(id, |data| {
                data.moved = moved;
                // What a batch that may come again would write over is kept until it cannot.
                let is_settled = data.written_over <= stable;
                data.extents.turn(|p, _| match p {
                    Progress::Unstable { since, .. } if since > at => Some(p),
                    Progress::Unstable { verifier: then, .. } if Some(then) == verifier => {
                        (!is_settled).then_some(p)
                    }
                    Progress::Unstable { .. } => Some(Progress::Dirty),
                    p => Some(p),
                });
            });
            self.written_on(id, now);
        }
    }
}
