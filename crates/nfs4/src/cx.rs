//! What an operation sees of its compound and of the server.

use std::net::IpAddr;
use std::sync::Arc;

use holdfast_base::{ClientId, Instant, Seqid};
use holdfast_export::{Export, Object};
use holdfast_ledger::{Mutation, Standing};
use holdfast_rpc::reply_cache::Begin;
use holdfast_rpc::server::site_of;
use holdfast_rpc::{Connection, Mode};
use holdfast_state::{ConnId, Engine, Grounds, Principal, Recorded, StateId, StateIdForm};
use holdfast_vfs::{Backend, Caller, Change, FileSpan, Handle, Touched, Wait};
use holdfast_wire::nfs4::{ChangeInfo4, NfsStat4, OpNum4, Stateid4};
use holdfast_xdr::Writer;

use crate::compound::{Compound, FirstTouch, Place};
use crate::config::Config;
use crate::desc::Minor;
use crate::error::{Failure, OpResult};
use crate::service::Service;
use crate::slot::{Turn, TurnKind};

/// The context of one operation.
pub(crate) struct Cx<'c> {
    /// The reply, for operations that write their result in place.
    pub(crate) reply: &'c mut Writer,
    pub(crate) compound: &'c mut Compound,
    pub(crate) mode: Mode,
    /// Of what reads data: the number of the operation after it.
    pub(crate) next: Option<u32>,
}

/// An object of an export, with everything a call of its backend needs.
#[derive(Clone, Debug)]
pub(crate) struct At {
    /// Where it lies.
    pub(crate) export: Arc<Export>,
    /// Its name for the backend.
    pub(crate) handle: Handle,
    caller: Caller,
    wait: Wait,
    client: Option<ClientId>,
}

impl At {
    /// An object that the server itself does something with, on behalf of a client that did not ask just now.
    pub(crate) fn of_server(export: Arc<Export>, handle: Handle, client: ClientId) -> Self {
        Self { export, handle, caller: Caller::root(), wait: Wait::No, client: Some(client) }
    }

    /// The export's backend.
    #[must_use]
    pub(crate) fn backend(&self) -> &dyn Backend {
        self.export.backend.as_ref()
    }

    /// On whose behalf, and with how much patience.
    #[must_use]
    pub(crate) const fn cx(&self) -> holdfast_vfs::Cx<'_> {
        holdfast_vfs::Cx::new(&self.caller, self.wait).by(self.client)
    }

    /// The same for another object of the export.
    #[must_use]
    pub(crate) fn with(&self, handle: Handle) -> Self {
        Self { handle, ..self.clone() }
    }

    /// The same, with all patience: for the rest of what must not be begun anew once its first step is done.
    #[must_use]
    pub(crate) fn patient(self) -> Self {
        Self { wait: Wait::Yes, ..self }
    }

    /// The same, done by this client: 4.0, where only the state id of an operation tells whose it is.
    #[must_use]
    pub(crate) fn by(self, client: Option<ClientId>) -> Self {
        Self { client: client.or(self.client), ..self }
    }

    /// The same, done by whoever a state id is of, where neither session nor connection tell.
    #[must_use]
    pub(crate) fn by_stateid(self, cx: &Cx<'_>, stateid: StateId) -> Self {
        if self.client.is_some() {
            return self;
        }
        let client = cx.service().look(|engine| engine.client_of_stateid(stateid));
        self.by(client)
    }

    /// It as an object of the namespace.
    #[must_use]
    pub(crate) fn object(&self) -> Object {
        Object::Export(Arc::clone(&self.export), self.handle)
    }
}

