//! Callbacks to clients of 4.1 and later: CB_COMPOUND of CB_SEQUENCE and one operation, over a connection that the
//! client bound to its session (RFC 8881 sections 2.10.3.1 and 20.9).

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use holdfast_base::limits::REFERRING_CALLS_MAX;
use holdfast_base::{ClientId, SessionId, SlotId};
use holdfast_rpc::{Auth, AuthSys, CallError, Connection, OutgoingCall};
use holdfast_state::ConnId;
use holdfast_wire::nfs4::{
    CB_COMPOUND, CB_NULL, CallbackSecParms4, CbArgOp, CbSequence4Args, NFS_CB_V4_0, NfsStat4, ReferringCall4,
    ReferringCallList4, encode_cb_compound,
};
use holdfast_xdr::Writer;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use super::call_slot::{CallSlot, Phase, Sent};
use super::{ANSWER_TIMEOUT, Answer, Answered, CallbackError, Referred};
use crate::desc::Minor;
use crate::service::Service;

#[path = "../handover/channels.rs"]
mod handover;

pub(crate) use handover::ChannelImage;

/// Bytes of a call before its arguments, with AUTH_SYS of an empty machine name: what sessions count in their limits.
const RPC_CALL_HEADER_BYTES: usize = 24 + 8 + 20 + 8;

/// The back channels of all sessions.
#[derive(Default)]
pub(super) struct Channels {
    inner: Mutex<Inner>,
}

type Connections = FxHashMap<ConnId, Weak<Connection>>;

#[derive(Default)]
struct Inner {
    /// Connections that were ever bound; an entry goes with its connection.
    connections: Connections,
    /// A client's lie next to each other: a session's name begins with that of its client.
    channels: BTreeMap<SessionId, Channel>,
}

struct Channel {
    client: ClientId,
    minor: Minor,
    auth: Arc<Auth>,
    slots: Vec<CallSlot>,
}

/// How a session's callbacks go now.
struct Way {
    connection: Arc<Connection>,
    /// Further connections that carry them.
    others: Vec<Arc<Connection>>,
    program: u32,
    slots_max: u32,
    request_bytes_max: u32,
}

impl Way {
    /// A connection that is not this one.
    fn other_than(&self, conn: ConnId) -> Option<Arc<Connection>> {
        let mut all = std::iter::once(&self.connection).chain(&self.others);
        all.find(|connection| connection.id() != conn.0).map(Arc::clone)
    }
}

/// A call ready to be sent.
struct Prepared {
    connection: Arc<Connection>,
    auth: Arc<Auth>,
    program: u32,
    session: SessionId,
    slot: SlotId,
    args: Arc<[u8]>,
    is_again: bool,
}

/// A call before it has a slot.
pub(super) struct ToCall<'a> {
    pub(super) op: CbArgOp<'a>,
    pub(super) refers: Option<Referred>,
    /// Over this session's back channel and no other.
    pub(super) session: Option<SessionId>,
}

/// Whom to ask whether callbacks reach it.
struct Probe {
    client: ClientId,
    way: Way,
    auth: Arc<Auth>,
}

impl Channels {
    /// A session of a former life has no channel yet. How far its slots were counted is not kept, so each of the `unsure` is
    /// brought into step before it is used.
    pub(super) fn session_made(
        &self,
        (id, client, minor): (SessionId, ClientId, Minor),
        (auth, unsure): (Auth, u32),
        connection: &Arc<Connection>,
    ) {
        let mut inner = self.inner.lock();
        inner.remember(connection);
        inner.channels.entry(id).or_insert_with(|| Channel {
            client,
            minor,
            auth: Arc::new(auth),
            slots: (0..unsure).map(|slot| CallSlot::unsure(step(id, SlotId(slot), minor))).collect(),
        });
    }

    pub(super) fn session_changed(&self, id: SessionId, auth: Auth) {
        if let Some(channel) = self.inner.lock().channels.get_mut(&id) {
            channel.auth = Arc::new(auth);
        }
    }

    pub(super) fn session_gone(&self, id: SessionId) {
        self.inner.lock().channels.remove(&id);
    }

    pub(super) fn client_of(&self, id: SessionId) -> Option<ClientId> {
        self.inner.lock().channels.get(&id).map(|channel| channel.client)
    }

    pub(super) fn connection_gone(&self, conn: ConnId) {
        self.inner.lock().connections.remove(&conn);
    }

