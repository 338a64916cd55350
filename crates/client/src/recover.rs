//! The thread that keeps connections, session, lease and state in order, and mends what broke.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_wire::nfs4::{
    ArgOp, DestroySession4Args, NfsStat4, OpNum4, SEQ4_STATUS_ADMIN_STATE_REVOKED,
    SEQ4_STATUS_BACKCHANNEL_FAULT, SEQ4_STATUS_CB_PATH_DOWN, SEQ4_STATUS_CB_PATH_DOWN_SESSION,
    SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED, SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED, SEQ4_STATUS_LEASE_MOVED,
    SEQ4_STATUS_RECALLABLE_STATE_REVOKED, SEQ4_STATUS_RESTART_RECLAIM_NEEDED, Sequence4Ok, Stateid4,
};

use crate::client::Inner;
use crate::compound::{Answer, Compound};
use crate::exchange::{COMPOUND, Missed, Sending};
use crate::moved::Missing;
use crate::program::SessionEvent;
use crate::session::{Lane, Session};
use crate::todo::Reclaim;
use crate::{Cred, Error, Event, Handle, Result};

/// Pauses between attempts to reach a server: an eighth of the time that it is away by then, so that who waits for it waits
/// little longer than that; and at least and at most so long.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);
const PAUSE_PART: u32 = 8;

/// Between two looks at all state because of a flag that stays, and at the lease: what is waited for stands still while the
/// machine sleeps, and the lease does not.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// How long a session that is to be replaced may take to answer what was asked on it: meanwhile nothing new is.
const DRAIN_PATIENCE: Duration = Duration::from_secs(5);

/// Why recovery has to begin again.
#[derive(Debug)]
pub(crate) enum Setback {
    /// The connection or the session was lost on the way.
    Again,
    /// This.
    Because(Error),
}

impl From<Error> for Setback {
    fn from(e: Error) -> Self {
        match e {
            Error::Disconnected | Error::Rpc(_) => Self::Again,
            e => Self::Because(e),
        }
    }
}

impl Inner {
    /// The thread.
    pub(crate) fn run_recovery(&self) {
        let mut away_since = None;
        let mut is_told = false;
        loop {
            if self.wait_for_work() {
                break;
            }
            match self.mend() {
                Ok(()) => {
                    away_since = None;
                    is_told = false;
                    self.todo.work.lock().leases_lost = 0;
                }
                Err(setback) => {
                    if let Setback::Because(why) = &setback {
                        self.gate.not_yet(why.reason());
                        if !is_told {
                            self.tell(&Event::Disconnected(why.to_string()));
                        }
                        is_told = true;
                    }
                    let away = away_since.get_or_insert_with(Instant::now).elapsed();
                    let _ = self.quit_or_sleep((away / PAUSE_PART).clamp(PAUSE_MIN, PAUSE_MAX));
                    self.todo.wake();
                }
            }
        }
        self.end();
    }

    /// Sleeps, unless the client is to end.
    pub(crate) fn quit_or_sleep(&self, pause: Duration) -> bool {
        let mut work = self.todo.work.lock();
        let until = Instant::now() + pause;
        while !work.is_over && !self.todo.is_filled.wait_until(&mut work, until).timed_out() {}
        work.is_over
    }

    /// Waits until there is work or the lease is due. True when the client is to end.
    fn wait_for_work(&self) -> bool {
        let lease = self.facts.read().lease;
        let mut work = self.todo.work.lock();
        loop {
            if work.is_over {
                return true;
            }
            let pause = work.promises_last(lease) / 3;
            let is_due = work.renewed.is_some_and(|renewed| renewed.elapsed() >= pause);
            let has_work = work.is_awake || !work.suspects.is_empty() || !work.orphans.is_empty();
            let has_work = has_work || work.missing.is_some();
            let must_mend = work.must_look || work.must_reclaim || work.must_rebind || work.must_replace;
            if has_work || must_mend || is_due {
                work.is_awake = false;
                return false;
            }
            let rest = work.renewed.map_or(pause, |renewed| pause.saturating_sub(renewed.elapsed()));
            self.todo.is_filled.wait_for(&mut work, rest.min(LOOK_PAUSE));
        }
    }

