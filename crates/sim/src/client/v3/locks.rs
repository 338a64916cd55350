//! Locks of a client of NFSv3: NLM, as Linux speaks it. A lock is asked for until it is granted, by the reply or by a
//! GRANTED that comes while it is waited for; after the server's restart, of which SM_NOTIFY tells, it is reclaimed; and
//! sometimes the client itself starts again.

use holdfast_base::{Length, Offset};
use holdfast_wire::nlm4::*;
use holdfast_wire::nsm::{NSM_PROGRAM, NSM_V1, SM_NOTIFY, StatChange};
use holdfast_xdr::{Encode, from_bytes, to_bytes};

use super::{BLOCK, BLOCKS, Client3};
use crate::oracle::grants::{GrantId, What};
use crate::world::calls::{Callee, Sent};

/// How often a lock is asked for before the process goes on without it.
const TRIES: u32 = 20;

/// How long GRANTED is waited for before the lock is asked for again.
const POLL_MS: u64 = 3_000;

/// A range of a file, and whether exclusively.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    file: usize,
    first: u64,
    last: u64,
    is_write: bool,
}

/// A lock that is asked for.
#[derive(Clone, Debug)]
struct Waiting {
    range: Range,
    handle: Vec<u8>,
    since: u64,
    /// How often the server had died then.
    deaths: u64,
    is_granted: bool,
}

/// What a client has locked, and what it waits for.
#[derive(Default)]
pub(super) struct Locks {
    held: Vec<(Range, GrantId)>,
    waiting: Option<Waiting>,
    /// The server's state of NSM as it was told last.
    server: i32,
    /// It has restarted, and what is held was not asked for again yet.
    must_reclaim: bool,
    /// The client's own state of NSM.
    own: i32,
}

impl Client3 {
    fn caller(&self) -> Vec<u8> {
        format!("host{}", self.host).into_bytes()
    }

    fn lock_of<'a>(caller: &'a [u8], handle: &'a [u8], range: Range) -> NlmLock4<'a> {
        let (offset, length) = (Offset(range.first), Length(range.last - range.first + 1));
        NlmLock4 { caller_name: caller, fh: handle, oh: b"owner", svid: 1, offset, length }
    }

