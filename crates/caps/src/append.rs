//! APPEND: data written where a file ends by then, once.
//!
//! Where it is to be is on record, as its outcome, before it is written. So a former life's is found again, or is found not to
//! have been written, by looking there; the data itself is in no record.

use holdfast_ledger::failpoint::{self, Point};
use holdfast_state::Access;
use holdfast_vfs::{Caller, File};
use holdfast_wire::caps::{BatchOp, Ref};

use crate::ops::{Doing, Done, Run, Stop};
use crate::outcome::{Appended, Outcome};

impl Doing<'_> {
    pub(crate) fn append(&mut self, object: &Ref<'_>, data: &[u8]) -> Result<Outcome, Stop> {
        let site = self.site(object)?;
        let caller = self.caller(&site)?;
        // It names no open; who has one that denies writing is to be asked first.
        self.caps.parts.manager.check_stateless(&site.handle, Access::WRITE)?;
        let (handle, backend) = (self.caps.seal(&site), &site.export.backend);
        // Of before: should what was not committed be lost meanwhile, another is told later.
        let verifier = backend.write_verifier();
        let outcome = |offset, bytes| {
            let count = u32::try_from(bytes).unwrap_or(u32::MAX);
            Outcome::Appended(Appended { handle, offset, count, verifier })
        };
        let (record, export) = (&mut self.record, site.export.id);
        let appended =
            backend.append(&self.actor.cx(&caller), File::Stateless(&site.handle), data, &mut |offset| {
                if let Some(record) = record {
                    record.note(export, &outcome(offset, data.len()).to_bytes());
                }
                failpoint::pass(Point::BeforeMutation);
                Ok(())
            })?;
        failpoint::pass(Point::AfterMutation);
        self.touch(&site.export, site.handle, true);
        Ok(outcome(appended.offset, appended.bytes))
    }

    /// Whether this is what the file has there.
    fn has(&mut self, object: &Ref<'_>, offset: u64, data: &[u8]) -> Result<bool, Stop> {
        let site = match self.site(object) {
            Ok(site) => site,
            Err(Stop::Later) => return Err(Stop::Later),
            // It is gone, and so is what was to be written to it.
            Err(Stop::Refused(_)) => return Ok(true),
        };
        let (root, file) = (Caller::root(), File::Stateless(&site.handle));
        let cx = self.actor.cx(&root);
        let mut there = vec![0; data.len()];
        let mut seen = 0;
        while seen < data.len() {
            let read = site.export.backend.read(
                &cx,
                file,
                offset.saturating_add(seen as u64),
                &mut there[seen..],
            )?;
            if read.bytes == 0 {
                break;
            }
            seen += read.bytes;
        }
        self.touch(&site.export, site.handle, true);
        Ok(there[..seen] == *data)
    }
}

impl Run<'_> {
    /// Whether what a former life has on record of an operation is so. An append that was cut short, or that the machine has lost,
    /// is not where it was to be, and is done anew.
    pub(crate) fn stands(
        &mut self,
        op: &BatchOp<'_>,
        place: u32,
        known: &Outcome,
        done: &mut Done,
    ) -> Result<bool, Stop> {
        let (BatchOp::Append { object, data }, Outcome::Appended(appended)) = (op, known) else {
            return Ok(true);
        };
        let written = &data[..data.len().min(appended.count as usize)];
        self.doing(None, &mut None, (place, done)).has(object, appended.offset, written)
    }
}
