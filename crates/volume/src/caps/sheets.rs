//! Batches: the machine's mutations as the program's operations, and their results as the machine's.
//!
//! One mutation may become several operations (a file's data in pieces; its times afterwards), so that places in the
//! machine's batch and in the program's differ. What a batch makes is named by the program's; failures are told by it, and the
//! ledger remembers whose they are for as long as the server may tell of any.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use holdfast_base::Timestamp;
use holdfast_base::limits::CAPS_BATCH_OPS_MAX;
use holdfast_cache::{
    Batch, Born, CapSet, Changes, Handle, Mutation, MutationResult, Name, NewAttrs, NewObject, RenameMode,
    SetTime, Target as Aim,
};
use holdfast_wire::caps::{
    BatchOk, BatchOp, CapsStat, FailedOp, IfTaken, OpResult, Ref, RenameHow, Res, SetAttrs, TxnId,
};

use super::convert;
use crate::server::FailedLater;

/// What was sent.
#[derive(Debug, Default)]
pub struct Ledger {
    /// Where each mutation's operations begin, by transaction.
    places: BTreeMap<u64, Vec<u32>>,
    /// What will not be sent again nor named, as the machine said with its last batch.
    done_through: u64,
    sent_through: u64,
}

impl Ledger {
    /// What the server may forget.
    #[must_use]
    pub fn done_through(&self) -> TxnId {
        TxnId(self.done_through)
    }

    /// The machine says what it will neither send again nor name. It alone can: what was put into a batch and is not
    /// answered yet names what the server must still know.
    pub fn done(&mut self, through: u64) {
        self.done_through = self.done_through.max(through);
        self.places = self.places.split_off(&(self.done_through + 1));
    }

    /// A batch goes out, in operations that begin there; whether it has before.
    pub fn sends(&mut self, batch: &Batch, starts: &[u32]) -> bool {
        let is_resent = batch.txn <= self.sent_through;
        self.sent_through = self.sent_through.max(batch.txn);
        self.done(batch.done_through);
        self.places.insert(batch.txn, starts.to_vec());
        is_resent
    }

    /// The mutations that were executed and not put on the disk, each once.
    #[must_use]
    pub fn failed(&self, told: &[FailedOp]) -> Vec<FailedLater> {
        let mut all = BTreeMap::new();
        for one in told {
            let errno = convert::errno_of(one.status);
            for place in self.places_of(one) {
                all.entry((one.txn.0, place)).or_insert(errno);
            }
        }
        all.into_iter().map(|((txn, place), errno)| FailedLater { txn, place, errno }).collect()
    }

    /// What a failure is about: the mutation of which an operation was a part, or all. Of what a former life of this mount
    /// has sent it is not known which: then all, for nothing that was lost may pass for safe.
    fn places_of(&self, failed: &FailedOp) -> Range<u32> {
        let place = |after: usize| u32::try_from(after).unwrap_or(u32::MAX);
        let Some(starts) = self.places.get(&failed.txn.0) else { return 0..place(CAPS_BATCH_OPS_MAX) };
        let after = place(starts.partition_point(|start| *start <= failed.op));
        if failed.op == FailedOp::ALL { 0..after } else { after.saturating_sub(1)..after }
    }
}

/// A batch in the program's operations.
#[derive(Debug)]
pub struct Sheet<'a> {
    txn: u64,
    /// In order.
    pub ops: Vec<BatchOp<'a>>,
    /// Where those of each mutation begin.
    pub starts: Vec<u32>,
}

impl<'a> Sheet<'a> {
    /// The sheet of a batch.
    #[must_use]
    pub fn of(batch: &'a Batch) -> Self {
        let mut sheet = Self { txn: batch.txn, ops: Vec::new(), starts: Vec::new() };
        for mutation in &batch.ops {
            let start = sheet.next();
            sheet.starts.push(start);
            sheet.add(mutation);
            debug_assert_eq!((sheet.next() - start) as usize, mutation.operations(), "{mutation:?}");
        }
        sheet
    }

    fn next(&self) -> u32 {
        u32::try_from(self.ops.len()).unwrap_or(u32::MAX)
    }

