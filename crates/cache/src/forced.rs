//! Batches that are answered when they are on the server's disk: which, and what they keep from waiting. Who syncs then asks once; but
//! who waits for results alone is not to wait for a disk.

use holdfast_base::Instant;
use holdfast_base::limits::{FORCED_BATCHES_MAX, FORCED_BYTES_MAX, FORCED_PATIENCE_MS};

use crate::errno::Errno;
use crate::ids::{NodeId, Now};
use crate::machine::Machine;
use crate::mutation::{Batch, MutationResult, Until};
use crate::queue::{Kept, Stage, Stream};

fn is_forced(kept: &Kept) -> bool {
    kept.stage == Stage::Sent && kept.until == Until::Stable
}

impl Stream {
    /// Those that are to be answered when they are on the disk.
    fn forced(&self) -> impl Iterator<Item = &Kept> {
        self.kept.iter().filter(|k| is_forced(k))
    }

    /// Whether this batch is the last of what is to be put on disk, and nobody waits for its results alone.
    fn completes(&self, place: usize) -> bool {
        let first = |k: &Kept| k.ops.first().map_or(u64::MAX, |q| q.serial);
        let (wanted, Some(kept)) = (self.wanted_stable, self.kept.get(place)) else { return false };
        let is_last = self.kept.get(place + 1).is_none_or(|next| first(next) > wanted);
        let is_of_it = first(kept) <= wanted && self.stable() < wanted;
        is_of_it && is_last && self.sent() >= wanted && self.needed < first(kept)
    }

    /// Bytes of a batch.
    fn carries(&self, place: usize) -> usize {
        self.kept.get(place).map_or(0, |kept| kept.ops.iter().map(|queued| queued.op.bytes()).sum())
    }

    /// The first of them whose results somebody waits for by now.
    pub(crate) fn needed_at_once(&mut self) -> Option<usize> {
        if !self.may_need {
            return None;
        }
        let is_needed = |k: &Kept| k.ops.first().is_some_and(|q| q.serial <= self.needed);
        let first = self.kept.iter().position(|k| is_forced(k) && is_needed(k));
        self.may_need = first.is_some();
        first
    }

    /// Until when what is to be put on disk need not be asked for, as the answer to a batch will tell of it. One that meets others'
    /// promises may take long to be executed, and what is there already is not to wait for that.
    pub(crate) fn is_forced_until(&self) -> Option<Instant> {
        self.forced().map(|k| k.sent_at.after_ms(FORCED_PATIENCE_MS)).min()
    }
}

impl Machine {
    /// When a batch that goes out now is to be answered. What is being recalled is given back to who looks without a disk being waited
    /// for.
    pub(crate) fn answered_when(&self, place: usize) -> Until {
        let may_wait = self.settings.forces && self.recalling.is_empty();
        let is_room = || self.stream.forced().count() < FORCED_BATCHES_MAX;
        let is_small = || self.stream.carries(place) <= FORCED_BYTES_MAX;
        if may_wait && self.stream.completes(place) && is_room() && is_small() {
            Until::Stable
        } else {
            Until::Executed
        }
    }

    /// Somebody waits for a file's data to be with the server, and not for its disk.
    pub(crate) fn need_data(&mut self, id: NodeId) {
        let Some(data) = self.nodes.get(&id).map(|node| &node.data) else { return };
        let through = data.carrier.unwrap_or(data.filled_by);
        self.stream.need(through);
    }

    /// A batch that waits for the disk once more, of which somebody needs to know what came of it: it is answered as soon as it is
    /// executed, and the first answer tells of the disk.
    pub(crate) fn take_needed(&mut self, now: Now) -> Option<Batch> {
        let place = self.stream.needed_at_once()?;
        let kept = &mut self.stream.kept[place];
        (kept.until, kept.sent_at, kept.is_resent) = (Until::Executed, now.mono, true);
        self.stats.batches_resent += 1;
        self.encode(place)
    }

    /// Whether what somebody wants to have on disk will be told of by the answer to a batch.
    pub(crate) fn will_be_stable(&self, now: Now) -> bool {
        self.recalling.is_empty() && self.stream.is_forced_until().is_some_and(|until| now.mono < until)
    }

    /// Whether this call has another beside it, for who waits for the results and not for the disk: it is not to be made again, for the two
    /// would keep each other from their turn.
    #[must_use]
    pub fn is_superseded(&self, batch: &Batch) -> bool {
        let is_it = |k: &&Kept| k.txn == batch.txn && k.asked == batch.asked;
        batch.until == Until::Stable
            && self.stream.kept.iter().find(is_it).is_some_and(|k| k.until == Until::Executed)
    }

    /// A batch was answered; everything up to `through` is on disk, but for what failed. Results may have been taken in before, where
    /// somebody waited for them and not for the disk.
    pub fn batch_answered(
        &mut self,
        batch: &Batch,
        results: Vec<MutationResult>,
        (through, failed): (u64, &[(u64, u32, Errno)]),
        now: Now,
    ) {
        if self.awaits(batch) {
            // What it tells of the disk is for after: what has failed is to be found until it was told.
            self.batch_done(batch.txn, results, 0, now);
        }
        let is_it = |k: &&Kept| k.txn == batch.txn && k.asked == batch.asked;
        if self.stream.kept.iter().find(is_it).is_some_and(|k| k.stage == Stage::Executed) {
            self.told_stable(through, failed);
        }
    }
}
