//! What goes by descriptors of a server on this host, in place of READ, WRITE and COMMIT.

use std::hash::{BuildHasher as _, RandomState};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::path::PathBuf;

use holdfast_cache::{Answer, Ask, Caller, CapSet, CommitOut, Errno, Handle, Question, WriteOut};
use holdfast_client::{Cancel, Cred};
use holdfast_wire::caps::{
    CapsProc, CapsStat, DescriptorArgs, DescriptorOk, Features, LendHow, SameHostArgs, SameHostOk,
};

use super::calling::{decode, put};
use super::{Failure, Inner};
use crate::same_host::{Lender, Neighbour, Put, Refusal};
use crate::server::{Server as _, Undone, WriteDone};

/// The write verifier as the machine is shown it: the server's, which a journal keeps, so that the next life knows by it whether the
/// server has lost its memory meanwhile. What goes by descriptors has none of its own: it has the one that is in force, so that a
/// server's loss of memory voids all, and nothing else does. Before the server has shown one that is a number of this life, and no
/// other: whatever a former life was shown, what it had written counts as lost until the server says otherwise.
#[derive(Debug)]
pub(super) struct Verifier {
    servers: Option<u64>,
    shown: u64,
    /// The number of this life stands with data that went by descriptors: the server's first one voids none of that.
    is_used: bool,
}

impl Default for Verifier {
    fn default() -> Self {
        let chance = RandomState::new().hash_one(std::process::id());
        Self { servers: None, shown: chance, is_used: false }
    }
}

impl Verifier {
    /// The server has shown this one.
    fn seen(&mut self, servers: u64) -> u64 {
        let is_another = match self.servers.replace(servers) {
            Some(before) => before != servers,
            None => !self.is_used,
        };
        if is_another {
            self.shown = servers;
        }
        self.shown
    }

    /// What goes by a descriptor has this one.
    const fn in_force(&mut self) -> u64 {
        self.is_used |= self.servers.is_none();
        self.shown
    }
}

/// One question's way to ask the server.
struct Asker<'a> {
    inner: &'a Inner,
    cancel: &'a Cancel,
}

impl Lender for Asker<'_> {
    fn invitation(&self) -> Result<(PathBuf, [u8; 16]), Refusal> {
        let cred = Cred::own();
        let reply = self.inner.call(CapsProc::SameHost, &cred, self.cancel, |ticket, w| {
            put(&SameHostArgs { ticket }, w);
        });
        let reply = reply.map_err(|failure| match failure {
            Failure::Stopped(_) => Refusal::NotNow,
            _ => Refusal::Never,
        })?;
        let told: SameHostOk<'_> = decode(&reply).map_err(|_| Refusal::Never)?;
        Ok((Path::new(std::ffi::OsStr::from_bytes(told.path)).to_owned(), told.nonce))
    }

    fn token(&self, object: &Handle, caller: &Caller, how: LendHow) -> Result<[u8; 16], Refusal> {
        let cred = self.inner.nfs.cred(caller);
        let handle = holdfast_wire::caps::Handle(object.as_bytes());
        let reply = self.inner.call(CapsProc::Descriptor, &cred, self.cancel, |ticket, w| {
            put(&DescriptorArgs { ticket, handle, how }, w);
        });
        let reply = reply.map_err(|failure| match failure {
            Failure::Refused(CapsStat::WrongSec) => Refusal::Strangers,
            Failure::Refused(CapsStat::NotHeld) | Failure::Stopped(_) => Refusal::NotNow,
            _ => Refusal::NotThis,
        })?;
        decode::<DescriptorOk>(&reply).map(|told| told.token).map_err(|_| Refusal::Never)
    }
}

impl Inner {
    /// The server's descriptors, where there may be any.
    pub(super) fn neighbour(&self) -> Option<&Neighbour> {
        let is_offered = self.greeting.read().is_some_and(|g| g.features.contains(Features::SAME_HOST));
        self.neighbour.get().filter(|neighbour| is_offered && neighbour.is_on()).map(|n| &**n)
    }

    /// A READ by a descriptor.
    pub(super) fn read_here(&self, ask: &Ask, cancel: &Cancel) -> Option<Answer> {
        let Question::Read { object, offset, length, from_disk, .. } = &ask.question else { return None };
        if self.nfs.has_lost_locks(object) {
            return None;
        }
        let asker = Asker { inner: self, cancel };
        let place = (object, &ask.caller);
        let (data, eof) = self.neighbour()?.read(&asker, place, (*offset, *length, *from_disk))?;
        Some(Answer::Read { data, eof })
    }

    /// A descriptor to be opened anew.
    pub(super) fn path_here(&self, object: &Handle, caller: &Caller, cancel: &Cancel) -> Option<OwnedFd> {
        self.neighbour()?.path(&Asker { inner: self, cancel }, (object, caller))
    }