impl Cx<'_> {
    /// The compound's minor version.
    #[must_use]
    pub(crate) const fn minor(&self) -> Minor {
        self.compound.minor
    }

    /// What the service was made with: namespace, clock, lease.
    #[must_use]
    pub(crate) fn config(&self) -> &Config {
        &self.compound.service.config
    }

    pub(crate) const fn service(&self) -> &Arc<Service> {
        &self.compound.service
    }

    /// The connection the request came on.
    #[must_use]
    pub(crate) const fn connection(&self) -> &Arc<Connection> {
        &self.compound.connection
    }

    pub(crate) fn conn_id(&self) -> ConnId {
        ConnId(self.compound.connection.id())
    }

    /// 4.0: this request names its client, and rightly.
    pub(crate) fn names_client(&self, client: ClientId) {
        if !self.minor().has_sessions() {
            self.service().attribution.note(self.conn_id(), client);
        }
    }

    /// Who calls, as the state engine compares it.
    #[must_use]
    pub(crate) fn principal(&self) -> Principal {
        crate::service::principal(&self.compound.auth)
    }

    /// The session's client (4.1 and later).
    ///
    /// # Errors
    /// NFS4ERR_OP_NOT_IN_SESSION where there is no session.
    pub(crate) fn client(&self) -> OpResult<ClientId> {
        self.compound.slot.as_ref().map(|slot| slot.client).ok_or_else(|| NfsStat4::OpNotInSession.into())
    }

    /// Whether the client may reclaim what it held before the server restarted.
    pub(crate) fn recorded(&self, client: ClientId) -> Recorded {
        let image = self.service().look(|engine| engine.client_image(client));
        image.map_or(Recorded::No, |image| self.config().records.recorded(&image))
    }

    /// The current object. The engine has made sure of it where the operation's row asks for one.
    ///
    /// # Errors
    /// NFS4ERR_NOFILEHANDLE.
    pub(crate) fn current(&self) -> OpResult<&Object> {
        self.compound.current.as_ref().map(|place| &place.object).ok_or_else(|| NfsStat4::NoFileHandle.into())
    }

    /// The saved object; as [`Cx::current`].
    ///
    /// # Errors
    /// NFS4ERR_NOFILEHANDLE.
    pub(crate) fn saved(&self) -> OpResult<&Object> {
        self.compound.saved.as_ref().map(|place| &place.object).ok_or_else(|| NfsStat4::NoFileHandle.into())
    }

    /// The current object, when it lies in an export; `pseudo` is the status when it is one of the directories
    /// above them. A change of those never gets here: the engine refuses it with NFS4ERR_ROFS.
    ///
    /// # Errors
    /// `pseudo`; NFS4ERR_NOFILEHANDLE.
    pub(crate) fn at(&mut self, pseudo: NfsStat4) -> OpResult<At> {
        let object = self.current()?.clone();
        self.at_object(object, pseudo)
    }

    /// The same of the saved object.
    ///
    /// # Errors
    /// `pseudo`; NFS4ERR_NOFILEHANDLE.
    pub(crate) fn saved_at(&mut self, pseudo: NfsStat4) -> OpResult<At> {
        let object = self.saved()?.clone();
        self.at_object(object, pseudo)
    }

    pub(crate) fn at_object(&mut self, object: Object, pseudo: NfsStat4) -> OpResult<At> {
        let Object::Export(export, handle) = object else { return Err(pseudo.into()) };
        let caller = self.compound.caller(&export)?;
        let wait = match self.mode {
            Mode::Inline => Wait::No,
            Mode::Turn => Wait::Journal,
            Mode::Pool => Wait::Yes,
        };
        let client = match &self.compound.slot {
            Some(slot) => Some(slot.client),
            None => self.service().attribution.of(self.conn_id()),
        };
        Ok(At { export, handle, caller, wait, client })
    }

    /// Makes another object current. Its export must admit the peer.
    ///
    /// # Errors
    /// NFS4ERR_STALE when the export is not for this peer: to it the object does not exist.
    pub(crate) fn set_current(&mut self, object: Object) -> OpResult<()> {
        let peer = self.compound.connection.peer();
        let is_admitted = match &object {
            Object::Pseudo(_) => true,
            // Two questions, as the answers differ: from no port of this host, or not from this port.
            Object::Export(export, _) if !export.admits(peer.ip(), 0) => return Err(NfsStat4::Stale.into()),
            Object::Export(export, _) => export.admits(peer.ip(), peer.port()),
        };
        self.compound.current = Some(Place { object, stateid: None, is_admitted });
        Ok(())
    }

    /// The host that asks, as far as the transport tells hosts apart.
    pub(crate) fn site(&self) -> IpAddr {
        site_of(self.connection().peer().ip().to_canonical())
    }

    /// Only hosts that some export is for become clients: each takes room in memory and on disk from the others. The
    /// directories above the exports are shown to anybody who asks without being one.
    ///
    /// # Errors
    /// NFS4ERR_PERM.
    pub(crate) fn refuse_strangers(&self) -> OpResult<()> {
        let peer = self.connection().peer().ip();
        if self.config().namespace.serves(peer) { Ok(()) } else { Err(NfsStat4::Perm.into()) }
    }

    /// Leaves no object current.
    pub(crate) fn clear_current(&mut self) {
        self.compound.current = None;
    }

    /// The operation goes on only where waiting for a disk is allowed: elsewhere it is run again there.
    ///
    /// # Errors
    /// [`Failure::Wait`].
    pub(crate) fn must_wait(&self) -> OpResult<()> {
        if self.mode == Mode::Pool { Ok(()) } else { Err(Failure::Wait) }
    }

    /// Refuses a change of a read-only export, for operations whose row does not say so already.
    ///
    /// # Errors
    /// NFS4ERR_ROFS.
    pub(crate) fn check_writable(&self) -> OpResult<()> {
        match self.current()? {
            Object::Export(export, _) if !export.options.is_read_only => Ok(()),
            _ => Err(NfsStat4::Rofs.into()),
        }
    }

    /// Notes a change that a synchronous export promises to have on disk before the reply.
    pub(crate) fn touched(&mut self, at: &At, handle: Handle) {
        if at.export.options.is_sync {
            self.commit_before_reply(at, Touched { handle, data: false });
        }
    }

    /// Has this durable before the reply, whatever the export says: COMMIT and stable WRITE.
    pub(crate) fn commit_before_reply(&mut self, at: &At, what: Touched) {
        let compound = &mut *self.compound;
        compound.first_touch.get_or_insert(FirstTouch {
            op: compound.op,
            index: compound.index,
            result_at: compound.result_at,
        });
        let backend = &at.export.backend;
        match compound.touched.iter_mut().find(|(of, _)| Arc::ptr_eq(of, backend)) {
            Some((_, touched)) if touched.contains(&what) => {}
            Some((_, touched)) => touched.push(what),
            None => compound.touched.push((Arc::clone(backend), vec![what])),
        }
    }

    /// Leaves room in the reply for the write verifier, which is that of after the commit (RFC 8881 section 18.3.3):
    /// data that another client's commit loses while this one waits would else pass for safe.
    pub(crate) fn leave_verifier(&mut self, at: &At) {
        let halves = [self.reply.mark(), self.reply.mark()];
        self.compound.verifiers.push((halves, Arc::clone(&at.export.backend)));
    }

    /// Runs a step of the state engine under its lock, then what it left to do.
    ///
    /// # Errors
    /// Those of the step; NFS4ERR_SERVERFAULT when a client record could not be put on stable storage.
    pub(crate) fn state<R>(&self, step: impl FnOnce(&mut Engine, Instant) -> OpResult<R>) -> OpResult<R> {
        self.compound.service.state(step)
    }

    /// The state id that an argument stands for: "current" becomes what it is (RFC 8881 section 16.2.3.1.2).
    ///
    /// # Errors
    /// NFS4ERR_BAD_STATEID when there is no current one.
    pub(crate) fn stateid(&self, wire: Stateid4) -> OpResult<StateId> {
        self.resolve(wire, self.compound.current.as_ref())
    }

    /// The same for the saved object's (COPY, CLONE).
    ///
    /// # Errors
    /// NFS4ERR_BAD_STATEID.
    pub(crate) fn saved_stateid(&self, wire: Stateid4) -> OpResult<StateId> {
        self.resolve(wire, self.compound.saved.as_ref())
    }

    fn resolve(&self, wire: Stateid4, place: Option<&Place>) -> OpResult<StateId> {
        let given = StateId { seqid: wire.seqid, other: wire.other };
        if !self.minor().has_sessions() || given.form() != StateIdForm::Current {
            return Ok(given);
        }
        // What CLOSE gives is no name of anything.
        let is_name = |current: &StateId| current.form() == StateIdForm::Ordinary;
        let current = place.and_then(|place| place.stateid).filter(is_name).ok_or(NfsStat4::BadStateid)?;
        // It may have been changed since by another request, which is in the way of those alone that change the open
        // (RFC 8881 section 8.2.3).
        let is_exact = matches!(self.compound.op, OpNum4::Close | OpNum4::OpenDowngrade);
        Ok(if is_exact { current } else { StateId { seqid: Seqid(0), ..current } })
    }

    /// Makes a state id the current one, and gives it as the wire has it.
    pub(crate) fn set_current_stateid(&mut self, stateid: StateId) -> Stateid4 {
        if let Some(place) = &mut self.compound.current {
            place.stateid = Some(stateid);
        }
        Stateid4 { seqid: stateid.seqid, other: stateid.other }
    }

    /// Bytes that the reply may still grow by, the heads of results to come not counted.
    #[must_use]
    pub(crate) fn reply_room(&self) -> usize {
        let compound = &*self.compound;
        let to_come = if compound.index + 1 < compound.ops { 8 } else { 0 };
        compound.reply_bytes_max.saturating_sub(compound.reply_bytes(self.reply) + to_come)
    }

    /// Refuses to start what may not be able to say how it ended.
    pub(crate) fn expect_reply(&mut self, bytes_max: usize) -> OpResult<()> {
        if bytes_max > self.reply_room() {
            return Err(self.compound.too_big().into());
        }
        self.begin_change()
    }

    /// A change in this export, for the caller: recorded before it is made, where requests are recorded.
    pub(crate) fn mutate<'m>(&'m mut self, at: &'m At) -> Mutation<'m> {
        let record = self.compound.undertaking();
        Mutation { backend: at.backend(), cx: at.cx(), export: at.export.id, record }
    }

    /// Whether what this operation is to make in the current directory was made by the same request before a crash.
    ///
    /// # Errors
    /// NFS4ERR_DELAY while the file system cannot tell.
    pub(crate) fn is_resumed(&mut self) -> OpResult<bool> {
        let Object::Export(export, _) = self.current()? else { return Ok(false) };
        let backend = Arc::clone(&export.backend);
        match self.compound.undertaking() {
            Some(undertaking) => Ok(undertaking.standing(backend.as_ref())? == Standing::Done),
            None => Ok(false),
        }
    }

    /// Sees to it that a client's record says that it may hold state, before it holds any.
    ///
    /// # Errors
    /// [`Failure::Wait`]; NFS4ERR_DELAY while it cannot be stored, for want of room or whatever it is.
    pub(crate) fn will_hold_state(&self, client: ClientId) -> OpResult<()> {
        let records = &self.config().records;
        if records.may_hold(client) {
            return Ok(());
        }
        // Whether there is such a client at all is for the state engine to say.
        let Some(image) = self.service().look(|engine| engine.client_image(client)) else { return Ok(()) };
        self.must_wait()?;
        records.will_hold(&image).map_err(|_| NfsStat4::Delay.into())
    }

    /// The same for who asks for a delegation by itself, if it may be given one at all: who merely tries is not to be
    /// taken for a holder after a restart. Whether it may.
    ///
    /// # Errors
    /// As [`Cx::will_hold_state`].
    pub(crate) fn will_hold_if_admitted(&self, client: ClientId, grounds: Grounds) -> OpResult<bool> {
        let may = match grounds {
            Grounds::Reclaim(recorded) => {
                // The engine says what is wrong with the claim of somebody else.
                if recorded == Recorded::Yes {
                    self.will_hold_state(client)?;
                }
                return Ok(true);
            }
            Grounds::Open(_) | Grounds::Want => {
                self.state(|engine, now| Ok(engine.admits_new(client, now)))?
            }
        };
        if may {
            self.will_hold_state(client)?;
        }
        Ok(may)
    }

    /// 4.0: asks the cache of replies before the first change, and no sooner: requests that change nothing may run
    /// as often as they come.
    fn begin_change(&mut self) -> OpResult<()> {
        let Some(key) = self.compound.key.filter(|_| self.compound.token.is_none()) else { return Ok(()) };
        match self.compound.service.config.replies.begin(key) {
            Begin::New(token) => {
                self.compound.token = Some(token);
                Ok(())
            }
            Begin::Replay(results) => Err(Failure::Turn(Turn(TurnKind::Replay(results.to_vec())))),
            Begin::Running(duplicate) => Err(Failure::Turn(Turn(TurnKind::Duplicate(duplicate)))),
        }
    }

    /// Whether READ's data may follow as a stretch of a file: once a compound, and not into a reply that is kept. Nor where advice
    /// follows that memory is to be freed of it: the stretch is read when it is sent, and so would be there again.
    #[must_use]
    pub(crate) fn may_send_file(&self) -> bool {
        let is_advised = self.next == Some(OpNum4::IoAdvise as u32);
        self.compound.file.is_none() && !self.compound.is_reply_kept() && !is_advised
    }

    /// Puts a stretch of a file at this place of the reply: what follows the length of the data. The operation
    /// has written the length, and asked [`Cx::may_send_file`]. The padding is seen to.
    pub(crate) fn send_file(&mut self, span: FileSpan) {
        self.compound.file = Some((self.reply.len(), span));
    }
}

/// A directory's change as the wire has it.
#[must_use]
pub(crate) const fn change_info(change: &Change) -> ChangeInfo4 {
    ChangeInfo4 { atomic: change.is_atomic, before: change.before.change, after: change.after.change }
}
