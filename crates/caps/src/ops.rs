//! The operations of a batch: each judged with the caller's rights, recorded before it is done, done once.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::{CapSet, ExportId};
use holdfast_export::Export;
use holdfast_ledger::failpoint::{self, Point};
use holdfast_ledger::{Mutation, Standing, Undertaking};
use holdfast_manager::kinds_of_rename;
use holdfast_state::{Deed, EntryKinds};
use holdfast_vfs::{
    Caller, Device, File, FsError, Handle, Name, NewNode, RemoveKind, RenameFlags, Touched, XattrMode,
    stands_for,
};
use holdfast_wire::caps::{
    BatchOp, CapsStat, Grant, IfTaken, NodeKind, Ref, RenameHow, SetAttrs, SetXattrHow, TxnId,
};
use rustc_hash::FxHashMap;

use crate::lane::{Former, Lane, Partial, Txn};
use crate::make::Making;
use crate::outcome::Outcome;
use crate::site::{Actor, Site};
use crate::{Caps, attrs, removals, status};

/// Why an operation is not done.
pub(crate) enum Stop {
    /// It is to be tried again: the batch stops here.
    Later,
    /// It is refused: the batch goes on.
    Refused(CapsStat),
}

impl From<FsError> for Stop {
    fn from(error: FsError) -> Self {
        if status::is_passing(error) { Self::Later } else { Self::Refused(status::of_fs(error)) }
    }
}

impl From<CapsStat> for Stop {
    fn from(stat: CapsStat) -> Self {
        // What is served elsewhere is done there, and what comes after it behind it.
        if matches!(stat, CapsStat::Delay | CapsStat::Moved) { Self::Later } else { Self::Refused(stat) }
    }
}

/// What was granted of what operations made, by their places: asked for before anybody else can find it.
pub(crate) type Grants = FxHashMap<u32, Grant>;

/// What is left of a transaction's execution besides the outcomes.
#[derive(Default)]
pub(crate) struct Done {
    /// Directories whose entries it changed.
    pub(crate) dirs: FxHashMap<Handle, Site>,
    pub(crate) grants: Grants,
}

/// One transaction being executed.
pub(crate) struct Run<'r> {
    pub(crate) caps: &'r Caps,
    pub(crate) lane: &'r Lane,
    pub(crate) actor: &'r Actor,
    pub(crate) txn: TxnId,
    /// Its client has sent it before: to a former life perhaps, which has lost its record of it.
    pub(crate) is_resent: bool,
    pub(crate) this: &'r mut Txn,
}

/// One operation being executed.
pub(crate) struct Doing<'d> {
    pub(crate) caps: &'d Caps,
    pub(crate) actor: &'d Actor,
    pub(crate) this: &'d mut Txn,
    pub(crate) record: Option<&'d mut Undertaking>,
    /// Of the object concerned, once that is known.
    pub(crate) export: &'d mut Option<Arc<Export>>,
    pub(crate) dirs: &'d mut FxHashMap<Handle, Site>,
    pub(crate) grants: &'d mut Grants,
    lane: &'d Lane,
    txn: TxnId,
    pub(crate) is_resent: bool,
    pub(crate) op: u32,
}