    /// Brings everything in order, or as far as it goes.
    fn mend(&self) -> Result<(), Setback> {
        let mut session = self.mend_session()?;
        self.mend_links(&session)?;
        self.adopt_orphans(&session)?;
        if std::mem::take(&mut self.todo.work.lock().must_replace) && self.replace_session(&session) {
            session = self.mend_session()?;
            self.mend_links(&session)?;
        }
        let missing = self.todo.work.lock().missing.take();
        if let Some(missing) = missing {
            let moves = self.servers.lock().moves();
            self.leave_for(&session, &missing).inspect_err(|_| {
                if self.servers.lock().moves() == moves {
                    self.todo.work.lock().missing.get_or_insert(missing);
                }
            })?;
        }
        if self.todo.work.lock().must_reclaim {
            self.reclaim_all(&session)?;
        }
        if std::mem::take(&mut self.todo.work.lock().must_look) {
            self.gate.close();
            self.look_at_all(&session).inspect_err(|_| self.todo.work.lock().must_look = true)?;
            self.todo.work.lock().looked = Some(Instant::now());
        }
        let suspects = std::mem::take(&mut self.todo.work.lock().suspects);
        if !suspects.is_empty() {
            self.look_at(&session, &suspects)
                .inspect_err(|_| self.todo.work.lock().suspects.extend(suspects.iter().cloned()))?;
        }
        if !self.gate.is_open() {
            self.open_stranded(&session)?;
        }
        self.open_gate();
        if std::mem::take(&mut self.todo.work.lock().must_ask_for_others) {
            self.ask_for_others(&session)
                .inspect_err(|_| self.todo.work.lock().must_ask_for_others = true)?;
        }
        self.renew(&session)
    }

    /// Lets operations through, unless something came up meanwhile.
    fn open_gate(&self) {
        let mut work = self.todo.work.lock();
        let is_clear =
            !work.must_reclaim && !work.must_look && work.suspects.is_empty() && work.missing.is_none();
        if is_clear && !self.gate.is_open() {
            work.reclaim = Reclaim::Not;
            // In one with that: what was answered before tells of a restart that is over (`heed`).
            self.gate.open();
            drop(work);
            self.tell(&Event::Recovered);
        }
    }

    /// The session, a new one where there is none.
    fn mend_session(&self) -> Result<Arc<Session>, Setback> {
        let link = self.mend_primary()?;
        if let Some(session) = self.gate.session().filter(|session| !session.is_lost()) {
            return Ok(session);
        }
        let established = self.establish(&link)?;
        let is_anew = established.is_new_client;
        let session = Arc::new(established.session);
        self.gate.put(Arc::clone(&session));
        self.links.bind(0, session.id);
        let mut work = self.todo.work.lock();
        // The server may count what was sent on the old session as it likes.
        work.orphans.clear();
        work.must_reclaim |= is_anew;
        drop(work);
        if !is_anew {
            self.run_hooks(SessionEvent { is_new_session: true, ..SessionEvent::of(session.id) });
        }
        Ok(session)
    }

    /// Ends a session whose back channel is out of step, so that another takes its place: nothing more is sent on it, what
    /// is under way is awaited, and then it is destroyed (RFC 8881 section 18.46.3, SEQ4_STATUS_BACKCHANNEL_FAULT). What
    /// takes too long is left for another time; the flag comes again.
    fn replace_session(&self, session: &Arc<Session>) -> bool {
        self.gate.close();
        let until = Instant::now() + DRAIN_PATIENCE;
        let is_cut = || self.links.get(session.id, 0).is_none() || !self.todo.work.lock().orphans.is_empty();
        let is_drained = session.drained(&self.quit, until, is_cut);
        self.todo.work.lock().replaced = Some(Instant::now());
        let Some(link) = self.links.get(session.id, 0).filter(|_| is_drained) else { return false };
        let mut compound = Compound::new();
        compound.op(&ArgOp::DestroySession(DestroySession4Args { sessionid: session.id }));
        // Whatever the answer: a server that does not know it has ended it.
        if self.bare(&link, session.minor, &compound).is_ok() {
            tracing::info!("the back channel was out of step: another session");
            self.lose_session(session);
        }
        session.is_lost()
    }