    /// Before `FILE_X` is asked for: it is not to be had of what is open, though it is we who have it open.
    pub(super) fn make_way(&self, question: &Question) {
        let Some(neighbour) = self.neighbour() else { return };
        let wish = |object: &Handle, want: CapSet| {
            if want.contains(CapSet::FILE_X) {
                neighbour.make_way(object);
            }
        };
        match question {
            Question::Acquire { items } => items.iter().for_each(|(object, want)| wish(object, *want)),
            Question::GetAttr { object, want, .. }
            | Question::Open { object, want, .. }
            | Question::SetAttr { object, want, .. } => wish(object, *want),
            _ => {}
        }
    }

    /// A WRITE of kept data, by a descriptor or over the network.
    pub(super) fn write_here(&self, write: &WriteOut, cancel: &Cancel) -> Result<WriteDone, Undone> {
        // Over the network the open or the lock is named, which the server then does not know any more; a descriptor names none.
        let is_void = write.is_bound && self.nfs.has_lost_locks(&write.object);
        if let Some(neighbour) = self.neighbour().filter(|_| !is_void) {
            let asker = Asker { inner: self, cancel };
            let place = (&write.object, &write.caller);
            let what = (write.offset, &*write.data, (write.to_disk, write.past_memory));
            if let Some(Put { is_stable: stable }) = neighbour.write(&asker, place, what) {
                let count = u32::try_from(write.data.len()).unwrap_or(u32::MAX);
                return Ok(WriteDone { count, stable, verifier: self.verifier.lock().in_force() });
            }
        }
        let done = self.nfs.write(write, cancel);
        if let Some(neighbour) = self.neighbour() {
            neighbour.wrote_by_wire(&write.object);
        }
        let done = done?;
        Ok(WriteDone { verifier: self.verifier.lock().seen(done.verifier), ..done })
    }

    /// A COMMIT, of both.
    pub(super) fn commit_here(&self, commit: &CommitOut, cancel: &Cancel) -> Result<u64, Undone> {
        let Some(neighbour) = self.neighbour.get() else {
            let verifier = self.nfs.commit(commit, cancel)?;
            return Ok(self.verifier.lock().seen(verifier));
        };
        // Also when nothing more is lent: what was written is put on disk by what it was written by.
        let by_server = neighbour.commit(&commit.object).map_err(Undone::Failed)?;
        if !by_server {
            return Ok(self.verifier.lock().in_force());
        }
        match self.nfs.commit(commit, cancel) {
            Ok(verifier) => Ok(self.verifier.lock().seen(verifier)),
            Err(undone) => {
                neighbour.wrote_by_wire(&commit.object);
                Err(undone)
            }
        }
    }

    /// What applications had the server write at once.
    pub(super) fn answered_by_wire(&self, question: &Question, answer: &mut Answer) {
        match (question, answer) {
            (Question::Write { object, .. }, Answer::Written { verifier, .. })
            | (Question::Append { object, .. }, Answer::Appended { verifier, .. }) => {
                if let Some(neighbour) = self.neighbour() {
                    neighbour.wrote_by_wire(object);
                }
                *verifier = self.verifier.lock().seen(*verifier);
            }
            (_, Answer::Committed { verifier }) => *verifier = self.verifier.lock().seen(*verifier),
            _ => {}
        }
    }

    /// A COMMIT that is asked for as a question.
    pub(super) fn commit_asked(&self, ask: &Ask, cancel: &Cancel) -> Result<Answer, Errno> {
        if let (Question::Commit { object, .. }, Some(neighbour)) = (&ask.question, self.neighbour.get()) {
            // The server is asked in any case.
            neighbour.commit(object)?;
        }
        self.nfs.perform(ask, cancel)
    }
}

#[cfg(test)]
mod tests {
    use super::Verifier;

    #[test]
    fn the_verifier_changes_when_the_servers_does_and_not_when_it_is_first_seen() {
        let mut verifier = Verifier::default();
        let before = verifier.in_force();
        assert_eq!([verifier.seen(77), verifier.seen(77), verifier.in_force()], [before; 3]);
        assert_eq!([verifier.seen(5), verifier.in_force()], [5; 2]);
    }

    /// A journal keeps what was shown with data that is not on the server's disk.
    #[test]
    fn another_life_is_shown_the_same_if_the_server_has_lost_nothing_and_never_by_chance() {
        let [mut one, mut next] = [Verifier::default(), Verifier::default()];
        assert_eq!(one.seen(77), next.seen(77), "the server has lost nothing");
        assert_ne!(one.seen(77), next.seen(5), "it has");
        let [mut one, mut next] = [Verifier::default(), Verifier::default()];
        let lent = one.in_force();
        assert_ne!(lent, next.in_force(), "nobody knows what became of the first life's");
        assert_ne!(lent, next.seen(77));
    }
}
