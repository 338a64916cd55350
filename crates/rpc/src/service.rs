//! The seam between the transport and the programs served over it.
//!
//! A call is handled synchronously on the connection's own worker, in the order of arrival, and its reply goes
//! out with those of the same wake-up. What cannot be answered at once leaves that path by its [`Outcome`].

use std::os::fd::OwnedFd;
use std::sync::Arc;

use bytes::Bytes;
use holdfast_xdr::{Reader, Writer};

use crate::auth::Auth;
use crate::connection::Connection;
use crate::pending::PendingReply;
use crate::record::Record;

/// Whether a call may wait for a disk or a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// On the connection's worker: waiting would hold up every other call of the connection.
    Inline,
    /// The same, by who has the call's turn ([`Program::turn`]): it may change what is in memory at a file system's pace. What
    /// may take longer, and whatever waits for anybody else, is [`Outcome::Offload`] still.
    Turn,
    /// On the offload pool: waiting is what it is for.
    Pool,
}

/// One call, as a program sees it.
pub struct Call<'a> {
    /// Transaction id.
    pub xid: u32,
    /// Program version, within what [`Program::versions`] gave.
    pub version: u32,
    /// Procedure number; 0 (NULL) too is the program's to answer.
    pub procedure: u32,
    /// Who calls. A credential that a connection repeats is the same `Arc` each time.
    pub auth: &'a Arc<Auth>,
    /// The arguments.
    pub args: Reader<'a>,
    /// The whole record; `args` reads from it.
    pub record: Record<'a>,
    /// Where it came from and the reply goes to.
    pub connection: &'a Arc<Connection>,
    /// Whether it may wait.
    pub mode: Mode,
}

impl Call<'_> {
    /// What is left of the arguments, to keep when the call outlives [`Program::call`]: shared where the record
    /// has a buffer of its own (large ones do), copied where it lies in the connection's read buffer.
    #[must_use]
    pub fn keep_args(&self) -> Bytes {
        self.record.keep_part(self.args.rest())
    }

    /// The arguments of the call that is to be handled next, right after this one and on the same thread, when it has come
    /// already and is of the same procedure by the same caller. Before `args` is read from. No promise: it may turn out
    /// otherwise, and be handled later or not at all.
    #[must_use]
    pub fn next_alike(&self) -> Option<&[u8]> {
        let (next, this) = (self.record.next()?, self.record.bytes());
        let args_at = this.len().checked_sub(self.args.rest().len())?;
        // All of the header but the xid.
        (next.get(4..args_at)? == this.get(4..args_at)?).then(|| &next[args_at..])
    }
}

/// How a call left its program. In every case but [`Outcome::Reply`], [`Outcome::ReplyFile`],
/// [`Outcome::Resume`] and [`Outcome::Park`] what was written to the reply is discarded.
pub enum Outcome {
    /// The results are in the writer: send them.
    Reply,
    /// The results are in the writer up to the data of a file, which follows: `bytes` of it, then `trailer`.
    ReplyFile(FileBody),
    /// It may wait: run the same call again where it may, on the pool, or before that by who has its turn ([`Mode::Turn`]).
    /// Nothing was changed.
    Offload,
    /// It may wait in the middle: go on likewise with this, and with what was written so far.
    Resume(Box<dyn Resume>),
    /// The reply is held back until somebody sends it. The function is given the reply as written so far, right
    /// away and on the same thread; places marked in it stay good. Programs ask
    /// [`Connection::may_park`] first and answer "try later" when it says no.
    Park(Box<dyn FnOnce(PendingReply) + Send>),
    /// The arguments cannot be decoded: GARBAGE_ARGS.
    Garbage,
    /// There is no such procedure: PROC_UNAVAIL.
    NoProcedure,
    /// The credential is not acceptable here: AUTH_ERROR, AUTH_TOOWEAK.
    WeakAuth,
    /// No reply at all.
    Silent,
    /// The peer misbehaves beyond answering: drop the connection.
    Close,
}

/// Calls that wait for one and the same backend, by any number of the program's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lane(pub u64);

/// Calls that would be in each other's way, as changes of one directory's names are, by any number of the program's choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Turn(pub u64);

/// The rest of a call that left its connection's worker.
pub trait Resume: Send {
    /// As [`Program::lane`].
    fn lane(&self) -> Option<Lane> {
        None
    }

    /// As [`Program::turn`].
    fn turn(&self) -> Option<Turn> {
        None
    }

