//! Sequences of compounds of all minor versions, from two clients, with handles, stateids, sessions and client ids
//! that earlier replies gave, while time passes and the backend misbehaves. After each the state engine's
//! invariants and the file systems hold, the reply is well-formed, a retry gets the same bytes; and when all
//! leases have run out nothing is held.

use std::time::Duration;

use holdfast_base::limits::COURTESY_MS;
use holdfast_wire::nfs4::{
    CompoundResHeader, CreateSession4Ok, ExchangeId4Ok, NFS_V4, NFS4_PROGRAM, NFSPROC4_COMPOUND, NfsStat4,
    PutFh4Args, ResOpHeader, SetClientId4Ok,
};
use holdfast_xdr::{Decode, Reader, to_bytes};

use crate::chain::Session;
use crate::field::{self, Known, remember};
use crate::input::Input;
use crate::ops::OPS;
use crate::world::{BOOT, LEASE_MS, World};

/// Steps in one input at most.
const STEPS_MAX: usize = 48;
/// Operations that a compound has at most, beside SEQUENCE.
const OPS_MAX: usize = 10;

struct Run<'i> {
    world: World,
    input: Input<'i>,
    known: Known,
    sessions: Vec<Session>,
    /// The exports' roots.
    roots: Vec<Vec<u8>>,
    /// The newest client of 4.0, and how many of its owners were named.
    client0: [u8; 8],
    owners: u8,
}

/// See the module.
///
/// # Panics
/// When something does not hold.
pub fn run(data: &[u8]) {
    let world = World::new();
    let known = Known { handles: world.roots(), ..Known::default() };
    let roots = known.handles[1..].to_vec();
    let input = Input::new(data);
    let mut run = Run { world, input, known, sessions: Vec::new(), roots, client0: [0; 8], owners: 0 };
    run.introduce(0);
    run.set_client(0);
    for _ in 0..STEPS_MAX {
        if run.input.is_empty() {
            break;
        }
        run.step();
        run.world.check();
    }
    run.end();
}

