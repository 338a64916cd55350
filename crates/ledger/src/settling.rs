//! From the entries that a start finds in the journal to what the server remembers: what is believed, and what became of
//! the rest. A request stands for itself; the operations of one client's batches are settled together once the machine
//! has died ([`Sequence`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use holdfast_base::ExportId;
use holdfast_export::Export;
use holdfast_journal::{Certainty, EntryId, Journal, Recovered};
use holdfast_recovery::intent::Step;
use holdfast_recovery::keys::{SLOT, parse_slot_key};
use holdfast_recovery::sequence::{Entry, Sequence};
use holdfast_recovery::{Intent, Look, Settled};
use holdfast_vfs::{Handle, Touched};
use rustc_hash::FxHashMap;

use crate::ledger::{BatchRecord, Past, Remembered};
use crate::{intent, look, outcome};

/// Entries on their way from the journal to what the server remembers.
pub(crate) struct Settling<'a> {
    journal: &'a Journal,
    exports: &'a [Arc<Export>],
    pub(crate) pasts: FxHashMap<Vec<u8>, Arc<Past>>,
    pub(crate) remembered: Vec<Remembered>,
    /// Executed, and perhaps not durable yet: once its objects are committed, which is what is named here, the entry is
    /// sealed. None of a batch: data that no entry tells of belongs to it, and its transaction's commit seals it.
    unsealed: Vec<(Option<EntryId>, ExportId, Vec<Touched>)>,
}

/// Operations of one client's batches, by transaction and place.
type Lane = BTreeMap<(u64, u32), Recovered>;

/// Those of them that are about one export, in their order.
type OfExport<'e> = (&'e Export, Vec<(&'e Recovered, Step<'e>)>);

impl<'a> Settling<'a> {
    /// Settles them all, and makes durable what has happened.
    pub(crate) fn of(journal: &'a Journal, exports: &'a [Arc<Export>], recovered: Vec<Recovered>) -> Self {
        let mut this = Self {
            journal,
            exports,
            pasts: FxHashMap::default(),
            remembered: Vec::new(),
            unsealed: Vec::new(),
        };
        let mut lanes: BTreeMap<[u8; 16], Lane> = BTreeMap::new();
        for entry in recovered {
            match intent::parse_batch_key(&entry.key) {
                Some((incarnation, txn, op)) => {
                    lanes.entry(incarnation).or_default().insert((txn, op), entry);
                }
                None => this.take(&entry),
            }
        }
        for lane in lanes.values() {
            if lane.values().any(|entry| entry.certainty == Certainty::MachineDied) {
                this.take_together(lane);
            } else {
                lane.values().for_each(|entry| this.take(entry));
            }
        }
        this.make_durable();
        this
    }

