//! An engine with a clock, and short words for what clients do. Checks every invariant after every word.
#![allow(dead_code, reason = "each test file uses its own part")]

use holdfast_base::{
    ByteRange, ChangeId, ClientId, FileKey, Instant, SeededEntropy, Seqid, SessionId, SlotId,
};
use holdfast_state::*;

pub(crate) const LEASE_MS: u64 = 90_000;
pub(crate) const R: Access = Access::READ;
pub(crate) const W: Access = Access::WRITE;
pub(crate) const RW: Access = Access::BOTH;
pub(crate) const NONE: Access = Access::NONE;

pub(crate) struct World {
    pub(crate) engine: Engine,
    pub(crate) now: Instant,
    pub(crate) lease_ms: u64,
    pub(crate) next_open: u64,
    /// The change attribute of every file.
    pub(crate) change: u64,
    /// For how long no directory has changed.
    pub(crate) unchanged_ms: u64,
    /// Where clients come from.
    pub(crate) site: std::net::IpAddr,
}

/// How long random histories are run, and from which on: `HOLDFAST_MODEL_SEED` says where to begin, `HOLDFAST_MODEL_SECONDS` how
/// long to go on.
pub(crate) struct Course {
    pub(crate) first: u64,
    /// Nothing else is asked for than what is always done.
    pub(crate) is_ordinary: bool,
    seconds: Option<u64>,
    began: std::time::Instant,
}

impl Course {
    pub(crate) fn asked_for() -> Self {
        let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
        let (first, seconds) = (number("HOLDFAST_MODEL_SEED"), number("HOLDFAST_MODEL_SECONDS"));
        let is_ordinary = (first, seconds) == (None, None);
        Self { first: first.unwrap_or(0), is_ordinary, seconds, began: std::time::Instant::now() }
    }

    /// Whether all that was to be done is done: so much, if nothing else is asked for.
    pub(crate) fn is_over(&self, done: u64, enough: u64) -> bool {
        self.seconds.map_or(done >= enough, |seconds| self.began.elapsed().as_secs() >= seconds)
    }
}

pub(crate) fn config(boot: u64, grace: Grace) -> Config {
    Config { boot: BootInstance::from_counter(boot), lease_ms: LEASE_MS, grace }
}

pub(crate) fn attrs() -> ChannelAttrs {
    ChannelAttrs {
        header_pad_bytes: 0,
        request_bytes_max: 1 << 20,
        reply_bytes_max: 1 << 20,
        reply_kept_bytes_max: 1 << 16,
        ops_max: 16,
        slots_max: 8,
    }
}

pub(crate) fn root() -> Principal {
    Principal::new(b"root")
}

pub(crate) fn bytes(first: u64, last: u64) -> ByteRange {
    ByteRange::from_bounds(first, last).unwrap()
}

