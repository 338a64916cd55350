//! What runs on a client: opens files, reads and writes blocks, takes locks and waits for them, makes, renames and
//! removes names in a directory of its own, as chance has it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use holdfast_base::{Length, Offset};
use holdfast_wire::nfs4::*;

use super::recover::lock_owner;
use super::v4::{Acted, Client4, Locks, Open};
use crate::oracle::data::Mark;
use crate::oracle::grants::{GrantId, What};
use crate::oracle::once::{Deed, End};
use crate::rng::Rng;
use crate::wire::Ops;

/// Shared files of a world.
pub const FILES: usize = 3;

/// Blocks of each, of 8 bytes.
pub const BLOCKS: u64 = 4;

/// Bytes of a block.
pub const BLOCK: u64 = 8;

/// How long a denied lock is waited for, at most, between two requests.
const LOCK_POLL_MS: u64 = 1_000;

/// How often a lock is asked for before its process goes on without it.
const LOCK_TRIES: u32 = 40;

/// Name of a shared file.
#[must_use]
pub fn file_name(file: usize) -> String {
    format!("f{file}")
}

/// Name of a client's own directory.
#[must_use]
pub fn directory_name(host: usize) -> String {
    format!("d{host}")
}

/// One process.
pub struct Process {
    client: Rc<Client4>,
    who: String,
    number: u64,
    rng: RefCell<Rng>,
    marks: Cell<u64>,
    names: Cell<u64>,
    /// Written unstable, not committed: block, mark and the verifier that came with it.
    uncommitted: RefCell<Vec<(u64, Mark, [u8; 8])>>,
}

fn root() -> [ArgOp<'static>; 2] {
    [ArgOp::PutRootFh, ArgOp::Lookup(Lookup4Args { objname: b"export" })]
}

const AT_ROOT: [OpNum4; 2] = [OpNum4::PutRootFh, OpNum4::Lookup];

const IN_DIRECTORY: [OpNum4; 3] = [OpNum4::PutRootFh, OpNum4::Lookup, OpNum4::Lookup];

impl Process {
    /// A process of a client.
    pub fn new(client: &Rc<Client4>, number: u64, rng: Rng) -> Self {
        Self {
            client: Rc::clone(client),
            who: format!("{}, process {number}", client.name()),
            number,
            rng: RefCell::new(rng),
            marks: Cell::new(0),
            names: Cell::new(0),
            uncommitted: RefCell::default(),
        }
    }

    fn below(&self, n: u64) -> u64 {
        self.rng.borrow_mut().below(n)
    }

    fn percent(&self, n: u64) -> bool {
        self.rng.borrow_mut().percent(n)
    }

    fn doing(&self, what: impl Into<String>) {
        if self.client.is_dead.get() {
            return;
        }
        let (world, what) = (&self.client.world, what.into());
        world.tell(|| format!("{}: {what}", self.who));
        world.oracles.progress(|progress| progress.doing(&self.who, world.now(), what));
    }

    /// What an open says about delegations.
    fn want(&self) -> u32 {
        if self.client.kind.minor == 0 || self.percent(60) { 0 } else { OPEN4_SHARE_ACCESS_WANT_NO_DELEG }
    }

    /// Counts it among those who have to end.
    pub fn expect(&self) {
        self.doing("begins");
    }

    /// Runs to its end.
    pub async fn run(self, steps: u64) {
        let ms = self.below(2_000);
        self.client.world.exec.sleep(ms).await;
        for _ in 0..steps {
            if self.percent(35) {
                self.change_names().await;
            } else {
                self.use_file().await;
            }
            let ms = self.below(1_500);
            self.client.world.exec.sleep(ms).await;
        }
        let world = &self.client.world;
        world.tell(|| format!("{}: ends", self.who));
        world.oracles.progress(|progress| progress.done(&self.who));
    }

    async fn use_file(&self) {
        let file = self.below(FILES as u64) as usize;
        let access = if self.percent(70) { 3 } else { 1 };
        let deny = match self.below(12) {
            0 => 2,
            1 => 3,
            _ => 0,
        };
        let Some((id, open)) = self.open(file, access, deny).await else { return };
        for _ in 0..=self.below(5) {
            if open.is_lost.get() {
                break;
            }
            match self.below(10) {
                0..3 => self.read(&open).await,
                3..7 if access == 3 => self.write(&open).await,
                7 if access == 3 => self.commit(&open).await,
                _ => self.lock_and_use(&open).await,
            }
            let ms = self.below(400);
            self.client.world.exec.sleep(ms).await;
        }
        self.commit(&open).await;
        self.close(&open).await;
        self.client.opens.borrow_mut().remove(&id);
    }

