//! The loop over a compound's operations: everything that operations have in common happens here and nowhere else.

use std::time::Instant;

use holdfast_export::Object;
use holdfast_rpc::Mode;
use holdfast_vfs::FsError;
use holdfast_wire::nfs4::{NfsStat4, OpNum4};
use holdfast_xdr::{Reader, Writer};

use crate::compound::Compound;
use crate::cx::Cx;
use crate::desc::{Flags, OpDesc};
use crate::error::{Failure, fit, from_fs, from_state};
use crate::observe::Observed;
use crate::order;
use crate::program::takes_turns;
use crate::slot::TurnKind;
use crate::table::{self, Row};

/// Why the loop stopped.
pub(crate) enum Stopped {
    /// The compound is done, well or badly.
    Done,
    /// The next operation has to wait: go on with it on the pool. `args` stands before it.
    Waits,
    /// SEQUENCE: nothing is to be run.
    Turned(TurnKind),
}

/// What one operation leads to.
enum Step {
    Next,
    Stop(Stopped),
}

/// What an operation is in this minor version.
enum Legal {
    Served(&'static Row),
    NotServed,
    Illegal,
}

impl Compound {
    /// Runs operations until the compound is done or has to wait.
    pub(crate) fn run(&mut self, args: &mut Reader<'_>, reply: &mut Writer, mode: Mode) -> Stopped {
        let first = self.index;
        while self.index < self.ops {
            // The turn is that of the operation which stood here when it was taken, and of no other's directory.
            let has_lost_turn = mode == Mode::Turn && self.index > first;
            let mode = if has_lost_turn { Mode::Inline } else { mode };
            match self.step(args, reply, mode) {
                Step::Next => self.index += 1,
                Step::Stop(stopped) => return stopped,
            }
        }
        reply.fill(self.count, self.index);
        Stopped::Done
    }

    fn step(&mut self, args: &mut Reader<'_>, reply: &mut Writer, mode: Mode) -> Step {
        let before = args.clone();
        self.result_at = reply.len();
        let Ok(number) = args.u32() else { return self.refuse(OpNum4::Illegal, NfsStat4::BadXdr, reply) };
        let (num, legal) = self.legal(number);
        self.op = num;
        let desc = match &legal {
            Legal::Served(row) => Some(&row.desc),
            _ => None,
        };
        // What is no operation at all is told before where it stands.
        if matches!(legal, Legal::Illegal) {
            return self.refuse(OpNum4::Illegal, NfsStat4::OpIllegal, reply);
        }
        if let Err(status) = order::check(self, desc) {
            return self.refuse(num, status, reply);
        }
        let Legal::Served(row) = legal else { return self.refuse(num, NfsStat4::NotSupp, reply) };
        if let Err(status) = self.check(&row.desc) {
            return self.refuse(num, status, reply);
        }
        if self.waits(&row.desc, mode) {
            *args = before;
            return Step::Stop(Stopped::Waits);
        }
        self.execute(row, (args, before), reply, mode)
    }

    fn legal(&self, number: u32) -> (OpNum4, Legal) {
        match OpNum4::from_u32(number) {
            None | Some(OpNum4::Illegal) => (OpNum4::Illegal, Legal::Illegal),
            Some(num) if num.since_minor() > self.minor as u32 => (OpNum4::Illegal, Legal::Illegal),
            Some(num) => match table::row(num) {
                Some(row) if row.desc.until >= self.minor => (num, Legal::Served(row)),
                _ => (num, Legal::NotServed),
            },
        }
    }

    /// Filehandles, and what the export allows.
    fn check(&self, desc: &OpDesc) -> Result<(), NfsStat4> {
        for (needed, place) in
            [(Flags::NEEDS_SAVED_FH, self.saved.as_ref()), (Flags::NEEDS_FH, self.current.as_ref())]
        {
            if !desc.flags.has(needed) {
                continue;
            }
            let place = place.ok_or(NfsStat4::NoFileHandle)?;
            if !place.is_admitted {
                return Err(NfsStat4::Access);
            }
            if !desc.flags.has(Flags::OF_ABSENT)
                && let Object::Export(export, _) = &place.object
                && export.is_moved()
            {
                return Err(NfsStat4::Moved);
            }
            // The saved object of LINK, RENAME and CLONE is changed too, or lies in the same file system.
            let is_read_only = match &place.object {
                Object::Export(export, _) => export.options.is_read_only,
                Object::Pseudo(_) => true,
            };
            if needed == Flags::NEEDS_FH && is_read_only && desc.flags.has(Flags::WRITES) {
                return Err(NfsStat4::Rofs);
            }
        }
        Ok(())
    }

