//! OPEN, OPEN_DOWNGRADE, CLOSE.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_base::Seqid;
use holdfast_wire::nfs4::{
    ArgOp, Bitmap4, ChangeInfo4, Close4Args, CreateHow4, CreateVerfAttr, Fattr4, NfsStat4,
    OPEN4_RESULT_NO_OPEN_STATEID, OPEN4_RESULT_PRESERVE_UNLINKED, OPEN4_SHARE_ACCESS_BOTH,
    OPEN4_SHARE_ACCESS_WANT_ANY_DELEG, OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS,
    OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION,
    OPEN4_SHARE_ACCESS_WANT_READ_DELEG, OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG, OpNum4, Open4Args, Open4Ok,
    OpenClaim4, OpenDowngrade4Args, OpenDowngrade4Ok, OpenFlag4, StateOwner4, Stateid4, Verifier4,
};

use crate::client::Inner;
use crate::compound::{Answer, Compound};
use crate::delegation::{Delegated, Granted, granted};
use crate::exchange::Late;
use crate::lockers::Locker;
use crate::run::Manner;
use crate::state::{Open, OpenStatus, newest, owner_name};
use crate::{Attributes, Client, Cred, Cx, DelegationKind, Error, Handle, OpenFile, Result, SetAttributes};

/// Between two attempts to close a file that locks are held of.
const LOCKS_HELD_PAUSE: Duration = Duration::from_millis(20);
/// So often: a second in all.
const LOCKS_HELD_TRIES: u32 = 50;

/// What is opened.
#[derive(Clone, Copy, Debug)]
pub enum OpenTarget<'a> {
    /// A name in a directory.
    Name(&'a Handle, &'a [u8]),
    /// A file by its handle; it cannot be created so.
    File(&'a Handle),
}

/// How a file is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateMode {
    /// Unless it exists.
    Unchecked,
    /// It must not exist. Answers EXIST for one that this very call made, when the session was lost meanwhile.
    Guarded,
    /// It must not exist, and is made once whatever happens meanwhile.
    Exclusive,
}

/// That a file is to be created, and how.
#[derive(Clone, Copy, Debug)]
pub struct Create<'a> {
    /// How.
    pub mode: CreateMode,
    /// With which attributes; of one that exists, only a size of 0 is set.
    pub set: &'a SetAttributes,
}

/// Whether a delegation is wanted with an open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WantDelegation {
    /// As the server likes.
    #[default]
    NoPreference,
    /// None.
    No,
    /// To read.
    Read,
    /// To write.
    Write,
    /// Either.
    Any,
}

/// An open to be made.
#[derive(Clone, Copy, Debug)]
pub struct OpenArgs<'a> {
    /// Of what.
    pub target: OpenTarget<'a>,
    /// `OPEN4_SHARE_ACCESS_READ`, `_WRITE` or `_BOTH`.
    pub access: u32,
    /// `OPEN4_SHARE_DENY_*`; 0 for none, as POSIX has it.
    pub deny: u32,
    /// Created when missing.
    pub create: Option<Create<'a>>,
    /// Whether a delegation is wanted.
    pub delegation: WantDelegation,
    /// Attributes to bring.
    pub want: Bitmap4,
}

/// What an open brought.
#[derive(Clone, Debug)]
pub struct Opened {
    /// The open.
    pub file: OpenFile,
    /// Attributes, those asked for that it has.
    pub attributes: Attributes,
    /// The directory before and after: they differ when the file was created.
    pub dir: ChangeInfo4,
    /// What the delegation that came with it allows.
    pub delegation: Option<DelegationKind>,
    /// Its place in the order of grants and recalls; 0 where none came.
    pub number: u64,
    /// The file goes on existing for who has it open when its last name is removed.
    pub preserves_unlinked: bool,
}

/// What OPEN's answer says, read while the slot is held.
struct Read {
    stateid: Option<Stateid4>,
    granted: Option<Granted>,
    dir: ChangeInfo4,
    open: Option<(Arc<Open>, Option<Delegated>)>,
    attributes: Option<Attributes>,
    attrset: Bitmap4,
    preserves_unlinked: bool,
}

/// An open on its way.
struct Opening<'a> {
    inner: &'a Inner,
    args: &'a OpenArgs<'a>,
    cred: &'a Cred,
    owner: u64,
    verifier: Verifier4,
    /// Attributes that go with the create.
    set: (Bitmap4, Vec<u8>),
    is_exclusive: bool,
}

