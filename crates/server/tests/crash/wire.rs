//! Calls as bytes, so that a retry is the same call to the bit.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use holdfast_wire::rpc::{
    AUTH_SYS, AcceptStat, AcceptedReply, AuthSys, CallBody, CallHeader, Groups, MsgType, OpaqueAuth,
    RPC_VERSION, ReplyBody, ReplyHeader,
};
use holdfast_xdr::{Decode, Encode, Reader, Writer, to_bytes};

/// Which procedure of which program.
#[derive(Clone, Copy)]
pub(crate) struct Procedure {
    pub(crate) program: u32,
    pub(crate) version: u32,
    pub(crate) number: u32,
}

/// A call by root.
pub(crate) fn call(xid: u32, procedure: Procedure, args: &[u8]) -> Vec<u8> {
    let auth = AuthSys { stamp: 0, machine_name: b"crash", uid: 0, gid: 0, gids: Groups::new(&[]) };
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

/// Sends a call on a connection of its own; its results, or `None` when the server went away.
pub(crate) fn exchange(address: SocketAddr, record: &[u8]) -> Option<Vec<u8>> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let mut framed = (0x8000_0000 | record.len() as u32).to_be_bytes().to_vec();
    framed.extend_from_slice(record);
    stream.write_all(&framed).ok()?;
    let mut reply = Vec::new();
    loop {
        let mut mark = [0; 4];
        stream.read_exact(&mut mark).ok()?;
        let mark = u32::from_be_bytes(mark);
        let at = reply.len();
        reply.resize(at + (mark & 0x7fff_ffff) as usize, 0);
        stream.read_exact(&mut reply[at..]).ok()?;
        if mark >> 31 == 1 {
            break;
        }
    }
    let mut r = Reader::new(&reply);
    let header = ReplyHeader::decode(&mut r).unwrap();
    let accepted =
        matches!(header.body, ReplyBody::Accepted(AcceptedReply { stat: AcceptStat::Success, .. }));
    assert!(accepted, "{header:?}");
    Some(r.rest().to_vec())
}
