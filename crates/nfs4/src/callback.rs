//! The back channel: calls of ours to a client, each as CB_COMPOUND of CB_SEQUENCE and one operation, over a
//! connection that the client bound to its session (RFC 8881 sections 2.10.3.1 and 20.9).

use std::sync::{Arc, Weak};
use std::time::Duration;

use holdfast_base::{ClientId, Seqid, SessionId, SlotId};
use holdfast_rpc::{Auth, AuthSys, CallError, Connection, OutgoingCall};
use holdfast_state::ConnId;
use holdfast_wire::nfs4::{
    CB_COMPOUND, CallbackSecParms4, CbArgOp, CbSequence4Args, CbSequence4Ok, CompoundResHeader, NFS_CB_V4_0,
    NfsStat4, ResOpHeader, encode_cb_compound,
};
use holdfast_xdr::{Decode, Reader, Writer};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::desc::Minor;
use crate::service::Service;

/// How long a client may take to answer a callback before it counts as not answering.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a callback has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallbackError {
    /// The client has no connection that carries callbacks.
    NoChannel,
    /// All slots of its back channel are taken.
    Busy,
    /// The call was lost.
    Lost(CallError),
    /// The client refused CB_SEQUENCE.
    Refused(NfsStat4),
    /// The answer makes no sense.
    Garbled,
}

/// Told the status of the operation, or why there is none.
pub(crate) type CalledBack = Box<dyn FnOnce(Result<NfsStat4, CallbackError>) + Send>;

/// The back channels of all sessions.
#[derive(Default)]
pub(crate) struct Callbacks {
    inner: Mutex<Inner>,
}

type Connections = FxHashMap<ConnId, Weak<Connection>>;

#[derive(Default)]
struct Inner {
    /// Connections that were ever bound; an entry goes with its connection.
    connections: Connections,
    channels: FxHashMap<SessionId, Channel>,
}

struct Channel {
    client: ClientId,
    minor: Minor,
    auth: Arc<Auth>,
    /// Another program than the session was made with (BACKCHANNEL_CTL).
    program: Option<u32>,
    slots: Vec<CallSlot>,
}

/// Our side of one slot of a back channel.
#[derive(Clone, Default)]
struct CallSlot {
    seqid: Seqid,
    phase: Phase,
}

#[derive(Clone, Default)]
enum Phase {
    #[default]
    Free,
    /// By a call under way.
    Taken,
    /// Its call got no answer on this connection. Nobody knows what the client counts, so the same call is made once
    /// more, on another connection, before the slot is used again (RFC 8881 section 2.10.6.2).
    Lost(Arc<[u8]>, ConnId),
}

impl CallSlot {
    const fn is_free(&self) -> bool {
        matches!(self.phase, Phase::Free)
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
}

impl Callbacks {
    pub(crate) fn session_made(
        &self,
        (id, client, minor): (SessionId, ClientId, Minor),
        auth: Auth,
        connection: &Arc<Connection>,
    ) {
        let mut inner = self.inner.lock();
        inner.remember(connection);
        inner.channels.entry(id).or_insert_with(|| Channel {
            client,
            minor,
            auth: Arc::new(auth),
            program: None,
            slots: Vec::new(),
        });
    }

    pub(crate) fn session_changed(&self, id: SessionId, program: u32, auth: Auth) {
        if let Some(channel) = self.inner.lock().channels.get_mut(&id) {
            channel.program = Some(program);
            channel.auth = Arc::new(auth);
        }
    }

    pub(crate) fn session_gone(&self, id: SessionId) {
        self.inner.lock().channels.remove(&id);
    }

    pub(crate) fn connection_gone(&self, conn: ConnId) {
        self.inner.lock().connections.remove(&conn);
    }

    fn end(
        &self,
        (session, slot): (SessionId, SlotId),
        answer: Result<NfsStat4, CallbackError>,
        (args, conn): (Arc<[u8]>, ConnId),
    ) {
        let mut inner = self.inner.lock();
        let slot =
            inner.channels.get_mut(&session).and_then(|channel| channel.slots.get_mut(slot.0 as usize));
        let Some(slot) = slot else { return };
        slot.phase = match answer {
            Err(CallbackError::Lost(CallError::TimedOut | CallError::Closed)) => Phase::Lost(args, conn),
            // The client did not get to CB_SEQUENCE, or put it off: it counts as before.
            Err(CallbackError::Lost(_) | CallbackError::Refused(NfsStat4::Delay)) => {
                slot.seqid = Seqid(slot.seqid.0.wrapping_sub(1));
                Phase::Free
            }
            _ => Phase::Free,
        };
    }
}

impl Inner {
    fn remember(&mut self, connection: &Arc<Connection>) {
        self.connections.insert(ConnId(connection.id()), Arc::downgrade(connection));
    }
}

impl Service {
    /// Calls a client of 4.1 or later back. `done` runs on a thread that must not be blocked, perhaps before this
    /// returns.
    pub(crate) fn call_back(self: &Arc<Self>, client: ClientId, op: CbArgOp<'_>, done: CalledBack) {
        self.resend_lost(client);
        match self.prepare(client, op) {
            Ok(prepared) => self.send(prepared, done),
            Err(error) => done(Err(error)),
        }
    }

