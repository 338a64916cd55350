//! From a record to its outcome: finds the program, runs the call, and sees to what the outcome asks for. The same
//! for calls on a connection's worker and on the pool.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use bytes::Bytes;
use holdfast_wire::rpc::AuthStat;
use holdfast_xdr::Writer;

use crate::auth::{Auth, AuthCache};
use crate::connection::{Connection, Ticket};
use crate::crew::Crew;
use crate::message::{self, CallHeader, Failure, HeaderError, Message};
use crate::pending::PendingReply;
use crate::pool::{Job, Pool};
use crate::record::{self, Record};
use crate::server::Limits;
use crate::service::{Call, FileBody, Lane, Mode, Outcome, Program, Resume, Turn};
use crate::throttle::Throttle;
use crate::together;

/// What all connections of a server share.
pub(crate) struct Core {
    pub(crate) programs: Vec<Arc<dyn Program>>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) limits: Limits,
    /// Who serves connections; none without a network.
    pub(crate) crew: Option<Arc<Crew>>,
    connection_ids: AtomicU64,
    tick: AtomicU32,
    is_under_pressure: AtomicBool,
    /// What a connection may hold under pressure and still be read.
    share: AtomicUsize,
    is_draining: AtomicBool,
    is_holding: AtomicBool,
    panics: Throttle,
}

impl Core {
    pub(crate) fn new(
        programs: Vec<Arc<dyn Program>>,
        pool: Arc<Pool>,
        limits: Limits,
        crew: Option<Arc<Crew>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            programs,
            pool,
            limits,
            crew,
            connection_ids: AtomicU64::new(1),
            tick: AtomicU32::new(1),
            is_under_pressure: AtomicBool::new(false),
            share: AtomicUsize::new(0),
            is_draining: AtomicBool::new(false),
            is_holding: AtomicBool::new(false),
            panics: Throttle::default(),
        })
    }

    pub(crate) fn next_connection_id(&self) -> u64 {
        self.connection_ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Seconds since the server started, never 0: read instead of a clock, which would cost more.
    pub(crate) fn tick(&self) -> u32 {
        self.tick.load(Ordering::Relaxed)
    }

    pub(crate) fn set_tick(&self, tick: u32) {
        self.tick.store(tick.max(1), Ordering::Relaxed);
    }

    /// Whether all connections together hold too much.
    pub(crate) fn is_under_pressure(&self) -> bool {
        self.is_under_pressure.load(Ordering::Relaxed)
    }

    /// Says whether they do, and how many they are.
    pub(crate) fn set_under_pressure(&self, is: bool, connections: usize) {
        // All of them together, each within its share, do not bring the pressure about.
        self.share.store(self.limits.transport_bytes / 4 / connections.max(1), Ordering::Relaxed);
        self.is_under_pressure.store(is, Ordering::Relaxed);
        if is {
            record::drop_spares();
        }
    }

    /// What a connection may hold under pressure and still be read.
    pub(crate) fn share(&self) -> usize {
        self.share.load(Ordering::Relaxed)
    }

    /// Whether the server is ending: what came is answered, nothing more is read.
    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Acquire)
    }

    pub(crate) fn set_draining(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// Whether the server holds still, to be handed over: what has begun goes on, nothing new does.
    pub(crate) fn is_holding(&self) -> bool {
        self.is_holding.load(Ordering::Acquire)
    }

    pub(crate) fn set_holding(&self, is: bool) {
        self.is_holding.store(is, Ordering::Release);
    }

    /// No connection gets this number, or one below it, from now on.
    pub(crate) fn pass_connection_id(&self, id: u64) {
        self.connection_ids.fetch_max(id.saturating_add(1), Ordering::Relaxed);
    }

    /// Whether some program turns this peer away, and none has anything for it.
    pub(crate) fn is_stranger(&self, peer: std::net::IpAddr) -> bool {
        let opinions = || self.programs.iter().filter_map(|program| program.serves(peer));
        opinions().next().is_some() && !opinions().any(|serves| serves)
    }

    /// Versions of one program may be served by several: NFS versions 3 and 4 are.
    fn program(&self, call: &CallHeader<'_>) -> Result<&Arc<dyn Program>, Failure> {
        let (number, version) = (call.body.prog, call.body.vers);
        let of_number = || self.programs.iter().filter(|p| p.number() == number);
        if let Some(program) = of_number().find(|p| p.has_version(version)) {
            return Ok(program);
        }
        let low = of_number().map(|p| p.versions().0).min().ok_or(Failure::NO_PROGRAM)?;
        let high = of_number().map(|p| p.versions().1).max().ok_or(Failure::NO_PROGRAM)?;
        Err(Failure::no_version(low, high))
    }
}

/// What a connection's worker does after a record.
pub(crate) enum Step {
    /// The reply, sealed, is in the writer.
    Reply,
    /// The same, and a stretch of a file follows.
    ReplyFile(FileBody),
    /// Nothing is to be sent now.
    Nothing,
    /// The pool has no room for this: read no more until it has.
    Stalled(Job),
    /// Drop the connection.
    Close,
}

