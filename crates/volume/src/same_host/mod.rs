//! Client and server on one host: files are read and written by descriptors that the server lends.
//! `docs/design/same-host.md` says when that is the same as asking the server.

mod files;
mod lent;
mod link;
mod passing;

use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_base::limits::SAME_HOST_IDLE_MS;
use holdfast_cache::{Caller, CapSet, Errno, Handle};
use holdfast_wire::caps::LendHow;
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};

use files::{Files, Way};
use lent::Lent;
use link::Link;

/// How a mount meets a server of its own host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum SameHost {
    /// Not at all.
    Never,
    /// Where the server says.
    #[default]
    AsTold,
    /// In this directory: that of the server's sockets, as a container sees it.
    In(PathBuf),
}

/// What of a mount's reading and writing did not go over the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SameHostStats {
    /// The server is on this host and lends descriptors.
    pub is_connected: bool,
    /// Descriptors in use.
    pub descriptors: u64,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
}

/// Who asks the server for what leads to a descriptor.
pub(crate) trait Lender {
    /// Where to meet, and what to say there.
    fn invitation(&self) -> Result<(PathBuf, [u8; 16]), Refusal>;
    /// What to say to get a descriptor.
    fn token(&self, object: &Handle, caller: &Caller, how: LendHow) -> Result<[u8; 16], Refusal>;
}

/// Why there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Not now.
    NotNow,
    /// Not of this file.
    NotThis,
    /// The server does not know us at its socket.
    Strangers,
    /// There is nothing to be had.
    Never,
}

impl Refusal {
    /// How long not to ask again for the same file.
    const fn pause(self) -> Duration {
        match self {
            Self::NotNow => Duration::from_millis(200),
            Self::Strangers => Duration::ZERO,
            Self::NotThis | Self::Never => Duration::from_secs(5),
        }
    }
}

/// Until the server is looked for again where it was not found: a socket comes with a server's restart, seldom else.
const LOOK_AGAIN: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
struct Meeting {
    link: Option<Link>,
    /// The epoch of the link, or of the vain look for one.
    epoch: u64,
    not_before: Option<Instant>,
}

/// A write by a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Put {
    /// It is on disk.
    pub(crate) is_stable: bool,
}

/// Descriptors, and the connection that they come over.
#[derive(Debug)]
pub(crate) struct Neighbour {
    how: SameHost,
    files: Mutex<Files<OwnedFd>>,
    meeting: Mutex<Meeting>,
    /// Rises when the server has lost or taken back everything: then it is met anew.
    epoch: AtomicU64,
    is_sweeping: Mutex<bool>,
    retired: Condvar,
    reads: AtomicU64,
    writes: AtomicU64,
    this: Weak<Self>,
}