impl Client {
    /// Opens a file, creating it where that is asked for. Given up half-way, whatever the server made of it is closed
    /// again.
    ///
    /// # Errors
    /// Those of every operation; SYMLINK for a symbolic link, ISDIR for a directory.
    pub fn open(&self, cx: Cx<'_>, args: &OpenArgs<'_>) -> Result<Opened> {
        let inner = self.inner();
        let owner = inner.files.take_owner();
        let opening = Opening::new(inner, cx.cred, args, owner);
        let cred = cx.cred.clone();
        let by_handle = match args.target {
            OpenTarget::File(file) => Some(file.clone()),
            OpenTarget::Name(..) => None,
        };
        let late = || -> Late {
            let (cred, by_handle) = (cred.clone(), by_handle.clone());
            Box::new(move |inner, answer| inner.undo_open(answer, (owner, &cred), by_handle.as_ref()))
        };
        let manner = Manner { essential: Some(2), is_idle: false, late: Some(&late) };
        let read = inner.run(cx, &manner, |compound| opening.build(compound), |answer| opening.read(answer));
        let read = match read {
            Ok(read) => read,
            Err(e) => {
                if matches!(e, Error::Nfs(_)) {
                    inner.files.free_owner(owner);
                }
                return Err(e);
            }
        };
        let ((open, delegated), attributes) = match (read.open, args.target) {
            (Some(noted), _) => (noted, read.attributes),
            (None, OpenTarget::Name(dir, name)) => {
                // It was opened, but what it is was put off.
                let node = self.lookup(cx, dir, name, args.want)?;
                (opening.note(&node.handle, read.stateid, read.granted), Some(node.attributes))
            }
            (None, OpenTarget::File(_)) => return Err(Error::Protocol("an open without a handle")),
        };
        let handle = open.handle.clone();
        let file = OpenFile::new(open, inner);
        let attributes = match (opening.rest(read.attrset), attributes) {
            (Some(rest), _) => self.setattr(cx, &handle, Some(&file), &rest, args.want)?,
            (None, Some(attributes)) => attributes,
            (None, None) => self.getattr(cx, &handle, args.want)?,
        };
        let (delegation, number) = delegated.map_or((None, 0), |d| (Some(d.kind), d.number));
        let preserves_unlinked = read.preserves_unlinked;
        Ok(Opened { file, attributes, dir: read.dir, delegation, number, preserves_unlinked })
    }

