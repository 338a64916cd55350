//! The frame of calls and replies, and calls one at a time for what precedes a load.

use super::record::{self, Records};
use anyhow::{Context, Result, bail, ensure};
use holdfast_wire::rpc::{
    AUTH_SYS, AcceptStat, AcceptedReply, AuthSys, CallBody, Groups, MsgType, OpaqueAuth, RPC_VERSION,
    ReplyBody, ReplyHeader,
};
use holdfast_xdr::{Decode, Encode, Reader, Writer};
use std::io::Write;
use std::net::{SocketAddrV4, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// No reply takes longer, unless the server is lost.
pub(crate) const REPLY_PATIENCE: Duration = Duration::from_secs(30);

/// Numbers of calls: never the same twice in a run, for servers remember them to know a repeated call.
static NEXT_XID: AtomicU32 = AtomicU32::new(0x4000_0000);

/// Reserves `count` numbers in a row and gives the first.
pub(crate) fn reserve_xids(count: u32) -> u32 {
    NEXT_XID.fetch_add(count, Ordering::Relaxed)
}

/// A procedure of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Procedure {
    /// The program.
    pub(crate) program: u32,
    /// Its version.
    pub(crate) version: u32,
    /// The procedure's number.
    pub(crate) number: u32,
}

/// The first of the users that loads are done as, where it is not root.
const FIRST_USER: u32 = 1000;

/// Headers of the calls of several users, who call in turn.
#[derive(Debug)]
pub(crate) struct Headers {
    of_users: Vec<Vec<u8>>,
    turn: usize,
}

impl Headers {
    /// Of so many users, each with a group of its own; of root, where there are none.
    pub(crate) fn new(procedure: Procedure, users: u32) -> Self {
        let ids = if users == 0 { 0..1 } else { FIRST_USER..FIRST_USER + users };
        Self { of_users: ids.map(|id| header_of(procedure, id)).collect(), turn: 0 }
    }

    /// That of the user whose turn it is.
    pub(crate) fn next(&mut self) -> &[u8] {
        self.turn = if self.turn + 1 < self.of_users.len() { self.turn + 1 } else { 0 };
        &self.of_users[self.turn]
    }
}

/// A call's header after its number, as root by AUTH_SYS; made once, for many calls.
pub(crate) fn header_after_xid(procedure: Procedure) -> Vec<u8> {
    header_of(procedure, 0)
}

fn header_of(procedure: Procedure, id: u32) -> Vec<u8> {
    let auth = AuthSys { stamp: 0, machine_name: b"bench", uid: id, gid: id, gids: Groups::new(&[]) };
    let credential = holdfast_xdr::to_bytes(&auth);
    let mut w = Writer::new();
    MsgType::Call.encode(&mut w);
    CallBody {
        rpcvers: RPC_VERSION,
        prog: procedure.program,
        vers: procedure.version,
        proc: procedure.number,
        cred: OpaqueAuth { flavor: AUTH_SYS, body: &credential },
        verf: OpaqueAuth::NONE,
    }
    .encode(&mut w);
    w.into_vec()
}

/// Reads a reply's header.
///
/// Errors when the call was not carried out.
pub(crate) fn accepted<'a>(reply: &'a [u8]) -> Result<Reader<'a>> {
    let mut r = Reader::new(reply);
    let header = ReplyHeader::decode(&mut r).context("no reply")?;
    match header.body {
        ReplyBody::Accepted(AcceptedReply { stat: AcceptStat::Success, .. }) => Ok(r),
        other => bail!("the call was not carried out: {other:?}"),
    }
}

/// A connection as every client here wants it.
///
/// Errors when it is refused.
pub(crate) fn connect(address: SocketAddrV4) -> Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(REPLY_PATIENCE))?;
    Ok(stream)
}

/// Calls one at a time.
#[derive(Debug)]
pub(crate) struct Caller {
    stream: TcpStream,
    records: Records,
}

impl Caller {
    /// Over an own connection.
    ///
    /// Errors when it is refused.
    pub(crate) fn connect(address: SocketAddrV4) -> Result<Self> {
        Ok(Self { stream: connect(address)?, records: Records::new() })
    }

    /// The connection, when nothing is left to be called one at a time.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Calls, waits, and gives the results' bytes.
    ///
    /// Errors of the connection, and when the call was not carried out.
    pub(crate) fn call(&mut self, procedure: Procedure, arguments: &impl Encode) -> Result<Vec<u8>> {
        let mut w = Writer::new();
        w.put(&record::mark(0));
        w.u32(reserve_xids(1));
        w.put(&header_after_xid(procedure));
        arguments.encode(&mut w);
        let mut message = w.into_vec();
        let mark = record::mark(message.len() - 4);
        message[..4].copy_from_slice(&mark);
        self.stream.write_all(&message)?;
        loop {
            if let Some(reply) = self.records.next()? {
                return Ok(accepted(reply)?.rest().to_vec());
            }
            ensure!(self.records.read_from(&mut self.stream)? > 0, "the server closed the connection");
        }
    }
}
