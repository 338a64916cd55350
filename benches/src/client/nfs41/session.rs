//! Client ids, sessions and opens: what precedes a load.

use super::{
    Beside, BesideLoad, ByteLoad, COMPOUND, Compound, Held, HoldLoad, Nfs41Load, first_result, open_args,
    skip_empty_results,
};
use crate::bout::Share;
use crate::client::call::{Caller, reserve_xids};
use crate::client::target::{Handle, Target};
use crate::plan::{Op, Shape};
use crate::volume::{
    CHANGING, DATA_BYTES, EXPORT_NAME, LISTED, READ_FILE, SMALL, SMALL_FILES, WRITE_FILE, small_name,
};
use anyhow::{Context, Result, ensure};
use holdfast_base::{ClientId, Cookie, Seqid, SessionId, SlotId};
use holdfast_wire::nfs4::*;
use holdfast_xdr::Decode;
use std::net::{SocketAddrV4, TcpStream};

/// A connection with its session.
#[derive(Debug)]
pub(super) struct Session {
    id: SessionId,
    /// The client that it belongs to.
    pub(super) client: ClientId,
    /// The last number used, by slot.
    sequences: Vec<Seqid>,
    /// The open of the file that is read.
    pub(super) read_state: Stateid4,
    /// The open of the file that is written.
    pub(super) write_state: Stateid4,
    /// The opens of the small files, by number, where they were wanted.
    pub(super) small_states: Vec<Stateid4>,
    /// Opens and locks that stay, each with its file.
    pub(super) held: Vec<(Handle, Stateid4)>,
    /// Where each slot's listing stands.
    pub(super) listings: Vec<(Cookie, Verifier4)>,
}

/// All connections with their sessions.
#[derive(Debug)]
pub(crate) struct Fleet {
    streams: Vec<TcpStream>,
    sessions: Vec<Session>,
    /// Handles of NFSv4.1, which need not be those of NFSv3.
    target: Target,
}

impl Fleet {
    /// Connects, makes client ids and sessions, looks up what `like` names in NFSv3, opens the two data files.
    ///
    /// Errors when the server refuses.
    pub(crate) fn new(server: SocketAddrV4, shape: Shape, like: &Target) -> Result<Self> {
        Self::begun("load", server, (shape, like), 0)
    }

    /// The same, where each client also opens so many of the small files.
    ///
    /// Errors likewise.
    pub(crate) fn with_small_files_open(
        server: SocketAddrV4,
        shape: Shape,
        like: &Target,
        small_files: usize,
    ) -> Result<Self> {
        Self::begun("load", server, (shape, like), small_files)
    }

    /// The same of clients of this name, that they may be there beside others.
    ///
    /// Errors likewise.
    pub(crate) fn of(name: &str, server: SocketAddrV4, shape: Shape, like: &Target) -> Result<Self> {
        Self::begun(name, server, (shape, like), 0)
    }

    fn begun(
        name: &str,
        server: SocketAddrV4,
        (shape, like): (Shape, &Target),
        small_files: usize,
    ) -> Result<Self> {
        let mut fleet = Self { streams: Vec::new(), sessions: Vec::new(), target: like.clone() };
        for number in 0..shape.connections {
            let mut setup =
                Setup::begin(server, &format!("{name}-{number}"), shape.depth).context("making a session")?;
            if number == 0 {
                fleet.target = setup.find_all(like.folder.clone())?;
            }
            let root = setup.handle(&[EXPORT_NAME])?;
            setup.session.read_state = setup.open(&root, READ_FILE, OPEN4_SHARE_ACCESS_READ)?;
            setup.session.write_state = setup.open(&root, WRITE_FILE, OPEN4_SHARE_ACCESS_BOTH)?;
            for number in 0..small_files {
                let name = small_name(number);
                let state = setup.open(&fleet.target.small, &name, OPEN4_SHARE_ACCESS_BOTH)?;
                setup.session.small_states.push(state);
            }
            fleet.streams.push(setup.caller.into_stream());
            fleet.sessions.push(setup.session);
        }
        Ok(fleet)
    }

    /// The connections, in the sessions' order; they can be taken once.
    pub(crate) fn take_streams(&mut self) -> Vec<TcpStream> {
        std::mem::take(&mut self.streams)
    }