    /// Gives up a part of an open's access.
    ///
    /// # Errors
    /// Those of every operation; [`Error::Lost`]; INVAL from servers that know only the access of the open as a whole
    /// (RFC 8881 section 18.18.3 allows no other part than one that was opened by itself).
    pub fn downgrade(&self, cx: Cx<'_>, file: &OpenFile, access: u32) -> Result<()> {
        let (inner, open) = (self.inner(), file.open());
        let access = access & OPEN4_SHARE_ACCESS_BOTH;
        if open.access() == access {
            return Ok(());
        }
        if file.is_local() {
            open.reopened(access);
            return Ok(());
        }
        let stateid = inner.run(
            Cx { cred: &open.cred, ..cx },
            &Manner::once(2),
            |compound| {
                let stateid = open.stateid().ok_or(Error::Lost)?;
                let open_stateid = newest(compound.uses(&open.handle, stateid));
                compound.put(&open.handle).op(&ArgOp::OpenDowngrade(OpenDowngrade4Args {
                    open_stateid,
                    seqid: Seqid(0),
                    share_access: access,
                    share_deny: open.deny,
                }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                Ok(answer.next::<OpenDowngrade4Ok>(OpNum4::OpenDowngrade)?.open_stateid)
            },
        )?;
        open.reopened(access);
        open.set(OpenStatus::Known(stateid));
        Ok(())
    }

    /// Closes a file, and lets go of the locks that were taken through it. Given up half-way, it is closed in the
    /// background.
    ///
    /// # Errors
    /// [`Error::Cancelled`], [`Error::TimedOut`], [`Error::Closed`]; a server that does not know it any more is no error.
    pub fn close(&self, cx: Cx<'_>, file: &OpenFile) -> Result<()> {
        self.inner().close(cx, file.open())
    }
}

impl<'a> Opening<'a> {
    fn new(inner: &'a Inner, cred: &'a Cred, args: &'a OpenArgs<'a>, owner: u64) -> Self {
        use std::hash::{BuildHasher, RandomState};
        let facts = *inner.facts.read();
        let mode = args.create.map(|create| create.mode);
        // A session that outlives the server does what an exclusive create is for (RFC 8881 section 18.16.3).
        let is_persistent = inner.gate.session().is_some_and(|session| session.is_persistent);
        let is_exclusive = mode == Some(CreateMode::Exclusive) && !is_persistent;
        let mut set = args.create.map_or_else(Default::default, |create| create.set.encode(facts.supported));
        if is_exclusive && !set.0.minus(facts.exclusive).is_empty() {
            set = Default::default();
        }
        let verifier = RandomState::new().hash_one(owner).to_be_bytes();
        Self { inner, args, cred, owner, verifier, set, is_exclusive }
    }

    fn build(&self, compound: &mut Compound) -> Result<()> {
        let args = self.args;
        let attributes = Fattr4 { mask: self.set.0, values: &self.set.1 };
        let how = match args.create.map(|create| create.mode) {
            None => OpenFlag4::NoCreate,
            Some(CreateMode::Unchecked) => OpenFlag4::Create(CreateHow4::Unchecked(attributes)),
            Some(_) if self.is_exclusive => {
                let verf = CreateVerfAttr { verf: self.verifier, attrs: attributes };
                OpenFlag4::Create(CreateHow4::Exclusive41(verf))
            }
            Some(_) => OpenFlag4::Create(CreateHow4::Guarded(attributes)),
        };
        let (put, claim) = match args.target {
            OpenTarget::Name(dir, name) => (dir, OpenClaim4::Null(name)),
            OpenTarget::File(file) => (file, OpenClaim4::Fh),
        };
        let clientid = self.inner.gate.identity().map(|known| known.client).unwrap_or_default();
        compound.put(put).op(&ArgOp::Open(Open4Args {
            seqid: Seqid(0),
            share_access: args.access & OPEN4_SHARE_ACCESS_BOTH | self.wants(),
            share_deny: args.deny,
            owner: StateOwner4 { clientid, owner: &owner_name(self.owner) },
            openhow: how,
            claim,
        }));
        compound.node(args.want);
        Ok(())
    }

    fn wants(&self) -> u32 {
        let facts = self.inner.facts.read();
        let kind = match self.args.delegation {
            WantDelegation::NoPreference => return 0,
            WantDelegation::No => return OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
            WantDelegation::Read => OPEN4_SHARE_ACCESS_WANT_READ_DELEG,
            WantDelegation::Write => OPEN4_SHARE_ACCESS_WANT_WRITE_DELEG,
            WantDelegation::Any => OPEN4_SHARE_ACCESS_WANT_ANY_DELEG,
        };
        let times = if facts.has_delegated_times { OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS } else { 0 };
        let xor = if facts.has_open_xor { OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION } else { 0 };
        kind | times | xor
    }

    fn read(&self, answer: &mut Answer) -> Result<Read> {
        answer.put()?;
        let ok: Open4Ok<'_> = answer.next(OpNum4::Open)?;
        let granted = granted(&ok.delegation);
        let is_known = ok.rflags & OPEN4_RESULT_NO_OPEN_STATEID == 0 || granted.is_none();
        let (stateid, dir, attrset) = (is_known.then_some(ok.stateid), ok.cinfo, ok.attrset);
        let preserves_unlinked = ok.rflags & OPEN4_RESULT_PRESERVE_UNLINKED != 0;
        let handle = answer.handle().ok().or(match self.args.target {
            OpenTarget::File(file) => Some(file.clone()),
            OpenTarget::Name(..) => None,
        });
        let open = handle.map(|handle| self.note(&handle, stateid, granted));
        let attributes = answer.attributes().ok();
        Ok(Read { stateid, granted, dir, open, attributes, attrset, preserves_unlinked })
    }

    /// Notes what was opened, while the slot is held: a recall that refers to the answer waits for that.
    fn note(
        &self,
        handle: &Handle,
        stateid: Option<Stateid4>,
        granted: Option<Granted>,
    ) -> (Arc<Open>, Option<Delegated>) {
        let access = self.args.access & OPEN4_SHARE_ACCESS_BOTH;
        let open = Open::new((handle.clone(), self.owner), self.cred.clone(), (access, self.args.deny));
        open.set(stateid.map_or(OpenStatus::Local, OpenStatus::Known));
        let open = Arc::new(open);
        self.inner.files.change(handle, |held| held.opens.push(Arc::clone(&open)));
        let delegated = self.inner.note_delegation(handle, (self.cred, access), granted);
        (open, delegated)
    }

    /// What of the attributes an exclusive create did not set.
    fn rest(&self, attrset: Bitmap4) -> Option<SetAttributes> {
        let set = self.args.create.filter(|_| self.is_exclusive)?.set;
        let (mask, _) = set.encode(self.inner.facts.read().supported);
        let is_whole = self.set.0 == mask && mask.minus(attrset).is_empty();
        (!is_whole && !set.is_empty()).then(|| set.with_mode_alone())
    }
}

impl Inner {
    /// An open that nobody waits for any more was made: it is closed.
    fn undo_open(&self, mut answer: Answer, (owner, cred): (u64, &Cred), by_handle: Option<&Handle>) {
        let mut read = || -> Result<_> {
            answer.put()?;
            let ok: Open4Ok<'_> = answer.next(OpNum4::Open)?;
            let (stateid, delegation) = (ok.stateid, granted(&ok.delegation));
            let handle = answer.handle().ok().or(by_handle.cloned()).ok_or(Error::Lost)?;
            self.note_delegation(&handle, (cred, 0), delegation);
            Ok((handle, stateid, delegation.map(|granted| granted.kind)))
        };
        let read = read();
        drop(answer);
        if let Ok((handle, stateid, delegated)) = read {
            let open = Open::new((handle.clone(), owner), cred.clone(), (0, 0));
            open.set(OpenStatus::Known(stateid));
            self.close_quietly(&Arc::new(open));
            if let Some(kind) = delegated {
                self.recall_later(&handle, kind);
            }
        } else {
            self.files.free_owner(owner);
        }
    }

    /// Closes in the background: as long as it takes, and when no lock is asked for through it any more.
    pub(crate) fn close_quietly(&self, open: &Arc<Open>) {
        let cred = open.cred.clone();
        let cx = Cx { cred: &cred, cancel: &self.quit };
        if !self.begin_close(open, true) {
            return;
        }
        if let Err(e) = self.close(cx, open) {
            tracing::debug!(%e, "a file could not be closed");
        }
    }

    fn close(&self, cx: Cx<'_>, open: &Arc<Open>) -> Result<()> {
        let cx = Cx { cred: &open.cred, ..cx };
        if let Err(stopped) = self.await_asked(cx, open) {
            self.close_later(Arc::clone(open));
            return Err(stopped);
        }
        self.unlock_all(cx.cancel, open);
        // From here on recovery leaves it alone.
        let status = std::mem::replace(&mut *open.status.lock(), OpenStatus::Closed);
        let closed = match status {
            OpenStatus::Closed => return Ok(()),
            OpenStatus::Local | OpenStatus::Lost => Ok(()),
            OpenStatus::Known(stateid) => self.send_close(cx, open, stateid),
        };
        if matches!(closed, Err(Error::Cancelled | Error::TimedOut)) && !self.quit.is_cancelled() {
            open.set(status);
            self.close_later(Arc::clone(open));
            return closed;
        }
        self.files.change(&open.handle, |held| {
            held.opens.retain(|other| !Arc::ptr_eq(other, open));
            held.locks.closed(open);
        });
        self.lockers.wake_all();
        self.files.free_owner(open.owner);
        closed
    }

    /// CLOSE, again while a lock is in the way that nobody here knows of; not for ever, for others wait for this to end.
    fn send_close(&self, cx: Cx<'_>, open: &Arc<Open>, stateid: Stateid4) -> Result<()> {
        let mut tries = 0;
        loop {
            tries += 1;
            let closed = self.run(
                cx,
                &Manner::once(2),
                |compound| {
                    let args = Close4Args { seqid: Seqid(0), open_stateid: newest(stateid) };
                    compound.put(&open.handle).op(&ArgOp::Close(args));
                    Ok(())
                },
                |answer| {
                    answer.put()?;
                    answer.ok(OpNum4::Close)
                },
            );
            match closed {
                Err(Error::Nfs(NfsStat4::LocksHeld)) if tries < LOCKS_HELD_TRIES => {
                    cx.cancel.sleep_until(Instant::now() + LOCKS_HELD_PAUSE)?;
                    self.unlock_all(cx.cancel, open);
                }
                Err(Error::Nfs(status)) => {
                    tracing::debug!(?status, "a close was refused");
                    if matches!(status, NfsStat4::Expired | NfsStat4::AdminRevoked | NfsStat4::DelegRevoked) {
                        self.free_revoked(open, stateid);
                    }
                    return Ok(());
                }
                other => return other,
            }
        }
    }

    /// Acknowledges the loss of an open that is no more, and of what its owners of locks were known by, in the background: till then
    /// every answer tells of it, and all state would be looked at again and again (RFC 8881 section 18.46.3).
    fn free_revoked(&self, open: &Arc<Open>, stateid: Stateid4) {
        let mut gone = vec![stateid];
        self.files.look(&open.handle, |held| {
            let through = held.locks.iter().filter(|lock| Arc::ptr_eq(&lock.open, open));
            gone.extend(through.filter_map(Locker::stateid));
        });
        self.chores.add(Box::new(move |inner| {
            for stateid in gone {
                if let Err(error) = inner.free_stateid(stateid) {
                    tracing::debug!(%error, "what was revoked is not freed");
                }
            }
        }));
    }
}