    /// Whether an operation is to be run where waiting is allowed without being tried here.
    fn waits(&self, desc: &OpDesc, mode: Mode) -> bool {
        let is_sync = || match self.current.as_ref().map(|place| &place.object) {
            Some(Object::Export(export, _)) => export.options.is_sync,
            _ => false,
        };
        // Who has the directory's turn changes names at the pace of its journal.
        let has_turn = mode == Mode::Turn && takes_turns(desc.num);
        mode != Mode::Pool
            && (desc.flags.has(Flags::WAITS)
                || (desc.flags.has(Flags::WAITS_IN_SYNC) && !has_turn && is_sync()))
    }

    fn execute<'a>(
        &mut self,
        row: &Row,
        (args, before): (&mut Reader<'a>, Reader<'a>),
        reply: &mut Writer,
        mode: Mode,
    ) -> Step {
        let num = row.desc.num;
        reply.u32(num.as_u32());
        let status = reply.mark();
        let body_at = reply.len();
        if self.index == 1 {
            self.second = Some((status, body_at));
        }
        let observer = self.service.config.observer.as_ref();
        let started = observer.and_then(|observer| observer.begins(mode != Mode::Inline));
        let args_bytes = before.rest().len();
        let result = (row.run)(args, &mut Cx { reply, compound: self, mode, next: None });
        let failed = match result {
            Ok(()) => match self.end_well(&row.desc, reply) {
                Ok(()) => None,
                Err(status) => Some((status, false)),
            },
            Err(Failure::Wait) if mode != Mode::Pool => {
                reply.truncate(self.result_at);
                *args = before;
                return Step::Stop(Stopped::Waits);
            }
            Err(Failure::Turn(turn)) => {
                reply.truncate(self.result_at);
                return Step::Stop(Stopped::Turned(turn.0));
            }
            Err(Failure::WithBody(status)) => Some((status, true)),
            Err(Failure::Status(status)) => Some((status, false)),
            Err(Failure::Fs(FsError::Delay)) => Some((self.delay(num), false)),
            Err(Failure::Fs(error)) => Some((from_fs(error), false)),
            Err(Failure::State(error)) => Some((from_state(error), false)),
            // On the pool nothing is left to wait for.
            Err(Failure::Wait) => Some((from_fs(FsError::Delay), false)),
        };
        let outcome = failed.map_or(NfsStat4::Ok, |(status, _)| fit(status, num, self.minor));
        reply.fill(status, outcome.as_u32());
        self.observe(outcome, started, (args_bytes - args.rest().len(), self.result_bytes(reply)));
        let Some((_, has_body)) = failed else { return Step::Next };
        self.stand_ins.forget(self.result_at);
        if !has_body {
            reply.truncate(body_at);
            write_error_body(row.desc.flags, reply);
        }
        self.stop(outcome, reply)
    }

    /// A result that turned out too big is no result. What must not be repeated was measured before.
    fn end_well(&mut self, desc: &OpDesc, reply: &Writer) -> Result<(), NfsStat4> {
        let to_come = if self.index + 1 < self.ops { 8 } else { 0 };
        if self.reply_bytes(reply) + to_come > self.reply_bytes_max {
            debug_assert!(!desc.flags.has(Flags::MODIFIES), "{} exceeded its reply bound", desc.num);
            self.file = self.file.take().filter(|(at, _)| *at <= self.result_at);
            return Err(self.too_big());
        }
        if desc.flags.has(Flags::CLEARS_STATEID)
            && let Some(place) = &mut self.current
        {
            place.stateid = None;
        }
        Ok(())
    }

