//! What runs on a client: opens files, reads and writes blocks, takes locks and waits for them, makes, renames and
//! removes names in a directory of its own, as chance has it.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use holdfast_wire::nfs4::*;

use super::delegations::{Claim, look, seen_in};
use super::v4::{Acted, Client4, Locks, Open};
use crate::oracle::data::Mark;
use crate::oracle::grants::{GrantId, What};
use crate::oracle::looks::Look;
use crate::rng::Rng;
use crate::wire::Ops;

mod again;
mod data;
mod directories;
mod locks;
mod names;

/// Files of a world that all use alike.
pub const SHARED: usize = 3;

/// And with those that one client mostly uses, where it is peaceful.
pub const FILES: usize = SHARED + HOSTS_MAX;

/// Clients of a world, at most, but for one that lies.
pub const HOSTS_MAX: usize = 5;

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

pub(crate) const AT_ROOT: [OpNum4; 2] = [OpNum4::PutRootFh, OpNum4::Lookup];

pub(crate) const IN_DIRECTORY: [OpNum4; 3] = [OpNum4::PutRootFh, OpNum4::Lookup, OpNum4::Lookup];

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
        // Where nobody is in anybody's way, what is held is seen only when servers die.
        let world = &self.client.world;
        let steps = if world.is_peaceful { 3 * steps } else { steps };
        for _ in 0..steps {
            match self.below(100) {
                _ if world.keeps && self.percent(40) => self.comes_back().await,
                0..35 => self.change_names().await,
                35..50 if self.client.kind.minor > 0 => self.watch_directory().await,
                _ => self.use_file().await,
            }
            let ms = self.below(1_500);
            world.exec.sleep(ms).await;
        }
        world.tell(|| format!("{}: ends", self.who));
        world.oracles.progress(|progress| progress.done(&self.who));
    }

    async fn use_file(&self) {
        let is_peaceful = self.client.world.is_peaceful;
        let is_own = is_peaceful && self.percent(90);
        let all = if is_peaceful { FILES } else { SHARED };
        let file = if is_own { SHARED + self.client.host } else { self.below(all as u64) as usize };
        let access = if self.percent(if is_peaceful { 30 } else { 70 }) { 3 } else { 1 };
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
            // What others deny may be denied; a disk may fail, or be full.
            NfsStat4::Locked
            | NfsStat4::ShareDenied
            | NfsStat4::Denied
            | NfsStat4::Deadlock
            | NfsStat4::Io
            | NfsStat4::NoSpc => {}
            _ => oracles.violated(format!("at {now} ms {}: {what} was answered {status:?}", self.who)),
        }
    }

    async fn open(&self, file: usize, access: u32, deny: u32) -> Option<(u64, Rc<Open>)> {
        self.doing(format!("opens file {file} (access {access}, deny {deny})"));
        let owner = format!("process {}", self.number).into_bytes();
        let client = &self.client;
        let life = client.world.lives();
        client.world.oracles.reclaims(|reclaims| {
            reclaims.asks((client.host, client.starts));
            Ok(())
        });
        let (acted, claimed) = self.ask_to_open((file, &owner), (access, deny)).await?;
        let Acted { mut reply, sent, deaths, is_repeated, .. } = acted;
        let is_there = reply.skip(claimed.map_or(&AT_ROOT, Claim::before)).is_some();
        let mut opened = reply.clone();
        let opened = opened.next::<Open4Ok<'_>>(OpNum4::Open).filter(|_| is_there);
        if let Some(claim) = claimed.filter(|_| opened.is_none()) {
            client.claim_refused(claim.grant, reply.status);
        }
        let Open4Ok { mut stateid, rflags, delegation, .. } = opened?;
        reply.next::<Open4Ok<'_>>(OpNum4::Open)?;
        let handle = reply.next::<GetFh4Ok<'_>>(OpNum4::GetFh)?.object.to_vec();
        let seen = seen_in(&mut reply);
        if let Some((change, size)) = seen {
            self.finds(file, Look { change, size }, sent);
        }
        if rflags & OPEN4_RESULT_CONFIRM != 0 {
            stateid = client.confirm(&owner, &handle, stateid).await?;
        }
        let now = client.world.now();
        if client.kind.minor == 0 && !is_repeated {
            client.renewed(sent);
        }
        if claimed.is_none() {
            client.world.oracles.reclaims(|reclaims| {
                reclaims.granted(now, deaths);
                Ok(())
            });
        }
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
            is_closing: Cell::new(false),
        }))
    }

    /// OPEN by the file's name, or by right of a delegation; and of which, the time that was answered.
    async fn ask_to_open(
        &self,
        (file, owner): (usize, &[u8]),
        (access, deny): (u32, u32),
    ) -> Option<(Acted, Option<Claim>)> {
        let (client, want, name) = (&self.client, self.want(), file_name(file));
        let by = client.opens_by(file, (access, deny));
        let claimed = Cell::new(None);
        let make = || {
            claimed.set(by.filter(|claim| client.still_opens_by(file, claim)));
            if let Some(claim) = claimed.get() {
                return client.claiming_ops((file, owner, access), claim);
            }
            let open = Open4Args {
                seqid: client.seqid(owner),
                share_access: access | want,
                share_deny: deny,
                owner: StateOwner4 { clientid: client.client_id.get()?, owner },
                openhow: OpenFlag4::NoCreate,
                claim: OpenClaim4::Null(name.as_bytes()),
            };
            let [put, lookup] = root();
            Some(Ops::new(&[put, lookup, ArgOp::Open(open), ArgOp::GetFh, look()]))
        };
        let acted = client.act_counted(make, (&AT_ROOT, || vec![owner.to_vec()])).await?;
        Some((acted, claimed.get()))
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

    async fn close(&self, open: &Open) {
        if open.is_lost.get() {
            return;
        }
        self.doing(format!("closes file {}", open.file));
        let (world, client) = (&self.client.world, &self.client);
        // From the moment that word of it is sent, nothing is believed in, nor reclaimed.
        open.is_closing.set(true);
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
}

impl Client4 {
    /// Confirms an owner's first open in 4.0.
    pub(crate) async fn confirm(&self, owner: &[u8], handle: &[u8], stateid: Stateid4) -> Option<Stateid4> {
        let client = self;
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
}
