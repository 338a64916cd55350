//! The state engine alone, with one client or among many, each of which has a session, a file open and bytes of it locked.

use crate::scenarios::Once;
use holdfast_base::{ByteRange, ClientId, FileKey, Instant, SeededEntropy, Seqid, SessionId, SlotId};
use holdfast_state::{
    Access, Backing, BootInstance, Caller, ChannelAttrs, Claim, Config, ConnId, CreateSession, Direction,
    Engine, ExchangeId, ExchangeIntent, Grace, KeptReply, LockBy, LockKind, LockRequest, OpenId, OpenRequest,
    Principal, Share, SlotRequest, StateId, Verifier, Wait,
};
use std::hint::black_box;

/// The one file of the client that is counted; others' are behind it.
const FILE: FileKey = FileKey(1);

/// An engine, and the client in it that is counted.
struct Stateful {
    engine: Engine,
    client: ClientId,
    session: SessionId,
    now: Instant,
    seqid: Seqid,
}

impl Stateful {
    /// With so many clients in all.
    fn among(clients: usize) -> Self {
        let config = Config { boot: BootInstance::from_counter(1), lease_ms: 90_000, grace: Grace::Over };
        let engine = Engine::new(config, Box::new(SeededEntropy(7)));
        let (client, session) = (ClientId(0), SessionId([0; 16]));
        let mut all = Self { engine, client, session, now: Instant(1000), seqid: Seqid(0) };
        // Half of them before, half after.
        (2..=clients).filter(|n| n % 2 == 0).for_each(|n| all.add_other(n));
        let (client, session) = all.add(b"one", 1);
        (2..=clients).filter(|n| n % 2 == 1).for_each(|n| all.add_other(n));
        (all.client, all.session) = (client, session);
        all
    }

    fn add_other(&mut self, number: usize) {
        let (client, _) = self.add(format!("client {number}").as_bytes(), number);
        let file = FileKey(number as u128);
        let open = self.open(client, file, b"owner");
        self.lock(client, file, open);
        drop(self.engine.take_effects());
    }

    /// Adds a client. Each comes from a host of its own.
    fn add(&mut self, owner: &[u8], number: usize) -> (ClientId, SessionId) {
        let (principal, intent) = (Principal::new(b"root"), ExchangeIntent::Establish);
        let site = (0x7f00_0000 | number as u32).to_be_bytes().into();
        let verifier = Verifier([1; 8]);
        let request = ExchangeId { owner, verifier, principal: &principal, site, intent };
        let known = self.engine.exchange_id(&request, self.now).expect("it is new");
        let fore = ChannelAttrs {
            header_pad_bytes: 0,
            request_bytes_max: 1 << 20,
            reply_bytes_max: 1 << 20,
            reply_kept_bytes_max: 1 << 16,
            ops_max: 16,
            slots_max: 8,
        };
        let request = CreateSession {
            client: known.client,
            seqid: known.next_seqid,
            principal: &principal,
            conn: ConnId(number as u64),
            fore,
            back: Some(fore),
            conn_direction: Direction::Both,
            callback_program: 0x4000_0000,
            is_persistent: false,
        };
        let session = self.engine.create_session(&request, self.now).expect("a first session").id;
        self.engine.reclaim_complete(known.client).expect("it reclaims nothing");
        drop(self.engine.take_effects());
        (known.client, session)
    }

    fn open(&mut self, client: ClientId, file: FileKey, owner: &[u8]) -> StateId {
        let share = Share { access: Access::BOTH, deny: Access::NONE };
        let request = OpenRequest { client, owner, file, share, claim: Claim::New };
        let opened = self.engine.open(&request, self.now).expect("nothing is in the way");
        if let Backing::Needed(access) = opened.backing {
            self.engine.attach(&opened.ticket, OpenId(file.0 as u64), access).expect("it was asked for");
        }
        self.engine.open_commit(opened.ticket).expect("it is under way")
    }

    fn lock(&mut self, client: ClientId, file: FileKey, open: StateId) -> StateId {
        let request = LockRequest {
            caller: Caller::V41(client),
            file,
            by: LockBy::Open { open, owner: b"locker", first_seqid: None, client: None },
            range: locked(),
            kind: LockKind::Write,
            claim: Claim::New,
            wait: Wait::No,
        };
        let ticket = self.engine.lock_prepare(&request, self.now).expect("nobody else locks");
        self.engine.lock_commit(ticket, self.now).expect("it is under way")
    }
}

fn locked() -> ByteRange {
    ByteRange::from_bounds(10, 19).expect("ten bytes")
}

/// What is so short that a few instructions more would be a large part of it.
fn many_times(mut once: impl FnMut() + 'static) -> Once {
    Box::new(move || (0..32).for_each(|_| once()))
}

pub(crate) fn sequence(clients: usize) -> Once {
    let mut s = Stateful::among(clients);
    many_times(move || {
        s.seqid = s.seqid.next();
        let slot = SlotId(0);
        let request = SlotRequest { slot, seqid: s.seqid, highest_slot: slot, digest: None };
        let sessions = s.engine.sessions_mut();
        drop(black_box(sessions.sequence(s.session, request, ConnId(1), s.now).expect("the next in order")));
        black_box(sessions.complete(s.session, slot, KeptReply::Nothing, s.now));
    })
}

pub(crate) fn open_close(clients: usize) -> Once {
    let mut s = Stateful::among(clients);
    Box::new(move || {
        let open = s.open(s.client, FILE, b"owner");
        s.engine.close(Caller::V41(s.client), open, FILE, s.now).expect("it is open");
        drop(black_box(s.engine.take_effects()));
    })
}

pub(crate) fn lock_unlock(clients: usize) -> Once {
    let mut s = Stateful::among(clients);
    let open = s.open(s.client, FILE, b"owner");
    Box::new(move || {
        let lock = s.lock(s.client, FILE, open);
        let caller = Caller::V41(s.client);
        let ticket = s.engine.unlock_prepare(caller, lock, FILE, locked(), s.now).expect("it is locked");
        s.engine.lock_commit(ticket, s.now).expect("it is under way");
        drop(black_box(s.engine.take_effects()));
    })
}

pub(crate) fn check_stateid(clients: usize) -> Once {
    let mut s = Stateful::among(clients);
    let open = s.open(s.client, FILE, b"owner");
    let caller = Caller::V41(s.client);
    many_times(move || {
        let _ = black_box(s.engine.check_stateid(caller, open, FILE, Access::READ, s.now));
    })
}