    /// A call of this slot has ended, with an answer or without one.
    fn end(&self, (session, slot): (SessionId, SlotId), error: Option<CallbackError>, sent: Sent) {
        if let Some(slot) = self.inner.lock().slot(session, slot) {
            slot.end(error, sent);
        }
    }

    /// The answer to a call that was given up: its slot is as good as before. False when the call has been made once
    /// more over another connection, whose answer counts.
    fn end_late(
        &self,
        (session, slot): (SessionId, SlotId),
        error: Option<CallbackError>,
        sent: Sent,
    ) -> bool {
        let mut inner = self.inner.lock();
        let Some(slot) = inner.slot(session, slot) else { return false };
        let is_it = |of: &Arc<[u8]>, on: ConnId| on == sent.on && Arc::ptr_eq(of, &sent.args);
        let is_lost = matches!(&slot.phase, Phase::Lost(of, on) if is_it(of, *on));
        if is_lost {
            slot.end(error, sent);
        }
        is_lost
    }
}

impl Inner {
    fn slot(&mut self, session: SessionId, slot: SlotId) -> Option<&mut CallSlot> {
        self.channels.get_mut(&session)?.slots.get_mut(slot.0 as usize)
    }

    fn remember(&mut self, connection: &Arc<Connection>) {
        self.connections.insert(ConnId(connection.id()), Arc::downgrade(connection));
    }
}

impl Service {
    /// Calls a client of 4.1 or later back.
    pub(super) fn call_session(self: &Arc<Self>, client: ClientId, call: &ToCall<'_>, done: Answered) {
        self.resend_lost(client);
        match self.prepare(client, call) {
            Ok(prepared) => self.send(prepared, done),
            Err(error) => done(Err(error)),
        }
    }

    /// A session has a connection for callbacks now: asks whether they get through (CB_NULL), so that nothing is
    /// promised to a client that could not be told. Calls lost with an earlier connection are made again.
    pub(crate) fn back_channel_bound(self: &Arc<Self>, session: SessionId) {
        let Some(Probe { client, way, auth }) = self.probe_of(session) else { return };
        let call = OutgoingCall {
            program: way.program,
            version: NFS_CB_V4_0,
            procedure: CB_NULL,
            auth: &auth,
            args: &[],
        };
        let service = Arc::clone(self);
        way.connection.call_back(&call, ANSWER_TIMEOUT, move |result| {
            // That the connection ended is known by itself, and another may be there.
            if result != Err(CallError::Closed) {
                service.tell(|engine, _| engine.callback_path(client, result.is_ok()));
            }
        });
        self.resend_lost(client);
    }

    fn probe_of(&self, session: SessionId) -> Option<Probe> {
        let inner = self.callbacks.channels.inner.lock();
        let channel = inner.channels.get(&session)?;
        let way = self.way(session, &inner.connections)?;
        Some(Probe { client: channel.client, way, auth: Arc::clone(&channel.auth) })
    }

