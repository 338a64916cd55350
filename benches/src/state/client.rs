//! A client of 4.1 that can be called back: it gives delegations back at once, and tells apart what is asked of it and
//! what it has asked.

use crate::client::call::{Procedure, accepted, connect, header_after_xid, reserve_xids};
use crate::client::record::{self, Records};
use crate::volume::{EXPORT_NAME, SMALL};
use anyhow::{Context, Result, ensure};
use holdfast_base::{ClientId, Seqid, SessionId, SlotId};
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Encode, Reader, Writer};
use std::collections::HashSet;
use std::io::Write;
use std::net::{SocketAddrV4, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const COMPOUND: Procedure = Procedure { program: NFS4_PROGRAM, version: NFS_V4, number: NFSPROC4_COMPOUND };
/// How soon what was put off is asked for again.
const PUT_OFF: Duration = Duration::from_millis(1);

/// A connection with a session on it, for both directions.
pub(super) struct Client {
    stream: TcpStream,
    records: Records,
    id: ClientId,
    session: SessionId,
    seqid: Seqid,
    owner: Vec<u8>,
    held: Held,
}

/// Names of delegations that were given and not recalled.
pub(super) type Held = Arc<Mutex<HashSet<[u8; 12]>>>;

impl Client {
    /// Connects, makes a client id and a session.
    ///
    /// Errors when the server refuses.
    pub(super) fn connect(server: SocketAddrV4, name: &str) -> Result<Self> {
        let mut client = Self {
            stream: connect(server)?,
            records: Records::new(),
            id: ClientId(0),
            session: SessionId([0; 16]),
            seqid: Seqid(0),
            owner: format!("{name}-{}", std::process::id()).into_bytes(),
            held: Held::default(),
        };
        let owner = client.owner.clone();
        let exchange = ExchangeId4Args {
            clientowner: ClientOwner4 { verifier: u64::from(reserve_xids(1)).to_be_bytes(), ownerid: &owner },
            flags: 0,
            state_protect: StateProtect4A::None,
            client_impl_id: None,
        };
        let reply = client.compound(&[ArgOp::ExchangeId(exchange)])?;
        let known = ExchangeId4Ok::decode(&mut result(&reply, 0)?)?;
        client.id = known.clientid;
        let create = create_session(client.id, known.sequenceid);
        let reply = client.compound(&[ArgOp::CreateSession(create)])?;
        client.session = CreateSession4Ok::decode(&mut result(&reply, 0)?)?.sessionid;
        client.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })])?;
        Ok(client)
    }

    /// The delegations that it holds at any time.
    pub(super) fn held(&self) -> Held {
        Arc::clone(&self.held)
    }

    /// Opens a small file; gives the name of the delegation that came with it, and how often it was put off.
    ///
    /// Errors when the server refuses.
    pub(super) fn open(&mut self, name: &str, access: u32) -> Result<(Option<[u8; 12]>, u32)> {
        for put_off in 0.. {
            let owner = self.owner.clone();
            let open = Open4Args {
                seqid: Seqid(0),
                share_access: access,
                share_deny: OPEN4_SHARE_DENY_NONE,
                owner: StateOwner4 { clientid: self.id, owner: &owner },
                openhow: OpenFlag4::NoCreate,
                claim: OpenClaim4::Null(name.as_bytes()),
            };
            let lookup = |name: &'static str| ArgOp::Lookup(Lookup4Args { objname: name.as_bytes() });
            let ops = [ArgOp::PutRootFh, lookup(EXPORT_NAME), lookup(SMALL), ArgOp::Open(open)];
            let reply = self.run(&ops)?;
            match CompoundResHeader::decode(&mut Reader::new(&reply))?.status {
                NfsStat4::Delay => std::thread::sleep(PUT_OFF),
                status => {
                    ensure!(status == NfsStat4::Ok, "OPEN of {name}: {status}");
                    let mut r = result(&reply, 4)?;
                    let opened = Open4Ok::decode(&mut r)?;
                    let delegation = delegated(&opened.delegation);
                    delegation.map(|name| locked(&self.held).insert(name));
                    return Ok((delegation, put_off));
                }
            }
        }
        unreachable!("an endless count ends")
    }

    /// Gives back whatever is recalled, until the connection ends.
    pub(super) fn give_back(mut self) {
        // An error is the end of the server or of the bench, which both want.
        let _ = self.compound_of(None);
    }

    fn run(&mut self, ops: &[ArgOp<'_>]) -> Result<Vec<u8>> {
        let mut all = vec![ArgOp::Sequence(self.sequence())];
        all.extend_from_slice(ops);
        self.compound(&all)
    }

    fn sequence(&mut self) -> Sequence4Args {
        self.seqid = self.seqid.next();
        Sequence4Args {
            sessionid: self.session,
            sequenceid: self.seqid,
            slotid: SlotId(0),
            highest_slotid: SlotId(0),
            cachethis: false,
        }
    }

    fn compound(&mut self, ops: &[ArgOp<'_>]) -> Result<Vec<u8>> {
        self.compound_of(Some(ops))
    }

    /// Sends a compound, and serves what is asked until its reply comes; without one, until the end.
    fn compound_of(&mut self, ops: Option<&[ArgOp<'_>]>) -> Result<Vec<u8>> {
        let xid = ops.map(|ops| self.send_call(ops)).transpose()?;
        loop {
            while let Some(record) = self.records.next()? {
                let record = record.to_vec();
                let word = |at: usize| record[at..].first_chunk().map(|word| u32::from_be_bytes(*word));
                if word(4) == Some(0) {
                    self.serve(&record)?;
                } else if word(0) == xid {
                    return Ok(accepted(&record)?.rest().to_vec());
                }
            }
            let came = self.records.read_from(&mut self.stream);
            let is_idle = came.as_ref().is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
            ensure!(is_idle && xid.is_none() || came? > 0, "the server closed the connection");
        }
    }

    fn send_call(&mut self, ops: &[ArgOp<'_>]) -> Result<u32> {
        let xid = reserve_xids(1);
        let mut w = Writer::new();
        w.u32(xid);
        w.put(&header_after_xid(COMPOUND));
        encode_compound(&mut w, b"", 1, ops);
        self.send(w.as_slice()).map(|()| xid)
    }

    fn send(&mut self, message: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(&[&record::mark(message.len()), message].concat())?)
    }

    /// Answers a call of the server's; a recall is followed by DELEGRETURN, whose answer nobody waits for.
    fn serve(&mut self, call: &[u8]) -> Result<()> {
        const RPC_HEADER_BYTES: usize = 24;
        let mut reply = Writer::new();
        reply.put(&call[..4]);
        for word in [1, 0, 0, 0, 0] {
            reply.u32(word);
        }
        let mut r = Reader::new(call.get(RPC_HEADER_BYTES..).context("a short call")?);
        for _credential_and_verifier in 0..2 {
            r.u32()?;
            r.opaque(400)?;
        }
        let mut recalled = None;
        if !r.rest().is_empty() {
            let header = CbCompoundArgsHeader::decode(&mut r)?;
            let ops: Vec<_> = (0..header.ops).map(|_| CbArgOp::decode(&mut r)).collect::<Result<_, _>>()?;
            reply.u32(NfsStat4::Ok.as_u32());
            reply.opaque(b"");
            reply.u32(header.ops);
            for op in &ops {
                recalled = answer(op, &mut reply).or(recalled);
            }
        }
        if let Some((_, stateid)) = &recalled {
            locked(&self.held).remove(&stateid.other);
        }
        self.send(reply.as_slice())?;
        let Some((fh, stateid)) = recalled else { return Ok(()) };
        let give_back = ArgOp::DelegReturn(DelegReturn4Args { deleg_stateid: stateid });
        let ops = [ArgOp::Sequence(self.sequence()), ArgOp::PutFh(PutFh4Args { object: &fh }), give_back];
        self.send_call(&ops).map(drop)
    }
}

fn locked(held: &Held) -> MutexGuard<'_, HashSet<[u8; 12]>> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

fn delegated(delegation: &OpenDelegation4<'_>) -> Option<[u8; 12]> {
    match delegation {
        OpenDelegation4::Read(read) | OpenDelegation4::ReadAttrsDeleg(read) => Some(read.stateid.other),
        OpenDelegation4::Write(write) | OpenDelegation4::WriteAttrsDeleg(write) => Some(write.stateid.other),
        OpenDelegation4::None | OpenDelegation4::NoneExt(_) => None,
    }
}

/// Writes one result; gives what is recalled.
fn answer(op: &CbArgOp<'_>, reply: &mut Writer) -> Option<(Vec<u8>, Stateid4)> {
    let mut encoded = Writer::new();
    op.encode(&mut encoded);
    reply.put(&encoded.as_slice()[..4]);
    reply.u32(NfsStat4::Ok.as_u32());
    match op {
        CbArgOp::Sequence(args) => {
            CbSequence4Ok {
                sessionid: args.sessionid,
                sequenceid: args.sequenceid,
                slotid: args.slotid,
                highest_slotid: args.highest_slotid,
                target_highest_slotid: args.highest_slotid,
            }
            .encode(reply);
            None
        }
        CbArgOp::Recall(args) => Some((args.fh.to_vec(), args.stateid)),
        _ => None,
    }
}

fn create_session(client: ClientId, sequence: Seqid) -> CreateSession4Args<'static> {
    let channel = ChannelAttrs4 {
        headerpadsize: 0,
        maxrequestsize: 1 << 20,
        maxresponsesize: 1 << 20,
        maxresponsesize_cached: 4096,
        maxoperations: 16,
        maxrequests: 1,
        rdma_ird: None,
    };
    CreateSession4Args {
        clientid: client,
        sequence,
        flags: CREATE_SESSION4_FLAG_CONN_BACK_CHAN | CREATE_SESSION4_FLAG_PERSIST,
        fore_chan_attrs: channel,
        back_chan_attrs: ChannelAttrs4 { maxrequestsize: 4096, maxresponsesize: 4096, ..channel },
        cb_program: NFS4_CALLBACK_PROGRAM,
        sec_parms: vec![CallbackSecParms4::None],
    }
}

/// A reader at the body of result `index`, those between SEQUENCE's and it being empty.
fn result(reply: &[u8], index: usize) -> Result<Reader<'_>> {
    let mut r = Reader::new(reply);
    let header = CompoundResHeader::decode(&mut r)?;
    ensure!(header.status == NfsStat4::Ok, "the compound ended with {}", header.status);
    ResOpHeader::decode(&mut r)?;
    if index > 0 {
        Sequence4Ok::decode(&mut r)?;
    }
    for _ in 0..index {
        ResOpHeader::decode(&mut r)?;
    }
    Ok(r)
}
