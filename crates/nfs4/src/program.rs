//! NFSv4 as an RPC program.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use holdfast_base::{ClientId, SessionId};
use holdfast_export::Object;
use holdfast_manager::Unreclaimed;
use holdfast_rpc::{Call, Connection, InLane, Lane, Mode, Outcome, PendingReply, Program, Turn};
use holdfast_state::{Admission, ConnId, Grace, SlotRequest, Snapshot};
use holdfast_wire::nfs4::{NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND, NFSPROC4_NULL, NfsStat4, OpNum4};
use holdfast_xdr::{Reader, Writer};

use crate::callback::CallsOut;
use crate::compound::{Begun, Compound};
use crate::config::{Config, Options};
use crate::engine::Stopped;
use crate::error::{fit, from_state};
use crate::service::Service;
use crate::slot::TurnKind;

/// The NFSv4 service.
pub struct Nfs4 {
    service: Arc<Service>,
}

impl Nfs4 {
    /// The service. One serves any number of listeners.
    #[must_use]
    pub fn new(config: Config) -> Arc<Self> {
        Self::with(config, Options::default())
    }

    /// The same, with other choices than the usual ones.
    #[must_use]
    pub fn with(config: Config, options: Options) -> Arc<Self> {
        Arc::new(Self { service: Service::new(config, options) })
    }

    /// Has clients of 4.0 called by `calls`, and not over connections of our own: for who has no sockets. Before the first
    /// request.
    pub fn call_by(&self, calls: Arc<dyn CallsOut>) {
        self.service.callbacks.call_by(calls);
    }

    /// Expires leases that have run out. To be called about once a second.
    pub fn tick(&self) {
        self.service.config.manager.tick();
        self.service.recall_again();
        self.service.tell_again();
        let manager = &self.service.config.manager;
        self.service.files.unwatch(manager.clock().now(), manager.lease_ms());
        self.service.look(|engine| self.service.files.forget_waited(engine));
    }

    /// Begins, prolongs or ends the grace period.
    pub fn set_grace(&self, grace: Grace) {
        if grace == Grace::Over {
            self.service.config.manager.await_no_more_than(Unreclaimed::Nothing);
        }
        // Setting it cannot fail and leaves nothing to do.
        let _ = self.service.state(|engine, _| {
            engine.set_grace(grace);
            Ok(())
        });
    }

    /// Puts on record whether a client knows of all that it lost, when the record may say otherwise.
    pub fn record_losses(&self, client: ClientId) {
        self.service.config.manager.quiet(|engine, _| engine.record_losses(client));
    }

    pub(crate) const fn service(&self) -> &Arc<Service> {
        &self.service
    }

    /// Takes in clients and sessions, with the replies of their slots, of an earlier run. Before the first request.
    /// Returns how many of them could not be taken in.
    pub fn restore(&self, snapshot: &Snapshot) -> usize {
        self.service.state(|engine, now| Ok(engine.restore(snapshot, now))).unwrap_or_default()
    }

    /// What the state engine holds, as of a moment ago, and how many backend files are open for opens and for locks.
    #[must_use]
    pub fn census(&self) -> (holdfast_state::Census, usize, usize) {
        let (opens, locks) = self.service.files.counts();
        (self.service.census.take(&self.service), opens, locks)
    }

    /// Back channels that are kept of sessions that are gone. There are none between two calls: for tests of that.
    #[must_use]
    pub fn stray_channels(&self) -> usize {
        self.service.stray_channels()
    }

    /// Looks at the state engine: for tests of its invariants, and for status pages.
    pub fn inspect<R>(&self, look: impl FnOnce(&holdfast_state::Engine) -> R) -> R {
        self.service.look(look)
    }
}

impl Program for Nfs4 {
    fn number(&self) -> u32 {
        NFS4_PROGRAM
    }

    fn versions(&self) -> (u32, u32) {
        (NFS_V4, NFS_V4)
    }

    fn serves(&self, peer: IpAddr) -> Option<bool> {
        Some(self.service.config.namespace.serves(peer))
    }

    fn call(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        match call.procedure {
            NFSPROC4_NULL => return Outcome::Reply,
            NFSPROC4_COMPOUND => {}
            _ => return Outcome::NoProcedure,
        }
        let mut compound = match Compound::begin(&self.service, call, reply) {
            Begun::Run(compound) => compound,
            Begun::Answered => return Outcome::Reply,
            Begun::Garbage => return Outcome::Garbage,
        };
        match compound.run(&mut call.args, reply, call.mode) {
            Stopped::Done => compound.finish(reply),
            Stopped::Turned(turn) => compound.turn(turn, reply),
            Stopped::Waits => {
                let turn = compound.turn_for();
                Box::new(compound).go_on_later(call.keep_args(), (turn, turn.is_some()))
            }
        }
    }