impl Run<'_> {
    /// Executes what is left of the transaction, as far as that goes now.
    pub(crate) fn all(mut self, ops: &[BatchOp<'_>]) -> Done {
        let mut done = Done::default();
        loop {
            let next = self.this.outcomes.len();
            let (Some(op), Ok(place)) = (ops.get(next), u32::try_from(next)) else { break };
            let step = match removals::together(&ops[next..]) {
                0 => self.one(op, place, &mut done).map(|outcome| self.this.outcomes.push(outcome)),
                many => self.removals(&ops[next..next + many], place, &mut done),
            };
            if step.is_err() {
                break;
            }
            self.this.partial = None;
        }
        done
    }

    /// The operation at a place, about to be executed.
    pub(crate) fn doing<'d>(
        &'d mut self,
        record: Option<&'d mut Undertaking>,
        export: &'d mut Option<Arc<Export>>,
        (op, done): (u32, &'d mut Done),
    ) -> Doing<'d> {
        let Done { dirs, grants } = done;
        let Self { caps, lane, actor, txn, is_resent, .. } = *self;
        Doing { caps, actor, this: self.this, record, export, dirs, grants, lane, txn, is_resent, op }
    }

    fn one(&mut self, op: &BatchOp<'_>, place: u32, done: &mut Done) -> Result<Outcome, Stop> {
        let incarnation = &self.lane.incarnation;
        let former = self.lane.restored(self.txn, place);
        if let Some(former) = &former
            && let Some(known) = former.outcome.as_deref().and_then(Outcome::from_bytes)
            && self.stands(op, place, &known, done)?
        {
            return self.known(op, place, (former, known), done);
        }
        if former.is_none()
            && self.lane.has_survived(self.txn, place)
            && let BatchOp::Data { object, .. }
            | BatchOp::SetXattr { object, .. }
            | BatchOp::Reserve { object, .. } = op
        {
            return self.written(object, place, done);
        }
        let ledger = self.caps.parts.ledger.as_ref();
        let mut record = ledger.map(|ledger| Undertaking::of_batch(ledger, incarnation, self.txn.0, place));
        let mut export = None;
        let done = self.doing(record.as_mut(), &mut export, (place, done)).run(op);
        let is_resumable = self.this.partial.is_some();
        let outcome = match done {
            Ok(outcome) => {
                if let Some(record) = &record {
                    record.finish(&outcome.to_bytes());
                }
                outcome
            }
            // It was done before, with what came after it, and its object is gone since. Any other refusal is told: what was
            // done is lost, and stays so.
            Err(Stop::Refused(CapsStat::Stale | CapsStat::NoEnt))
                if former.is_none() && is_repeatable(op) && self.was_passed(place) =>
            {
                Outcome::Done
            }
            Err(Stop::Refused(stat)) => {
                let outcome = Outcome::Failed(stat);
                if let (Some(record), Some(export)) = (&mut record, export) {
                    record.note(export.id, &outcome.to_bytes());
                }
                outcome
            }
            Err(Stop::Later) => {
                // What was begun and goes on keeps its record.
                if let Some(record) = record.filter(|_| !is_resumable) {
                    record.forget();
                }
                return Err(Stop::Later);
            }
        };
        failpoint::pass(Point::AfterJournal);
        self.this.records.extend(record);
        Ok(outcome)
    }

    /// A former life's record is sealed with the transaction.
    pub(crate) fn is_recorded(&mut self, former: &Former) {
        if let Some(ledger) = &self.caps.parts.ledger {
            self.this.records.push(Undertaking::remembered(ledger, former.record));
        }
    }

    /// What is on record as done is done; but for the data that went with it, which may have been lost with the machine or is
    /// on no disk yet. It is written again only where it may be lost: others may have written since.
    fn known(
        &mut self,
        op: &BatchOp<'_>,
        place: u32,
        (former, known): (&Former, Outcome),
        done: &mut Done,
    ) -> Result<Outcome, Stop> {
        self.is_recorded(former);
        let (
            BatchOp::Create { name, data, .. } | BatchOp::Place { name, data, .. },
            Outcome::Made { handle, other_name },
        ) = (op, &known)
        else {
            return Ok(known);
        };
        if data.is_empty() {
            return Ok(known);
        }
        let own = Ref::Handle(holdfast_wire::caps::Handle(handle.as_bytes()));
        if former.record.survived() {
            self.written(&own, place, done)?;
            return Ok(known);
        }
        let mut export = None;
        let Ok(site) = self.doing(None, &mut export, (place, done)).site(&own) else { return Ok(known) };
        let name = if other_name.is_empty() { name.to_vec() } else { other_name.clone() };
        self.this.partial = Some(Partial { op: place, handle: Some(site.handle), name });
        match self.doing(None, &mut export, (place, done)).run(op) {
            Ok(outcome) => Ok(outcome),
            Err(Stop::Later) => Err(Stop::Later),
            // It was removed since, with its directory perhaps.
            Err(Stop::Refused(CapsStat::Stale | CapsStat::NoEnt | CapsStat::Depends)) => Ok(known),
            Err(Stop::Refused(stat)) => Ok(Outcome::Failed(stat)),
        }
    }

    /// Data that a former life wrote is there, and an attribute that it set. It is not written again: what came after it, a
    /// truncation, a removal or others' data, is not done again either. That it be on the disk is still due.
    fn written(&mut self, object: &Ref<'_>, place: u32, done: &mut Done) -> Result<Outcome, Stop> {
        let mut export = None;
        let mut doing = self.doing(None, &mut export, (place, done));
        match doing.site(object) {
            Ok(site) => {
                doing.touch(&site.export, site.handle, true);
                Ok(doing.changed(&site))
            }
            Err(Stop::Later) => Err(Stop::Later),
            // It is gone since; or there never was anything to be written to.
            Err(Stop::Refused(stat @ (CapsStat::Depends | CapsStat::BadRef))) => Ok(Outcome::Failed(stat)),
            Err(Stop::Refused(_)) => Ok(Outcome::Done),
        }
    }

    fn was_passed(&self, place: u32) -> bool {
        self.lane.was_passed(self.txn, place)
    }
}