    /// What an entry says, and where; what nothing can be said of is dropped.
    fn read<'e>(&self, entry: &'e Recovered) -> Option<(&'a Export, Step<'e>)> {
        let Ok((export, step)) = intent::read(&entry.intent) else {
            tracing::warn!(order = entry.order, "an entry of the journal cannot be read, and is dropped");
            self.journal.forget(entry.id);
            return None;
        };
        let export = self.exports.iter().find(|of| of.id == export);
        if export.is_none() {
            // Without its export nothing can be looked at, and nobody can send the request again.
            self.journal.forget(entry.id);
        }
        Some((export?, step))
    }

    /// Settles one by what its own names stand for.
    fn take(&mut self, entry: &Recovered) {
        let Some((export, step)) = self.read(entry) else { return };
        let settled = if is_believed(entry) {
            Settled::HappenedAlready
        } else {
            look::settle_now(export.backend.as_ref(), &step.intent)
        };
        self.conclude(entry, (export, &step), settled);
    }

    /// Settles what one client did in a row, by all that came of it.
    fn take_together(&mut self, lane: &Lane) {
        let mut of_export: BTreeMap<u16, OfExport<'_>> = BTreeMap::new();
        for entry in lane.values() {
            if let Some((export, step)) = self.read(entry) {
                let (_, all) = of_export.entry(export.id.0).or_insert_with(|| (export, Vec::new()));
                all.push((entry, step));
            }
        }
        for (export, all) in of_export.into_values() {
            let mut handles = vec![None; all.len()];
            let entries = all.iter().zip(&mut handles).map(|((entry, step), made)| Entry {
                intent: step.intent,
                came: outcome::came(entry.reply.as_deref(), made),
                is_certain: entry.certainty != Certainty::MachineDied,
            });
            let sequence = Sequence::of(entries.collect());
            let settled = look::settle_together(export.backend.as_ref(), &sequence);
            for ((entry, step), settled) in all.iter().zip(settled) {
                let settled = if is_believed(entry) { Settled::HappenedAlready } else { settled };
                self.conclude(entry, (export, step), settled);
            }
        }
    }

    fn conclude(&mut self, entry: &Recovered, (export, step): (&Export, &Step<'_>), settled: Settled) {
        if settled == Settled::HappenedAlready && entry.certainty != Certainty::Sealed {
            let to_seal = entry.key.first() != Some(&intent::BATCH);
            self.unsealed.push((to_seal.then_some(entry.id), export.id, touched(&step.intent)));
        }
        tracing::debug!(order = entry.order, ?settled, has_reply = entry.reply.is_some(), "settled");
        let has_happened = settled == Settled::HappenedAlready;
        let (reply, doubtful) =
            if has_happened { (entry.reply.clone(), None) } else { (None, entry.reply.clone()) };
        if reply.is_none() {
            let made = has_happened.then(|| look::made(export.backend.as_ref(), &step.intent)).flatten();
            let past = Past::of(entry.id, &entry.intent, step, settled).having_made(made);
            self.pasts.insert(entry.key.clone(), Arc::new(past));
        }
        self.remember(entry, (step.seqid, step.call_hash), reply, doubtful);
    }

    fn remember(
        &mut self,
        entry: &Recovered,
        (seqid, call_hash): (u32, u64),
        reply: Option<Vec<u8>>,
        doubtful: Option<Vec<u8>>,
    ) {
        let key = &entry.key;
        match (key.first(), reply) {
            (Some(&SLOT), reply) => {
                if let Some((session, slot)) = parse_slot_key(key) {
                    self.remembered.push(Remembered::Slot { session, slot, seqid, call_hash, reply });
                }
            }
            (Some(&intent::BATCH), outcome) => {
                let record = BatchRecord::of(entry);
                if let Some((incarnation, txn, op)) = intent::parse_batch_key(key) {
                    let one = Remembered::Batch { incarnation, txn, op, outcome, doubtful, record };
                    self.remembered.push(one);
                }
            }
            (Some(&intent::CALL), Some(results)) => {
                self.remembered.push(Remembered::Call { key: key[1..].to_vec(), results });
            }
            _ => {}
        }
    }

    /// Commits the file systems of what was executed and may not be durable, then says so in the journal.
    fn make_durable(&mut self) {
        let unsealed = std::mem::take(&mut self.unsealed);
        // Batches leave thousands of entries of a few directories: each object is committed once.
        let mut of_export: FxHashMap<ExportId, FxHashMap<Touched, bool>> = FxHashMap::default();
        for (_, export, touched) in &unsealed {
            let all = of_export.entry(*export).or_default();
            all.extend(touched.iter().map(|touched| (*touched, false)));
        }
        for (export, all) in &mut of_export {
            let Some(export) = self.exports.iter().find(|of| of.id == *export) else { continue };
            let touched: Vec<_> = all.keys().copied().collect();
            let mut results = vec![Ok(()); touched.len()];
            export.backend.commit(&touched, &mut results);
            for (touched, result) in touched.into_iter().zip(results) {
                // What is gone since needs no commit of its own: its directory's carries it.
                all.insert(touched, matches!(result, Ok(()) | Err(holdfast_vfs::FsError::Stale)));
            }
        }
        for (entry, export, touched) in unsealed {
            let Some(all) = of_export.get(&export) else { continue };
            let is_durable = touched.iter().all(|touched| all.get(touched).copied().unwrap_or(false));
            // Without its reply the entry is finished when the request comes again.
            if is_durable
                && let Some(entry) = entry
                && let Err(error) = self.journal.seal(entry)
            {
                tracing::debug!(%error, "not sealed");
            }
        }
        if let Err(error) = self.journal.force() {
            tracing::error!(%error, "the journal of replies cannot be forced");
        }
    }
}

/// Whether what is on record of it is so, without a look.
fn is_believed(entry: &Recovered) -> bool {
    entry.certainty != Certainty::MachineDied && entry.reply.is_some()
}

/// The objects that an executed intent changed.
fn touched(intent: &Intent<'_>) -> Vec<Touched> {
    let of_look = |l: &Look<'_>| match l {
        Look::Name(place) => Handle::new(place.dir),
        Look::Object(object) | Look::Xattr { object, .. } => Handle::new(object),
    };
    let looks = intent.looks();
    looks.iter().flatten().filter_map(of_look).map(|handle| Touched { handle, data: false }).collect()
}
