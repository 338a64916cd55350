//! How a client of 4.1 makes its client id and its sessions. It counts CREATE_SESSION by itself, over whatever becomes of
//! the server (RFC 8881 sections 18.35.4 and 18.36.4): the number in EXCHANGE_ID's answer is for who has made none yet.

use holdfast_base::{ClientId, Seqid, SessionId};
use holdfast_wire::nfs4::*;

use super::v4::{CHANNEL, Client4};
use crate::life::LEASE_MS;
use crate::wire::Ops;

/// What a client knows of the sessions it has made under one id.
#[derive(Clone, Copy)]
pub(crate) struct Counted {
    client: ClientId,
    /// The number of the last CREATE_SESSION that made a session.
    last: Seqid,
    /// One under the next number was put off since: whether the server has counted it nobody knows.
    is_put_off: bool,
}

impl Client4 {
    /// A client id and a session. Who has an id uses it at once, or asks first whether it is still good.
    pub(super) async fn make_session(&self) -> Option<()> {
        let known = self.counted.get().filter(|_| self.rng.borrow_mut().percent(50));
        let (client, sequence) = match known {
            Some(known) => (known.client, known.last.next()),
            None => self.exchange_id().await?,
        };
        self.create_session(client, sequence).await
    }

    /// Another session in place of the one there is, when something is wrong with that, and now and then.
    pub(super) async fn replace_session(&self) {
        let is_time = self.rng.borrow_mut().percent(15) || self.is_out_of_step.get();
        if self.kind.minor == 0 || !is_time {
            return;
        }
        self.recovering.take().await;
        while self.is_busy() {
            self.world.exec.sleep(5).await;
        }
        let former = self.session.borrow().as_ref().map(|session| session.id);
        let when = self.rng.borrow_mut().below(4);
        if let (Some(former), Some(known)) = (former, self.counted.get()) {
            if when == 0 {
                // As Linux does: then there is none until another is made.
                self.destroy_session(former).await;
                self.make_another().await;
            } else if self.create_session(known.client, known.last.next()).await.is_some() && when > 1 {
                self.destroy_session(former).await;
            }
        }
        self.recovering.pass();
    }

    /// Makes a session under the id there is, as long as that is good.
    async fn make_another(&self) {
        while let Some(known) = self.counted.get().filter(|_| !self.is_dead.get()) {
            if self.create_session(known.client, known.last.next()).await.is_some() {
                return;
            }
            self.world.exec.sleep(50).await;
        }
    }

    async fn destroy_session(&self, sessionid: SessionId) {
        let destroy = DestroySession4Args { sessionid };
        self.without_session(&Ops::new(&[ArgOp::DestroySession(destroy)])).await;
        self.called.borrow_mut().retain(|(session, _), _| *session != sessionid);
    }

    /// EXCHANGE_ID: the id, and the number of the next CREATE_SESSION.
    async fn exchange_id(&self) -> Option<(ClientId, Seqid)> {
        let owner = self.owner_id();
        let exchange = ExchangeId4Args {
            clientowner: ClientOwner4 { verifier: self.verifier(), ownerid: &owner },
            flags: 0,
            state_protect: StateProtect4A::None,
            client_impl_id: None,
        };
        let (mut reply, _) = self.without_session(&Ops::new(&[ArgOp::ExchangeId(exchange)])).await;
        let told: ExchangeId4Ok<'_> = reply.next(OpNum4::ExchangeId)?;
        let Some(known) = self.counted.get().filter(|known| known.client == told.clientid) else {
            return Some((told.clientid, told.sequenceid));
        };
        let next = known.last.next();
        let is_right = told.sequenceid == next || (known.is_put_off && told.sequenceid == next.next());
        if !is_right {
            let (name, heard) = (self.name(), told.sequenceid.0);
            let what = format!("sessions: {name}: EXCHANGE_ID names {heard} as the next, {} is", next.0);
            self.world.oracles.violated(what);
        }
        Some((told.clientid, next))
    }

    async fn create_session(&self, client: ClientId, sequence: Seqid) -> Option<()> {
        let create = CreateSession4Args {
            clientid: client,
            sequence,
            flags: CREATE_SESSION4_FLAG_PERSIST | CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
            fore_chan_attrs: ChannelAttrs4 { maxrequests: self.slots_asked(), ..CHANNEL },
            back_chan_attrs: ChannelAttrs4 { maxoperations: 4, ..CHANNEL },
            cb_program: NFS4_CALLBACK_PROGRAM,
            sec_parms: vec![CallbackSecParms4::None],
        };
        let create = Ops::new(&[ArgOp::CreateSession(create)]);
        let (mut reply, _) = self.without_session(&create).await;
        let status = reply.status;
        let Some(made) = reply.next::<CreateSession4Ok>(OpNum4::CreateSession) else {
            self.not_created((client, sequence), status);
            return None;
        };
        self.world.tell(|| format!("{}: client id {:x}, session {} made", self.name(), client.0, sequence.0));
        self.counted.set(Some(Counted { client, last: sequence, is_put_off: false }));
        self.create_again(&create, (made.sessionid, sequence)).await;
        self.client_id.set(Some(client));
        self.bound.set(self.conn.connects());
        self.new_session(made.sessionid, made.fore_chan_attrs.maxrequests);
        Some(())
    }

    fn not_created(&self, (client, sequence): (ClientId, Seqid), status: NfsStat4) {
        self.world.tell(|| format!("{}: CREATE_SESSION {}: {status:?}", self.name(), sequence.0));
        let is_known = |known: &Counted| known.client == client;
        let known = self.counted.get().filter(is_known);
        match status {
            NfsStat4::StaleClientId => self.counted.set(None),
            NfsStat4::SeqMisordered => {
                let what = format!("sessions: {}: CREATE_SESSION {} is misordered", self.name(), sequence.0);
                self.world.oracles.violated(what);
                self.counted.set(None);
            }
            _ => self.counted.set(known.map(|known| Counted { is_put_off: true, ..known })),
        }
    }

    /// Now and then the answer is lost, and asked for once more: it is the same, in whatever life of the server.
    async fn create_again(&self, create: &Ops, (made, sequence): (SessionId, Seqid)) {
        if !self.rng.borrow_mut().percent(25) {
            return;
        }
        let ms = self.rng.borrow_mut().below(LEASE_MS / 4);
        self.world.exec.sleep(ms).await;
        let (mut reply, _) = self.without_session(create).await;
        let status = reply.status;
        let again = reply.next::<CreateSession4Ok>(OpNum4::CreateSession).map(|again| again.sessionid);
        // Its lease may have run out, or its record may not be writable for a while.
        let may_be = matches!(status, NfsStat4::StaleClientId | NfsStat4::Delay | NfsStat4::ServerFault);
        if again != Some(made) && !(again.is_none() && may_be) {
            let (name, number) = (self.name(), sequence.0);
            let what = format!("sessions: {name}: CREATE_SESSION {number} sent again: {status:?}");
            self.world.oracles.violated(what);
        }
    }
}