/// What leaves no record when it succeeds, for it gives the same when done again.
const fn is_repeatable(op: &BatchOp<'_>) -> bool {
    matches!(op, BatchOp::Data { .. } | BatchOp::SetXattr { .. } | BatchOp::Reserve { .. })
}

impl Doing<'_> {
    fn run(mut self, op: &BatchOp<'_>) -> Result<Outcome, Stop> {
        self.caps.lives();
        match op {
            BatchOp::Create { dir, name, if_taken, set, want, data } => {
                let making = Making { name, if_taken: *if_taken, set, want: *want };
                self.make_file(dir, (&making, None), data)
            }
            BatchOp::Place { dir, name, if_taken, set, want, data, pooled } => {
                let making = Making { name, if_taken: *if_taken, set, want: *want };
                self.make_file(dir, (&making, Some(pooled)), data)
            }
            BatchOp::Mkdir { dir, name, if_taken, set, .. } => {
                self.make_node(dir, (name, *if_taken, set), &NewNode::Directory)
            }
            BatchOp::Symlink { dir, name, if_taken, set, target, .. } => {
                self.make_node(dir, (name, *if_taken, set), &NewNode::Symlink(target))
            }
            BatchOp::Mknod { dir, name, if_taken, set, kind, rdev_major, rdev_minor, .. } => {
                let device = Device { major: *rdev_major, minor: *rdev_minor };
                let node = new_node(*kind, device).ok_or(CapsStat::BadType)?;
                self.make_node(dir, (name, *if_taken, set), &node)
            }
            BatchOp::Link { object, dir, name } => self.link(object, dir, name),
            BatchOp::SetAttr { object, set } => self.set_attr(object, set),
            BatchOp::Data { object, offset, data } => self.data(object, *offset, data),
            BatchOp::Rename { from, from_name, to, to_name, how, victim, over } => {
                self.rename((from, from_name), (to, to_name), (*how, victim.as_ref(), over.as_ref()))
            }
            // With what it must stand for it goes by `removals`.
            BatchOp::Unlink { dir, name, .. } => self.remove(dir, name, RemoveKind::NonDirectory),
            BatchOp::Rmdir { dir, name, .. } => self.remove(dir, name, RemoveKind::Directory),
            BatchOp::SetXattr { object, how, name, value } => self.set_xattr(object, *how, (name, value)),
            BatchOp::RemoveXattr { object, name } => self.remove_xattr(object, name),
            BatchOp::Append { object, data } => self.append(object, data),
            BatchOp::Reserve { object, offset, bytes } => self.reserve(object, *offset, *bytes),
        }
    }

    fn make_node(
        &mut self,
        dir: &Ref<'_>,
        (name, if_taken, set): (&[u8], IfTaken, &SetAttrs),
        node: &NewNode<'_>,
    ) -> Result<Outcome, Stop> {
        // Of what is no file capabilities are asked for with the answer.
        self.make(dir, &Making { name, if_taken, set, want: CapSet::NONE }, node)
    }

    /// The object that is meant, and the right to change it.
    pub(crate) fn site(&mut self, of: &Ref<'_>) -> Result<Site, Stop> {
        let made;
        let handle = match of {
            Ref::Handle(handle) => handle.0,
            Ref::Made { txn, op } => {
                made = if *txn == self.txn { self.this.made(*op) } else { self.lane.made(*txn, *op) }?;
                made.as_bytes()
            }
        };
        let mut site = self.caps.site_here_or_not(self.actor, handle)?;
        if site.export.is_moved() {
            let Some(begun) = self.begun(site.export.id) else {
                self.lane.is_elsewhere.store(true, Ordering::Relaxed);
                return Err(Stop::Later);
            };
            site.export = begun;
        }
        *self.export = Some(Arc::clone(&site.export));
        if site.export.options.is_read_only {
            return Err(Stop::Refused(CapsStat::Rofs));
        }
        Ok(site)
    }

    /// The export as it was when something of the transaction was done in it, or began to be. All of it is done there, though it has
    /// moved since: nobody would tell what was done, and it would be done again where the export is now.
    fn begun(&self, export: ExportId) -> Option<Arc<Export>> {
        let before = self.this.touched.iter().map(|(export, ..)| export);
        self.export.iter().chain(before).find(|of| of.id == export && !of.is_moved()).cloned()
    }

    pub(crate) fn caller(&self, site: &Site) -> Result<Caller, Stop> {
        Ok(self.caps.caller(self.actor, &site.export)?)
    }

    /// The change that is about to be made, with its record.
    pub(crate) fn mutation<'m>(&'m mut self, site: &'m Site, caller: &'m Caller) -> Mutation<'m> {
        Mutation {
            backend: site.export.backend.as_ref(),
            cx: self.actor.cx(caller),
            export: site.export.id,
            record: self.record.as_deref_mut(),
        }
    }

    pub(crate) fn touch(&mut self, export: &Arc<Export>, handle: Handle, data: bool) {
        self.this.touched.push((Arc::clone(export), Touched { handle, data }, self.op));
    }

    /// Has recalled at once what a change of a directory's entries is to take from others: a look at a name, which comes
    /// first, would ask for less, and the change for the rest later.
    pub(crate) fn will_change(&self, dir: &Site, caller: &Caller, kinds: EntryKinds) -> Result<(), Stop> {
        let cx = self.actor.cx(caller);
        Ok(self.caps.parts.manager.contend_if_promised(&dir.handle, Deed::ChangeEntries(kinds), &cx)?)
    }

    /// The entries of a directory change.
    pub(crate) fn touch_dir(&mut self, dir: &Site) {
        self.touch(&dir.export, dir.handle, false);
        self.dirs.insert(dir.handle, dir.clone());
    }

    pub(crate) fn changed(&self, site: &Site) -> Outcome {
        Outcome::Changed(self.caps.seal(site))
    }

    /// How the operation stands to what a former life did.
    pub(crate) fn standing(&mut self, site: &Site) -> Result<Standing, Stop> {
        let backend = site.export.backend.as_ref();
        Ok(self.record.as_deref_mut().map_or(Ok(Standing::New), |record| record.standing(backend))?)
    }

    /// That a name stands for what its changer has seen; what was done before a crash need not any more.
    fn check_victim(&mut self, dir: &Site, name: Name<'_>, victim: Option<&Ref<'_>>) -> Result<(), Stop> {
        let Some(victim) = victim else { return Ok(()) };
        if self.standing(dir)? == Standing::Done {
            return Ok(());
        }
        let victim = self.site(victim)?;
        let caller = self.caller(dir)?;
        let cx = self.actor.cx(&caller);
        if stands_for(dir.export.backend.as_ref(), &cx, (&dir.handle, name), &victim.handle)? {
            Ok(())
        } else {
            Err(Stop::Refused(CapsStat::Changed))
        }
    }

    /// That the name a rename goes to stands, if for anything, for what its changer has seen there.
    fn check_replaced(&mut self, dir: &Site, name: Name<'_>, over: &Ref<'_>) -> Result<(), Stop> {
        if self.standing(dir)? == Standing::Done {
            return Ok(());
        }
        let caller = self.caller(dir)?;
        let Some(there) = dir.export.backend.named(&self.actor.cx(&caller), &dir.handle, name)? else {
            return Ok(());
        };
        // Where what was seen is not there any more, what has its name is another.
        match self.site(over) {
            Ok(over) if over.handle == there => Ok(()),
            _ => Err(Stop::Refused(CapsStat::Exist)),
        }
    }

    fn link(&mut self, object: &Ref<'_>, dir: &Ref<'_>, name: &[u8]) -> Result<Outcome, Stop> {
        let (object, dir, name) = (self.site(object)?, self.site(dir)?, Name::new(name)?);
        if object.export.id != dir.export.id {
            return Err(Stop::Refused(CapsStat::Xdev));
        }
        let caller = self.caller(&dir)?;
        self.will_change(&dir, &caller, EntryKinds::ADD)?;
        self.mutation(&dir, &caller).link(&object.handle, &dir.handle, name)?;
        self.touch(&object.export, object.handle, false);
        self.touch_dir(&dir);
        Ok(self.changed(&object))
    }

    fn set_attr(&mut self, object: &Ref<'_>, set: &SetAttrs) -> Result<Outcome, Stop> {
        let site = self.site(object)?;
        let caller = self.caller(&site)?;
        let (file, set) = (File::Stateless(&site.handle), attrs::set_attrs(set));
        match self.mutation(&site, &caller).setattr(file, &set, None) {
            Err(FsError::Perm) => {
                let set = self.time_of_its_writes((&site, &caller), &set)?.ok_or(FsError::Perm)?;
                let root = Caller::root();
                // Done again it gives the same.
                let this = Mutation { record: None, ..self.mutation(&site, &root) };
                this.setattr(file, &set, None)?;
            }
            done => drop(done?),
        }
        self.touch(&site.export, site.handle, set.size.is_some());
        Ok(self.changed(&site))
    }

    fn data(&mut self, object: &Ref<'_>, offset: u64, data: &[u8]) -> Result<Outcome, Stop> {
        let site = self.site(object)?;
        let caller = self.caller(&site)?;
        self.write(&site, &caller, (File::Stateless(&site.handle), offset), data)?;
        self.touch(&site.export, site.handle, true);
        Ok(self.changed(&site))
    }

    fn rename(
        &mut self,
        (from, from_name): (&Ref<'_>, &[u8]),
        (to, to_name): (&Ref<'_>, &[u8]),
        (how, victim, over): (RenameHow, Option<&Ref<'_>>, Option<&Ref<'_>>),
    ) -> Result<Outcome, Stop> {
        let (from, to) = (self.site(from)?, self.site(to)?);
        let (from_name, to_name) = (Name::new(from_name)?, Name::new(to_name)?);
        if from.export.id != to.export.id {
            return Err(Stop::Refused(CapsStat::Xdev));
        }
        let caller = self.caller(&from)?;
        let flags = match how {
            RenameHow::Replace => RenameFlags::Replace,
            RenameHow::NoReplace => RenameFlags::NoReplace,
            RenameHow::Exchange => RenameFlags::Exchange,
        };
        let [left, come] = kinds_of_rename([from.handle.key(), to.handle.key()], flags);
        self.will_change(&from, &caller, left)?;
        self.will_change(&to, &caller, come)?;
        self.check_victim(&from, from_name, victim)?;
        if let Some(over) = over.filter(|_| how == RenameHow::Replace) {
            self.check_replaced(&to, to_name, over)?;
        }
        self.mutation(&from, &caller).rename((&from.handle, from_name), (&to.handle, to_name), flags)?;
        self.touch_dir(&from);
        self.touch_dir(&to);
        Ok(Outcome::Done)
    }

    /// Removes whatever is there.
    fn remove(&mut self, dir: &Ref<'_>, name: &[u8], kind: RemoveKind) -> Result<Outcome, Stop> {
        let (dir, name) = (self.site(dir)?, Name::new(name)?);
        let caller = self.caller(&dir)?;
        self.will_change(&dir, &caller, EntryKinds::REMOVE)?;
        self.mutation(&dir, &caller).remove(&dir.handle, name, kind)?;
        self.touch_dir(&dir);
        Ok(Outcome::Done)
    }

    fn set_xattr(
        &mut self,
        object: &Ref<'_>,
        how: SetXattrHow,
        (name, value): (&[u8], &[u8]),
    ) -> Result<Outcome, Stop> {
        let site = self.site(object)?;
        let mode = match how {
            SetXattrHow::Either => XattrMode::Either,
            SetXattrHow::Create => XattrMode::Create,
            SetXattrHow::Replace => XattrMode::Replace,
        };
        let caller = self.caller(&site)?;
        self.mutation(&site, &caller).setxattr(&site.handle, name, value, mode)?;
        self.touch(&site.export, site.handle, false);
        Ok(self.changed(&site))
    }

    fn remove_xattr(&mut self, object: &Ref<'_>, name: &[u8]) -> Result<Outcome, Stop> {
        let site = self.site(object)?;
        let caller = self.caller(&site)?;
        self.mutation(&site, &caller).removexattr(&site.handle, name)?;
        self.touch(&site.export, site.handle, false);
        Ok(self.changed(&site))
    }
}

const fn new_node<'a>(kind: NodeKind, device: Device) -> Option<NewNode<'a>> {
    match kind {
        NodeKind::Block => Some(NewNode::Block(device)),
        NodeKind::Char => Some(NewNode::Char(device)),
        NodeKind::Socket => Some(NewNode::Socket),
        NodeKind::Fifo => Some(NewNode::Fifo),
        NodeKind::Regular | NodeKind::Directory | NodeKind::Symlink => None,
    }
}
