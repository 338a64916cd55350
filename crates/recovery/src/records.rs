//! Client and session records: what must be on stable storage before the reply that depends on it.

use std::sync::Arc;

use holdfast_base::limits::{
    LOST_INCARNATIONS_MAX, OWNER_BYTES_MAX, PRINCIPAL_BYTES_MAX, STORE_BATCH_CHANGES_MAX,
};
use holdfast_base::{ClientId, SessionId};
use holdfast_store::{Batch, Flow, Store};
use holdfast_xdr::{Decode, Encode, Error, Reader, Writer};

use crate::Result;
use crate::codec::{self, DecodeError, unreadable};
use crate::created::CreatedRecord;

const CLIENTS: &[u8] = b"client/";
const SESSIONS: &[u8] = b"session/";
const LOST: &[u8] = b"lost/";
/// Version 1 has no `created`, version 2 no `holds_caps`.
const CLIENT_VERSION: u8 = 3;
const SESSION_VERSION: u8 = 1;
const LOST_VERSION: u8 = 1;

/// Who a client says it is, across its own restarts and ours: the long-form id of SETCLIENTID (RFC 7530
/// section 9.1.1) or `co_ownerid` of EXCHANGE_ID (RFC 8881 section 2.4).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientName {
    /// Whether it speaks 4.1 or later. The two name spaces are apart: a client that changes its minor version is
    /// another client.
    pub is_sessions: bool,
    /// The opaque name, at most [`OWNER_BYTES_MAX`] bytes.
    pub owner: Vec<u8>,
}

impl ClientName {
    fn key(&self) -> Vec<u8> {
        let kind: &[u8] = if self.is_sessions { b"1/" } else { b"0/" };
        [CLIENTS, kind, &self.owner].concat()
    }

    fn lost_key(&self) -> Vec<u8> {
        [LOST, &self.owner].concat()
    }
}

/// One client incarnation that may hold state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientRecord {
    /// Who it is.
    pub name: ClientName,
    /// Its incarnation: `verifier4` or `co_verifier`.
    pub verifier: [u8; 8],
    /// Who it acts as, as the protocol layer writes it; only the same principal may reclaim or replace it.
    pub principal: Vec<u8>,
    /// Its short name. Stays valid across our restart when its sessions persist.
    pub client_id: ClientId,
    /// Whether it may hold opens, locks or delegations. Set before the first of them is granted; a record
    /// without it keeps no grace period open.
    pub holds_state: bool,
    /// Whether that may be capabilities, with which a client may have a directory to itself. Set before the first of them is
    /// granted.
    pub holds_caps: bool,
    /// Whether its lease expired, or state was revoked, and others may have been granted what it believes to hold
    /// (first edge condition of RFC 8881 section 8.4.3).
    pub lost_state: bool,
    /// Whether a grace period ended before it had reclaimed everything (second edge condition).
    pub missed_grace: bool,
    /// The last CREATE_SESSION under this id, as far as it is to outlive us: the client goes on counting from it.
    pub created: Option<CreatedRecord>,
}

impl ClientRecord {
    /// Whether, after our restart, it may reclaim: it may hold something, and nobody else can have had it since.
    #[must_use]
    pub const fn may_reclaim(&self) -> bool {
        self.holds_state && !self.lost_state && !self.missed_grace
    }

    /// The record after RECLAIM_COMPLETE: client and server agree again on what is held, and both marks are reset
    /// (RFC 8881 section 8.4.3).
    #[must_use]
    pub fn agreed(self, holds_state: bool) -> Self {
        Self { holds_state, lost_state: false, missed_grace: false, ..self }
    }