    /// One operation as a load.
    pub(crate) fn load(&mut self, op: Op) -> Nfs41Load<'_> {
        for session in &mut self.sessions {
            session.listings.fill((Cookie(0), [0; 8]));
        }
        Nfs41Load::new(op, &mut self.sessions, &self.target)
    }

    /// One operation as a load for each share of the connections.
    pub(crate) fn loads(&mut self, op: Op, shares: &[Share]) -> Vec<Nfs41Load<'_>> {
        for session in &mut self.sessions {
            session.listings.fill((Cookie(0), [0; 8]));
        }
        let (mut sessions, target) = (&mut self.sessions[..], &self.target);
        let load = |share: &Share| {
            let (own, others) = std::mem::take(&mut sessions).split_at_mut(share.shape.connections);
            sessions = others;
            Nfs41Load::new(op, own, target).of_share(share)
        };
        shares.iter().map(load).collect()
    }

    /// WRITEs of one byte, with a GETATTR of `change` behind each or without.
    pub(crate) fn bytes(&mut self, asks_for_change: bool) -> ByteLoad<'_> {
        ByteLoad::new(asks_for_change, &mut self.sessions, &self.target)
    }

    /// A fleet for each connection, so that each may have a thread to itself.
    pub(crate) fn apart(self) -> Vec<Self> {
        let Self { streams, sessions, target } = self;
        let alone = |(stream, session)| Self {
            streams: vec![stream],
            sessions: vec![session],
            target: target.clone(),
        };
        streams.into_iter().zip(sessions).map(alone).collect()
    }

    /// From now on the file that was written is the one that is read, and the other way round: both can be read.
    pub(crate) fn swap_files(&mut self) {
        std::mem::swap(&mut self.target.read_file, &mut self.target.write_file);
        for session in &mut self.sessions {
            std::mem::swap(&mut session.read_state, &mut session.write_state);
        }
    }

    /// Opens or locks that stay, numbered from `first`.
    pub(crate) fn hold(&mut self, what: Held, first: u64) -> HoldLoad<'_> {
        HoldLoad::new(what, &mut self.sessions, &self.target, first)
    }

    /// What is asked beside them.
    ///
    /// Errors when a client holds nothing yet.
    pub(crate) fn beside(&mut self, what: Beside) -> Result<BesideLoad<'_>> {
        BesideLoad::new(what, &mut self.sessions)
    }
}

/// A session's first steps, one call at a time on slot 0.
struct Setup {
    caller: Caller,
    session: Session,
    owner: Vec<u8>,
}

impl Setup {
    fn begin(server: SocketAddrV4, name: &str, depth: usize) -> Result<Self> {
        let mut caller = Caller::connect(server)?;
        let owner = format!("holdfast-bench-{}-{name}", std::process::id()).into_bytes();
        let (client, sequence) = exchange_id(&mut caller, &owner)?;
        let id = create_session(&mut caller, client, sequence, depth)?;
        let session = Session::new(id, client, depth);
        let mut setup = Self { caller, session, owner };
        setup.call(vec![ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })])?;
        Ok(setup)
    }

    /// Runs operations after a SEQUENCE on slot 0.
    fn call(&mut self, mut ops: Vec<ArgOp<'_>>) -> Result<Vec<u8>> {
        ops.insert(0, ArgOp::Sequence(self.session.sequence(0)));
        self.caller.call(COMPOUND, &Compound(&ops))
    }

    fn handle(&mut self, path: &[&str]) -> Result<Handle> {
        let mut ops = vec![ArgOp::PutRootFh];
        ops.extend(path.iter().map(|name| ArgOp::Lookup(Lookup4Args { objname: name.as_bytes() })));
        ops.push(ArgOp::GetFh);
        let last = ops.len();
        let reply = self.call(ops)?;
        let mut result = skip_empty_results(&reply, last)?;
        Ok(GetFh4Ok::decode(&mut result)?.object.to_vec())
    }

    fn find_all(&mut self, folder: String) -> Result<Target> {
        let small_files = (0..SMALL_FILES)
            .map(|number| self.handle(&[EXPORT_NAME, SMALL, &small_name(number)]))
            .collect::<Result<_>>()?;
        Ok(Target {
            small: self.handle(&[EXPORT_NAME, SMALL])?,
            small_files,
            changing: self.handle(&[EXPORT_NAME, CHANGING, &folder])?,
            folder,
            listed: self.handle(&[EXPORT_NAME, LISTED])?,
            read_file: self.handle(&[EXPORT_NAME, READ_FILE])?,
            write_file: self.handle(&[EXPORT_NAME, WRITE_FILE])?,
            data_bytes: DATA_BYTES,
        })
    }

    fn open(&mut self, dir: &Handle, name: &str, access: u32) -> Result<Stateid4> {
        let owner = self.owner.clone();
        let client = self.session.client;
        let open = open_args(client, &owner, access, OpenFlag4::NoCreate, name.as_bytes());
        let reply = self.call(vec![ArgOp::PutFh(PutFh4Args { object: dir }), ArgOp::Open(open)])?;
        let mut result = skip_empty_results(&reply, 2).context("OPEN")?;
        // The state id is the first field of OPEN's result; nothing else of it matters here.
        Ok(Stateid4::decode(&mut result)?)
    }
}

