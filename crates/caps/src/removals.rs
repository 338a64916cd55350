//! Removals that stand together in a batch: names of one directory, one after the other, each with what it must stand for.
//! They share what is found out about the directory and one record in the journal; what each name stands for is looked
//! at once, where it is removed. So `rm -r` of a large tree costs little besides the file system's own work, and nothing
//! goes that its remover has not seen, whoever made it.

use holdfast_base::FileKey;
use holdfast_base::limits::CAPS_FAILED_REMOVALS_MAX;
use holdfast_ledger::failpoint::{self, Point};
use holdfast_ledger::{Mutation, Standing, Undertaking};
use holdfast_state::{Engine, EntryKinds};
use holdfast_vfs::{Caller, Name, RemoveKind};
use holdfast_wire::caps::{BatchOp, CapsStat, Ref};

use crate::ops::{Doing, Done, Run, Stop};
use crate::outcome::{self, Outcome};
use crate::site::Site;

/// One of them.
#[derive(Clone, Copy)]
struct Removal<'o> {
    dir: &'o Ref<'o>,
    name: &'o [u8],
    kind: RemoveKind,
    victim: &'o Ref<'o>,
}

impl<'o> Removal<'o> {
    /// `None` of what is no removal, or one that takes whatever is there.
    fn of(op: &'o BatchOp<'o>) -> Option<Self> {
        let (dir, name, kind, victim) = match op {
            BatchOp::Unlink { dir, name, victim: Some(victim) } => {
                (dir, *name, RemoveKind::NonDirectory, victim)
            }
            BatchOp::Rmdir { dir, name, victim: Some(victim) } => (dir, *name, RemoveKind::Directory, victim),
            _ => return None,
        };
        Some(Self { dir, name, kind, victim })
    }
}