impl Neighbour {
    pub(crate) fn new(how: SameHost) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            how,
            files: Mutex::default(),
            meeting: Mutex::default(),
            epoch: AtomicU64::new(1),
            is_sweeping: Mutex::new(false),
            retired: Condvar::new(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            this: Weak::clone(this),
        })
    }

    pub(crate) fn stats(&self) -> SameHostStats {
        SameHostStats {
            is_connected: self.meeting.lock().link.is_some(),
            descriptors: self.files.lock().held() as u64,
            reads: self.reads.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
        }
    }

    /// Whether it is switched on at all.
    pub(crate) fn is_on(&self) -> bool {
        self.how != SameHost::Never
    }

    /// Reads by a descriptor, if there is one or one is to be had: what was read, and whether the file ends there. `None`:
    /// over the network.
    pub(crate) fn read(
        &self,
        lender: &dyn Lender,
        (object, caller): (&Handle, &Caller),
        (offset, length, from_disk): (u64, u32, bool),
    ) -> Option<(Bytes, bool)> {
        let lent = self.lent(lender, (object, caller), false)?;
        let mut data = Vec::with_capacity(length as usize);
        while data.len() < length as usize {
            let at = offset + data.len() as u64;
            match rustix::io::pread(&lent.descriptor, rustix::buffer::spare_capacity(&mut data), at) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                // The server tells it in its own words.
                Err(_) => return None,
            }
        }
        self.reads.fetch_add(1, Ordering::Relaxed);
        if from_disk {
            drop_from_memory(&lent.descriptor, offset, u64::from(length));
        }
        data.truncate(length as usize);
        let is_end = data.len() < length as usize;
        Some((data.into(), is_end))
    }

    /// Writes by a descriptor, if there is one or one is to be had, and puts it on disk where that is asked for. `None`: all of it
    /// over the network, where what was written already is written again.
    pub(crate) fn write(
        &self,
        lender: &dyn Lender,
        (object, caller): (&Handle, &Caller),
        (offset, data, (to_disk, past_memory)): (u64, &[u8], (bool, bool)),
    ) -> Option<Put> {
        let lent = self.lent(lender, (object, caller), true)?;
        let failures = lent.failures();
        lent.writing();
        let is_whole = write_all(&lent.descriptor, offset, data);
        lent.writing();
        // Taken back meanwhile with nothing to be put on disk yet, it would be forgotten what came after.
        let is_done = is_whole && self.files.lock().keeps(object, &lent);
        self.writes.fetch_add(u64::from(is_done), Ordering::Relaxed);
        if !is_done {
            return None;
        }
        if to_disk {
            sync(&lent);
        }
        // What could not be put there is told by the commit to come.
        let is_stable = to_disk && !lent.is_owing() && lent.failures() == failures;
        if is_stable && past_memory {
            drop_from_memory(&lent.descriptor, offset, data.len() as u64);
        }
        Some(Put { is_stable })
    }

    /// A descriptor to be opened anew, as a local process opens a file.
    pub(crate) fn path(&self, lender: &dyn Lender, (object, caller): (&Handle, &Caller)) -> Option<OwnedFd> {
        // Once more, where the server had forgotten us.
        (0..2).find_map(|_| match self.fetched(lender, object, caller, LendHow::Path) {
            Ok(path) => Some(Some(path)),
            Err(Refusal::Strangers) => None,
            Err(refusal) => {
                tracing::debug!(?object, ?refusal, "not passed through");
                Some(None)
            }
        })?
    }

    /// Data of a file went over the network. To be called once it has: a COMMIT before that does not cover it.
    pub(crate) fn wrote_by_wire(&self, object: &Handle) {
        if self.is_on() {
            self.files.lock().wrote_by_wire(object, Instant::now());
            self.look_after();
        }
    }

    /// Puts on disk what was written by descriptors; says whether the server has to do the same with what went over the
    /// network.
    ///
    /// # Errors
    /// What the file system says of it.
    pub(crate) fn commit(&self, object: &Handle) -> Result<bool, Errno> {
        if !self.is_on() {
            return Ok(true);
        }
        let (lent, by_server) = self.files.lock().uncommitted(object);
        let mut failed = None;
        for lent in lent {
            sync(&lent);
            failed = failed.or(lent.take_failure());
        }
        self.files.lock().committed(object);
        let Some(errno) = failed else { return Ok(by_server) };
        if by_server {
            self.wrote_by_wire(object);
        }
        Err(Errno(errno))
    }

    /// Only this is held of a file from now on. To be called before anybody else can be given the rest.
    pub(crate) fn keep(&self, object: &Handle, keep: CapSet) {
        if self.files.lock().keep(object, keep) {
            self.retired.notify_one();
        }
    }

    /// `FILE_X` of a file is about to be asked for.
    pub(crate) fn make_way(&self, object: &Handle) {
        self.files.lock().make_way(object);
    }

    /// Nothing is held any more, and the server is met anew.
    pub(crate) fn lose_all(&self) {
        self.epoch.fetch_add(1, Ordering::SeqCst);
        self.files.lock().lose_all();
    }

    fn lent(
        &self,
        lender: &dyn Lender,
        (object, caller): (&Handle, &Caller),
        writes: bool,
    ) -> Option<Arc<Lent<OwnedFd>>> {
        if !self.is_on() {
            return None;
        }
        let way = self.files.lock().way(object, caller, writes, (true, Instant::now()));
        match way {
            Way::Lent(lent) => Some(lent),
            Way::Wire => None,
            Way::Ask(asking) => {
                let how = if asking.writes { LendHow::Write } else { LendHow::Read };
                let came = self.fetched(lender, object, caller, how);
                // It was asked for to be written as well, and may be had for reading alone.
                let (came, asking) = match came {
                    Err(Refusal::NotNow | Refusal::NotThis) if asking.writes && !writes => {
                        (self.fetched(lender, object, caller, LendHow::Read), asking.into_reader())
                    }
                    other => (other, asking),
                };
                tracing::debug!(?object, writes = asking.writes, ?came, "a descriptor");
                let came = came.map_err(Refusal::pause);
                let lent = self.files.lock().lent(&asking, came, Instant::now());
                self.look_after();
                lent
            }
        }
    }

    fn fetched(
        &self,
        lender: &dyn Lender,
        object: &Handle,
        caller: &Caller,
        how: LendHow,
    ) -> Result<OwnedFd, Refusal> {
        self.met(lender)?;
        match lender.token(object, caller, how) {
            Ok(token) => self.fetch(&token),
            Err(Refusal::Strangers) => {
                self.meeting.lock().link = None;
                Err(Refusal::Strangers)
            }
            Err(other) => Err(other),
        }
    }

    fn fetch(&self, token: &[u8; 16]) -> Result<OwnedFd, Refusal> {
        let mut meeting = self.meeting.lock();
        let link = meeting.link.as_mut().ok_or(Refusal::NotNow)?;
        match link.fetch(token) {
            Ok(found) => found.ok_or(Refusal::NotNow),
            Err(error) => {
                tracing::debug!(%error, "the server's socket");
                meeting.link = None;
                Err(Refusal::NotNow)
            }
        }
    }

    /// Meets the server, unless that was done or was in vain a moment ago.
    fn met(&self, lender: &dyn Lender) -> Result<(), Refusal> {
        let epoch = self.epoch.load(Ordering::SeqCst);
        {
            let mut meeting = self.meeting.lock();
            if meeting.epoch != epoch {
                *meeting = Meeting { epoch, ..Meeting::default() };
            }
            if meeting.link.is_some() {
                return Ok(());
            }
            if meeting.not_before.is_some_and(|at| at > Instant::now()) {
                return Err(Refusal::Never);
            }
            // Others go over the network meanwhile.
            meeting.not_before = Some(Instant::now() + LOOK_AGAIN);
        }
        // Not under the lock: to ask may take a new session.
        let link = self.linked(lender)?;
        let mut meeting = self.meeting.lock();
        if meeting.epoch != epoch {
            return Err(Refusal::NotNow);
        }
        tracing::info!("the server is on this host: files are read and written without it");
        (meeting.link, meeting.not_before) = (Some(link), None);
        Ok(())
    }

    fn linked(&self, lender: &dyn Lender) -> Result<Link, Refusal> {
        let (told, nonce) = lender.invitation()?;
        let path = match (&self.how, told.file_name()) {
            (SameHost::In(dir), Some(name)) => dir.join(name),
            _ => told,
        };
        match Link::connect(&path, &nonce) {
            Ok(Some(link)) => Ok(link),
            Ok(None) => {
                tracing::debug!(path = %path.display(), "another server's socket");
                Err(Refusal::Never)
            }
            Err(error) => {
                tracing::debug!(%error, path = %path.display(), "the server is on another host, as far as can be seen");
                Err(Refusal::Never)
            }
        }
    }

    /// Has a thread close what is not used any more, as long as there is anything.
    fn look_after(&self) {
        let mut is_sweeping = self.is_sweeping.lock();
        if *is_sweeping {
            return;
        }
        let this = Weak::clone(&self.this);
        let thread = std::thread::Builder::new().name("descriptors".into());
        match thread.spawn(move || sweep(&this)) {
            Ok(_) => *is_sweeping = true,
            Err(error) => tracing::warn!(%error, "descriptors of the server's files may stay open for long"),
        }
    }
}

