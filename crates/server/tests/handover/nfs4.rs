//! A client of NFSv4 that keeps one connection for all its life.

use std::net::SocketAddr;

use holdfast_base::{ClientId, Length, Offset, Seqid, SessionId, SlotId};
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Reader, Writer};

use crate::client::{Client, NFS4, call, word, words};

const CHANNEL: ChannelAttrs4 = ChannelAttrs4 {
    headerpadsize: 0,
    maxrequestsize: 1 << 20,
    maxresponsesize: 1 << 20,
    maxresponsesize_cached: 4096,
    maxoperations: 32,
    maxrequests: 4,
    rdma_ird: None,
};

pub(crate) struct Nfs4 {
    connection: Client,
    minor: u32,
    xid: u32,
    pub(crate) id: ClientId,
    session: SessionId,
    seqid: Seqid,
    owner_seqid: Seqid,
    lock_seqid: Seqid,
    /// As whom it opens files.
    owner: Vec<u8>,
    /// In which export.
    pub(crate) export: &'static str,
    /// Calls of the server that came while an answer was awaited.
    calls: Vec<Vec<u8>>,
    /// The last request, to be sent again.
    last: Vec<u8>,
}

pub(crate) fn status(results: &[u8]) -> NfsStat4 {
    CompoundResHeader::decode(&mut Reader::new(results)).unwrap().status
}

fn lookup(name: &str) -> ArgOp<'_> {
    ArgOp::Lookup(Lookup4Args { objname: name.as_bytes() })
}

impl Nfs4 {
    pub(crate) fn new(address: SocketAddr, name: &str, minor: u32) -> Self {
        let mut client = Self {
            connection: Client::connect(address),
            minor,
            xid: 1000,
            id: ClientId(0),
            session: SessionId([0; 16]),
            seqid: Seqid(1),
            owner_seqid: Seqid(1),
            lock_seqid: Seqid(1),
            owner: b"owner".to_vec(),
            export: "export",
            calls: Vec::new(),
            last: Vec::new(),
        };
        if minor == 0 {
            client.set_client_id(name);
        } else {
            client.make_session(name);
        }
        client
    }

    fn set_client_id(&mut self, name: &str) {
        let answer = self.alone(ArgOp::SetClientId(SetClientId4Args {
            client: NfsClientId4 { verifier: [1; 8], id: name.as_bytes() },
            callback: CbClient4 { cb_program: 0, cb_location: NetAddr4 { netid: b"tcp", addr: b"" } },
            callback_ident: 0,
        }));
        let known = SetClientId4Ok::decode(&mut Reader::new(&answer)).unwrap();
        self.id = known.clientid;
        self.alone(ArgOp::SetClientIdConfirm(SetClientIdConfirm4Args {
            clientid: known.clientid,
            setclientid_confirm: known.setclientid_confirm,
        }));
    }