    /// Binds every connection to the session, making those that are missing.
    fn mend_links(&self, session: &Arc<Session>) -> Result<(), Setback> {
        let must_rebind = {
            let mut work = self.todo.work.lock();
            let is_due = work.rebound.is_none_or(|at| at.elapsed() > LOOK_PAUSE);
            let must = std::mem::take(&mut work.must_rebind) && is_due;
            if must {
                work.rebound = Some(Instant::now());
            }
            must
        };
        if must_rebind && let Some(link) = self.links.primary() {
            self.links.unbind(&link);
        }
        for (n, link) in self.links.wanting(session.id) {
            let link = match link {
                Some(link) => link,
                // The first is mended before.
                None if n == 0 => return Err(Setback::Again),
                None => match self.connect_again(n) {
                    Ok(link) => {
                        self.links.put(n, link.clone());
                        link
                    }
                    // The session works without it.
                    Err(_) => continue,
                },
            };
            self.bind(session, &link, n)?;
            if n == 0 {
                let must_reclaim = self.todo.work.lock().must_reclaim;
                if !must_reclaim {
                    self.run_hooks(SessionEvent::of(session.id));
                }
            }
        }
        Ok(())
    }

    /// Finds out what the server counted of requests that were given up: asks again what must be undone when it
    /// happened, and else sends a bare SEQUENCE with the same number. Either way the number is used then.
    fn adopt_orphans(&self, session: &Arc<Session>) -> Result<(), Setback> {
        let orphans = std::mem::take(&mut self.todo.work.lock().orphans);
        let mut orphans = orphans.into_iter();
        while let Some(mut orphan) = orphans.next() {
            if orphan.slot.session.id != session.id {
                continue;
            }
            let args = match &orphan.late {
                Some(_) => orphan.args.clone(),
                None => Compound::new().finish(session.minor, Some(orphan.slot.sequence(false))),
            };
            let Some(link) = self.links.get(session.id, orphan.slot.number()) else {
                self.todo.work.lock().orphans.extend(std::iter::once(orphan).chain(orphans));
                return Err(Setback::Again);
            };
            let deadline = Some(Instant::now() + self.options.patience);
            let reply = match link.call(COMPOUND, &orphan.auth, &args, (&self.quit, deadline)) {
                Ok(reply) => reply,
                Err(_) => {
                    link.close();
                    self.todo.work.lock().orphans.extend(std::iter::once(orphan).chain(orphans));
                    return Err(Setback::Again);
                }
            };
            let mut answer = Answer::new(reply).map_err(Setback::from)?;
            match answer.next::<Sequence4Ok>(OpNum4::Sequence) {
                Err(Error::Nfs(NfsStat4::Delay)) => self.todo.orphan(orphan),
                Err(Error::Nfs(
                    NfsStat4::BadSession
                    | NfsStat4::DeadSession
                    | NfsStat4::StaleClientId
                    | NfsStat4::SeqMisordered,
                )) => {
                    self.lose_session(session);
                    return Err(Setback::Again);
                }
                Err(Error::Nfs(NfsStat4::Expired)) => {
                    self.lose_lease(session);
                    return Err(Setback::Again);
                }
                known => {
                    orphan.slot.used();
                    if let (Ok(_), Some(late)) = (known, orphan.late) {
                        self.chores.add(Box::new(move |inner| late(inner, answer)));
                    }
                }
            }
        }
        Ok(())
    }

    /// Renews the lease when it is due.
    fn renew(&self, session: &Arc<Session>) -> Result<(), Setback> {
        let lease = self.facts.read().lease;
        let is_due = {
            let work = self.todo.work.lock();
            work.renewed.is_none_or(|renewed| renewed.elapsed() >= work.promises_last(lease) / 3)
        };
        if is_due {
            self.ask(session, &self.options.machine, &Compound::new(), |_| Ok(()))?;
        }
        Ok(())
    }