    /// Makes calls that were lost with their connection once more, where there is another one now.
    pub(crate) fn resend_lost(self: &Arc<Self>, client: ClientId) {
        for lost in self.lost_calls(client) {
            // Whoever wanted it has been told that it was lost.
            let (service, session) = (Arc::clone(self), lost.session);
            let done = move |answer: Result<Answer<'_>, CallbackError>| {
                if answer.is_ok() {
                    service.tell(|engine, _| engine.sessions_mut().back_channel_unstuck(session));
                }
            };
            self.send(lost, Box::new(done));
        }
    }

    fn send(self: &Arc<Self>, prepared: Prepared, done: Answered) {
        let Prepared { connection, auth, program, session, slot, args, is_again } = prepared;
        let call =
            OutgoingCall { program, version: NFS_CB_V4_0, procedure: CB_COMPOUND, auth: &auth, args: &args };
        let sent = Sent { args: Arc::clone(&args), on: ConnId(connection.id()), is_again };
        let (service, place, late_sent) = (Arc::clone(self), (session, slot), sent.clone());
        let late_service = Arc::clone(self);
        connection.call_back_patiently(
            &call,
            ANSWER_TIMEOUT,
            move |result| {
                let answer = sent.read(result);
                service.callbacks.channels.end(place, answer.err(), sent);
                service.learn_from(session, answer.err());
                done(answer);
            },
            move |result| {
                let answer = late_sent.read(result);
                if late_service.callbacks.channels.end_late(place, answer.err(), late_sent) {
                    late_service.learn_from_late(session, answer.err());
                }
            },
        );
    }

    /// What the end of a call tells of the channel.
    fn learn_from(&self, session: SessionId, error: Option<CallbackError>) {
        match error {
            // The slots are counted differently on the two sides.
            Some(CallbackError::Refused(why)) if why != NfsStat4::Delay => {
                tracing::debug!(%session, ?why, "the slots of a back channel are out of step");
                self.tell(|engine, _| engine.sessions_mut().back_channel_failed(session));
            }
            Some(error) if error.is_breakdown() => {
                if let Some(client) = self.callbacks.channels.client_of(session) {
                    tracing::debug!(%session, %client, ?error, "calls do not get through to a client");
                    self.tell(|engine, _| engine.callback_path(client, false));
                }
            }
            _ => {}
        }
    }

    /// The same of an answer that was given up. Whoever wanted it has been told that it was lost; but callbacks do get
    /// through, and what is due is sent.
    fn learn_from_late(&self, session: SessionId, error: Option<CallbackError>) {
        let is_through = matches!(error, None | Some(CallbackError::Refused(NfsStat4::Delay)));
        if !is_through {
            return self.learn_from(session, error);
        }
        self.tell(|engine, _| engine.sessions_mut().back_channel_unstuck(session));
        if let Some(client) = self.callbacks.channels.client_of(session) {
            self.tell(|engine, _| engine.callback_path(client, true));
        }
    }

    /// How a session's callbacks go now, over a connection that is there; none where nobody would answer them.
    fn way(&self, id: SessionId, connections: &Connections) -> Option<Way> {
        let (conns, back, program) = self.look(|engine| {
            let session = engine.sessions().get(id).filter(|session| !session.is_out_of_step())?;
            let conns: Vec<ConnId> = session.back_connections().collect();
            Some((conns, *session.back()?, session.callback_program()))
        })?;
        let open = conns.iter().filter_map(|conn| connections.get(conn)?.upgrade());
        let mut open = open.filter(|connection| !connection.is_closed());
        Some(Way {
            connection: open.next()?,
            others: open.collect(),
            program,
            slots_max: back.slots_max,
            request_bytes_max: back.request_bytes_max,
        })
    }

    /// How many channels are kept of sessions that are gone.
    pub(crate) fn stray_channels(&self) -> usize {
        let inner = self.callbacks.channels.inner.lock();
        let is_stray = |id: &&SessionId| self.look(|engine| engine.sessions().get(**id).is_none());
        inner.channels.keys().filter(is_stray).count()
    }

    /// Whether a session of this client carries callbacks.
    pub(super) fn has_channel(&self, client: ClientId) -> bool {
        let inner = self.callbacks.channels.inner.lock();
        let mut its = inner.channels.range(SessionId::all_of(client));
        self.look(|engine| {
            its.any(|(id, _)| engine.sessions().get(*id).is_some_and(holdfast_state::Session::can_call_back))
        })
    }

    fn lost_calls(&self, client: ClientId) -> Vec<Prepared> {
        let mut inner = self.callbacks.channels.inner.lock();
        let Inner { connections, channels } = &mut *inner;
        let mut calls = Vec::new();
        for (id, channel) in channels.range_mut(SessionId::all_of(client)) {
            let is_lost = |slot: &CallSlot| matches!(slot.phase, Phase::Lost(..));
            if !channel.slots.iter().any(is_lost) {
                continue;
            }
            let Some(way) = self.way(*id, connections) else { continue };
            for (n, slot) in channel.slots.iter_mut().enumerate() {
                let Phase::Lost(args, on) = &slot.phase else { continue };
                let args = Arc::clone(args);
                let Some(connection) = way.other_than(*on) else { continue };
                calls.push(Prepared {
                    connection,
                    auth: Arc::clone(&channel.auth),
                    program: way.program,
                    session: *id,
                    slot: SlotId(n as u32),
                    args: Arc::clone(&args),
                    is_again: true,
                });
                slot.phase = Phase::Taken(args);
            }
        }
        calls
    }

    fn prepare(&self, client: ClientId, call: &ToCall<'_>) -> Result<Prepared, CallbackError> {
        let mut stuck = Vec::new();
        let prepared = self.prepare_in_any(client, call, &mut stuck);
        for session in stuck {
            self.tell(|engine, _| engine.sessions_mut().back_channel_stuck(session));
        }
        prepared
    }

    /// `stuck`: the sessions whose every slot waits for an answer that was given up.
    fn prepare_in_any(
        &self,
        client: ClientId,
        call: &ToCall<'_>,
        stuck: &mut Vec<SessionId>,
    ) -> Result<Prepared, CallbackError> {
        let mut inner = self.callbacks.channels.inner.lock();
        let Inner { connections, channels } = &mut *inner;
        let mut error = CallbackError::NoChannel;
        let is_fit = |id: &SessionId| call.session.is_none_or(|session| session == *id);
        for (id, channel) in channels.range_mut(SessionId::all_of(client)).filter(|(id, _)| is_fit(id)) {
            let Some(way) = self.way(*id, connections) else { continue };
            channel.slots.resize(way.slots_max as usize, CallSlot::default());
            let Some(slot) = channel.slots.iter().position(CallSlot::is_free) else {
                error = CallbackError::Busy;
                // Nothing can be called here any more unless an answer comes after all.
                if channel.slots.iter().all(|slot| slot.is_lost_on(way.connection.id())) {
                    stuck.push(*id);
                }
                continue;
            };
            match channel.fill(slot, *id, way, call) {
                Ok(prepared) => return Ok(prepared),
                Err(too_big) => error = too_big,
            }
        }
        Err(error)
    }
}