    fn make_session(&mut self, name: &str) {
        let answer = self.alone(ArgOp::ExchangeId(ExchangeId4Args {
            clientowner: ClientOwner4 { verifier: [1; 8], ownerid: name.as_bytes() },
            flags: 0,
            state_protect: StateProtect4A::None,
            client_impl_id: None,
        }));
        let known = ExchangeId4Ok::decode(&mut Reader::new(&answer)).unwrap();
        self.id = known.clientid;
        let answer = self.alone(ArgOp::CreateSession(CreateSession4Args {
            clientid: known.clientid,
            sequence: known.sequenceid,
            flags: CREATE_SESSION4_FLAG_PERSIST | CREATE_SESSION4_FLAG_CONN_BACK_CHAN,
            fore_chan_attrs: CHANNEL,
            back_chan_attrs: CHANNEL,
            cb_program: NFS4_CALLBACK_PROGRAM,
            sec_parms: vec![CallbackSecParms4::None],
        }));
        self.session = CreateSession4Ok::decode(&mut Reader::new(&answer)).unwrap().sessionid;
        let complete = ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false });
        assert_eq!(status(&self.ask(&[complete])), NfsStat4::Ok);
    }

    /// The session's name.
    pub(crate) const fn session(&self) -> SessionId {
        self.session
    }

    /// A compound of one operation outside a session; what follows the head of its result.
    fn alone(&mut self, op: ArgOp<'_>) -> Vec<u8> {
        let results = self.compound(&[op]);
        let mut r = Reader::new(&results);
        assert_eq!(CompoundResHeader::decode(&mut r).unwrap().status, NfsStat4::Ok);
        ResOpHeader::decode(&mut r).unwrap();
        r.rest().to_vec()
    }

    fn record(&mut self, ops: &[ArgOp<'_>]) -> Vec<u8> {
        let mut args = Writer::new();
        encode_compound(&mut args, b"", self.minor, ops);
        self.xid += 1;
        call(self.xid, NFS4, 1, args.as_slice())
    }

    fn compound(&mut self, ops: &[ArgOp<'_>]) -> Vec<u8> {
        let record = self.record(ops);
        self.connection.send(&record);
        self.last = record;
        self.answer()
    }

    /// The results of the call that was sent last; calls of the server that come before are kept.
    fn answer(&mut self) -> Vec<u8> {
        loop {
            let record = self.receive();
            if word(&record, 1) == 0 {
                self.calls.push(record);
                continue;
            }
            assert_eq!([0, 1, 2, 3, 4, 5].map(|n| word(&record, n)), [self.xid, 1, 0, 0, 0, 0]);
            return record[24..].to_vec();
        }
    }

    /// The next record that is no probe of the back channel.
    fn receive(&mut self) -> Vec<u8> {
        loop {
            let record = self.connection.try_receive().expect("the connection lives");
            if [1, 5].map(|n| word(&record, n)) != [0, 0] {
                return record;
            }
            self.connection.send(&words(&[word(&record, 0), 1, 0, 0, 0, 0]));
        }
    }

    /// A request: in a session in 4.1.
    pub(crate) fn ask(&mut self, ops: &[ArgOp<'_>]) -> Vec<u8> {
        if self.minor == 0 {
            return self.compound(ops);
        }
        let sequence = Sequence4Args {
            sessionid: self.session,
            sequenceid: self.seqid,
            slotid: SlotId(0),
            highest_slotid: SlotId(0),
            cachethis: true,
        };
        self.seqid = self.seqid.next();
        self.compound(&[&[ArgOp::Sequence(sequence)], ops].concat())
    }

    /// Sends the last request again as it was.
    pub(crate) fn repeat(&mut self) -> Vec<u8> {
        let record = self.last.clone();
        self.connection.send(&record);
        self.answer()
    }

    /// The status, and the body of the last operation's result.
    fn ask_at(&mut self, file: &str, ops: &[ArgOp<'_>]) -> (NfsStat4, Vec<u8>) {
        let way = [ArgOp::PutRootFh, lookup(self.export), lookup(file)];
        let way = if file.is_empty() { &way[..2] } else { &way[..] };
        let results = self.ask(&[way, ops].concat());
        let before = way.len() + ops.len() - 1 + usize::from(self.minor > 0);
        (status(&results), last_of(&results, before, self.minor > 0))
    }

    /// Opens a file for reading and writing, making it where it is not there.
    pub(crate) fn open(&mut self, file: &str) -> Stateid4 {
        // In 4.0 there is no such wish, and a client without a callback address is given no delegation.
        let wish = if self.minor == 0 { 0 } else { OPEN4_SHARE_ACCESS_WANT_NO_DELEG };
        self.open_wishing(file, wish).expect("OPEN").0
    }

    /// The same, as another owner.
    pub(crate) fn open_as(&mut self, file: &str, owner: &str) -> Stateid4 {
        self.owner = owner.as_bytes().to_vec();
        self.open(file)
    }

    /// What a holder opened by itself under its delegation, as another owner of its.
    pub(crate) fn open_under(&mut self, file: &str, owner: &str, delegation: Stateid4) -> Stateid4 {
        let open = Open4Args {
            seqid: Seqid(0),
            share_access: OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: StateOwner4 { clientid: self.id, owner: owner.as_bytes() },
            openhow: OpenFlag4::NoCreate,
            claim: OpenClaim4::DelegCurFh(delegation),
        };
        let (status, body) = self.ask_at(file, &[ArgOp::Open(open)]);
        assert_eq!(status, NfsStat4::Ok);
        Open4Ok::decode(&mut Reader::new(&body)).unwrap().stateid
    }

    /// The same; the delegation that came with it, if one did.
    pub(crate) fn open_delegated(&mut self, file: &str) -> Result<(Stateid4, Option<Stateid4>), NfsStat4> {
        self.open_wishing(file, OPEN4_SHARE_ACCESS_WANT_ANY_DELEG)
    }

    fn open_wishing(&mut self, file: &str, wish: u32) -> Result<(Stateid4, Option<Stateid4>), NfsStat4> {
        let owner = self.owner.clone();
        let open = Open4Args {
            seqid: self.owner_seqid,
            share_access: OPEN4_SHARE_ACCESS_BOTH | wish,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: StateOwner4 { clientid: self.id, owner: &owner },
            openhow: OpenFlag4::Create(CreateHow4::Unchecked(Fattr4 {
                mask: Bitmap4::of(&[Attr::Mode]),
                values: &[0, 0, 1, 0o266],
            })),
            claim: OpenClaim4::Null(file.as_bytes()),
        };
        let (status, body) = self.ask_at("", &[ArgOp::Open(open)]);
        self.owner_seqid = self.owner_seqid.next();
        if status != NfsStat4::Ok {
            return Err(status);
        }
        let opened = Open4Ok::decode(&mut Reader::new(&body)).unwrap();
        let delegation = match opened.delegation {
            OpenDelegation4::Read(OpenReadDelegation4 { stateid, .. })
            | OpenDelegation4::Write(OpenWriteDelegation4 { stateid, .. }) => Some(stateid),
            _ => None,
        };
        if opened.rflags & OPEN4_RESULT_CONFIRM == 0 {
            return Ok((opened.stateid, delegation));
        }
        let confirm = OpenConfirm4Args { open_stateid: opened.stateid, seqid: self.owner_seqid };
        self.owner_seqid = self.owner_seqid.next();
        let (status, body) = self.ask_at(file, &[ArgOp::OpenConfirm(confirm)]);
        assert_eq!(status, NfsStat4::Ok, "OPEN_CONFIRM of {file}");
        Ok((OpenConfirm4Ok::decode(&mut Reader::new(&body)).unwrap().open_stateid, delegation))
    }

    pub(crate) fn return_delegation(&mut self, file: &str, deleg_stateid: Stateid4) -> NfsStat4 {
        self.ask_at(file, &[ArgOp::DelegReturn(DelegReturn4Args { deleg_stateid })]).0
    }

    pub(crate) fn close(&mut self, file: &str, open: Stateid4) -> NfsStat4 {
        let close = Close4Args { seqid: self.owner_seqid, open_stateid: open };
        self.owner_seqid = self.owner_seqid.next();
        self.ask_at(file, &[ArgOp::Close(close)]).0
    }

    /// Write-locks the whole file for a new lock owner; waits in line where it is told that it may.
    pub(crate) fn lock(&mut self, file: &str, open: Stateid4) -> Result<Stateid4, NfsStat4> {
        let locker = Locker4::New(OpenToLockOwner4 {
            open_seqid: self.owner_seqid,
            open_stateid: open,
            lock_seqid: self.lock_seqid,
            lock_owner: StateOwner4 { clientid: self.id, owner: b"locker" },
        });
        let lock = Lock4Args {
            locktype: LockType4::WriteWait,
            reclaim: false,
            offset: Offset(0),
            length: Length(u64::MAX),
            locker,
        };
        let (status, body) = self.ask_at(file, &[ArgOp::Lock(lock)]);
        self.owner_seqid = self.owner_seqid.next();
        self.lock_seqid = self.lock_seqid.next();
        match status {
            NfsStat4::Ok => Ok(Lock4Ok::decode(&mut Reader::new(&body)).unwrap().lock_stateid),
            other => Err(other),
        }
    }

    pub(crate) fn unlock(&mut self, file: &str, lock_stateid: Stateid4) -> NfsStat4 {
        let unlock = Locku4Args {
            locktype: LockType4::Write,
            seqid: self.lock_seqid,
            lock_stateid,
            offset: Offset(0),
            length: Length(u64::MAX),
        };
        self.lock_seqid = self.lock_seqid.next();
        self.ask_at(file, &[ArgOp::Locku(unlock)]).0
    }

    /// Writes at the beginning, unstable; the verifier.
    pub(crate) fn write(
        &mut self,
        file: &str,
        stateid: Stateid4,
        data: &[u8],
    ) -> Result<Verifier4, NfsStat4> {
        let write = Write4Args { stateid, offset: Offset(0), stable: StableHow4::Unstable, data };
        let (status, body) = self.ask_at(file, &[ArgOp::Write(write)]);
        match status {
            NfsStat4::Ok => Ok(Write4Ok::decode(&mut Reader::new(&body)).unwrap().writeverf),
            other => Err(other),
        }
    }

    pub(crate) fn read(&mut self, file: &str, stateid: Stateid4) -> Result<Vec<u8>, NfsStat4> {
        let read = Read4Args { stateid, offset: Offset(0), count: 4096 };
        let (status, body) = self.ask_at(file, &[ArgOp::Read(read)]);
        match status {
            NfsStat4::Ok => Ok(Read4Ok::decode(&mut Reader::new(&body)).unwrap().data.to_vec()),
            other => Err(other),
        }
    }

    pub(crate) fn commit(&mut self, file: &str) -> Verifier4 {
        let (status, body) = self.ask_at(file, &[ArgOp::Commit(Commit4Args { offset: Offset(0), count: 0 })]);
        assert_eq!(status, NfsStat4::Ok, "COMMIT");
        Commit4Ok::decode(&mut Reader::new(&body)).unwrap().writeverf
    }

    /// Calls of the server's that came with answers.
    pub(crate) fn calls_waiting(&self) -> usize {
        self.calls.len()
    }

    /// The next call of the server's, which it waits for; its operation's number.
    pub(crate) fn next_call(&mut self) -> u32 {
        let record = match self.calls.pop() {
            Some(record) => record,
            None => self.receive(),
        };
        assert_eq!(word(&record, 1), 0, "a call");
        // Header of ten words with empty credentials; tag, minor, ident, count; CB_SEQUENCE: number, session, three
        // numbers, a flag; then lists of referring calls.
        let (lists, mut at) = (word(&record, 23), 24);
        for _ in 0..lists {
            at += 4 + 1 + 2 * word(&record, at + 4) as usize;
        }
        word(&record, at)
    }
}

/// The body of the last of a compound's results, all of those before it being without one but SEQUENCE's.
fn last_of(results: &[u8], before: usize, has_sequence: bool) -> Vec<u8> {
    let mut r = Reader::new(results);
    let header = CompoundResHeader::decode(&mut r).unwrap();
    for n in 0..before.min((header.ops as usize).saturating_sub(1)) {
        ResOpHeader::decode(&mut r).unwrap();
        if n == 0 && has_sequence {
            Sequence4Ok::decode(&mut r).unwrap();
        }
    }
    ResOpHeader::decode(&mut r).unwrap();
    r.rest().to_vec()
}
