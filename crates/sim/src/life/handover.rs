//! A planned restart: what one process of the server writes down, and another goes on with, as `server` has it
//! (`docs/design/handover.md`). Everything goes through bytes, and open files through descriptors.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use holdfast_base::Entropy;
use holdfast_recovery::{Boot, ClientRecord, Settled};
use holdfast_rpc::detached::{Detached, HandedDetached};
use holdfast_rpc::reply_cache::Key;
use holdfast_state::Engine;
use holdfast_store::Store;
use holdfast_vfs::Backend;
use holdfast_vfs::handover::{FileImage, Incoming, Outgoing};
use holdfast_xdr::{Decode, Reader, to_bytes};
use serde::{Deserialize, Serialize};

use super::{Life, Plant, Start};
use crate::machine::Machine;

/// How often delegated objects are looked at, by a thread of its own that this machine may be slow to run.
const LOOKS: u32 = 100;

/// What one process writes down for the next.
#[derive(Serialize, Deserialize)]
struct Image {
    epoch: u64,
    /// Numbers of connections that do not come along.
    lost: Vec<u64>,
    files: Vec<FileImage>,
    /// Of the export.
    verifier: [u8; 8],
    replies: Vec<(Vec<u8>, Vec<u8>)>,
    engine: Option<holdfast_state::Frozen>,
    nfs4: holdfast_nfs4::Image,
    nlm: holdfast_nlm::handover::Image,
    caps: holdfast_caps::Image,
    records: holdfast_server::durable::Image,
}

/// A server that is about to be another process.
pub(crate) struct Frozen {
    start: Start,
    process: u64,
    bytes: Vec<u8>,
    descriptors: Vec<Option<OwnedFd>>,
}

/// The same, as the other process reads it.
pub(super) struct Inherited {
    image: Image,
    incoming: Incoming,
}

impl Inherited {
    pub(super) fn boot(&self, store: &dyn Store) -> Result<Boot> {
        Boot::go_on(store, self.image.epoch)?.context("it is not of the last start")
    }

    pub(super) fn cut_short(&mut self) -> Vec<(Vec<u8>, Settled)> {
        self.image.records.take_cut_short()
    }

    pub(super) fn unstored(&mut self) -> Vec<ClientRecord> {
        self.image.records.take_unstored()
    }

    pub(super) fn engine(
        &mut self,
        config: holdfast_state::Config,
        entropy: Box<dyn Entropy>,
    ) -> Result<Engine> {
        let frozen = self.image.engine.take().context("it has no state")?;
        Ok(Engine::thaw(frozen, config, entropy)?)
    }
}

impl Life {
    /// Whether a planned restart may be: not while clients reclaim.
    pub(crate) fn may_be_handed_over(&self) -> bool {
        self.durable.is_grace_over()
    }

    /// Stands still, and lets what has begun come to its end. Returns whether it did, and nothing waits for a client.
    pub(crate) fn hold(&self, machine: &Machine, sides: &[&Detached]) -> bool {
        self.manager.hold();
        self.base.hold();
        while self.pump(machine) > 0 {
            self.base.hold();
        }
        sides.iter().all(|side| side.unanswered() == (0, 0))
    }

    /// Goes on after all.
    pub(crate) fn release(&self) {
        self.base.release();
        self.lockd.go_on();
        self.manager.go_on();
    }

    pub(super) fn frozen_engine(&self) -> Option<holdfast_state::Frozen> {
        self.manager.look(|engine| engine.is_quiet().then(|| engine.freeze()))
    }