pub(crate) fn share(access: Access, deny: Access) -> Share {
    Share { access, deny }
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(config(1, Grace::Over))
    }

    pub(crate) fn with(config: Config) -> Self {
        let lease_ms = config.lease_ms;
        let engine = Engine::new(config, Box::new(SeededEntropy(7)));
        let (now, unchanged_ms, site) = (Instant(1000), u64::MAX, [192, 0, 2, 1].into());
        Self { engine, now, lease_ms, next_open: 1, change: 100, unchanged_ms, site }
    }

    /// Where leases are so short.
    pub(crate) fn with_lease(lease_ms: u64) -> Self {
        Self::with(Config { lease_ms, ..config(1, Grace::Over) })
    }

    pub(crate) fn pass(&mut self, ms: u64) {
        self.now = self.now.after_ms(ms);
    }

    /// Invariants hold; returns the effects so far.
    pub(crate) fn settle(&mut self) -> Vec<Effect> {
        if let Err(what) = invariant::check(&self.engine) {
            panic!("{what}");
        }
        self.engine.take_effects()
    }

    pub(crate) fn exchange(&mut self, name: &str, verifier: u8) -> Result<ExchangedId, StateError> {
        self.exchange_as(name, verifier, &root(), ExchangeIntent::Establish)
    }

    pub(crate) fn exchange_as(
        &mut self,
        name: &str,
        verifier: u8,
        principal: &Principal,
        intent: ExchangeIntent,
    ) -> Result<ExchangedId, StateError> {
        let owner = name.as_bytes();
        let request =
            ExchangeId { owner, verifier: Verifier([verifier; 8]), principal, site: self.site, intent };
        self.engine.exchange_id(&request, self.now)
    }

    pub(crate) fn create(&mut self, client: ClientId, seqid: Seqid) -> Result<CreatedSession, StateError> {
        self.create_as(client, seqid, &root(), attrs())
    }

    pub(crate) fn create_as(
        &mut self,
        client: ClientId,
        seqid: Seqid,
        principal: &Principal,
        fore: ChannelAttrs,
    ) -> Result<CreatedSession, StateError> {
        let request = CreateSession {
            client,
            seqid,
            principal,
            conn: ConnId(1),
            fore,
            back: Some(attrs()),
            conn_direction: Direction::Both,
            callback_program: 0x4000_0000,
            is_persistent: true,
        };
        self.engine.create_session(&request, self.now)
    }

    /// A confirmed 4.1 client that has said RECLAIM_COMPLETE.
    pub(crate) fn client(&mut self, name: &str, verifier: u8) -> (ClientId, SessionId) {
        let (client, session) = self.reclaiming(name, verifier);
        self.engine.reclaim_complete(client).unwrap();
        (client, session)
    }

    /// One that has not said yet that it has reclaimed everything.
    pub(crate) fn reclaiming(&mut self, name: &str, verifier: u8) -> (ClientId, SessionId) {
        let exchanged = self.exchange(name, verifier).unwrap();
        let session = self.create(exchanged.client, exchanged.next_seqid).unwrap();
        (exchanged.client, session.id)
    }

    /// A confirmed 4.0 client.
    pub(crate) fn client40(&mut self, name: &str, verifier: u8) -> ClientId {
        let (client, confirm) = self.setclientid(name, verifier, &root()).unwrap();
        self.engine.setclientid_confirm(client, confirm, &root(), self.now).unwrap();
        client
    }

    pub(crate) fn setclientid(
        &mut self,
        name: &str,
        verifier: u8,
        principal: &Principal,
    ) -> Result<(ClientId, Verifier), StateError> {
        let callback =
            Callback { program: 1, ident: u32::from(verifier), address: b"tcp 10.0.0.1.8.1"[..].into() };
        let verifier = Verifier([verifier; 8]);
        let request = SetClientId { name: name.as_bytes(), verifier, principal, site: self.site, callback };
        self.engine.setclientid(&request, self.now)
    }

    /// A sign of life of a 4.1 client, in the first slot of its session.
    pub(crate) fn renew(&mut self, client: ClientId) {
        let session = self.engine.snapshot().sessions.into_iter().find(|s| s.client == client).unwrap();
        let (slot, seqid) = (SlotId(0), session.slots[0].seqid.0 + 1);
        if self.engine.held_up(session.id).is_some() {
            assert_eq!(self.sequence(session.id, slot.0, seqid), Err(StateError::Delay));
            self.engine.locks_are_back(client);
        }
        self.sequence(session.id, slot.0, seqid).unwrap();
        self.engine.sessions_mut().complete(session.id, slot, KeptReply::Nothing, self.now);
    }

    pub(crate) fn sequence(
        &mut self,
        session: SessionId,
        slot: u32,
        seqid: u32,
    ) -> Result<Sequenced, StateError> {
        let slot = SlotId(slot);
        let request = SlotRequest { slot, seqid: Seqid(seqid), highest_slot: slot, digest: None };
        self.engine.sessions_mut().sequence(session, request, ConnId(1), self.now)
    }

    /// OPEN, with a descriptor where one is wanted.
    pub(crate) fn open(
        &mut self,
        client: ClientId,
        owner: &str,
        file: u128,
        share: Share,
    ) -> Result<StateId, StateError> {
        self.open_claiming(client, owner, file, share, Claim::New)
    }

    pub(crate) fn open_claiming(
        &mut self,
        client: ClientId,
        owner: &str,
        file: u128,
        share: Share,
        claim: Claim,
    ) -> Result<StateId, StateError> {
        let request = OpenRequest { client, owner: owner.as_bytes(), file: FileKey(file), share, claim };
        let opened = self.engine.open(&request, self.now)?;
        if let Backing::Needed(access) = opened.backing {
            let id = OpenId(self.next_open);
            self.next_open += 1;
            self.engine.attach(&opened.ticket, id, access).unwrap();
        }
        self.engine.open_commit(opened.ticket)
    }

    pub(crate) fn lock(&mut self, request: &LockRequest<'_>) -> Result<StateId, LockRefusal> {
        let ticket = self.engine.lock_prepare(request, self.now)?;
        Ok(self.engine.lock_commit(ticket, self.now)?)
    }

    pub(crate) fn unlock(
        &mut self,
        caller: Caller,
        stateid: StateId,
        file: u128,
        range: ByteRange,
    ) -> Result<StateId, StateError> {
        let ticket = self.engine.unlock_prepare(caller, stateid, FileKey(file), range, self.now)?;
        self.engine.lock_commit(ticket, self.now)
    }

    pub(crate) fn io(
        &mut self,
        caller: Caller,
        stateid: StateId,
        file: u128,
        access: Access,
    ) -> Result<IoGrant, StateError> {
        self.engine.check_stateid(caller, stateid, FileKey(file), access, self.now)
    }
}