    /// Calls the server's lock manager until it answers; not in the server's bad moments.
    async fn nlm(&self, procedure: NlmProc4, args: &impl Encode) -> NlmStat4 {
        let args = to_bytes(args);
        let program = (NLM_PROGRAM, NLM_V4, procedure.as_u32());
        loop {
            let xid = self.conn.next_xid();
            let results = loop {
                if let Ok(results) = self.conn.call(xid, program, &args).await {
                    break results;
                }
                self.world.exec.sleep(20).await;
            };
            match from_bytes::<NlmRes4<'_>>(&results).map(|res| res.stat) {
                Ok(NlmStat4::DeniedNoLocks | NlmStat4::Failed) => {
                    let ms = 100 + self.below(800);
                    self.world.exec.sleep(ms).await;
                }
                Ok(stat) => return stat,
                Err(_) => {
                    self.world.oracles.violated(format!("{}: {procedure:?} cannot be decoded", self.who));
                    return NlmStat4::Failed;
                }
            }
        }
    }

    async fn ask(&self, handle: &[u8], range: Range, (block, reclaim): (bool, bool)) -> NlmStat4 {
        let (caller, state) = (self.caller(), self.locks.borrow().own);
        let lock = Self::lock_of(&caller, handle, range);
        let args = LockArgs4 { cookie: b"lock", block, exclusive: range.is_write, lock, reclaim, state };
        self.nlm(NlmProc4::Lock, &args).await
    }

    /// Locks a range, uses it, and lets it go; or starts again in the middle of that.
    pub(super) async fn lock_and_use(&self, files: &[Vec<u8>]) {
        let file = self.below(files.len() as u64) as usize;
        let handle = &files[file];
        // The whole file now and then, as flock has it.
        let (first, blocks) =
            if self.below(3) == 0 { (0, BLOCKS) } else { (self.below(BLOCKS) * BLOCK, 1 + self.below(2)) };
        let last = first + BLOCK * blocks - 1;
        let range = Range { file, first, last, is_write: self.below(10) < 7 };
        if !self.lock(handle, range).await {
            return;
        }
        if range.is_write {
            self.write(file, handle).await;
        }
        self.read(file, handle).await;
        // Sometimes beyond a restart of the server's.
        let turns = if self.below(4) == 0 { self.below(60) } else { self.below(8) };
        for _ in 0..turns {
            self.world.exec.sleep(250).await;
            self.reclaim(files).await;
        }
        self.commit(files).await;
        self.reclaim(files).await;
        if self.below(10) == 0 {
            self.start_again().await;
        } else {
            self.unlock(handle, range).await;
        }
    }

    async fn lock(&self, handle: &[u8], range: Range) -> bool {
        self.doing(format!("locks {range:?}"));
        for _ in 0..TRIES {
            let life = self.begin_waiting(handle, range);
            let stat = self.ask(handle, range, (true, false)).await;
            match stat {
                // By a GRANTED that came first, it is believed in already.
                NlmStat4::Granted if !self.is_granted() => self.believe(range, self.last_ended(life)),
                NlmStat4::Blocked | NlmStat4::DeniedGracePeriod => self.await_granted().await,
                NlmStat4::Granted | NlmStat4::Denied | NlmStat4::Deadlck => {}
                other => {
                    self.world.oracles.violated(format!("{}: LOCK was answered {other:?}", self.who));
                }
            }
            if stat == NlmStat4::Granted || self.is_granted() {
                self.locks.borrow_mut().waiting = None;
                return true;
            }
            if !matches!(stat, NlmStat4::Blocked | NlmStat4::DeniedGracePeriod) {
                break;
            }
        }
        self.locks.borrow_mut().waiting = None;
        self.cancel(handle, range).await;
        false
    }

    /// A lock is asked for, or once more: GRANTED is taken from before the asking. The server's life then.
    fn begin_waiting(&self, handle: &[u8], range: Range) -> u64 {
        self.world.oracles.reclaims(|reclaims| {
            reclaims.asks((self.host, 1));
            Ok(())
        });
        let (since, deaths) = (self.world.now(), self.deaths());
        let (handle, waiting) = (handle.to_vec(), &mut self.locks.borrow_mut().waiting);
        if waiting.is_none() {
            *waiting = Some(Waiting { range, handle, since, deaths, is_granted: false });
        }
        self.world.lives()
    }

    fn is_granted(&self) -> bool {
        self.locks.borrow().waiting.as_ref().is_some_and(|waiting| waiting.is_granted)
    }

    async fn await_granted(&self) {
        let until = self.world.now() + POLL_MS;
        while self.world.now() < until && !self.is_granted() {
            self.world.exec.sleep(50).await;
        }
    }

    /// Which of the server's lives was the last to end, if that life is over.
    fn last_ended(&self, life: u64) -> Option<usize> {
        let ended = self.world.lives() - u64::from(self.world.is_up());
        (life <= ended).then_some(ended as usize)
    }

    /// The client has it from now on. `ended`: which of the server's lives granted it, or a later one, if that is over.
    fn believe(&self, range: Range, ended: Option<usize>) {
        let (now, mut id) = (self.world.now(), 0);
        let deaths = self.locks.borrow().waiting.as_ref().map_or(0, |waiting| waiting.deaths);
        self.world.oracles.reclaims(|reclaims| {
            reclaims.granted(now, deaths);
            Ok(())
        });
        let Range { file, first, last, is_write } = range;
        self.world.oracles.grants(|grants| {
            let what = (file, What::Lock { first, last, is_write });
            id = grants.begin_without_lease(now, (self.host, 0), what, ended)?;
            Ok(())
        });
        self.locks.borrow_mut().held.push((range, id));
    }

    fn disbelieve(&self) -> Vec<Range> {
        let held = std::mem::take(&mut self.locks.borrow_mut().held);
        self.world.oracles.grants(|grants| {
            held.iter().for_each(|(_, grant)| grants.end(*grant));
            Ok(())
        });
        held.into_iter().map(|(range, _)| range).collect()
    }

    /// Nothing is waited for any more. What was granted at the last moment is let go of (`nlmclnt_cancel`).
    async fn cancel(&self, handle: &[u8], range: Range) {
        self.doing(format!("gives up waiting for {range:?}"));
        let caller = self.caller();
        let lock = Self::lock_of(&caller, handle, range);
        let args = CancelArgs4 { cookie: b"cancel", block: true, exclusive: range.is_write, lock };
        if self.nlm(NlmProc4::Cancel, &args).await != NlmStat4::Granted {
            self.unlock(handle, range).await;
        }
    }

    async fn unlock(&self, handle: &[u8], range: Range) {
        self.doing(format!("unlocks {range:?}"));
        drop(self.disbelieve());
        let caller = self.caller();
        loop {
            let args = UnlockArgs4 { cookie: b"unlock", lock: Self::lock_of(&caller, handle, range) };
            match self.nlm(NlmProc4::Unlock, &args).await {
                NlmStat4::Granted => return,
                NlmStat4::DeniedGracePeriod => self.world.exec.sleep(500).await,
                other => {
                    return self.world.oracles.violated(format!("{}: UNLOCK answered {other:?}", self.who));
                }
            }
        }
    }

    /// Asks again for what is held, if the server has restarted.
    pub(super) async fn reclaim(&self, files: &[Vec<u8>]) {
        while std::mem::take(&mut self.locks.borrow_mut().must_reclaim) {
            let held = self.locks.borrow().held.clone();
            for (range, grant) in held {
                self.doing(format!("reclaims {range:?}"));
                let (sent, deaths) = (self.world.now(), self.deaths());
                let stat = self.ask(&files[range.file], range, (false, true)).await;
                let now = self.world.now();
                if stat == NlmStat4::Granted {
                    let who = (self.host, 1);
                    self.world
                        .oracles
                        .reclaims(|reclaims| reclaims.reclaimed(who, (None, range.file), (sent, deaths)));
                    // Another restart since then takes it away again.
                    if deaths == self.deaths() {
                        self.world.oracles.grants(|grants| grants.reclaimed(now, grant));
                    }
                } else {
                    // Too late, or another has it.
                    self.world.tell(|| format!("{}: a reclaim was answered {stat:?}", self.who));
                    self.unlock(&files[range.file], range).await;
                }
            }
        }
    }

    /// The client's machine starts again: it has nothing, and tells the server so.
    async fn start_again(&self) {
        self.doing("starts again");
        drop(self.disbelieve());
        let state = {
            let mut locks = self.locks.borrow_mut();
            locks.own += 2;
            locks.own
        };
        let caller = self.caller();
        let args = to_bytes(&StatChange { mon_name: &caller, state });
        let xid = self.conn.next_xid();
        while self.conn.call(xid, (NSM_PROGRAM, NSM_V1, SM_NOTIFY), &args).await.is_err() {
            self.world.exec.sleep(50).await;
        }
    }

    fn deaths(&self) -> u64 {
        let mut deaths = 0;
        self.world.oracles.reclaims(|reclaims| {
            deaths = reclaims.deaths();
            Ok(())
        });
        deaths
    }

    /// Takes a GRANTED of what it waits for, by handle, range and owner as Linux does (`nlmclnt_grant`). One of an earlier
    /// request that is late would be taken as well, which no server can help (`nlm.md`): here it is not.
    fn granted(&self, args: &TestArgs4<'_>, sent: Sent) -> NlmStat4 {
        let range = {
            let locks = self.locks.borrow();
            let Some(waiting) = &locks.waiting else { return NlmStat4::Denied };
            let Range { first, last, .. } = waiting.range;
            let told = (args.lock.fh, args.lock.offset.0, args.lock.length.0);
            if told != (&*waiting.handle, first, last - first + 1) || sent.at < waiting.since {
                return NlmStat4::Denied;
            }
            if waiting.is_granted {
                return NlmStat4::Granted;
            }
            waiting.range
        };
        // A call says of which life it is, however late it comes.
        let ended = self.last_ended(sent.life).map(|_| sent.life as usize);
        self.believe(range, ended);
        if let Some(waiting) = &mut self.locks.borrow_mut().waiting {
            waiting.is_granted = true;
        }
        NlmStat4::Granted
    }
}

impl Callee for Client3 {
    fn called(&self, (program, procedure): (u32, u32), args: &[u8], sent: Sent) -> Option<Vec<u8>> {
        if (program, procedure) == (NSM_PROGRAM, SM_NOTIFY) {
            let notice: StatChange<'_> = from_bytes(args).ok()?;
            let mut locks = self.locks.borrow_mut();
            if locks.server != notice.state {
                (locks.server, locks.must_reclaim) = (notice.state, true);
            }
            return Some(Vec::new());
        }
        let args: TestArgs4<'_> = from_bytes(args).ok()?;
        let stat = self.granted(&args, sent);
        self.world.tell(|| format!("{}: GRANTED, answers {stat:?}", self.who));
        Some(to_bytes(&NlmRes4 { cookie: args.cookie, stat }))
    }
}
