//! Contents of files on this host's disk: slots of one file beside the journal, written and read at the machine's word. Which
//! slot has what, and since when it counts, the machine knows and the journal keeps.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::hash::Hasher as _;
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_base::limits::KEPT_BLOCK_BYTES;
use holdfast_cache::{Answer, Ask, BlockAt, BlockOut, Errno, Generation, Question, Settling};
use parking_lot::{Condvar, Mutex};
use siphasher::sip::SipHasher13;

use super::keeping::own_caller;
use crate::volume::Shared;

/// What was written is forced when it has waited for so long, or when it is so much.
const FORCE_AFTER: Duration = Duration::from_millis(500);
const FORCE_BYTES: usize = 32 << 20;

/// The file, and what is to be written to it.
#[derive(Debug)]
pub(crate) struct Blocks {
    path: PathBuf,
    file: File,
    /// Sums of other mounts' blocks are none of ours.
    key: [u8; 16],
    slots: u32,
    jobs: Mutex<VecDeque<BlockOut>>,
    bell: Condvar,
    is_off: AtomicBool,
}

impl Blocks {
    /// The file beside a journal, made where there is none, for so many bytes; for none at all it is removed.
    pub(crate) fn open(journal: &Path, bytes: u64, key: [u8; 16]) -> io::Result<Option<Self>> {
        let path = beside(journal);
        let slots = u32::try_from(bytes / u64::from(KEPT_BLOCK_BYTES)).unwrap_or(u32::MAX);
        if slots == 0 {
            let gone = std::fs::remove_file(&path);
            return gone
                .map(|()| None)
                .or_else(|e| if e.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(e) });
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let nofollow = rustix::fs::OFlags::NOFOLLOW.bits().cast_signed();
        let file = options.mode(0o600).custom_flags(nofollow).open(&path)?;
        own(&file)?;
        if file.metadata()?.len() > place(slots) {
            file.set_len(place(slots))?;
        }
        let (jobs, bell, is_off) = (Mutex::default(), Condvar::new(), AtomicBool::new(false));
        Ok(Some(Self { path, file, key, slots, jobs, bell, is_off }))
    }

    /// How many there may be.
    pub(crate) const fn slots(&self) -> u32 {
        self.slots
    }

    fn sum(&self, data: &[u8]) -> u64 {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write(data);
        hasher.finish()
    }

    /// More to be written, behind all that is. To be called under the machine's lock, by which they are in order.
    pub(crate) fn add(&self, blocks: Vec<BlockOut>) {
        if !blocks.is_empty() && !self.is_off() {
            self.jobs.lock().extend(blocks);
            self.bell.notify_one();
        }
    }

    /// The next one; none for so long.
    fn next(&self, most: Duration) -> Option<BlockOut> {
        let mut jobs = self.jobs.lock();
        if jobs.is_empty() {
            let _ = self.bell.wait_for(&mut jobs, most);
        }
        jobs.pop_front()
    }

    /// Writes one; its sum, or none where what it is made of is not there any more.
    fn write(&self, out: &BlockOut) -> io::Result<Option<u64>> {
        let base = match &out.base {
            None => None,
            Some(at) => match self.read(at)? {
                Some(base) => Some(base),
                None => return Ok(None),
            },
        };
        let data = out.made_of(base.as_deref());
        self.file.write_all_at(&data, place(out.slot))?;
        Ok(Some(self.sum(&data)))
    }

    /// Reads one; none where what is there is not what was written.
    pub(crate) fn read(&self, at: &BlockAt) -> io::Result<Option<Bytes>> {
        let mut data = vec![0; at.bytes as usize];
        match self.file.read_exact_at(&mut data, place(at.slot)) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let is_it = at.sum == self.sum(&data);
        Ok(is_it.then(|| data.into()))
    }

