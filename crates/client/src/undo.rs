//! Locks that are granted after they were given up, which nobody has asked for any more: they are unlocked.
//!
//! Their owner may have asked for the same again since, or have held it before, and a LOCKU takes it all. So he asks for nothing new
//! once such an answer is there; what he asks for just then is awaited; and what he holds after that is left alone, also where it is
//! shared and what came late was exclusive: others then wait until he unlocks it.

use holdfast_base::ByteRange;
use holdfast_wire::nfs4::Stateid4;

use crate::client::Inner;
use crate::lockers::{Asking, Locker, Standing};
use crate::ranges::Ranges;

impl Locker {
    fn granted_late(&mut self, range: ByteRange, stateid: Stateid4) {
        // Of what was lost the server has nothing.
        if !self.is_lost {
            self.standing = Standing::Known(stateid);
            self.undo.get_or_insert_default().push(range);
        }
    }

    /// What of these he does not hold.
    fn lacks(&self, ranges: &[ByteRange]) -> Ranges {
        let mut lacking = Ranges::default();
        ranges.iter().for_each(|range| lacking.lock(*range, true));
        self.ranges.iter().for_each(|(range, _)| lacking.unlock(range));
        lacking
    }
}

impl Inner {
    /// Notes a lock that was granted too late.
    pub(crate) fn note_late_lock(&self, asking: &Asking, range: ByteRange, stateid: Stateid4) {
        self.files.change(&asking.open.handle, |held| {
            if let Some(locker) = held.locks.with_id_mut(asking.id) {
                locker.granted_late(range, stateid);
            }
        });
    }

    /// Unlocks in the background what an owner was granted too late, who asks for nothing else.
    pub(crate) fn undo_late_locks(&self, asking: Asking, late: Vec<ByteRange>) {
        self.chores.add(Box::new(move |inner| {
            let file = &asking.open.handle;
            let found = inner.files.look(file, |held| {
                let locker = held.locks.with_id(asking.id)?;
                Some((locker.clone(), locker.lacks(&late)))
            });
            let Some((locker, lacking)) = found.flatten() else { return };
            for (range, _) in lacking.iter() {
                if let Err(error) = inner.unlock_of(&inner.quit, file, &locker, range) {
                    tracing::debug!(%error, "a lock that came too late is kept until the file is closed");
                }
            }
        }));
    }
}