    /// The record's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::encode(CLIENT_VERSION, |w| {
            self.name.is_sessions.encode(w);
            w.opaque(&self.name.owner);
            self.verifier.encode(w);
            w.opaque(&self.principal);
            self.client_id.encode(w);
            self.holds_state.encode(w);
            self.lost_state.encode(w);
            self.missed_grace.encode(w);
            self.created.encode(w);
            self.holds_caps.encode(w);
        })
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn from_bytes(bytes: &[u8]) -> std::result::Result<Self, DecodeError> {
        codec::decode_any(bytes, 1..=CLIENT_VERSION, |version, r| {
            let record = Self {
                name: ClientName {
                    is_sessions: bool::decode(r)?,
                    owner: r.opaque(OWNER_BYTES_MAX)?.to_vec(),
                },
                verifier: r.array()?,
                principal: r.opaque(PRINCIPAL_BYTES_MAX)?.to_vec(),
                client_id: ClientId::decode(r)?,
                holds_state: bool::decode(r)?,
                holds_caps: false,
                lost_state: bool::decode(r)?,
                missed_grace: bool::decode(r)?,
                created: if version == 1 { None } else { Option::decode(r)? },
            };
            let holds_caps = match version {
                // It may have: the caps program's clients are clients of 4.1.
                1 | 2 => record.holds_state && record.name.is_sessions,
                _ => bool::decode(r)?,
            };
            Ok(Self { holds_caps, ..record })
        })
    }
}

/// Incarnations of a client of 4.1 that are no clients any more, and may not know it: one may come back and believe in what it
/// saw before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostRecord {
    /// Who they said they are.
    pub name: ClientName,
    /// Their place among all that were lost: who is higher was lost later.
    pub number: u64,
    /// Their verifiers, the last lost one last; at most [`LOST_INCARNATIONS_MAX`].
    pub verifiers: Vec<[u8; 8]>,
}

impl LostRecord {
    /// The record's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::encode(LOST_VERSION, |w| {
            w.opaque(&self.name.owner);
            w.u64(self.number);
            w.opaque(&self.verifiers.concat());
        })
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn from_bytes(bytes: &[u8]) -> std::result::Result<Self, DecodeError> {
        codec::decode(bytes, LOST_VERSION, |r| {
            let name = ClientName { is_sessions: true, owner: r.opaque(OWNER_BYTES_MAX)?.to_vec() };
            let number = r.u64()?;
            let (verifiers, _) = r.opaque(8 * LOST_INCARNATIONS_MAX)?.as_chunks();
            Ok(Self { name, number, verifiers: verifiers.to_vec() })
        })
    }
}

/// One channel of a session (RFC 8881 section 18.36.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChannelRecord {
    /// Bytes of the largest request.
    pub request_bytes_max: u32,
    /// Bytes of the largest reply.
    pub reply_bytes_max: u32,
    /// Bytes of the largest reply kept for replay.
    pub cached_bytes_max: u32,
    /// Operations in one request.
    pub operations_max: u32,
    /// Slots.
    pub slots: u32,
}

impl ChannelRecord {
    pub(crate) fn encode(&self, w: &mut Writer) {
        for n in [
            self.request_bytes_max,
            self.reply_bytes_max,
            self.cached_bytes_max,
            self.operations_max,
            self.slots,
        ] {
            w.u32(n);
        }
    }

    pub(crate) fn decode(r: &mut Reader<'_>) -> std::result::Result<Self, Error> {
        Ok(Self {
            request_bytes_max: r.u32()?,
            reply_bytes_max: r.u32()?,
            cached_bytes_max: r.u32()?,
            operations_max: r.u32()?,
            slots: r.u32()?,
        })
    }
}

/// A persistent session (CSR4_PERSIST). Its slots' last replies live in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRecord {
    /// Its name.
    pub id: SessionId,
    /// Whose it is.
    pub client_id: ClientId,
    /// The fore channel as it was granted.
    pub fore: ChannelRecord,
    /// The back channel as it was granted.
    pub back: ChannelRecord,
    /// The program that callbacks are sent to.
    pub callback_program: u32,
    /// Flags that were granted (`csr_flags`).
    pub flags: u32,
}

impl SessionRecord {
    /// The record's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        codec::encode(SESSION_VERSION, |w| {
            self.id.encode(w);
            self.client_id.encode(w);
            self.fore.encode(w);
            self.back.encode(w);
            w.u32(self.callback_program);
            w.u32(self.flags);
        })
    }

    /// Reads a record.
    ///
    /// # Errors
    /// [`DecodeError`].
    pub fn from_bytes(bytes: &[u8]) -> std::result::Result<Self, DecodeError> {
        codec::decode(bytes, SESSION_VERSION, |r| {
            Ok(Self {
                id: SessionId::decode(r)?,
                client_id: ClientId::decode(r)?,
                fore: ChannelRecord::decode(r)?,
                back: ChannelRecord::decode(r)?,
                callback_program: r.u32()?,
                flags: r.u32()?,
            })
        })
    }
}

