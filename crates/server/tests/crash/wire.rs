//! Calls as bytes, so that a retry is the same call to the bit.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use holdfast_wire::rpc::{
    AUTH_SYS, AcceptStat, AcceptedReply, AuthSys, CallBody, CallHeader, Groups, MsgType, OpaqueAuth,
    RPC_VERSION, ReplyBody, ReplyHeader,
};
use holdfast_xdr::{Decode, Encode, Reader, Writer, to_bytes};

/// How long a reply may take, on a machine that is busy with other tests.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Which procedure of which program.
#[derive(Clone, Copy)]
pub(crate) struct Procedure {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) number: u32,
}

/// A call by this user.
pub(crate) fn call(xid: u32, uid: u32, procedure: Procedure, args: &[u8]) -> Vec<u8> {
    let auth = AuthSys { stamp: 0, machine_name: b"crash", uid, gid: uid, gids: Groups::new(&[]) };
    let credential = to_bytes(&auth);
    let body = CallBody {
        rpcvers: RPC_VERSION,
        prog: procedure.program,
        vers: procedure.version,
        proc: procedure.number,
        cred: OpaqueAuth { flavor: AUTH_SYS, body: &credential },
        verf: OpaqueAuth::NONE,
    };
    let mut w = Writer::new();
    CallHeader { xid, mtype: MsgType::Call, body }.encode(&mut w);
    w.put(args);
    w.into_vec()
}

/// A connection.
pub(crate) struct Line {
    stream: TcpStream,
    /// Calls of the server's that were not answered yet.
    pub(crate) calls: Vec<Vec<u8>>,
}

impl Line {
    /// `None` when nobody listens.
    pub(crate) fn connect(address: SocketAddr) -> Option<Self> {
        let line = Self { stream: TcpStream::connect(address).ok()?, calls: Vec::new() };
        line.be_patient_for(PATIENCE);
        Some(line)
    }

    /// How long it waits for a record.
    pub(crate) fn be_patient_for(&self, time: Duration) {
        self.stream.set_read_timeout(Some(time)).unwrap();
    }

    /// `None` when the server is gone.
    pub(crate) fn send(&mut self, record: &[u8]) -> Option<()> {
        let mut framed = (0x8000_0000 | record.len() as u32).to_be_bytes().to_vec();
        framed.extend_from_slice(record);
        self.stream.write_all(&framed).ok()
    }

    /// The next record; `None` when the server is gone, or none comes in time.
    pub(crate) fn receive(&mut self) -> Option<Vec<u8>> {
        let mut record = Vec::new();
        loop {
            let mut mark = [0; 4];
            self.stream.read_exact(&mut mark).ok()?;
            let mark = u32::from_be_bytes(mark);
            let at = record.len();
            record.resize(at + (mark & 0x7fff_ffff) as usize, 0);
            self.stream.read_exact(&mut record[at..]).ok()?;
            if mark >> 31 == 1 {
                return Some(record);
            }
        }
    }

    /// Sends a call and gives its results, or `None` when the server goes away over it. Calls of the server's that come
    /// before are kept.
    pub(crate) fn exchange(&mut self, record: &[u8]) -> Option<Vec<u8>> {
        self.send(record)?;
        loop {
            let reply = self.receive()?;
            if reply[4..8] == [0; 4] {
                self.calls.push(reply);
                continue;
            }
            let mut r = Reader::new(&reply);
            let header = ReplyHeader::decode(&mut r).unwrap();
            let accepted =
                matches!(header.body, ReplyBody::Accepted(AcceptedReply { stat: AcceptStat::Success, .. }));
            assert!(accepted, "{header:?}");
            return Some(r.rest().to_vec());
        }
    }
}