/// A call, or the rest of one, for the pool.
pub(crate) enum Work {
    Call { record: Bytes, auth: Arc<Auth>, lane: Option<Lane>, turn: Option<Turn> },
    Resume { resume: Box<dyn Resume>, reply: Writer, xid: u32 },
}

impl Work {
    pub(crate) fn lane(&self) -> Option<Lane> {
        match self {
            Self::Call { lane, .. } => *lane,
            Self::Resume { resume, .. } => resume.lane(),
        }
    }

    pub(crate) fn turn(&self) -> Option<Turn> {
        match self {
            Self::Call { turn, .. } => *turn,
            Self::Resume { resume, .. } => resume.turn(),
        }
    }
}

/// Handles one record on its connection's worker. Before a call that may hang, replies that lie before its own are sent, unless
/// all of them are of such calls: `has_others` says so, and is told of this one.
pub(crate) fn handle(
    connection: &Arc<Connection>,
    record: Record<'_>,
    auths: &mut AuthCache,
    reply: &mut Writer,
    has_others: &mut bool,
) -> Step {
    let header = match message::read(record.bytes()) {
        Ok(Message::Call(header)) => header,
        Ok(Message::Reply(xid, result)) => {
            if !connection.answer(xid, result) {
                tracing::debug!(xid, ?connection, "an answer that nobody waits for");
            }
            return Step::Nothing;
        }
        Err(HeaderError::NotRpc) => return Step::Close,
        Err(HeaderError::Answer(xid, failure)) => return failed(reply, xid, failure),
    };
    let program = match connection.core.program(&header) {
        Ok(program) => program,
        Err(failure) => return failed(reply, header.xid, failure),
    };
    let auth = match auths.decode(header.body.cred.flavor, header.body.cred.body) {
        Ok(auth) => auth,
        Err(stat) => return failed(reply, header.xid, Failure::auth(stat)),
    };
    let xid = header.xid;
    let mut outcome = run_call(program, connection, &header, auth, record, Mode::Inline, reply);
    let turn = match &outcome {
        Outcome::Offload => program.turn(header.body.proc, header.args.clone()),
        Outcome::Resume(resume) => resume.turn().filter(|_| resume.is_brief()),
        _ => None,
    };
    let mine = turn.and_then(|turn| connection.core.pool.take_turn(turn, connection.id()));
    *has_others |= mine.is_none();
    if let Some(mine) = mine {
        if std::mem::take(has_others) && !reply.before().is_empty() {
            connection.send(reply.before(), None);
            reply.forget_before();
        }
        // It counts as under way for who waits until nothing is.
        let _running = Ticket::in_flight(connection, record.bytes().len());
        outcome = match outcome {
            Outcome::Resume(resume) => {
                guarded(&connection.core, xid, reply, |reply| resume.resume(reply, Mode::Turn))
            }
            _ => run_call(program, connection, &header, auth, record, Mode::Turn, reply),
        };
        mine.end(!matches!(outcome, Outcome::Offload | Outcome::Resume(_)));
    }
    match outcome {
        Outcome::Offload => {
            let record = record.keep();
            let ticket = Ticket::in_flight(connection, record.len());
            let lane = program.lane(header.body.proc, header.args.clone());
            let work = Work::Call { record, auth: Arc::clone(auth), lane, turn };
            offload(connection, Job::Call { work, ticket })
        }
        Outcome::Resume(resume) => {
            let ticket = Ticket::in_flight(connection, record.bytes().len());
            let work = Work::Resume { resume, reply: reply.take(), xid };
            offload(connection, Job::Call { work, ticket })
        }
        other => settle(connection, xid, reply, other, record.bytes().len()),
    }
}

fn failed(reply: &mut Writer, xid: u32, failure: Failure) -> Step {
    message::write_failed(reply, xid, failure);
    Step::Reply
}

fn offload(connection: &Arc<Connection>, job: Job) -> Step {
    match connection.core.pool.try_push(job, connection) {
        Ok(()) => Step::Nothing,
        Err(job) => Step::Stalled(job),
    }
}

#[expect(clippy::too_many_arguments, reason = "one call and everything it runs with")]
fn run_call(
    program: &Arc<dyn Program>,
    connection: &Arc<Connection>,
    header: &CallHeader<'_>,
    auth: &Arc<Auth>,
    record: Record<'_>,
    mode: Mode,
    reply: &mut Writer,
) -> Outcome {
    message::begin_reply(reply, header.xid);
    let mut call = Call {
        xid: header.xid,
        version: header.body.vers,
        procedure: header.body.proc,
        auth,
        args: header.args.clone(),
        record,
        connection,
        mode,
    };
    guarded(&connection.core, header.xid, reply, |reply| program.call(&mut call, reply))
}

/// Runs a program's code so that its panic costs one call and not the server.
fn guarded(core: &Core, xid: u32, reply: &mut Writer, run: impl FnOnce(&mut Writer) -> Outcome) -> Outcome {
    // Sound to go on: the writer is started over, and what the program keeps is under locks that do not poison.
    catch_unwind(AssertUnwindSafe(|| run(reply))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().copied();
        let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        if core.panics.may_log() {
            tracing::error!(xid, panic = text.unwrap_or("?"), "a call panicked");
        }
        message::begin_reply(reply, xid);
        // A pending reply that is dropped answers SYSTEM_ERR.
        Outcome::Park(Box::new(drop))
    })
}