    /// Writes everything down. Who waits for answers to calls of the server's own has been let go.
    ///
    /// # Errors
    /// What stands against it.
    pub(crate) fn freeze(&self, lost: Vec<u64>) -> Result<Frozen> {
        ensure!(self.lockd.hold(), "the lock manager is at work");
        let plant = self.start.plant;
        let Some(mut engine) = self.frozen_engine() else { bail!("something is half granted") };
        if let Some(former) =
            self.former.borrow_mut().take().filter(|_| plant == Some(Plant::HandOverOldState))
        {
            engine = former;
        }
        let mut outgoing = Outgoing::default();
        let mut looks = (0..LOOKS).filter_map(|_| self.nfs4.freeze(&mut outgoing).ok());
        let nfs4 = looks.next().context("what is delegated cannot be looked at")?;
        let nlm = self.lockd.freeze(&mut outgoing)?;
        let caps = self.caps.freeze()?;
        let reply = |(key, results): (Key, bytes::Bytes)| (to_bytes(&key), results.to_vec());
        let image = Image {
            epoch: self.epoch,
            lost,
            files: outgoing.files().to_vec(),
            verifier: self.backend().write_verifier(),
            replies: self.replies.finished().into_iter().map(reply).collect(),
            engine: Some(engine),
            nfs4,
            nlm,
            caps,
            records: self.durable.freeze(),
        };
        // Duplicates, as those of another process are.
        let descriptors = outgoing.descriptors().map(|fd| fd.try_clone_to_owned().ok()).collect();
        Ok(Frozen {
            start: self.start.clone(),
            process: self.process + 1,
            bytes: rmp_serde::to_vec_named(&image)?,
            descriptors,
        })
    }

    /// Another process, in the place of the one that wrote this down.
    ///
    /// # Errors
    /// What it cannot go on with.
    pub(crate) fn go_on(frozen: Frozen) -> Result<Self> {
        let Frozen { start, process, bytes, descriptors } = frozen;
        let image: Image = rmp_serde::from_slice(&bytes).context("the image cannot be read")?;
        let inherited = Inherited { image, incoming: Incoming::new(descriptors) };
        let is_ignored = start.plant == Some(Plant::GoOnAsAfterCrash);
        Self::begin(start, process, (!is_ignored).then_some(inherited))
    }

    fn backend(&self) -> Arc<dyn Backend> {
        // There is one, as `begin` made it.
        Arc::clone(&self.namespace.exports()[0].backend)
    }

    /// Goes on where the process before stopped.
    pub(super) fn thaw(&self, inherited: Inherited, engine: Engine) -> Result<()> {
        let Inherited { image, mut incoming } = inherited;
        ensure!(self.backend().write_verifier() == image.verifier, "the write verifier is another");
        let lost = incoming.open_files(&image.files, &[self.backend()]);
        ensure!(lost == 0, "{lost} open files did not come along");
        self.durable.thaw(image.records);
        self.manager.resume(engine);
        let thawed = self.nfs4.thaw(image.nfs4, &incoming, &image.lost);
        let lost = thawed.files_lost + self.lockd.thaw(image.nlm, &incoming);
        ensure!(lost == 0, "{lost} open files were not found again");
        *self.thawed.borrow_mut() = thawed;
        *self.thawed_caps.borrow_mut() = self.caps.thaw(image.caps);
        let known = |(key, results): (Vec<u8>, Vec<u8>)| {
            Some((Key::decode(&mut Reader::new(&key)).ok()?, results.into()))
        };
        self.replies.restore(image.replies.into_iter().filter_map(known));
        Ok(())
    }

    /// Goes on with connections, and does what had to wait for them.
    pub(crate) fn adopt(&self, handed: impl Iterator<Item = HandedDetached>) -> Vec<Detached> {
        let sides = handed.map(|handed| self.base.adopt(handed)).collect();
        self.nfs4.go_on(std::mem::take(&mut *self.thawed.borrow_mut()));
        self.caps.go_on(std::mem::take(&mut *self.thawed_caps.borrow_mut()));
        sides
    }

    /// The process is another program now. Returns whether anything of this one is left.
    pub(crate) fn retire(self, sides: Vec<Detached>) -> bool {
        self.store.cut_off();
        sides.iter().for_each(|side| side.connection().close());
        self.base.connection().close();
        drop(sides);
        let left = Arc::downgrade(&self.nfs4);
        drop(self);
        left.strong_count() > 0
    }
}

impl std::fmt::Debug for Frozen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Frozen").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}