    fn aim(aim: &'a Aim) -> Ref<'a> {
        match aim {
            Aim::Handle(handle) => Ref::Handle(holdfast_wire::caps::Handle(handle.as_bytes())),
            Aim::Made { txn, op } => Ref::Made { txn: TxnId(*txn), op: *op },
        }
    }

    fn add(&mut self, mutation: &'a Mutation) {
        let op = match mutation {
            Mutation::Make { dir, name, object, attrs, want, joins } => {
                let if_taken = if *joins { IfTaken::Share } else { IfTaken::KeepBoth };
                return self.make((dir, name, if_taken), object, (attrs, *want));
            }
            Mutation::Write { object, data, mtime } => {
                let object = Self::aim(object);
                return self.write(object, data, Some(*mtime));
            }
            Mutation::Link { object, dir, name } => {
                BatchOp::Link { object: Self::aim(object), dir: Self::aim(dir), name: name.as_bytes() }
            }
            Mutation::SetAttr { object, changes } => {
                BatchOp::SetAttr { object: Self::aim(object), set: convert::changes(changes) }
            }
            Mutation::Rename { from_dir, from, to_dir, to, mode, victim, over } => BatchOp::Rename {
                from: Self::aim(from_dir),
                from_name: from.as_bytes(),
                to: Self::aim(to_dir),
                to_name: to.as_bytes(),
                how: rename_how(*mode),
                victim: Some(Self::aim(victim)),
                over: over.as_ref().map(Self::aim),
            },
            Mutation::Unlink { dir, name, victim } => BatchOp::Unlink {
                dir: Self::aim(dir),
                name: name.as_bytes(),
                victim: Some(Self::aim(victim)),
            },
            Mutation::Rmdir { dir, name, victim } => {
                BatchOp::Rmdir { dir: Self::aim(dir), name: name.as_bytes(), victim: Some(Self::aim(victim)) }
            }
        };
        self.ops.push(op);
    }

    fn make(
        &mut self,
        (dir, name, if_taken): (&'a Aim, &'a Name, IfTaken),
        object: &'a NewObject,
        (attrs, want): (&'a NewAttrs, CapSet),
    ) {
        let (dir, name) = (Self::aim(dir), name.as_bytes());
        let (set, want) = (convert::new_attrs(attrs), want);
        match object {
            NewObject::File { data, size, pooled } => {
                let made = Ref::Made { txn: TxnId(self.txn), op: self.next() };
                let set = SetAttrs { size: *size, ..set };
                // Bytes at the beginning come with the making itself, others behind it.
                let (first, rest) = match data.split_first() {
                    Some(((0, bytes), rest)) => (&bytes[..], rest),
                    _ => (&[][..], &data[..]),
                };
                self.ops.push(match pooled {
                    None => BatchOp::Create { dir, name, if_taken, set, want, data: first },
                    Some(pooled) => {
                        let pooled = holdfast_wire::caps::Handle(pooled.as_bytes());
                        BatchOp::Place { dir, name, if_taken, set, want, data: first, pooled }
                    }
                });
                if !rest.is_empty() {
                    self.write(made, rest, attrs.mtime);
                }
            }
            NewObject::Dir => self.ops.push(BatchOp::Mkdir { dir, name, if_taken, set, want }),
            NewObject::Symlink(text) => {
                self.ops.push(BatchOp::Symlink { dir, name, if_taken, set, want, target: text });
            }
            NewObject::Node(kind, device) => self.ops.push(BatchOp::Mknod {
                dir,
                name,
                if_taken,
                set,
                want,
                kind: convert::node_kind(*kind),
                rdev_major: device.major,
                rdev_minor: device.minor,
            }),
        }
    }

    fn write(&mut self, object: Ref<'a>, data: &'a [(u64, Bytes)], mtime: Option<Timestamp>) {
        for (offset, bytes) in data {
            self.ops.push(BatchOp::Data { object, offset: *offset, data: bytes });
        }
        if let Some(mtime) = mtime {
            let changes = Changes { mtime: Some(SetTime::At(mtime)), ..Changes::default() };
            self.ops.push(BatchOp::SetAttr { object, set: convert::changes(&changes) });
        }
    }
}

/// As a server knows it that makes no files for creates to come: one may have taken the place of one that does.
pub(super) fn unpooled<'a>(op: &BatchOp<'a>) -> BatchOp<'a> {
    match op.clone() {
        BatchOp::Place { dir, name, if_taken, set, want, data, pooled: _ } => {
            BatchOp::Create { dir, name, if_taken, set, want, data }
        }
        other => other,
    }
}