    /// Heeds what SEQUENCE's answer says beside the point. `epoch` tells answers to what was sent before a recovery.
    pub(crate) fn heed(&self, flags: u32, lane: Lane, epoch: u64) {
        if flags == 0 {
            return;
        }
        let revoked = SEQ4_STATUS_EXPIRED_ALL_STATE_REVOKED
            | SEQ4_STATUS_EXPIRED_SOME_STATE_REVOKED
            | SEQ4_STATUS_ADMIN_STATE_REVOKED
            | SEQ4_STATUS_RECALLABLE_STATE_REVOKED;
        let down = SEQ4_STATUS_CB_PATH_DOWN | SEQ4_STATUS_CB_PATH_DOWN_SESSION;
        let mut work = self.todo.work.lock();
        if epoch != self.gate.epoch() {
            return;
        }
        let mut is_new = false;
        let tells_of_restart = match work.reclaim {
            Reclaim::Not => true,
            Reclaim::Underway | Reclaim::Claimed => false,
            Reclaim::Done => lane == Lane::Recovery,
        };
        if flags & SEQ4_STATUS_RESTART_RECLAIM_NEEDED != 0 && tells_of_restart {
            is_new = !work.must_reclaim;
            work.must_reclaim = true;
            self.gate.close();
        }
        let may_look = work.looked.is_none_or(|looked| looked.elapsed() > LOOK_PAUSE);
        if flags & revoked != 0 && may_look && !work.must_look {
            work.must_look = true;
            is_new = true;
        }
        let may_rebind = work.rebound.is_none_or(|rebound| rebound.elapsed() > LOOK_PAUSE);
        if flags & down != 0 && may_rebind && !work.must_rebind {
            work.must_rebind = true;
            is_new = true;
        }
        let may_replace = work.replaced.is_none_or(|replaced| replaced.elapsed() > LOOK_PAUSE);
        if flags & SEQ4_STATUS_BACKCHANNEL_FAULT != 0 && may_replace && !work.must_replace {
            work.must_replace = true;
            is_new = true;
        }
        let may_seek = work.sought.is_none_or(|sought| sought.elapsed() > LOOK_PAUSE);
        if flags & SEQ4_STATUS_LEASE_MOVED != 0 && may_seek && work.missing.is_none() {
            // One mount, one file system: whether it is the one that has moved is asked there. If not, the flag stays.
            work.sought = Some(Instant::now());
            work.missing = self.root.lock().clone().map(Missing::Of);
            is_new |= work.missing.is_some();
        }
        drop(work);
        if is_new {
            self.todo.is_filled.notify_one();
        }
    }

    /// The server refused state: it is looked after before anything goes on.
    pub(crate) fn suspect(&self, used: &[(Handle, Stateid4)]) {
        self.gate.close();
        self.todo.change(|work| work.suspects.extend(used.iter().cloned()));
    }

    /// One compound of recovery's own, sent again for as long as the server says DELAY or GRACE: neither refuses anything, and a
    /// file given up for it would be lost to its program though nothing had happened to it.
    pub(crate) fn ask<T>(
        &self,
        session: &Arc<Session>,
        cred: &Cred,
        compound: &Compound,
        read: impl Fn(&mut Answer) -> Result<T>,
    ) -> Result<T, Setback> {
        self.ask_until(None, session, cred, compound, read)
    }

    /// The same of what nothing depends on: after `until` DELAY and GRACE are answers.
    pub(crate) fn ask_until<T>(
        &self,
        until: Option<Instant>,
        session: &Arc<Session>,
        cred: &Cred,
        compound: &Compound,
        read: impl Fn(&mut Answer) -> Result<T>,
    ) -> Result<T, Setback> {
        let is_over = || until.is_some_and(|until| Instant::now() >= until);
        loop {
            let how = Sending {
                auth: cred.encoded(),
                lane: Lane::Recovery,
                is_cached: true,
                cancel: &self.quit,
                deadline: Some(Instant::now() + self.options.patience),
                late: None,
            };
            let mut answer = match self.exchange(session, compound, how) {
                Ok(answer) => answer,
                Err(Missed::Failed(Error::TimedOut)) => {
                    // It hears but does not answer: another connection, maybe another server.
                    self.links.close();
                    return Err(Setback::Because(Error::TimedOut));
                }
                Err(Missed::Failed(e)) => return Err(e.into()),
                Err(Missed::Session | Missed::Link) => return Err(Setback::Again),
                Err(Missed::Again) => continue,
            };
            match read(&mut answer) {
                // It would be said until the server is told what it knew.
                Err(Error::Nfs(NfsStat4::Grace)) if self.todo.work.lock().is_reclaim_due() => {
                    return Err(Setback::Again);
                }
                Err(Error::Nfs(NfsStat4::Delay | NfsStat4::Grace)) if !is_over() => {
                    drop(answer);
                    if self.quit_or_sleep(Duration::from_millis(100)) {
                        return Err(Setback::Because(Error::Closed));
                    }
                }
                Err(Error::Nfs(NfsStat4::BadSession | NfsStat4::DeadSession | NfsStat4::StaleClientId)) => {
                    self.lose_session(session);
                    return Err(Setback::Again);
                }
                // As for an operation (`consider`): it is not about a state.
                Err(Error::Nfs(NfsStat4::Expired))
                    if !compound.names_state && self.todo.work.lock().may_lose_lease() =>
                {
                    self.lose_lease(session);
                    return Err(Setback::Again);
                }
                read => return read.map_err(Setback::Because),
            }
        }
    }
}