    /// Why the client is to come again: what others have not reclaimed yet is a word that changes have.
    fn delay(&self, num: OpNum4) -> NfsStat4 {
        let has_word =
            matches!(num, OpNum4::Remove | OpNum4::Rename | OpNum4::Link | OpNum4::SetAttr | OpNum4::Write);
        if has_word && self.service.config.manager.is_awaiting_reclaims() {
            NfsStat4::Grace
        } else {
            NfsStat4::Delay
        }
    }

    /// The status of a reply that would not fit.
    pub(crate) fn too_big(&self) -> NfsStat4 {
        match &self.slot {
            Some(slot) if slot.is_kept => NfsStat4::RepTooBigToCache,
            Some(_) => NfsStat4::RepTooBig,
            None => NfsStat4::Resource,
        }
    }

    /// Ends the compound with an operation that was not run.
    fn refuse(&mut self, num: OpNum4, status: NfsStat4, reply: &mut Writer) -> Step {
        self.op = num;
        reply.u32(num.as_u32());
        reply.u32(status.as_u32());
        if let Some(row) = table::row(num) {
            write_error_body(row.desc.flags, reply);
        }
        self.observe(status, None, (0, 0));
        self.stop(status, reply)
    }

    fn stop(&mut self, status: NfsStat4, reply: &mut Writer) -> Step {
        self.index += 1;
        self.outcome = status;
        if status == NfsStat4::Moved {
            self.heard_of_moved();
        }
        reply.fill(self.status, status.as_u32());
        reply.fill(self.count, self.index);
        Step::Stop(Stopped::Done)
    }

    /// The client learns that an export is elsewhere.
    fn heard_of_moved(&self) {
        let Some(slot) = &self.slot else { return };
        for place in [&self.current, &self.saved].into_iter().flatten() {
            if let Object::Export(export, _) = &place.object
                && export.is_moved()
            {
                self.service.untold.heard(slot.client, export.id);
            }
        }
    }

    /// Bytes of the operation's result, those that come from a file included.
    fn result_bytes(&self, reply: &Writer) -> usize {
        let of_file =
            self.file.as_ref().filter(|(at, _)| *at >= self.result_at).map_or(0, |(_, span)| span.bytes);
        reply.len() - self.result_at + of_file
    }

    fn observe(&self, status: NfsStat4, started: Option<(Instant, u32)>, (received, sent): (usize, usize)) {
        let client = self.slot.as_ref().map(|slot| slot.client);
        tracing::trace!(
            xid = self.xid,
            client = client.map(|c| c.0),
            session = self.slot.as_ref().map(|slot| tracing::field::display(slot.session)),
            slot = self.slot.as_ref().map(|slot| slot.slot.0),
            op = self.op.name(),
            status = status.name(),
        );
        if is_loss(status) {
            let (op, status) = (self.op.name(), status.name());
            tracing::debug!(
                client = client.map(|c| c.0),
                op,
                status,
                "what a client had before a restart is refused"
            );
        }
        if let Some(observer) = &self.service.config.observer {
            let export = match self.current.as_ref().map(|place| &place.object) {
                Some(Object::Export(export, _)) => Some(export.id),
                _ => None,
            };
            observer.operation(&Observed {
                op: self.op,
                minor: self.minor,
                status,
                client,
                export,
                peer: self.connection.peer().ip(),
                received: received as u64,
                sent: sent as u64,
                took: started.map(|(at, _)| at.elapsed()),
                weight: started.map_or(0, |(_, weight)| weight),
            });
        }
    }
}

/// What follows a status other than NFS4_OK where the operation wrote nothing itself.
fn write_error_body(flags: Flags, reply: &mut Writer) {
    if flags.has(Flags::BITMAP_ON_ERROR) {
        reply.u32(0);
    }
}

/// Whether a status tells of what a restart, or time without a word, has taken from a client: most programs are told of it by EIO
/// alone.
const fn is_loss(status: NfsStat4) -> bool {
    matches!(
        status,
        NfsStat4::NoGrace
            | NfsStat4::ReclaimBad
            | NfsStat4::ReclaimConflict
            | NfsStat4::StaleStateid
            | NfsStat4::StaleClientId
            | NfsStat4::DeadSession
    )
}