fn session_key(id: SessionId) -> Vec<u8> {
    [SESSIONS, &id.0].concat()
}

/// One change of the records. A machine returns them as effects; they are stored before its reply leaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordChange {
    /// Set a client's record, taking the place of its earlier incarnation's.
    Client(ClientRecord),
    /// The client has no state, has said that it goes, and is gone.
    ForgetClient(ClientName),
    /// The client has no state and is gone, and may not know it. (It has its place in [`RecordChange::Lost`].)
    LoseClient(ClientName, [u8; 8]),
    /// Which incarnations of a client were lost.
    Lost(LostRecord),
    /// Nothing is remembered of those incarnations any more.
    ForgetLost(ClientName),
    /// Set a session's record.
    Session(SessionRecord),
    /// The session is gone. Its slots' entries in the journal are to be forgotten afterwards.
    ForgetSession(SessionId),
}

/// The records in a store.
#[derive(Clone)]
pub struct Records {
    store: Arc<dyn Store>,
}

impl Records {
    /// The records of one server.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self { store }
    }

    /// Stores changes as one, durable when this returns: a confirmed client and its first session cost one force.
    /// More than [`STORE_BATCH_CHANGES_MAX`] (the marks at the end of a large server's grace) go in several parts.
    /// Waits for the disk.
    ///
    /// # Errors
    /// [`crate::RecoveryError::Store`]; after [`holdfast_store::StoreError::Io`] it is not known which state stands, and
    /// the same changes may be stored again.
    pub fn store(&self, changes: &[RecordChange]) -> Result<()> {
        changes.chunks(STORE_BATCH_CHANGES_MAX).try_for_each(|part| self.store_part(part))
    }

    fn store_part(&self, changes: &[RecordChange]) -> Result<()> {
        let batch = changes.iter().fold(Batch::new(), |batch, change| match change {
            RecordChange::Client(c) => batch.put(&c.name.key(), &c.to_bytes()),
            RecordChange::ForgetClient(name) | RecordChange::LoseClient(name, _) => batch.delete(&name.key()),
            RecordChange::Lost(lost) => batch.put(&lost.name.lost_key(), &lost.to_bytes()),
            RecordChange::ForgetLost(name) => batch.delete(&name.lost_key()),
            RecordChange::Session(s) => batch.put(&session_key(s.id), &s.to_bytes()),
            RecordChange::ForgetSession(id) => batch.delete(&session_key(*id)),
        });
        Ok(self.store.transaction(&batch)?)
    }

    /// All client records.
    ///
    /// # Errors
    /// [`crate::RecoveryError`]: one unreadable record is an error, for without it somebody's locks could be given away.
    pub fn clients(&self) -> Result<Vec<ClientRecord>> {
        self.all(CLIENTS, "client", ClientRecord::from_bytes)
    }

    /// All records of lost incarnations.
    ///
    /// # Errors
    /// [`crate::RecoveryError`].
    pub fn lost(&self) -> Result<Vec<LostRecord>> {
        self.all(LOST, "lost client", LostRecord::from_bytes)
    }

    /// All session records.
    ///
    /// # Errors
    /// [`crate::RecoveryError`].
    pub fn sessions(&self) -> Result<Vec<SessionRecord>> {
        self.all(SESSIONS, "session", SessionRecord::from_bytes)
    }

    fn all<T>(
        &self,
        prefix: &[u8],
        what: &'static str,
        read: impl Fn(&[u8]) -> std::result::Result<T, DecodeError>,
    ) -> Result<Vec<T>> {
        let mut all = Ok(Vec::new());
        self.store.scan(prefix, &mut |key, value| {
            match (read(value), &mut all) {
                (Ok(record), Ok(list)) => list.push(record),
                (Err(e), all) => *all = Err(unreadable(what, key, e)),
                (Ok(_), Err(_)) => {}
            }
            if all.is_ok() { Flow::Continue } else { Flow::Stop }
        })?;
        all
    }
}