impl Run<'_> {
    fn step(&mut self) {
        match self.input.u8() {
            0..=31 => self.open(),
            32..=159 => self.in_session(),
            160..=187 => self.without_session(),
            188..=199 => self.open(),
            200..=211 => self.retry(),
            212..=217 => {
                let who = self.input.u8() % 3;
                self.introduce(who);
            }
            218..=223 => {
                let who = self.input.u8() % 3;
                self.set_client(who);
            }
            224..=229 => self.world.reconnect(),
            230..=237 => crate::nfs3_call::disturb(&self.world, &mut self.input),
            238..=245 => {
                let part = u64::from(self.input.u8() % 16 + 1);
                self.world.clock.advance(Duration::from_millis(LEASE_MS * part / 8));
                self.world.nfs4.tick();
            }
            _ => self.raw(),
        }
    }

    fn call(&mut self, uid: u32, args: &[u8]) -> Option<Vec<u8>> {
        self.world.call(NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND, uid, args)
    }

    /// EXCHANGE_ID and CREATE_SESSION.
    fn introduce(&mut self, who: u8) {
        let verifier = self.input.u8() % 4;
        let mut args = header(1 + u32::from(who % 2), 1);
        args.extend(42_u32.to_be_bytes());
        args.extend([verifier; 8]);
        args.extend([0, 0, 0, 4, b'c', b'l', b'4', who]);
        args.extend([0; 12]);
        let Some(client) =
            self.ask(&args, |r| ExchangeId4Ok::decode(r).map(|ok| (to_bytes(&ok.clientid), ok.sequenceid)))
        else {
            return;
        };
        let client_id: [u8; 8] = client.0.try_into().expect("a client id has 8 bytes");
        remember(&mut self.known.clients, client_id);
        let mut args = header(1, 1);
        args.extend(43_u32.to_be_bytes());
        args.extend(client_id);
        args.extend(to_bytes(&client.1));
        args.extend(2_u32.to_be_bytes());
        for _ in 0..2 {
            let small = if self.input.one_in(8) { self.input.u32() } else { 1 << 20 };
            for word in [0, 1 << 20, small, 4096, 16, 4, 0] {
                args.extend(u32::to_be_bytes(word));
            }
        }
        args.extend([0x40, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
        if let Some(session) = self.ask(&args, |r| CreateSession4Ok::decode(r).map(|ok| ok.sessionid.0)) {
            remember(&mut self.known.sessions, session);
            self.sessions.push(Session::new(session, client_id));
            // Before it, nothing is opened but what is reclaimed.
            if !self.input.one_in(8) {
                let which = self.sessions.len() - 1;
                let mut args = header(1, 2);
                args.extend(self.sessions[which].sequence(0, 0, true));
                args.extend([0, 0, 0, 58, 0, 0, 0, 0]);
                self.send_in_session(which, 0, 2, args);
            }
        }
    }

    /// SETCLIENTID and its confirmation.
    fn set_client(&mut self, who: u8) {
        let mut args = header(0, 1);
        args.extend(35_u32.to_be_bytes());
        args.extend([self.input.u8() % 4; 8]);
        args.extend([0, 0, 0, 4, b'c', b'l', b'0', who]);
        args.extend([0x40, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let Some((client, verifier)) = self.ask(&args, |r| {
            SetClientId4Ok::decode(r).map(|ok| (to_bytes(&ok.clientid), ok.setclientid_confirm))
        }) else {
            return;
        };
        let client: [u8; 8] = client.try_into().expect("a client id has 8 bytes");
        remember(&mut self.known.clients, client);
        remember(&mut self.known.verifiers, verifier);
        self.client0 = client;
        if self.input.one_in(8) {
            return;
        }
        let mut args = header(0, 1);
        args.extend(36_u32.to_be_bytes());
        args.extend(client);
        args.extend(verifier);
        let _ = self.call(0, &args);
    }

    /// Sends a compound of one operation and decodes its result, when there is one.
    fn ask<T>(
        &mut self,
        args: &[u8],
        read: impl FnOnce(&mut Reader<'_>) -> holdfast_xdr::Result<T>,
    ) -> Option<T> {
        let results = self.call(0, args)?;
        let mut r = Reader::new(&results);
        CompoundResHeader::decode(&mut r).expect("a compound's reply");
        let op = ResOpHeader::decode(&mut r).ok()?;
        if op.status != NfsStat4::Ok {
            return None;
        }
        let ok = read(&mut r).expect("the result of an operation that succeeded");
        assert!(r.rest().is_empty(), "bytes are left after the last result");
        Some(ok)
    }

    /// Operations one after the other: how many, and their bytes. Without a filehandle next to nothing happens,
    /// so they begin with one.
    fn ops(&mut self) -> (u32, Vec<u8>) {
        let mut args = Vec::new();
        if !self.input.one_in(8) {
            args.extend(22_u32.to_be_bytes());
            field::write_all(&[field::Field::Handle], &mut self.input, &self.known, &mut args);
        }
        let first = u32::from(!args.is_empty());
        let (n, more) = self.more_ops();
        args.extend(more);
        (first + n, args)
    }

    fn more_ops(&mut self) -> (u32, Vec<u8>) {
        let n = self.input.below(OPS_MAX) as u32;
        let mut args = Vec::new();
        for _ in 0..n {
            let (number, fields) = OPS[self.input.below(OPS.len())];
            args.extend(number.to_be_bytes());
            field::write_all(fields, &mut self.input, &self.known, &mut args);
        }
        (n, args)
    }

    fn in_session(&mut self) {
        if self.sessions.is_empty() {
            return self.introduce(0);
        }
        let which = self.input.below(self.sessions.len());
        let (slot, is_cached) = (self.input.below(4), self.input.u8() % 2 == 1);
        let off = if self.input.one_in(32) { self.input.u32() } else { 0 };
        let minor = 1 + u32::from(!self.input.one_in(8));
        let (n, ops) = self.ops();
        let session = &self.sessions[which];
        let mut args = header(minor, n + 1);
        args.extend(session.sequence(slot, off, is_cached));
        args.extend(ops);
        // The session's own client is the likeliest that an operation names.
        let client = session.client;
        remember(&mut self.known.clients, client);
        self.send_in_session(which, slot, n + 1, args);
    }

    fn without_session(&mut self) {
        let minor = u32::from(self.input.one_in(16));
        let (n, ops) = self.ops();
        let mut args = header(minor, n);
        args.extend(ops);
        let uid = u32::from(self.input.u8() % 2) * 500;
        if let Some(results) = self.call(uid, &args) {
            self.learn(&results, n);
        }
    }

    /// Makes or opens a file, as a client does that knows what it is doing; with what comes of it the operations
    /// that follow reach farther than on their own.
    fn open(&mut self) {
        let is_v0 = self.sessions.is_empty() || self.input.one_in(4);
        let root = self.input.pick(&self.roots).cloned().unwrap_or_default();
        let (share, name) = (1 + self.input.u8() % 3, b'a' + self.input.u8() % 4);
        let known = Known { handles: vec![root], ..Known::default() };
        let mut ops = 22_u32.to_be_bytes().to_vec();
        field::write_all(&[field::Field::Handle], &mut Input::new(&[]), &known, &mut ops);
        let client = if is_v0 { self.client0 } else { self.sessions[0].client };
        self.owners += 1;
        for word in [18, 1, u32::from(share), 0] {
            ops.extend(u32::to_be_bytes(word));
        }
        ops.extend(client);
        ops.extend([0, 0, 0, 4, b'o', b'w', 0, if is_v0 { self.owners } else { self.owners % 2 }]);
        // OPEN4_CREATE, UNCHECKED4, no attributes, CLAIM_NULL, the name; then GETFH.
        for word in [1, 0, 0, 0, 0, 1, u32::from(name) << 24, 10] {
            ops.extend(u32::to_be_bytes(word));
        }
        if !is_v0 {
            // More with the open file and its stateid, while they are current.
            let (n, more) = self.more_ops();
            let mut args = header(2, 4 + n);
            args.extend(self.sessions[0].sequence(0, 0, true));
            args.extend(ops);
            args.extend(more);
            return self.send_in_session(0, 0, 4 + n, args);
        }
        let mut args = header(0, 3);
        args.extend(ops);
        let Some(results) = self.call(0, &args) else { return };
        self.learn(&results, 3);
        // The owner is new: it is to be confirmed before its stateid is good for anything.
        let (Some(handle), Some(stateid)) = (self.known.handles.last(), self.known.stateids.last()) else {
            return;
        };
        let mut args = header(0, 2);
        args.extend(22_u32.to_be_bytes());
        args.extend(to_bytes(&PutFh4Args { object: handle }));
        args.extend(20_u32.to_be_bytes());
        args.extend(stateid);
        args.extend(2_u32.to_be_bytes());
        if let Some(results) = self.call(0, &args) {
            self.learn(&results, 2);
        }
    }

    fn send_in_session(&mut self, which: usize, slot: usize, ops: u32, args: Vec<u8>) {
        let Some(results) = self.call(0, &args) else { return };
        self.learn(&results, ops);
        match first_status(&results) {
            Some(NfsStat4::Ok) => self.sessions[which].taken(slot, args),
            Some(NfsStat4::BadSession) => drop(self.sessions.remove(which)),
            _ => {}
        }
    }

    /// The last request of a slot again: a cached reply is the same, byte for byte, each time.
    fn retry(&mut self) {
        if self.sessions.is_empty() {
            return;
        }
        let which = self.input.below(self.sessions.len());
        let slot = self.input.below(4);
        let Some(request) = self.sessions[which].last(slot).cloned() else { return };
        let first = self.call(0, &request);
        self.world.check();
        let second = self.call(0, &request);
        assert_eq!(first, second, "two retries of one request");
    }

    fn raw(&mut self) {
        let n = self.input.below(256);
        let bytes = self.input.bytes(n).to_vec();
        let is_compound = self.input.u8().is_multiple_of(2);
        let mut args =
            if is_compound { header(u32::from(self.input.u8() % 3), self.input.u32()) } else { Vec::new() };
        args.extend(bytes);
        let _ = self.call(0, &args);
    }

    /// Checks a reply's frame and notes what may be used again.
    fn learn(&mut self, results: &[u8], asked: u32) {
        let mut r = Reader::new(results);
        let head = CompoundResHeader::decode(&mut r).expect("a compound's reply");
        assert!(head.ops <= asked, "{} results of {asked} operations", head.ops);
        assert!(head.status != NfsStat4::Ok || head.ops == asked, "results are missing");
        assert_eq!(head.ops == 0, r.rest().is_empty(), "{} results in {} bytes", head.ops, r.rest().len());
        for handle in self.world.handles_in(results) {
            remember(&mut self.known.handles, handle.to_vec());
        }
        for at in (4..results.len().saturating_sub(12)).step_by(4) {
            if results[at..at + 4] == BOOT.to_be_bytes()
                && let Ok(stateid) = results[at - 4..at + 12].try_into()
            {
                remember(&mut self.known.stateids, stateid);
            }
        }
    }

    /// Everybody goes away: with the leases, and the courtesy after them, goes everything that was held.
    fn end(mut self) {
        self.sessions.clear();
        for _ in 0..4 {
            self.world.clock.advance(Duration::from_millis(LEASE_MS * 4 + COURTESY_MS));
            self.world.nfs4.tick();
            self.world.check();
        }
        let (census, opens, locks) = self.world.nfs4.census();
        assert_eq!((opens, locks), (0, 0), "files are open for nobody: {census:?}");
        assert_eq!((census.sessions, census.opens, census.locks, census.files), (0, 0, 0, 0), "{census:?}");
        assert_eq!(census.clients, 0, "{census:?}");
        self.world.end();
    }
}

fn header(minor: u32, ops: u32) -> Vec<u8> {
    let mut args = vec![0; 4];
    args.extend(minor.to_be_bytes());
    args.extend(ops.to_be_bytes());
    args
}

fn first_status(results: &[u8]) -> Option<NfsStat4> {
    let mut r = Reader::new(results);
    CompoundResHeader::decode(&mut r).ok()?;
    Some(ResOpHeader::decode(&mut r).ok()?.status)
}