pub(super) const fn rename_how(mode: RenameMode) -> RenameHow {
    match mode {
        RenameMode::Replace => RenameHow::Replace,
        RenameMode::NoReplace => RenameHow::NoReplace,
        RenameMode::Exchange => RenameHow::Exchange,
    }
}

/// One result for each mutation: the failure of any of its operations, else what its first one made and its last one
/// left.
#[must_use]
pub fn results(starts: &[u32], told: &BatchOk<'_>) -> Vec<MutationResult> {
    let ends = starts.iter().skip(1).copied().chain([u32::try_from(told.results.len()).unwrap_or(u32::MAX)]);
    let part =
        |(start, end): (&u32, u32)| told.results.get(*start as usize..end as usize).unwrap_or_default();
    starts.iter().zip(ends).map(part).map(result).collect()
}

fn result(parts: &[Res<OpResult<'_>>]) -> MutationResult {
    let (mut made, mut other_name, mut attrs) = (None, None, None);
    for part in parts {
        match part {
            // It was never made; or the server has forgotten by now that it could not be.
            Res::Failed(status)
                if [CapsStat::Depends, CapsStat::BadRef].map(CapsStat::as_u32).contains(status) =>
            {
                return MutationResult::Depends;
            }
            Res::Failed(status) => return MutationResult::Failed(convert::errno_of(*status)),
            Res::Ok(OpResult::Made(told)) => {
                other_name = (!told.other_name.is_empty()).then(|| Name::new(told.other_name));
                // Whether or not it says how the object looks.
                attrs = told.attrs.as_ref().map(convert::attrs);
                let grant = Some(convert::grant(told.grant));
                made = Some(Born { handle: Handle::new(told.handle.0), grant });
            }
            Res::Ok(OpResult::Changed(now)) => attrs = now.as_ref().map(convert::attrs).or(attrs),
            // Appends go beside the stream: none is in a batch of it.
            Res::Ok(OpResult::Done | OpResult::Appended(_)) => {}
        }
    }
    MutationResult::Done { made, other_name, attrs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_cache::{Caller, Generation, Until};

    fn make(name: &str, dir: Aim, data: Vec<(u64, Bytes)>) -> Mutation {
        let attrs =
            NewAttrs { mode: 0o644, mtime: Some(Timestamp { seconds: 7, nanos: 0 }), ..NewAttrs::default() };
        Mutation::Make {
            dir,
            name: Name::new(name.as_bytes()),
            object: NewObject::File { data, size: None, pooled: None },
            attrs,
            want: CapSet::ALL_X,
            joins: false,
        }
    }

    #[test]
    fn mutations_are_as_many_operations_as_the_machine_counts() {
        let root = Handle::new(b"root");
        let pieces = vec![(0, Bytes::from_static(b"a")), (100, Bytes::from_static(b"b"))];
        let mtime = Timestamp { seconds: 8, nanos: 0 };
        let made = |op| Aim::Made { txn: 3, op };
        let ops = vec![
            make("one", Aim::Handle(root.clone()), pieces.clone()),
            make("two", Aim::Handle(root.clone()), pieces[1..].to_vec()),
            make("three", Aim::Handle(root), vec![]),
            Mutation::Write { object: made(0), data: pieces, mtime },
            Mutation::SetAttr { object: made(6), changes: Changes::default() },
        ];
        let asked = Generation::default();
        let batch =
            Batch { txn: 3, done_through: 1, caller: Caller::new(0, 0), ops, asked, until: Until::Executed };
        let sheet = Sheet::of(&batch);
        // The first file: made, its second piece, its time.
        assert_eq!(sheet.starts, [0, 3, 6, 7, 10]);
        let named = |at: usize| match &sheet.ops[at] {
            BatchOp::Data { object, .. } | BatchOp::SetAttr { object, .. } => *object,
            other => panic!("{other:?}"),
        };
        let own = |op| Ref::Made { txn: TxnId(3), op };
        assert_eq!([1, 2, 4, 5].map(named), [0, 0, 3, 3].map(own), "parts of what is made name it");
        assert_eq!([7, 8, 9, 10].map(named), [0, 0, 0, 6].map(own));
    }

    #[test]
    fn a_file_that_the_server_has_made_is_placed_where_it_knows_how_to() {
        let mut op = make("one", Aim::Handle(Handle::new(b"root")), vec![(0, Bytes::from_static(b"a"))]);
        let Mutation::Make { object: NewObject::File { pooled, .. }, .. } = &mut op else { unreachable!() };
        *pooled = Some(Handle::new(b"spare"));
        let asked = Generation::default();
        let batch = Batch {
            txn: 1,
            done_through: 0,
            caller: Caller::new(0, 0),
            ops: vec![op],
            asked,
            until: Until::Executed,
        };
        let sheet = Sheet::of(&batch);
        let BatchOp::Place { name, data, pooled, set, .. } = &sheet.ops[0] else { panic!("{:?}", sheet.ops) };
        assert_eq!((*name, *data, pooled.0), (&b"one"[..], &b"a"[..], &b"spare"[..]));
        let BatchOp::Create { name, data, set: as_asked, .. } = unpooled(&sheet.ops[0]) else { panic!() };
        assert_eq!((name, data, as_asked), (&b"one"[..], &b"a"[..], *set));
    }

    #[test]
    fn what_was_made_is_known_though_nobody_says_how_it_looks() {
        let handle = holdfast_wire::caps::Handle(b"made");
        let grant = holdfast_wire::caps::Grant::default();
        let made = holdfast_wire::caps::Made { handle, attrs: None, grant, other_name: b"" };
        let MutationResult::Done { made: Some(born), .. } = result(&[Res::Ok(OpResult::Made(made))]) else {
            panic!("nothing made")
        };
        assert_eq!(born.handle, Handle::new(b"made"));
    }

    #[test]
    fn a_mutation_fails_with_any_of_its_operations() {
        let told = BatchOk {
            results: vec![Res::Ok(OpResult::Done), Res::Ok(OpResult::Changed(None)), Res::Failed(28)],
            dirs: vec![],
            executed_through: TxnId(1),
            stable_through: TxnId(0),
        };
        let all = results(&[0, 1], &told);
        assert_eq!(all[0], MutationResult::Done { made: None, other_name: None, attrs: None });
        assert_eq!(all[1], MutationResult::Failed(holdfast_cache::Errno::ENOSPC));
    }

    #[test]
    fn what_names_something_that_is_forgotten_is_as_what_names_something_that_failed() {
        for status in [CapsStat::Depends, CapsStat::BadRef] {
            assert_eq!(result(&[Res::Failed(status.as_u32())]), MutationResult::Depends);
        }
    }

    #[test]
    fn places_are_known_until_the_machine_is_done_with_them() {
        let mut ledger = Ledger::default();
        ledger.places.extend([(1, vec![0]), (2, vec![0, 3]), (3, vec![0])]);
        ledger.done(1);
        let failed = |op| FailedOp { txn: TxnId(2), op, status: 5 };
        let places = |told: &[FailedOp]| ledger.failed(told).iter().map(|of| of.place).collect::<Vec<_>>();
        assert_eq!((ledger.done_through(), places(&[failed(3)])), (TxnId(1), vec![1]));
        assert_eq!(places(&[failed(0), failed(1), failed(2)]), [0], "its parts are told of together");
        assert_eq!(places(&[failed(FailedOp::ALL)]), [0, 1]);
        let of_former = FailedOp { txn: TxnId(9), ..failed(2) };
        assert_eq!(places(&[of_former]).len(), CAPS_BATCH_OPS_MAX, "which of them is not known");
        // A batch that was made before, and goes out later.
        ledger.done(0);
        assert_eq!(ledger.done_through(), TxnId(1));
        ledger.done(3);
        assert!(ledger.places.is_empty());
    }
}