/// How many operations, from the first, are removals of names of one directory.
pub(crate) fn together(ops: &[BatchOp<'_>]) -> usize {
    let Some(first) = ops.first().and_then(Removal::of) else { return 0 };
    ops.iter().map_while(Removal::of).take_while(|one| one.dir == first.dir).count()
}

/// What came of removals that stand together.
struct Removed {
    /// Of the first of them.
    outcomes: Vec<Outcome>,
    /// The next has to wait.
    must_wait: bool,
}

impl Run<'_> {
    /// Executes removals that stand together, the first of them at this place, as far as that goes now.
    pub(crate) fn removals(&mut self, ops: &[BatchOp<'_>], place: u32, done: &mut Done) -> Result<(), Stop> {
        let former = self.lane.restored(self.txn, place);
        if let Some(former) = &former
            && let Some(known) = former.outcome.as_deref().and_then(outcome::read)
        {
            self.this.outcomes.extend(known.into_iter().take(ops.len()));
            self.is_recorded(former);
            return Ok(());
        }
        // What stands under another record is another's.
        let end = self.lane.next_restored(self.txn, place).map_or(u32::MAX, |next| next - place);
        let is_again = former.is_some();
        let before = former.and_then(|former| former.doubtful).as_deref().and_then(outcome::read);
        let end = before.as_ref().map_or(end as usize, |before| before.len().min(end as usize));
        let ops: Vec<Removal<'_>> = ops.iter().take(end).filter_map(Removal::of).collect();
        let incarnation = &self.lane.incarnation;
        let ledger = self.caps.parts.ledger.as_ref();
        let mut record = ledger.map(|ledger| Undertaking::of_batch(ledger, incarnation, self.txn.0, place));
        let mut export = None;
        let came = self.doing(record.as_mut(), &mut export, (place, done)).remove_all(
            &ops,
            is_again,
            &before.unwrap_or_default(),
        );
        let must_wait = match came {
            Ok(Removed { outcomes, must_wait }) => {
                match (&mut record, &outcomes[..], export) {
                    (Some(record), [one], Some(export)) if ops.len() == 1 => {
                        record.note(export.id, &one.to_bytes());
                    }
                    (Some(record), all, _) => record.finish(&outcome::of_removals(all)),
                    (None, ..) => {}
                }
                self.this.outcomes.extend(outcomes);
                must_wait
            }
            // Not for its name's sake: each of them hears it by itself.
            Err(Stop::Refused(stat)) => {
                let outcome = Outcome::Failed(stat);
                if let (Some(record), Some(export)) = (&mut record, export) {
                    record.note(export.id, &outcome.to_bytes());
                }
                self.this.outcomes.push(outcome);
                false
            }
            Err(Stop::Later) => {
                // What a former life had begun stays begun.
                if let Some(record) = record.filter(|_| !is_again) {
                    record.forget();
                }
                return Err(Stop::Later);
            }
        };
        failpoint::pass(Point::AfterJournal);
        self.this.records.extend(record);
        if must_wait { Err(Stop::Later) } else { Ok(()) }
    }
}

impl Doing<'_> {
    /// Removes these names of one directory. `is_again`: a former life had begun to, so that what is not there any more, or
    /// stands for something else, was removed; but for what it refused, as `before` tells where it came to an end.
    fn remove_all(
        &mut self,
        all: &[Removal<'_>],
        is_again: bool,
        before: &[Outcome],
    ) -> Result<Removed, Stop> {
        let Some(first) = all.first() else { return Err(Stop::Refused(CapsStat::Inval)) };
        let dir = self.site(first.dir)?;
        let caller = self.caller(&dir)?;
        self.will_change(&dir, &caller, EntryKinds::REMOVE)?;
        let standing = self.standing(&dir)?;
        if standing == Standing::Done {
            // The first, which had a record of its own.
            self.touch_dir(&dir);
            return Ok(Removed { outcomes: vec![Outcome::Done], must_wait: false });
        }
        let is_again = is_again && standing == Standing::Repeat;
        // One alone has a record that tells, after a crash, whether it was this one that removed the name.
        if standing == Standing::New
            && all.len() > 1
            && let Some(record) = self.record.as_deref_mut()
        {
            record.begin_removals(dir.export.id, &dir.handle, all.iter().map(|one| one.name))?;
        }
        let (mut outcomes, mut gone, mut failed) = (Vec::with_capacity(all.len()), Vec::new(), 0);
        let mut must_wait = false;
        for (nth, one) in all.iter().enumerate() {
            let came = match before.get(nth) {
                Some(Outcome::Failed(stat)) => Err(Stop::Refused(*stat)),
                _ => self.remove_seen(&dir, &caller, one, all.len() == 1),
            };
            match came {
                Ok(last) => {
                    gone.extend(last);
                    outcomes.push(Outcome::Done);
                }
                Err(Stop::Refused(CapsStat::NoEnt | CapsStat::Changed | CapsStat::Stale))
                    if is_again && !matches!(before.get(nth), Some(Outcome::Failed(_))) =>
                {
                    outcomes.push(Outcome::Done);
                }
                Err(Stop::Refused(stat)) => {
                    failed += 1;
                    outcomes.push(Outcome::Failed(stat));
                }
                Err(Stop::Later) => {
                    must_wait = true;
                    break;
                }
            }
            if failed >= CAPS_FAILED_REMOVALS_MAX {
                break;
            }
        }
        self.let_go(&gone);
        // Begun again, they have one record still: they go together, however often.
        if outcomes.is_empty() || (must_wait && is_again) {
            return Err(Stop::Later);
        }
        self.touch_dir(&dir);
        Ok(Removed { outcomes, must_wait })
    }

    /// Gives the victim back when this was its last name, or it is a directory. Whether it `is_alone`, and so has a record of its own.
    fn remove_seen(
        &mut self,
        dir: &Site,
        caller: &Caller,
        one: &Removal<'_>,
        is_alone: bool,
    ) -> Result<Option<FileKey>, Stop> {
        let (name, victim) = (Name::new(one.name)?, self.site(one.victim)?);
        if victim.export.id != dir.export.id {
            return Err(Stop::Refused(CapsStat::Changed));
        }
        let this = self.mutation(dir, caller);
        let this = if is_alone { this } else { Mutation { record: None, ..this } };
        match this.remove_seen(&dir.handle, name, one.kind, &victim.handle) {
            Ok(Some(removed)) => Ok(removed.is_gone.then(|| victim.key())),
            Ok(None) => Err(Stop::Refused(CapsStat::Changed)),
            Err(error) => Err(error.into()),
        }
    }

    /// Nothing is held any more of what is gone, and its remover need not say so: of a tree that would be as many words as
    /// it has files.
    fn let_go(&self, gone: &[FileKey]) {
        if gone.is_empty() {
            return;
        }
        let client = self.actor.client;
        let all = |engine: &mut Engine, now| {
            gone.iter().for_each(|file| engine.caps_removed(client, *file, now));
        };
        let _ = self.caps.parts.manager.step(all);
    }
}