    /// Makes calls that were lost with their connection once more, where there is another one now.
    fn resend_lost(self: &Arc<Self>, client: ClientId) {
        for lost in self.lost_calls(client) {
            // Whoever wanted it has been told that it was lost.
            self.send(lost, Box::new(|_| ()));
        }
    }

    fn send(self: &Arc<Self>, prepared: Prepared, done: CalledBack) {
        let Prepared { connection, auth, program, session, slot, args } = prepared;
        let call =
            OutgoingCall { program, version: NFS_CB_V4_0, procedure: CB_COMPOUND, auth: &auth, args: &args };
        let (service, sent) = (Arc::clone(self), (Arc::clone(&args), ConnId(connection.id())));
        connection.call_back(&call, ANSWER_TIMEOUT, move |result| {
            let answer = result.map_err(CallbackError::Lost).and_then(read_answer);
            service.callbacks.end((session, slot), answer, sent);
            done(answer);
        });
    }

    /// How a session's callbacks go now: a connection that is there, and the program.
    fn way(&self, id: SessionId, connections: &Connections) -> Option<(Arc<Connection>, u32, u32)> {
        let (conns, slots_max, program) = self.look(|engine| {
            let session = engine.sessions().get(id)?;
            let conns: Vec<ConnId> = session.back_connections().collect();
            Some((conns, session.back()?.slots_max, session.callback_program()))
        })?;
        let mut open = conns.iter().filter_map(|conn| connections.get(conn)?.upgrade());
        Some((open.find(|connection| !connection.is_closed())?, slots_max, program))
    }

    fn lost_calls(&self, client: ClientId) -> Vec<Prepared> {
        let mut inner = self.callbacks.inner.lock();
        let Inner { connections, channels } = &mut *inner;
        let mut calls = Vec::new();
        for (id, channel) in channels.iter_mut().filter(|(_, channel)| channel.client == client) {
            let is_lost = |slot: &CallSlot| matches!(slot.phase, Phase::Lost(..));
            if !channel.slots.iter().any(is_lost) {
                continue;
            }
            let Some((connection, _, program)) = self.way(*id, connections) else { continue };
            for (n, slot) in channel.slots.iter_mut().enumerate() {
                let Phase::Lost(args, on) = &slot.phase else { continue };
                if on.0 == connection.id() {
                    continue;
                }
                calls.push(Prepared {
                    connection: Arc::clone(&connection),
                    auth: Arc::clone(&channel.auth),
                    program: channel.program.unwrap_or(program),
                    session: *id,
                    slot: SlotId(n as u32),
                    args: Arc::clone(args),
                });
                slot.phase = Phase::Taken;
            }
        }
        calls
    }

    fn prepare(&self, client: ClientId, op: CbArgOp<'_>) -> Result<Prepared, CallbackError> {
        let mut inner = self.callbacks.inner.lock();
        let Inner { connections, channels } = &mut *inner;
        let mut error = CallbackError::NoChannel;
        for (id, channel) in channels.iter_mut().filter(|(_, channel)| channel.client == client) {
            let Some((connection, slots_max, program)) = self.way(*id, connections) else { continue };
            channel.slots.resize(slots_max as usize, CallSlot::default());
            let Some(slot) = channel.slots.iter().position(CallSlot::is_free) else {
                error = CallbackError::Busy;
                continue;
            };
            return Ok(channel.fill(slot, *id, (connection, channel.program.unwrap_or(program)), op));
        }
        Err(error)
    }
}

impl Channel {
    fn fill(
        &mut self,
        slot: usize,
        session: SessionId,
        (connection, program): (Arc<Connection>, u32),
        op: CbArgOp<'_>,
    ) -> Prepared {
        let taken = &mut self.slots[slot];
        taken.phase = Phase::Taken;
        taken.seqid = taken.seqid.next();
        // The slots of a back channel are fewer than 2^32.
        let (seqid, slot) = (taken.seqid, SlotId(slot as u32));
        let highest = self.slots.iter().rposition(|slot| !slot.is_free()).unwrap_or(0);
        let sequence = CbSequence4Args {
            sessionid: session,
            sequenceid: seqid,
            slotid: slot,
            highest_slotid: SlotId(highest as u32),
            cachethis: false,
            referring_call_lists: Vec::new(),
        };
        let mut args = Writer::new();
        encode_cb_compound(&mut args, self.minor as u32, 0, &[CbArgOp::Sequence(sequence), op]);
        let auth = Arc::clone(&self.auth);
        Prepared { connection, auth, program, session, slot, args: args.into_vec().into() }
    }
}

/// The status of the operation behind CB_SEQUENCE.
fn read_answer(results: &[u8]) -> Result<NfsStat4, CallbackError> {
    let mut r = Reader::new(results);
    let mut read = || -> holdfast_xdr::Result<_> {
        let header = CompoundResHeader::decode(&mut r)?;
        let sequence = ResOpHeader::decode(&mut r)?;
        if sequence.status != NfsStat4::Ok {
            return Ok(Err(CallbackError::Refused(sequence.status)));
        }
        CbSequence4Ok::decode(&mut r)?;
        if header.ops < 2 {
            return Ok(Err(CallbackError::Refused(header.status)));
        }
        ResOpHeader::decode(&mut r).map(|op| Ok(op.status))
    };
    read().unwrap_or(Err(CallbackError::Garbled))
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