    fn force(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn is_off(&self) -> bool {
        self.is_off.load(Ordering::SeqCst)
    }
}

fn beside(journal: &Path) -> PathBuf {
    let mut path = journal.as_os_str().to_owned();
    path.push(".blocks");
    path.into()
}

/// How much room the file beside a journal takes.
pub(super) fn room_taken(journal: &Path) -> u64 {
    // In units of 512 bytes, as POSIX has it.
    rustix::fs::lstat(beside(journal)).map_or(0, |st| st.st_blocks.unsigned_abs().saturating_mul(512))
}

/// It has contents that others may not read: a file that is there already must be one of ours, and is for us alone.
fn own(file: &File) -> io::Result<()> {
    let st = rustix::fs::fstat(file)?;
    let is_file = rustix::fs::FileType::from_raw_mode(st.st_mode) == rustix::fs::FileType::RegularFile;
    if !is_file || st.st_uid != rustix::process::geteuid().as_raw() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "it is another's, or no plain file"));
    }
    Ok(rustix::fs::fchmod(file, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?)
}

fn place(slot: u32) -> u64 {
    u64::from(slot) * u64::from(KEPT_BLOCK_BYTES)
}

/// Writes what is to be written until the volume is closed, one after the other.
pub(crate) fn run(shared: &Arc<Shared>) {
    let Some(blocks) = shared.offline.as_ref().and_then(|offline| offline.blocks.as_ref()) else { return };
    let (mut last, mut bytes, mut since) = (0, 0, None);
    while !blocks.is_off() {
        let is_over = shared.given_up.is_cancelled();
        match blocks.next(if is_over { Duration::ZERO } else { FORCE_AFTER / 4 }) {
            Some(out) => match blocks.write(&out) {
                Ok(sum) => {
                    shared.machine.lock().block_written(out.number, sum);
                    (last, bytes) = (out.number, bytes + out.data.len());
                    since.get_or_insert_with(Instant::now);
                }
                Err(error) => return shared.keeps_no_blocks(&error),
            },
            None if is_over && since.is_none() => return,
            None => {}
        }
        let is_last = is_over && blocks.jobs.lock().is_empty();
        let is_due = |since: Instant| is_last || bytes >= FORCE_BYTES || since.elapsed() >= FORCE_AFTER;
        if since.is_some_and(is_due) {
            if let Err(error) = blocks.force() {
                return shared.keeps_no_blocks(&error);
            }
            shared.machine.lock().blocks_forced(last);
            (bytes, since) = (0, None);
            if is_over {
                // Those who bring the journal up to date may have done so for the last time.
                let _ = shared.keep();
            } else {
                shared.settle_blocks();
            }
        }
    }
}

impl Shared {
    /// Has the server put on its disk what was read from it, so that it counts though the server should lose its power.
    fn settle_blocks(&self) {
        while let Some(out) = { self.machine.lock().take_settling() } {
            let is_done = self.sending().is_some_and(|sending| self.settle_file(&out, &sending).is_ok());
            self.machine.lock().settled_blocks(&out, is_done);
        }
    }

    fn settle_file(&self, out: &Settling, sending: &holdfast_client::Cancel) -> Result<(), Errno> {
        let question = Question::Commit { object: out.object.clone(), open: None };
        let ask = Ask { at: Generation::default(), caller: own_caller(), question };
        self.server.perform(&ask, sending).map(drop)
    }

    /// Answers a question to this host's disk.
    pub(crate) fn ask_disk(&self, blocks: &[BlockAt]) -> Result<Answer, Errno> {
        let store = self.offline.as_ref().and_then(|offline| offline.blocks.as_ref());
        let store = store.filter(|store| !store.is_off()).ok_or(Errno::EIO)?;
        let found = blocks.iter().map(|at| store.read(at)).collect::<io::Result<Vec<_>>>();
        match found {
            Ok(found) => Ok(Answer::Blocks { found }),
            Err(error) => {
                self.keeps_no_blocks(&error);
                Err(Errno::EIO)
            }
        }
    }

    /// The disk fails, or is full: contents are not kept any more, and what was is given up, with the room that it takes.
    fn keeps_no_blocks(&self, error: &io::Error) {
        let Some(blocks) = self.offline.as_ref().and_then(|offline| offline.blocks.as_ref()) else { return };
        let mut machine = self.machine.lock();
        if blocks.is_off.swap(true, Ordering::SeqCst) {
            return;
        }
        machine.keep_blocks(0);
        blocks.jobs.lock().clear();
        drop(machine);
        tracing::error!(%error, file = %blocks.path.display(), "contents of files are not kept on this host's disk any more");
        if let Err(error) = blocks.file.set_len(0) {
            tracing::debug!(%error, "nor is the room that they took given back");
        }
    }
}

#[cfg(test)]
mod tests;