    fn connection_closed(&self, connection: &Arc<Connection>) {
        self.service.forget_connection(ConnId(connection.id()));
    }

    fn connection_adopted(&self, connection: &Arc<Connection>) {
        self.service.connection_adopted(connection);
    }
}

/// Whether an operation changes names in the current object.
pub(crate) const fn takes_turns(op: OpNum4) -> bool {
    matches!(op, OpNum4::Open | OpNum4::Create | OpNum4::Remove | OpNum4::Rename)
}

impl Compound {
    /// What it is about to wait for: the backend of the current object.
    fn lane(&self) -> Option<Lane> {
        match &self.current.as_ref()?.object {
            Object::Export(export, _) => Some(Lane(u64::from(export.id.0))),
            Object::Pseudo(_) => None,
        }
    }

    /// Which directory's names it is about to change: one after the other, for they share the directory's lock.
    fn turn_for(&self) -> Option<Turn> {
        match &self.current.as_ref()?.object {
            Object::Export(_, dir) if takes_turns(self.op) => Some(Turn((dir.key().0 >> 64) as u64)),
            _ => None,
        }
    }

    /// Leaves what is to be done with these arguments to who has the turn, or to the pool.
    fn go_on_later(self: Box<Self>, args: Bytes, (turn, is_brief): (Option<Turn>, bool)) -> Outcome {
        let lane = self.lane();
        let rest = move |reply: &mut Writer, mode| self.resume(&args, reply, mode);
        Outcome::Resume(Box::new(InLane { lane, turn, is_brief, rest }))
    }

    fn resume(mut self: Box<Self>, args: &Bytes, reply: &mut Writer, mode: Mode) -> Outcome {
        let mut left = Reader::new(args);
        match self.run(&mut left, reply, mode) {
            Stopped::Waits if mode != Mode::Pool => {
                let left = args.slice_ref(left.rest());
                let turn = self.turn_for();
                self.go_on_later(left, (turn, false))
            }
            // On the pool nothing waits any more; were it to, the reply ends where it stands.
            Stopped::Done | Stopped::Waits => self.finish(reply),
            Stopped::Turned(turn) => self.turn(turn, reply),
        }
    }

    /// A retry: it gets the results of the original, now or when there are any.
    fn turn(self, turn: TurnKind, reply: &mut Writer) -> Outcome {
        match turn {
            TurnKind::Duplicate(duplicate) => duplicate.outcome(),
            TurnKind::Replay(results) => {
                reply.truncate(self.start);
                reply.put(&results);
                Outcome::Reply
            }
            TurnKind::InProgress(session, request) => {
                let this = Box::new(self);
                Outcome::Park(Box::new(move |pending| this.wait_for_original(session, request, pending)))
            }
        }
    }

    fn wait_for_original(
        self: Box<Self>,
        session: SessionId,
        request: SlotRequest,
        mut pending: PendingReply,
    ) {
        let conn = ConnId(self.connection.id());
        // Held while asking again, so that the original cannot end unseen in between: it takes this lock after
        // it has ended its request.
        let mut waiting = self.service.retries.waiting.lock();
        let asked = self.service.ask_again(session, request, conn);
        match asked {
            Ok(Admission::RetryInProgress) => {
                waiting.entry((session, request.slot)).or_default().push(pending);
                return;
            }
            Ok(Admission::Replay(results)) => {
                pending.reset();
                pending.writer().put(&results);
            }
            other => {
                // The session ended meanwhile, or the reply was not kept. That the request is new is impossible:
                // its number was taken when it was asked first.
                let status = other.map_or_else(from_state, |_| NfsStat4::Delay);
                self.answer_sequence(status, pending.writer());
            }
        }
        drop(waiting);
        pending.send();
    }

    fn answer_sequence(&self, status: NfsStat4, reply: &mut Writer) {
        let status = fit(status, OpNum4::Sequence, self.minor);
        reply.u32(OpNum4::Sequence.as_u32());
        reply.u32(status.as_u32());
        reply.fill(self.status, status.as_u32());
        reply.fill(self.count, 1);
    }
}