    /// The server answered an operation on an open that must have been well.
    fn refused(&self, open: &Open, what: &str, status: NfsStat4) {
        let (now, oracles) = (self.client.world.now(), &self.client.world.oracles);
        match status {
            NfsStat4::BadStateid | NfsStat4::Expired | NfsStat4::AdminRevoked | NfsStat4::OldStateid => {
                if !open.is_lost.get() {
                    oracles.grants(|grants| grants.denied(now, open.grant.get()));
                }
                self.client.lose(open, &format!("{what} was answered {status:?}"));
            }
            // What others deny may be denied; a disk may fail.
            NfsStat4::Locked
            | NfsStat4::ShareDenied
            | NfsStat4::Denied
            | NfsStat4::Deadlock
            | NfsStat4::Io => {}
            _ => oracles.violated(format!("at {now} ms {}: {what} was answered {status:?}", self.who)),
        }
    }

    async fn open(&self, file: usize, access: u32, deny: u32) -> Option<(u64, Rc<Open>)> {
        self.doing(format!("opens file {file} (access {access}, deny {deny})"));
        let want = self.want();
        let name = file_name(file);
        let owner = format!("process {}", self.number).into_bytes();
        let client = &self.client;
        let life = client.world.lives();
        client.world.oracles.reclaims(|reclaims| {
            reclaims.asks((client.host, client.starts));
            Ok(())
        });
        let acted = client
            .act_counted(
                || {
                    let open = Open4Args {
                        seqid: client.seqid(&owner),
                        share_access: access | want,
                        share_deny: deny,
                        owner: StateOwner4 { clientid: client.client_id.get()?, owner: &owner },
                        openhow: OpenFlag4::NoCreate,
                        claim: OpenClaim4::Null(name.as_bytes()),
                    };
                    let [put, lookup] = root();
                    let look = GetAttr4Args { attr_request: Bitmap4::of(&[Attr::Change, Attr::Size]) };
                    Some(Ops::new(&[put, lookup, ArgOp::Open(open), ArgOp::GetFh, ArgOp::GetAttr(look)]))
                },
                (&AT_ROOT, || vec![owner.clone()]),
            )
            .await?;
        let Acted { mut reply, sent, deaths, is_repeated, .. } = acted;
        reply.skip(&AT_ROOT)?;
        let mut opened = reply.clone();
        let Open4Ok { mut stateid, rflags, delegation, .. } = opened.next(OpNum4::Open)?;
        reply.next::<Open4Ok<'_>>(OpNum4::Open)?;
        let handle = reply.next::<GetFh4Ok<'_>>(OpNum4::GetFh)?.object.to_vec();
        let seen = reply.next::<GetAttr4Ok<'_>>(OpNum4::GetAttr).and_then(|ok| {
            let mut r = holdfast_xdr::Reader::new(ok.obj_attributes.values);
            Some((r.u64().ok()?, r.u64().ok()?))
        });
        if rflags & OPEN4_RESULT_CONFIRM != 0 {
            stateid = self.confirm(&owner, &handle, stateid).await?;
        }
        let now = client.world.now();
        if client.kind.minor == 0 && !is_repeated {
            client.renewed(sent);
        }
        client.world.oracles.reclaims(|reclaims| {
            reclaims.granted(now, deaths);
            Ok(())
        });
        let grant = self.granted(file, What::Open { access, deny });
        // One of the server's former life is to be reclaimed or forgotten; here it is forgotten.
        if client.world.lives() == life {
            client.delegated(file, &handle, &delegation, seen.unwrap_or_default());
        }
        Some(client.remember(Open {
            file,
            handle: RefCell::new(handle),
            owner,
            access,
            deny,
            stateid: Cell::new(stateid),
            grant: Cell::new(grant),
            locks: RefCell::new(Locks::default()),
            is_lost: Cell::new(false),
        }))
    }

    fn granted(&self, file: usize, what: What) -> GrantId {
        let (client, mut id) = (&self.client, 0);
        let now = client.world.now();
        client.world.oracles.grants(|grants| {
            id = grants.begin(now, (client.host, self.number), (file, what))?;
            Ok(())
        });
        id
    }

    async fn confirm(&self, owner: &[u8], handle: &[u8], stateid: Stateid4) -> Option<Stateid4> {
        let client = &self.client;
        let epoch = client.epoch.get();
        let acted = client
            .act_counted(
                || {
                    let confirm = OpenConfirm4Args { open_stateid: stateid, seqid: client.seqid(owner) };
                    let put = ArgOp::PutFh(PutFh4Args { object: handle });
                    // After a recovery the open that was to be confirmed is no more.
                    (client.epoch.get() == epoch).then(|| Ops::new(&[put, ArgOp::OpenConfirm(confirm)]))
                },
                (&[OpNum4::PutFh], || vec![owner.to_vec()]),
            )
            .await?;
        let mut reply = acted.reply;
        reply.skip(&[OpNum4::PutFh])?;
        reply.next::<OpenConfirm4Ok>(OpNum4::OpenConfirm).map(|ok| ok.open_stateid)
    }

    async fn close(&self, open: &Open) {
        if open.is_lost.get() {
            return;
        }
        self.doing(format!("closes file {}", open.file));
        let (world, client) = (&self.client.world, &self.client);
        // From the moment that word of it is sent, nothing is believed in.
        world.oracles.grants(|grants| {
            grants.end(open.grant.get());
            open.locks.borrow_mut().held.drain(..).for_each(|(_, _, _, grant)| grants.end(grant));
            Ok(())
        });
        let acted = client
            .act_counted(
                || {
                    let close =
                        Close4Args { seqid: client.seqid(&open.owner), open_stateid: open.stateid.get() };
                    let handle = open.handle.borrow();
                    let put = ArgOp::PutFh(PutFh4Args { object: &handle });
                    (!open.is_lost.get()).then(|| Ops::new(&[put, ArgOp::Close(close)]))
                },
                (&[OpNum4::PutFh], || vec![open.owner.clone()]),
            )
            .await;
        if let Some(acted) = acted
            && acted.reply.status != NfsStat4::Ok
            && !acted.is_excused
        {
            self.refused(open, "CLOSE", acted.reply.status);
        }
    }

    fn stateid(open: &Open) -> Stateid4 {
        open.locks.borrow().stateid.unwrap_or_else(|| open.stateid.get())
    }

    async fn read(&self, open: &Open) {
        let block = self.below(BLOCKS);
        self.doing(format!("reads block {block} of file {}", open.file));
        let world = &self.client.world;
        if let Some(mark) = self.client.cached(open.file, block) {
            world.tell(|| format!("{}: finds {mark} in its cache", self.who));
            return world
                .oracles
                .data(|data| data.read((open.file, block), mark, (world.now(), world.now())));
        }
        let begun = self.client.read_begins(open.file);
        let acted = self
            .client
            .act(|| {
                let read = Read4Args {
                    stateid: Self::stateid(open),
                    offset: Offset(block * BLOCK),
                    count: BLOCK as u32,
                };
                let handle = open.handle.borrow();
                let put = ArgOp::PutFh(PutFh4Args { object: &handle });
                (!open.is_lost.get()).then(|| Ops::new(&[put, ArgOp::Read(read)]))
            })
            .await;
        let Some(Acted { mut reply, sent, .. }) = acted else { return };
        if reply.status != NfsStat4::Ok {
            return self.refused(open, "READ", reply.status);
        }
        let Some(()) = reply.skip(&[OpNum4::PutFh]) else { return };
        let Some(ok) = reply.next::<Read4Ok<'_>>(OpNum4::Read) else { return };
        let mark = Mark::from_be_bytes(*ok.data.first_chunk().unwrap_or(&[0; 8]));
        world.oracles.data(|data| data.read((open.file, block), mark, (sent, world.now())));
        self.client.read_ends(open.file, block, mark, begun);
    }

    async fn write(&self, open: &Open) {
        let block = self.below(BLOCKS);
        self.marks.set(self.marks.get() + 1);
        let client = &self.client;
        let mark = (client.host as u64 + 1) * 1_000_000 + client.starts * 100_000 + self.number * 10_000;
        let stable = if self.percent(50) { StableHow4::Unstable } else { StableHow4::FileSync };
        self.write_mark(open, (block, mark + self.marks.get()), stable).await;
    }

    async fn write_mark(&self, open: &Open, (block, mark): (u64, Mark), stable: StableHow4) {
        self.doing(format!("writes {mark} to block {block} of file {}, {stable:?}", open.file));
        let (world, place) = (&self.client.world, (open.file, block));
        world.oracles.data(|data| {
            data.sent(place, mark, world.now());
            Ok(())
        });
        let data = mark.to_be_bytes();
        let begun = self.client.write_begins(open.file, block);
        let acted = self
            .client
            .act(|| {
                let write = Write4Args {
                    stateid: Self::stateid(open),
                    offset: Offset(block * BLOCK),
                    stable,
                    data: &data,
                };
                let handle = open.handle.borrow();
                let put = ArgOp::PutFh(PutFh4Args { object: &handle });
                (!open.is_lost.get()).then(|| Ops::new(&[put, ArgOp::Write(write)]))
            })
            .await;
        self.client.write_ends(open.file, begun, (block + 1) * BLOCK);
        let Some(Acted { mut reply, is_repeated, is_excused, .. }) = acted else { return };
        if reply.status != NfsStat4::Ok {
            return self.refused(open, "WRITE", reply.status);
        }
        let Some(()) = reply.skip(&[OpNum4::PutFh]) else { return };
        let Some(ok) = reply.next::<Write4Ok>(OpNum4::Write) else { return };
        let is_stable = ok.committed != StableHow4::Unstable;
        if !is_stable {
            self.uncommitted.borrow_mut().push((block, mark, ok.writeverf));
        }
        // A slot keeps what is sent twice from running twice; 4.0 does not.
        let is_sure = !is_excused && (self.client.kind.minor > 0 || !is_repeated);
        world.oracles.data(|data| {
            data.answered(place, mark, world.now(), (is_stable, is_sure));
            Ok(())
        });
    }

    /// Commits what was written unstable, and writes again what may have been lost.
    async fn commit(&self, open: &Open) {
        for _ in 0..8 {
            let waiting = std::mem::take(&mut *self.uncommitted.borrow_mut());
            if waiting.is_empty() || open.is_lost.get() {
                return;
            }
            self.doing(format!("commits file {}", open.file));
            let acted = self
                .client
                .act(|| {
                    let handle = open.handle.borrow();
                    let put = ArgOp::PutFh(PutFh4Args { object: &handle });
                    let commit = ArgOp::Commit(Commit4Args { offset: Offset(0), count: 0 });
                    (!open.is_lost.get()).then(|| Ops::new(&[put, commit]))
                })
                .await;
            let Some(Acted { mut reply, .. }) = acted else { return };
            let verifier = reply
                .skip(&[OpNum4::PutFh])
                .and_then(|()| reply.next::<Commit4Ok>(OpNum4::Commit))
                .map(|ok| ok.writeverf);
            if verifier.is_none() {
                self.refused(open, "COMMIT", reply.status);
            }
            let world = &self.client.world;
            for (block, mark, written) in waiting {
                if verifier == Some(written) {
                    world.oracles.data(|data| {
                        data.committed((open.file, block), mark, world.now());
                        Ok(())
                    });
                } else {
                    self.write_mark(open, (block, mark), StableHow4::FileSync).await;
                }
            }
        }
    }

    async fn lock_and_use(&self, open: &Open) {
        let first = self.below(BLOCKS) * BLOCK;
        let last = first + BLOCK * (1 + self.below(2)) - 1;
        let is_write = open.access == 3 && self.percent(70);
        if !self.lock(open, (first, last, is_write)).await {
            return;
        }
        if open.access == 3 && is_write {
            self.write(open).await;
        }
        self.read(open).await;
        let ms = self.below(1_500);
        self.client.world.exec.sleep(ms).await;
        // What was written under a lock is to be seen by the next who has it.
        self.commit(open).await;
        if self.percent(85) {
            self.unlock(open, (first, last)).await;
        }
    }

    async fn lock(&self, open: &Open, (first, last, is_write): (u64, u64, bool)) -> bool {
        let client = &self.client;
        // It may come to be a shared lock in the place of an exclusive one.
        self.give_up(open, (first, last));
        for _ in 0..LOCK_TRIES {
            let kind = if is_write { "exclusively" } else { "shared" };
            self.doing(format!("locks {first} to {last} of file {} {kind}", open.file));
            let acted = client
                .act_counted(
                    || {
                        let handle = open.handle.borrow();
                        let ops = client.lock_ops(open, &handle, (first, last, is_write), (false, true));
                        ops.filter(|_| !open.is_lost.get())
                    },
                    (&[OpNum4::PutFh], || client.lock_owners(open)),
                )
                .await;
            let Some(Acted { mut reply, sent, deaths, is_repeated, .. }) = acted else { return false };
            let status = reply.status;
            reply.skip(&[OpNum4::PutFh]);
            let now = client.world.now();
            if let Some(ok) = reply.next::<Lock4Ok>(OpNum4::Lock) {
                open.locks.borrow_mut().stateid = Some(ok.lock_stateid);
                if client.kind.minor == 0 && !is_repeated {
                    client.renewed(sent);
                }
                client.world.oracles.reclaims(|reclaims| {
                    reclaims.granted(now, deaths);
                    Ok(())
                });
                let grant = self.granted(open.file, What::Lock { first, last, is_write });
                open.locks.borrow_mut().held.push((first, last, is_write, grant));
                return true;
            }
            if status != NfsStat4::Denied {
                self.refused(open, "LOCK", status);
                return false;
            }
            self.await_lock().await;
        }
        false
    }

    /// What is held of a range is believed in no more, and what sticks out of it neither: it stays locked until the file
    /// is closed.
    fn give_up(&self, open: &Open, (first, last): (u64, u64)) {
        let gone: Vec<_> = {
            let mut locks = open.locks.borrow_mut();
            let (gone, rest) = locks.held.drain(..).partition(|(f, l, _, _)| *f <= last && first <= *l);
            locks.held = rest;
            gone
        };
        self.client.world.oracles.grants(|grants| {
            gone.iter().for_each(|(_, _, _, grant): &(u64, u64, bool, GrantId)| grants.end(*grant));
            Ok(())
        });
    }

    async fn await_lock(&self) {
        let until = self.client.world.now() + LOCK_POLL_MS;
        while self.client.world.now() < until {
            if self.client.is_notified.replace(false) {
                return;
            }
            self.client.world.exec.sleep(100).await;
        }
    }

    async fn unlock(&self, open: &Open, (first, last): (u64, u64)) {
        self.doing(format!("unlocks {first} to {last} of file {}", open.file));
        let (client, owner) = (&self.client, lock_owner(&open.owner));
        self.give_up(open, (first, last));
        let acted = client
            .act_counted(
                || {
                    let unlock = Locku4Args {
                        locktype: LockType4::Write,
                        seqid: client.seqid(&owner),
                        lock_stateid: open.locks.borrow().stateid?,
                        offset: Offset(first),
                        length: Length(last - first + 1),
                    };
                    let handle = open.handle.borrow();
                    let put = ArgOp::PutFh(PutFh4Args { object: &handle });
                    (!open.is_lost.get()).then(|| Ops::new(&[put, ArgOp::Locku(unlock)]))
                },
                (&[OpNum4::PutFh], || vec![owner.clone()]),
            )
            .await;
        let Some(Acted { mut reply, is_excused, .. }) = acted else { return };
        let Some(()) = reply.skip(&[OpNum4::PutFh]) else { return };
        match reply.next::<Locku4Ok>(OpNum4::Locku) {
            Some(ok) => open.locks.borrow_mut().stateid = Some(ok.lock_stateid),
            None if is_excused => {}
            None => self.refused(open, "LOCKU", reply.status),
        }
    }

    async fn change_names(&self) {
        let own = |name: &String| name.starts_with(&format!("p{}-", self.number));
        let mut names = Vec::new();
        self.client.world.oracles.once(|once| {
            names = once.names(self.client.host);
            Ok(())
        });
        names.retain(own);
        self.names.set(self.names.get() + 1);
        let fresh = format!("p{}-{}-{}", self.number, self.client.starts, self.names.get());
        let deed = match (self.below(4), names.is_empty()) {
            (0, false) => Deed::Remove(names[self.below(names.len() as u64) as usize].clone()),
            (1, false) => Deed::Rename(names[self.below(names.len() as u64) as usize].clone(), fresh),
            _ => Deed::Make(fresh),
        };
        self.doing(format!("{deed:?}"));
        let (client, directory) = (&self.client, directory_name(self.client.host));
        let mut sent = None;
        client.world.oracles.once(|once| {
            sent = Some(once.begin(client.host, &deed));
            Ok(())
        });
        let is_file = self.percent(50);
        let owner = format!("process {}", self.number).into_bytes();
        let is_open = is_file && matches!(deed, Deed::Make(_));
        let owners = || if is_open { vec![owner.clone()] } else { Vec::new() };
        let make = || self.name_ops(&deed, &directory, is_file, &owner);
        let acted = client.act_counted(make, (&IN_DIRECTORY, owners)).await;
        let (Some(Acted { mut reply, is_excused, .. }), Some(sent)) = (acted, sent) else { return };
        let status = reply.status;
        let end = match status {
            NfsStat4::Ok => End::Done,
            NfsStat4::Exist => End::Exists,
            NfsStat4::NoEnt => End::NoEntry,
            NfsStat4::Io => End::Unknown,
            other => {
                let what = format!("{}: {deed:?} was answered {other:?}", self.who);
                return client.world.oracles.violated(what);
            }
        };
        client.world.oracles.once(|once| once.end(client.host, &deed, sent, (end, is_excused)));
        if !is_open || reply.skip(&IN_DIRECTORY).is_none() {
            return;
        }
        let opened = reply.next::<Open4Ok<'_>>(OpNum4::Open).map(|ok| (ok.stateid, ok.rflags));
        let handle = reply.next::<GetFh4Ok<'_>>(OpNum4::GetFh).map(|ok| ok.object.to_vec());
        if let Some((opened, handle)) = opened.zip(handle) {
            self.close_new(&owner, &handle, opened).await;
        }
    }

    /// Closes a file that was made with its name; should the open be gone, so be it.
    async fn close_new(&self, owner: &[u8], handle: &[u8], (mut stateid, rflags): (Stateid4, u32)) {
        let client = &self.client;
        if rflags & OPEN4_RESULT_CONFIRM != 0 {
            let Some(confirmed) = self.confirm(owner, handle, stateid).await else { return };
            stateid = confirmed;
        }
        let epoch = client.epoch.get();
        // Whatever comes of it, nobody uses that open any more.
        let _ = client
            .act_counted(
                || {
                    let close = Close4Args { seqid: client.seqid(owner), open_stateid: stateid };
                    let put = ArgOp::PutFh(PutFh4Args { object: handle });
                    (client.epoch.get() == epoch).then(|| Ops::new(&[put, ArgOp::Close(close)]))
                },
                (&[OpNum4::PutFh], || vec![owner.to_vec()]),
            )
            .await;
    }

    fn name_ops(&self, deed: &Deed, directory: &str, is_file: bool, owner: &[u8]) -> Option<Ops> {
        let none = Fattr4 { mask: Bitmap4::EMPTY, values: b"" };
        let [put, lookup] = root();
        let enter = ArgOp::Lookup(Lookup4Args { objname: directory.as_bytes() });
        let mut ops = vec![put, lookup, enter];
        match deed {
            Deed::Make(name) if is_file => {
                self.client.world.oracles.reclaims(|reclaims| {
                    reclaims.asks((self.client.host, self.client.starts));
                    Ok(())
                });
                ops.push(ArgOp::Open(Open4Args {
                    seqid: self.client.seqid(owner),
                    share_access: OPEN4_SHARE_ACCESS_WRITE | self.want(),
                    share_deny: 0,
                    owner: StateOwner4 { clientid: self.client.client_id.get()?, owner },
                    openhow: OpenFlag4::Create(CreateHow4::Guarded(none)),
                    claim: OpenClaim4::Null(name.as_bytes()),
                }));
                ops.push(ArgOp::GetFh);
            }
            Deed::Make(name) => ops.push(ArgOp::Create(Create4Args {
                objtype: CreateType4::Dir,
                objname: name.as_bytes(),
                createattrs: none,
            })),
            Deed::Remove(name) => ops.push(ArgOp::Remove(Remove4Args { target: name.as_bytes() })),
            Deed::Rename(from, to) => ops.extend([
                ArgOp::SaveFh,
                ArgOp::Rename(Rename4Args { oldname: from.as_bytes(), newname: to.as_bytes() }),
            ]),
        }
        Some(Ops::new(&ops))
    }
}
