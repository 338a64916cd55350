//! The programs' part in a handover: brought to a stop, written down, gone on with.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use holdfast_rpc::handover::Handed;
use holdfast_rpc::reply_cache::{Key, ReplyCache};
use holdfast_vfs::handover::Outgoing;
use holdfast_xdr::{Decode as _, Reader, to_bytes};

use super::Programs;
use crate::handover::{Frozen, Image, Inheritance, Leaving, boot_time, pack};

/// How long records may take to be written before a handover is given up: all calls wait.
const RECORDS_PATIENCE: Duration = Duration::from_secs(2);

impl Programs {
    /// Whether what is served can be handed over now.
    ///
    /// # Errors
    /// What stands against it.
    pub(crate) fn may_be_handed_over(&self) -> Result<()> {
        if !self.durable.is_grace_over() {
            // Half of the state is still with the clients; after an ordinary restart they reclaim all the same.
            bail!("clients are still reclaiming after the last restart: try again when grace is over");
        }
        match self.exports.lock().iter().find(|opened| !opened.outlives_the_process()) {
            Some(opened) => bail!("export {} lies in this process' memory", opened.export.path_display()),
            None => Ok(()),
        }
    }

    /// Has copies in the background end; says whether all have.
    pub(crate) fn stop_copies(&self) -> bool {
        self.nfs4.stop_copies()
    }

    /// Waits for the tick that is under way, and for what the administrator changes, and has nothing else begin. Nobody waits for
    /// recalls any more.
    ///
    /// # Errors
    /// It does not come to its end.
    pub(crate) fn stop_time(&self) -> Result<()> {
        self.manager.hold();
        if !self.standstill.begin() {
            bail!("what the administrator changes, or is due by time, does not come to its end: try again");
        }
        Ok(())
    }

    /// Whether something that mounts have changed is on its way to the disk.
    pub(crate) fn is_forcing(&self) -> bool {
        self.caps.as_ref().is_some_and(|caps| caps.is_forcing())
    }

    /// Time goes on after all.
    pub(crate) fn go_on(&self) {
        self.nfs4.allow_copies();
        self.manager.go_on();
        self.lockd.go_on();
        self.standstill.end();
    }

    /// Writes down everything, while nothing happens.
    ///
    /// # Errors
    /// What cannot be handed over.
    pub(crate) fn freeze(&self, handed: Handed, held_at: u64) -> Result<Frozen> {
        self.may_be_handed_over()?;
        if !self.lockd.hold() {
            bail!("the lock manager waits for a file system that does not answer: try again");
        }
        self.await_records()?;
        if !self.manager.look(holdfast_state::Engine::is_quiet) {
            bail!("a lock or an open is half granted: try again");
        }
        let mut outgoing = Outgoing::default();
        let (listeners, connections, lost) = pack(handed, &mut outgoing);
        let nfs4 = self.nfs4.freeze(&mut outgoing)?;
        let nlm = self.lockd.freeze(&mut outgoing)?;
        let caps = self.caps.as_ref().map(|caps| caps.freeze()).transpose()?.unwrap_or_default();
        // After what is promised has been looked at: what a local process does behind a look is seen by the next process, and what
        // was done before it has been recalled, and that is known to the engine.
        let engine = Leaving::begin(&self.manager, &mut outgoing)?;
        let verifier = |export: &Arc<_>| {
            let export: &holdfast_export::Export = export;
            (u32::from(export.id.0), export.backend.write_verifier())
        };
        let image = Image {
            epoch: self.epoch,
            clock_ms: self.clock.now().0,
            frozen_at: boot_time(),
            held_at,
            lease_ms: self.manager.lease_ms(),
            listeners,
            connections,
            lost,
            files: outgoing.files().to_vec(),
            verifiers: self.namespace.exports().iter().map(verifier).collect(),
            replies: replies_of(&self.replies),
            engine: None,
            nfs4,
            nlm,
            caps,
            records: self.durable.freeze(),
        };
        Ok(Frozen { image, outgoing, engine })
    }

    /// Waits until every record is written: the next process reads them.
    fn await_records(&self) -> Result<()> {
        let until = Instant::now() + RECORDS_PATIENCE;
        // What is due to them comes to its end, and does nothing any more.
        let turn = self.recording.try_lock_for(RECORDS_PATIENCE);
        while turn.is_none() || !self.durable.is_all_written() {
            if Instant::now() > until {
                bail!("the disk of the state directory does not answer: try again");
            }
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Does what had to wait for the connections. When clients can be called.
    pub(crate) fn after_handover(&self) {
        let thawed = std::mem::take(&mut *self.thawed.lock());
        self.nfs4.go_on(thawed);
        let thawed = std::mem::take(&mut *self.thawed_caps.lock());
        if let Some(caps) = &self.caps {
            caps.go_on(thawed);
        }
        holdfast_backend_local::release_thread();
    }

    /// Goes on where the process before stopped. Before the first request.
    pub(super) fn thaw(&self, inherited: &mut Inheritance, engine: holdfast_state::Engine) {
        let Inheritance { image, incoming, .. } = inherited;
        self.manager.resume(engine);
        let thawed = self.nfs4.thaw(std::mem::take(&mut image.nfs4), incoming, &image.lost);
        let lost = thawed.files_lost + self.lockd.thaw(std::mem::take(&mut image.nlm), incoming);
        if lost > 0 {
            tracing::warn!(lost, "open files of exports that are not served any more were closed");
        }
        *self.thawed.lock() = thawed;
        self.durable.thaw(std::mem::take(&mut image.records));
        let caps = std::mem::take(&mut image.caps);
        match &self.caps {
            Some(served) => *self.thawed_caps.lock() = served.thaw(caps),
            // Nobody could call their holders.
            None => drop(self.manager.step(holdfast_state::Engine::caps_end)),
        }
        let known = |(key, results): (serde_bytes::ByteBuf, serde_bytes::ByteBuf)| {
            let key = Key::decode(&mut Reader::new(&key)).ok()?;
            Some((key, results.into_vec().into()))
        };
        self.replies.restore(std::mem::take(&mut image.replies).into_iter().filter_map(known));
    }
}

fn replies_of(cache: &ReplyCache) -> Vec<(serde_bytes::ByteBuf, serde_bytes::ByteBuf)> {
    let reply = |(key, results): (Key, bytes::Bytes)| (to_bytes(&key).into(), results.to_vec().into());
    cache.finished().into_iter().map(reply).collect()
}