impl Channel {
    fn fill(
        &mut self,
        slot: usize,
        session: SessionId,
        way: Way,
        call: &ToCall<'_>,
    ) -> Result<Prepared, CallbackError> {
        let seqid = self.slots[slot].seqid.next();
        // The slots of a back channel are fewer than 2^32.
        let id = SlotId(slot as u32);
        let highest = self.slots.iter().rposition(|slot| !slot.is_free()).unwrap_or(0).max(slot);
        let sequence = CbSequence4Args {
            sessionid: session,
            sequenceid: seqid,
            slotid: id,
            highest_slotid: SlotId(highest as u32),
            cachethis: false,
            referring_call_lists: call.refers.map(to_wire).into_iter().collect(),
        };
        let mut args = Writer::new();
        encode_cb_compound(&mut args, self.minor as u32, 0, &[CbArgOp::Sequence(sequence), call.op.clone()]);
        if args.len() + RPC_CALL_HEADER_BYTES > way.request_bytes_max as usize {
            return Err(CallbackError::TooBig);
        }
        let args: Arc<[u8]> = args.into_vec().into();
        self.slots[slot] = CallSlot { seqid, phase: Phase::Taken(Arc::clone(&args)) };
        Ok(Prepared {
            connection: way.connection,
            auth: Arc::clone(&self.auth),
            program: way.program,
            session,
            slot: id,
            args,
            is_again: false,
        })
    }
}

/// A call that does nothing but count: CB_SEQUENCE alone with the number 1. To a client that has counted nothing in this slot
/// it is new, to one that stands at 1 it is that call once more (and its answer perhaps that of another operation), and
/// everybody else refuses it.
fn step(sessionid: SessionId, slotid: SlotId, minor: Minor) -> Arc<[u8]> {
    let sequence = CbSequence4Args {
        sessionid,
        sequenceid: CallSlot::FIRST,
        slotid,
        highest_slotid: slotid,
        cachethis: false,
        referring_call_lists: Vec::new(),
    };
    let mut args = Writer::new();
    encode_cb_compound(&mut args, minor as u32, 0, &[CbArgOp::Sequence(sequence)]);
    args.into_vec().into()
}

/// The one request of the client's whose reply may still be on its way (RFC 8881 section 2.10.6.3).
fn to_wire(refers: Referred) -> ReferringCallList4 {
    const { assert!(REFERRING_CALLS_MAX >= 1) };
    let call = ReferringCall4 { sequenceid: refers.seqid, slotid: refers.slot };
    ReferringCallList4 { sessionid: refers.session, calls: vec![call] }
}

/// The first credential offered for callbacks that we can make.
pub(crate) fn credential(offered: &[CallbackSecParms4<'_>]) -> Option<Auth> {
    offered.iter().find_map(|parms| match parms {
        CallbackSecParms4::None => Some(Auth::None),
        CallbackSecParms4::Sys(sys) => Some(Auth::Sys(AuthSys {
            uid: sys.uid,
            gid: sys.gid,
            groups: sys.gids.as_slice().to_vec(),
            machine: sys.machine_name.to_vec(),
        })),
        CallbackSecParms4::Gss(_) => None,
    })
}