/// No client keeps anything when its lease has run out.
pub(crate) fn no_courtesy(world: &mut World) {
    world.engine.set_policy(Policy { courtesy_clients_max: 0, ..*world.engine.policy() });
}

impl World {
    pub(crate) fn offer(
        &mut self,
        client: ClientId,
        file: u128,
        kind: DelegationKind,
        grounds: Grounds,
    ) -> Result<Offer, StateError> {
        let seen = Some(Seen { change: ChangeId(self.change), size: 10 });
        let request = DelegationRequest {
            client,
            file: FileKey(file),
            kind,
            grounds,
            delegates_timestamps: false,
            seen,
            unchanged_ms: self.unchanged_ms,
        };
        self.engine.delegation_prepare(&request, self.now)
    }

    /// A delegation that must be had.
    pub(crate) fn delegate(&mut self, client: ClientId, file: u128, kind: DelegationKind) -> Delegated {
        match self.offer(client, file, kind, Grounds::Want).unwrap() {
            Offer::Offered(ticket) => self.engine.delegation_commit(ticket, self.now).unwrap(),
            Offer::Declined(why) => panic!("{why:?}"),
        }
    }

    /// Why a delegation cannot be had.
    pub(crate) fn why_none(&mut self, client: ClientId, file: u128, kind: DelegationKind) -> Option<WhyNone> {
        match self.offer(client, file, kind, Grounds::Want).unwrap() {
            Offer::Offered(ticket) => {
                self.engine.delegation_abort(ticket, self.now);
                None
            }
            Offer::Declined(why) => Some(why),
        }
    }

    pub(crate) fn contend(&mut self, file: u128, deed: Deed, by: Option<ClientId>) -> bool {
        self.engine.contend(FileKey(file), deed, by, self.now) != Contention::Clear
    }

    /// Puts the engine on ice and thaws it again, by way of text.
    pub(crate) fn restart_as_planned(&mut self) {
        let text = serde_json::to_string(&self.engine.freeze()).unwrap();
        let frozen: Frozen = serde_json::from_str(&text).unwrap();
        let config = Config { lease_ms: self.lease_ms, ..config(1, Grace::Over) };
        let thawed = Engine::thaw(frozen, config, Box::new(SeededEntropy(8))).unwrap();
        assert!(serde_json::to_string(&thawed.freeze()).unwrap() == text, "thawed is not what was frozen");
        assert_eq!(thawed.census(), self.engine.census());
        self.engine = thawed;
    }
}

/// The tokens asked back.
pub(crate) fn recalled(effects: &[Effect]) -> Vec<DelegationToken> {
    let token = |effect: &Effect| match effect {
        Effect::Recall { token, .. } => Some(*token),
        _ => None,
    };
    effects.iter().filter_map(token).collect()
}

/// The tokens that ended.
pub(crate) fn ended(effects: &[Effect]) -> Vec<DelegationToken> {
    let token = |effect: &Effect| match effect {
        Effect::DelegationEnded { token, .. } => Some(*token),
        _ => None,
    };
    effects.iter().filter_map(token).collect()
}

/// A LOCK through an open by a 4.1 client.
pub(crate) fn lock_by<'a>(
    client: ClientId,
    file: u128,
    open: StateId,
    owner: &'a str,
    range: ByteRange,
    kind: LockKind,
) -> LockRequest<'a> {
    LockRequest {
        caller: Caller::V41(client),
        file: FileKey(file),
        by: LockBy::Open { open, owner: owner.as_bytes(), first_seqid: None, client: None },
        range,
        kind,
        claim: Claim::New,
        wait: Wait::No,
    }
}
