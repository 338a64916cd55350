//! HELLO: the ticket, and what is to be done when promises were lost; as `volume` has it.

use std::rc::Rc;

use holdfast_base::limits::CAPS_ITEMS_MAX;
use holdfast_base::{SessionId, relied_on_ms};
use holdfast_cache::{Reclaim, Reclaimed};
use holdfast_volume::convert;
use holdfast_wire::caps::{
    AcquireOk, CapsProc, CapsStat, Features, Handle, HelloArgs, HelloOk, ReclaimArgs, ReclaimItem,
    ReleaseArgs, Ticket,
};

use super::Mount;
use super::calling::{DELAY_MAX, DELAY_MIN, checked, encoded};

/// What the server said to HELLO, and over which connection and session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Greeting {
    pub(super) ticket: Ticket,
    pub(super) epoch: u64,
    pub(super) features: Features,
    over: (u64, SessionId),
}

/// What a mount knows.
const FEATURES: [Features; 4] = [Features::APPEND, Features::NAMES, Features::POOL, Features::LISTS];

impl Mount {
    /// A ticket that is not `stale`, of a connection that recalls can come over.
    pub(super) async fn renewed(self: &Rc<Self>, stale: Option<Ticket>) -> Ticket {
        let mut pause = DELAY_MIN;
        loop {
            self.client.ready().await;
            self.renewing.take().await;
            let done = self.renewed_once(stale).await;
            self.renewing.pass();
            match done {
                Ok(ticket) => return ticket,
                // Not under the turn: recovery has its own HELLO said.
                Err(CapsStat::BadSession | CapsStat::BadTicket) => self.check_session().await,
                Err(CapsStat::Delay) => {}
                Err(other) => self.violated(&format!("HELLO is answered {other:?}")),
            }
            self.world.exec.sleep(pause).await;
            pause = (pause * 2).min(DELAY_MAX);
        }
    }

    async fn renewed_once(self: &Rc<Self>, stale: Option<Ticket>) -> Result<Ticket, CapsStat> {
        self.client.conn.connected().await;
        let session = self.client.session_id().ok_or(CapsStat::BadSession)?;
        let over = (self.client.conn.connects(), session);
        if let Some(greeting) = self.greeting.get()
            && Some(greeting.ticket) != stale
            && greeting.over == over
        {
            return Ok(greeting.ticket);
        }
        self.client.bind().await;
        self.hello(session, false).await
    }

    /// Makes another connection, and says HELLO there.
    pub(crate) async fn connects_again(self: Rc<Self>) {
        if self.machine.borrow().is_some() {
            self.renewed(None).await;
        }
    }

    /// A session was made, or made sure of, by recovery. False when the connection broke under that.
    pub(crate) async fn greets(self: Rc<Self>, is_lost: bool) -> bool {
        self.renewing.take().await;
        let connects = self.client.conn.connects();
        if let Some(session) = self.client.session_id()
            && let Err(stat) = self.hello(session, is_lost).await
        {
            self.tell(|| format!("no HELLO in recovery: {stat:?}"));
        }
        self.renewing.pass();
        self.client.conn.is_still(connects)
    }

    /// `is_lost`: the server does not know us, whatever it says of the epoch. A connection that breaks is as a delay.
    async fn hello(self: &Rc<Self>, session: SessionId, is_lost: bool) -> Result<Ticket, CapsStat> {
        self.refresh_ledger();
        let over = (self.client.conn.connects(), session);
        let args = HelloArgs {
            session,
            incarnation: self.incarnation,
            features: Features(FEATURES.iter().fold(0, |bits, one| bits | one.0)),
            done_through: self.ledger.borrow().done_through(),
        };
        let sent = self.world.now();
        let reply = self.send(CapsProc::Hello, &encoded(&args)).await.map_err(|_| CapsStat::Delay)?;
        let told: HelloOk = checked(&reply)?;
        let HelloOk { ticket, epoch, features, .. } = told;
        let before = self.greeting.replace(Some(Greeting { ticket, epoch, features, over }));
        self.tell(|| {
            format!("HELLO: epoch {epoch:x}, in grace: {}, known: {}", told.in_grace, told.is_known)
        });
        self.relied_ms.set(relied_on_ms(u64::from(told.lease_seconds) * 1000));
        if self.machine.borrow().is_none() {
            return Ok(ticket);
        }
        let is_anew = |before: Greeting| is_lost || before.epoch != epoch;
        if before.is_some_and(is_anew) {
            self.renew(&told).await;
        }
        let is_as_before = before.is_some_and(|before| !is_anew(before));
        if !told.is_known && before.is_some() {
            self.lost_promises("the server does not know its transactions");
        }
        // From here on they are what they are now, lost before or not.
        self.hearing.hears(sent);
        let executed = (!is_as_before || !told.is_known).then_some(told.executed_through.0);
        self.touched(|machine, now| {
            machine.greeted();
            if !told.is_known {
                machine.forgotten();
            }
            machine.resume(executed, told.stable_through.0, now);
        });
        Ok(ticket)
    }