impl Session {
    /// One that nothing was asked on.
    pub(super) fn new(id: SessionId, client: ClientId, depth: usize) -> Self {
        Self {
            id,
            client,
            sequences: vec![Seqid(0); depth],
            read_state: Stateid4::ANONYMOUS,
            write_state: Stateid4::ANONYMOUS,
            small_states: Vec::new(),
            held: Vec::new(),
            listings: vec![(Cookie(0), [0; 8]); depth],
        }
    }

    /// How many slots it has.
    pub(super) fn slots(&self) -> usize {
        self.sequences.len()
    }

    /// The next call on a slot.
    pub(super) fn sequence(&mut self, slot: usize) -> Sequence4Args {
        self.sequences[slot] = self.sequences[slot].next();
        Sequence4Args {
            sessionid: self.id,
            sequenceid: self.sequences[slot],
            slotid: SlotId(slot as u32),
            highest_slotid: SlotId(self.sequences.len() as u32 - 1),
            cachethis: false,
        }
    }
}

pub(super) fn exchange_id(caller: &mut Caller, owner: &[u8]) -> Result<(ClientId, Seqid)> {
    // New each time: a server that still holds the state of an earlier load must not be asked about it.
    let verifier = u64::from(reserve_xids(1)).to_be_bytes();
    let exchange = ExchangeId4Args {
        clientowner: ClientOwner4 { verifier, ownerid: owner },
        flags: 0,
        state_protect: StateProtect4A::None,
        client_impl_id: None,
    };
    let reply = caller.call(COMPOUND, &Compound(&[ArgOp::ExchangeId(exchange)]))?;
    let exchanged = ExchangeId4Ok::decode(&mut first_result(&reply, 0)?)?;
    Ok((exchanged.clientid, exchanged.sequenceid))
}

pub(super) fn create_session(
    caller: &mut Caller,
    client: ClientId,
    sequence: Seqid,
    depth: usize,
) -> Result<SessionId> {
    let channel = ChannelAttrs4 {
        headerpadsize: 0,
        maxrequestsize: (1 << 20) + 4096,
        maxresponsesize: (1 << 20) + 4096,
        maxresponsesize_cached: 4096,
        maxoperations: 16,
        maxrequests: u32::try_from(depth)?,
        rdma_ird: None,
    };
    let back = ChannelAttrs4 { maxrequestsize: 4096, maxresponsesize: 4096, maxrequests: 1, ..channel };
    let create = CreateSession4Args {
        clientid: client,
        sequence,
        flags: 0,
        fore_chan_attrs: channel,
        back_chan_attrs: back,
        cb_program: 0x4000_0000,
        sec_parms: vec![CallbackSecParms4::None],
    };
    let reply = caller.call(COMPOUND, &Compound(&[ArgOp::CreateSession(create)]))?;
    let created = CreateSession4Ok::decode(&mut first_result(&reply, 0)?)?;
    let slots = created.fore_chan_attrs.maxrequests as usize;
    ensure!(slots >= depth, "the server grants {slots} slots, {depth} are wanted");
    Ok(created.sessionid)
}