fn write_all(file: &OwnedFd, offset: u64, data: &[u8]) -> bool {
    let mut done = 0;
    while done < data.len() {
        match rustix::io::pwrite(file, &data[done..], offset + done as u64) {
            // The server tells it in its own words.
            Ok(0) => return false,
            Ok(count) => done += count,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
    true
}

/// Frees memory of a stretch that is on disk, as the server does when it is advised to over the network: the pages are the same. The
/// page that the file ends in goes with its last byte.
fn drop_from_memory(file: &OwnedFd, offset: u64, bytes: u64) {
    let is_end = rustix::fs::fstat(file).is_ok_and(|st| offset + bytes >= st.st_size.cast_unsigned());
    let bytes = if is_end { 0 } else { bytes };
    // No more than advice.
    let _ = rustix::fs::fadvise(file, offset, NonZero::new(bytes), rustix::fs::Advice::DontNeed);
}

fn sync(lent: &Lent<OwnedFd>) {
    lent.sync(|file| rustix::fs::fdatasync(file).map_err(rustix::io::Errno::raw_os_error));
}

fn sweep(neighbour: &Weak<Neighbour>) {
    loop {
        let Some(neighbour) = neighbour.upgrade() else { return };
        let retired = neighbour.files.lock().tidy(Instant::now());
        for (object, lent) in retired {
            // One that can write keeps others from being promised that nobody does.
            sync(&lent);
            neighbour.files.lock().committed(&object);
        }
        let mut is_sweeping = neighbour.is_sweeping.lock();
        if neighbour.files.lock().is_empty() {
            *is_sweeping = false;
            return;
        }
        neighbour.retired.wait_for(&mut is_sweeping, Duration::from_millis(SAME_HOST_IDLE_MS / 4));
    }
}