/// Handles one datagram on a thread that may wait; whether the reply, sealed, is in the writer. What is no call, or
/// is answered later or by a file, has none.
pub(crate) fn handle_datagram(
    connection: &Arc<Connection>,
    record: Record<'_>,
    auths: &mut AuthCache,
    reply: &mut Writer,
) -> bool {
    let header = match message::read(record.bytes()) {
        Ok(Message::Call(header)) => header,
        Err(HeaderError::Answer(xid, failure)) => {
            message::write_failed(reply, xid, failure);
            return true;
        }
        Ok(Message::Reply(..)) | Err(HeaderError::NotRpc) => return false,
    };
    let xid = header.xid;
    let step = match (
        connection.core.program(&header),
        auths.decode(header.body.cred.flavor, header.body.cred.body),
    ) {
        (Err(failure), _) => failed(reply, xid, failure),
        (_, Err(stat)) => failed(reply, xid, Failure::auth(stat)),
        (Ok(program), Ok(auth)) => {
            let mut outcome = run_call(program, connection, &header, auth, record, Mode::Pool, reply);
            while let Outcome::Resume(resume) = outcome {
                outcome = guarded(&connection.core, xid, reply, |reply| resume.resume(reply, Mode::Pool));
            }
            settle(connection, xid, reply, outcome, 0)
        }
    };
    matches!(step, Step::Reply)
}

/// Turns an outcome that does not go to the pool into what is to be sent. `kept` are the bytes that the call may
/// go on holding.
fn settle(connection: &Arc<Connection>, xid: u32, reply: &mut Writer, outcome: Outcome, kept: usize) -> Step {
    match outcome {
        Outcome::Reply => {
            message::seal(reply, 0);
            Step::Reply
        }
        Outcome::ReplyFile(file) => {
            message::seal(reply, file.bytes + file.trailer.len());
            Step::ReplyFile(file)
        }
        Outcome::Park(park) => {
            let pending = PendingReply::new(xid, reply.take(), Ticket::parked(connection, kept));
            // A panic drops the reply, which answers SYSTEM_ERR.
            if catch_unwind(AssertUnwindSafe(|| park(pending))).is_err() && connection.core.panics.may_log() {
                tracing::error!(xid, "parking a call panicked");
            }
            Step::Nothing
        }
        Outcome::Garbage => failed(reply, xid, Failure::GARBAGE),
        Outcome::NoProcedure => failed(reply, xid, Failure::NO_PROCEDURE),
        Outcome::WeakAuth => failed(reply, xid, Failure::auth(AuthStat::TooWeak)),
        Outcome::Silent => Step::Nothing,
        Outcome::Close => Step::Close,
        Outcome::Offload | Outcome::Resume(_) => {
            tracing::error!(xid, "a call asked twice for the pool");
            failed(reply, xid, Failure::SYSTEM)
        }
    }
}

/// Ends a call away from its connection's worker.
pub(crate) fn finish(ticket: Ticket, xid: u32, reply: &mut Writer, outcome: Outcome) {
    let connection = ticket.connection();
    match settle(connection, xid, reply, outcome, ticket.bytes()) {
        Step::Reply => together::send(reply.as_slice(), ticket),
        Step::ReplyFile(file) => connection.send(reply.as_slice(), Some(file)),
        Step::Nothing | Step::Stalled(_) => {}
        Step::Close => connection.close(),
    }
}

/// A larger buffer is not kept for the next reply.
const POOL_REPLY_BYTES_KEPT: usize = 16 << 10;

thread_local! {
    /// The buffer of the last reply, unless it went with a call that waits.
    static REPLY: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Runs a call on a thread of the pool.
pub(crate) fn run_on_pool(work: Work, ticket: Ticket) {
    let connection = Arc::clone(ticket.connection());
    let (xid, mut reply, mut outcome) = match work {
        Work::Call { record, auth, .. } => {
            // It was read and found good before it came here.
            let Ok(Message::Call(header)) = message::read(&record) else { return };
            let Ok(program) = connection.core.program(&header) else { return };
            let mut reply = Writer::from_vec(REPLY.take());
            let record = Record::own(&record);
            let outcome = run_call(program, &connection, &header, &auth, record, Mode::Pool, &mut reply);
            (header.xid, reply, outcome)
        }
        Work::Resume { resume, mut reply, xid } => {
            let outcome =
                guarded(&connection.core, xid, &mut reply, |reply| resume.resume(reply, Mode::Pool));
            (xid, reply, outcome)
        }
    };
    while let Outcome::Resume(resume) = outcome {
        outcome = guarded(&connection.core, xid, &mut reply, |reply| resume.resume(reply, Mode::Pool));
    }
    finish(ticket, xid, &mut reply, outcome);
    let buf = reply.into_vec();
    if buf.capacity() <= POOL_REPLY_BYTES_KEPT {
        REPLY.set(buf);
    }
}