    /// Promises were lost: has back what can be.
    async fn renew(self: &Rc<Self>, told: &HelloOk) {
        let held = self.touch(|machine, _| machine.reclaim_list()).unwrap_or_default();
        let in_question = self.touch(|machine, _| machine.in_question()).unwrap_or_default();
        let mut found = self.reclaim(told.ticket, &in_question).await;
        let back = if told.in_grace { self.reclaim(told.ticket, &held).await } else { Vec::new() };
        let given = back.iter().filter(|one| one.result.is_ok()).count();
        self.tell(|| format!("promises were lost: {} claimed, {given} given back", held.len()));
        self.world.oracles.mounts(|mounts| mounts.reclaimed(given));
        // What was not relied on any more is not claimed, and is lost as well.
        if given < held.len() || !told.in_grace || self.has_lapsed.get() || self.is_in_doubt() {
            let (lost, of) = (held.len() - given, held.len());
            self.lost_promises(&format!("{lost} of {of} promises are not given back"));
        }
        found.extend(back);
        self.touched(|machine, now| machine.reclaimed(found, now));
    }

    async fn reclaim(self: &Rc<Self>, ticket: Ticket, held: &[Reclaim]) -> Vec<Reclaimed> {
        let mut all = Vec::new();
        for some in held.chunks(CAPS_ITEMS_MAX) {
            let item = |claim: &'_ Reclaim| (claim.handle.clone(), claim.caps);
            let claims: Vec<_> = some.iter().map(item).collect();
            let items =
                claims.iter().map(|(of, held)| ReclaimItem { handle: Handle(of.as_bytes()), held: *held });
            let args = encoded(&ReclaimArgs { ticket, items: items.collect() });
            let Ok(reply) = self.send(CapsProc::Reclaim, &args).await else { continue };
            let Ok(told) = checked::<AcquireOk>(&reply) else { continue };
            all.extend(some.iter().zip(told.items).map(|(claim, told)| {
                let result = told.into_result();
                let result = result.map(|got| (convert::attrs(&got.attrs), convert::grant(got.grant)));
                let result = result.map_err(|stat| convert::errno_of(stat.as_u32()));
                Reclaimed { handle: claim.handle.clone(), result }
            }));
        }
        all
    }

    /// Whether it has ceased to rely on what it was promised, and has not heard since that all goes on: it may be lost.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.hearing.is_in_doubt()
    }

    /// The world ends: hears whether what is in doubt goes on. It is told in any case, be it that it is lost.
    pub(crate) async fn hears_at_last(self: Rc<Self>) {
        let args = |ticket| encoded(&ReleaseArgs { ticket, items: Vec::new() });
        let heard = self.call(CapsProc::Release, args).await;
        self.tell(|| format!("asks at last whether its promises go on: {:?}", heard.map(drop)));
    }

    /// The world has ended: what it has not heard of even now may have been lost.
    pub(crate) fn ends(&self) {
        if self.is_in_doubt() {
            self.lost_promises("it has not heard that they go on");
        }
    }

    /// Its client comes as one that was restarted: the server lets go of what it was promised as soon as it hears so.
    pub(crate) fn begins_anew(&self) {
        self.lost_promises("its client begins anew");
        self.touched(|machine, now| machine.caps_lost(now));
    }

    /// What others do from now on they may do without asking this mount, whatever it has still to send.
    fn lost_promises(&self, why: &str) {
        self.tell(|| format!("has lost promises: {why}"));
        let (since, had_more) = self.hearing.last();
        let (now, has_more) = (self.world.now(), had_more || self.has_more());
        self.world.oracles.mounts(|mounts| mounts.lost((now, since), self.host, has_more));
    }
}