    /// Whether who has its turn may go on with it in [`Mode::Turn`].
    fn is_brief(&self) -> bool {
        false
    }

    /// Goes on, on the pool ([`Mode::Pool`]) or having its turn ([`Mode::Turn`]): there [`Outcome::Resume`] says that it is to
    /// wait after all. `reply` holds what was written before.
    fn resume(self: Box<Self>, reply: &mut Writer, mode: Mode) -> Outcome;
}

impl<F: FnOnce(&mut Writer) -> Outcome + Send> Resume for F {
    fn resume(self: Box<Self>, reply: &mut Writer, _: Mode) -> Outcome {
        self(reply)
    }
}

/// The rest of a call in a lane.
pub struct InLane<R> {
    /// Which.
    pub lane: Option<Lane>,
    /// What it takes turns for there.
    pub turn: Option<Turn>,
    /// As [`Resume::is_brief`].
    pub is_brief: bool,
    /// The rest.
    pub rest: R,
}

impl<R: FnOnce(&mut Writer, Mode) -> Outcome + Send> Resume for InLane<R> {
    fn lane(&self) -> Option<Lane> {
        self.lane
    }

    fn turn(&self) -> Option<Turn> {
        self.turn
    }

    fn is_brief(&self) -> bool {
        self.is_brief
    }

    fn resume(self: Box<Self>, reply: &mut Writer, mode: Mode) -> Outcome {
        (self.rest)(reply, mode)
    }
}

/// A stretch of a file inside a reply.
pub struct FileBody {
    /// Open for reading.
    pub fd: Arc<OwnedFd>,
    /// First byte.
    pub offset: u64,
    /// How many. Were the file to shrink meanwhile, the connection is dropped rather than the reply falsified.
    pub bytes: usize,
    /// What follows the data, its XDR padding first.
    pub trailer: Vec<u8>,
}

/// An RPC program (RFC 5531 section 7.3).
pub trait Program: Send + Sync + 'static {
    /// Its number.
    fn number(&self) -> u32;

    /// The lowest and the highest version served; all between are served too.
    fn versions(&self) -> (u32, u32);

    /// Whether this version is served; for programs whose versions have gaps.
    fn has_version(&self, version: u32) -> bool {
        let (low, high) = self.versions();
        (low..=high).contains(&version)
    }

    /// Handles one call: appends the results (what follows the accepted-reply header) to `reply`. The writer is
    /// not empty at the start: sizes are to be taken as differences.
    fn call(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome;

    /// Whether the program has anything for a host at this address; `None` when it has no opinion. Of a stranger, whom
    /// some program knows nothing of and none has anything for, fewer replies are kept back. Asked when a connection
    /// begins.
    fn serves(&self, peer: std::net::IpAddr) -> Option<bool> {
        let _ = peer;
        None
    }

    /// Which backend a call may wait for, once it asked for the pool ([`Outcome::Offload`]): calls of one lane take
    /// only part of the pool, so that a file system that hangs leaves threads to the others. `None` when there is no
    /// telling.
    fn lane(&self, procedure: u32, args: Reader<'_>) -> Option<Lane> {
        let _ = (procedure, args);
        None
    }

    /// With which calls a call that asked for the pool ([`Outcome::Offload`]) takes turns: they are done one after the
    /// other, in the order in which they came, and replies that follow one another to one client leave together. Who
    /// takes long (`TURN_MS`), or says that it waits ([`holdfast_base::waiting`]), loses the turn to the next, so it is
    /// no lock. Where they are soon done with, the connection's worker does them ([`Mode::Turn`]). `None` when it is in nobody's way.
    fn turn(&self, procedure: u32, args: Reader<'_>) -> Option<Turn> {
        let _ = (procedure, args);
        None
    }

    /// Told once when a connection is gone, whether or not it ever called this program.
    fn connection_closed(&self, connection: &Arc<Connection>) {
        let _ = connection;
    }

    /// The server holds still, to be handed to another process: calls that wait for a peer are to be answered now
    /// ("try later" will do). Called several times within a second, as calls on their way may come to wait yet.
    fn quiesce(&self) {}

    /// The server goes on after all.
    fn release(&self) {}

    /// A connection of the process before this one goes on here, under the number it had. Before its next call.
    fn connection_adopted(&self, connection: &Arc<Connection>) {
        let _ = connection;
    }
}
