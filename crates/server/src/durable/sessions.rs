//! Session records as NFSv4 uses them, and sessions of a former life put together again.

use std::io;

use anyhow::{Context, Result};
use holdfast_base::limits::RECORD_WAIT_MS;
use holdfast_base::{ClientId, Seqid, SessionId, SlotId};
use holdfast_ledger::{Ledger, Remembered};
use holdfast_nfs4::SessionRecords;
use holdfast_recovery::{ChannelRecord, ClientRecord, CreatedRecord, RecordChange, Records, SessionRecord};
use holdfast_state::{
    ChannelAttrs, ClientImage, CreatedSession, Dialect, Direction, OwnerName, Principal, SessionImage,
    SlotImage, Snapshot, Verifier,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Durable;
use super::known::Clients;
use super::scribe::Patience;

/// `CREATE_SESSION4_FLAG_PERSIST`: the only flag that a session's record is ever stored with.
const PERSISTS: u32 = 1;

/// `CREATE_SESSION4_FLAG_CONN_BACK_CHAN`.
const CALLS_BACK: u32 = 2;

/// How long an answer waits for what it promises.
const IN_TIME: (u64, Patience) = (RECORD_WAIT_MS, Patience::Stays);

fn not_in_time<T>() -> io::Result<T> {
    Err(io::ErrorKind::TimedOut.into())
}

impl SessionRecords for Durable {
    fn session_made(&self, session: &SessionImage, answer: &CreatedSession) -> io::Result<()> {
        let (client, created) = (session.client, created_record(answer));
        if !session.is_persistent {
            let made = move |this: &Self| this.session_counted_now(client, created);
            // Who has no session that persists begins anew after a restart, and waits for nothing here.
            let made = self.has_lasting_session(client).then(|| self.write(IN_TIME, made));
            return made.unwrap_or(Some(Ok(()))).unwrap_or_else(not_in_time);
        }
        let record = session_record(session);
        let is_first = self.inner.lock().coming.insert(record.id);
        let made = self.write(IN_TIME, move |this| this.session_made_now(record, created));
        if is_first {
            // Not by a retry: whom it repeats may be at it still.
            self.inner.lock().coming.remove(&record.id);
        }
        made.unwrap_or_else(not_in_time)
    }

    fn session_changed(&self, session: &SessionImage) -> io::Result<()> {
        if !session.is_persistent {
            return Ok(());
        }
        let record = session_record(session);
        self.write(IN_TIME, move |this| this.session_changed_now(record)).unwrap_or_else(not_in_time)
    }

    fn sessions_gone(&self, sessions: &[SessionId]) {
        // Those on record alone, and with them the queue of a disk that hangs is bounded.
        let sessions: Vec<_> = {
            let inner = self.inner.lock();
            let is_there = |id: &&SessionId| inner.sessions.contains_key(*id) || inner.coming.contains(*id);
            sessions.iter().filter(is_there).copied().collect()
        };
        if sessions.is_empty() {
            return;
        }
        match self.scribe.get() {
            // No answer depends on it.
            Some(scribe) => scribe.tell(move |this| this.sessions_gone_now(&sessions)),
            None => self.sessions_gone_now(&sessions),
        }
    }
}

impl Durable {
    fn session_made_now(&self, record: SessionRecord, created: CreatedRecord) -> io::Result<()> {
        let _turn = self.turn.lock();
        let session = RecordChange::Session(record);
        match self.counted(record.client_id, created) {
            Some(client) => self.keep_with(client, Some(session))?,
            // Its client is gone by now, and so will it be.
            None => self.records.store(&[session]).map_err(io::Error::other)?,
        }
        self.inner.lock().sessions.insert(record.id, record);
        Ok(())
    }

    fn session_changed_now(&self, record: SessionRecord) -> io::Result<()> {
        // It may be gone by now.
        if !self.inner.lock().sessions.contains_key(&record.id) {
            return Ok(());
        }
        self.records.store(&[RecordChange::Session(record)]).map_err(io::Error::other)?;
        self.inner.lock().sessions.insert(record.id, record);
        Ok(())
    }

    fn session_counted_now(&self, client: ClientId, created: CreatedRecord) -> io::Result<()> {
        let _turn = self.turn.lock();
        self.counted(client, created).map_or(Ok(()), |client| self.keep_with(client, None))
    }

    /// A client's record with its last CREATE_SESSION. What was sent twice may come to be stored late. The caller has the
    /// turn.
    fn counted(&self, client: ClientId, created: CreatedRecord) -> Option<ClientRecord> {
        let record = self.inner.lock().clients.get(client)?.record.clone();
        let later = record.created.filter(|known| !created.is_not_before(known));
        Some(ClientRecord { created: Some(later.unwrap_or(created)), ..record })
    }

    /// Whether the client has a session that persists.
    fn has_lasting_session(&self, client: ClientId) -> bool {
        self.inner.lock().sessions.range(SessionId::all_of(client)).next().is_some()
    }

    fn sessions_gone_now(&self, sessions: &[SessionId]) {
        let gone: Vec<_> = {
            let mut inner = self.inner.lock();
            sessions.iter().filter_map(|session| inner.sessions.remove(session)).collect()
        };
        if gone.is_empty() {
            return;
        }
        // First the records: entries without a session are forgotten at the next start, a session without its
        // entries would run a retry twice.
        let changes: Vec<_> = gone.iter().map(|record| RecordChange::ForgetSession(record.id)).collect();
        if let Err(error) = self.records.store(&changes) {
            tracing::warn!(%error, sessions = gone.len(), "the records of sessions that are gone cannot be removed");
        }
        for record in gone {
            self.ledger.forget_session(record.id, record.fore.slots);
        }
    }
}

/// The recorded sessions whose clients are known too; what is left of others is removed, and what is remembered of
/// slots without a session is forgotten.
pub(super) fn with_their_clients(
    records: &Records,
    ledger: &Ledger,
    (clients, remembered): (&Clients, &[Remembered]),
) -> Result<Vec<SessionRecord>> {
    let all = records.sessions().context("session records")?;
    let has_client = |s: &SessionRecord| clients.get(s.client_id).is_some();
    let (kept, orphans): (Vec<_>, Vec<_>) = all.into_iter().partition(has_client);
    let gone: Vec<_> = orphans.iter().map(|s| RecordChange::ForgetSession(s.id)).collect();
    // Nobody can use them, for their clients are gone: what cannot be removed now is by the next start.
    if let Err(error) = records.store(&gone) {
        tracing::warn!(%error, sessions = gone.len(), "the records of sessions without a client cannot be removed");
    }
    let slots: FxHashMap<_, _> = kept.iter().map(|session| (session.id, session.fore.slots)).collect();
    for slot in remembered {
        if let Remembered::Slot { session, slot, .. } = slot
            && slots.get(session).is_none_or(|slots| slot.0 >= *slots)
        {
            ledger.forget_slot(*session, *slot);
        }
    }
    Ok(kept)
}

/// Clients and sessions as the state engine takes them in. Clients without a session that persists begin anew, by
/// EXCHANGE_ID or SETCLIENTID, and reclaim under their new id.
pub(super) fn snapshot(clients: &Clients, sessions: &[SessionRecord], remembered: &[Remembered]) -> Snapshot {
    let slots = slots_of(remembered);
    let owners: FxHashSet<_> = sessions.iter().map(|session| session.client_id).collect();
    let known = owners.into_iter().filter_map(|client| clients.get(client));
    Snapshot {
        clients: known.map(|known| client_image(&known.record)).collect(),
        sessions: sessions.iter().map(|session| session_image(session, &slots)).collect(),
    }
}

type Slots = FxHashMap<(SessionId, SlotId), SlotImage>;

fn slots_of(remembered: &[Remembered]) -> Slots {
    let slot = |r: &Remembered| match r {
        Remembered::Slot { session, slot, seqid, call_hash, reply } => {
            let image = match reply {
                Some(reply) => SlotImage {
                    seqid: Seqid(*seqid),
                    digest: Some(*call_hash),
                    reply: Some(reply.clone()),
                    is_exact: false,
                },
                // It was cut short, and is expected again under its number.
                None => SlotImage {
                    seqid: Seqid(seqid.wrapping_sub(1)),
                    digest: None,
                    reply: None,
                    is_exact: false,
                },
            };
            Some(((*session, *slot), image))
        }
        Remembered::Call { .. } | Remembered::Batch { .. } => None,
    };
    remembered.iter().filter_map(slot).collect()
}

fn client_image(record: &ClientRecord) -> ClientImage {
    ClientImage {
        id: record.client_id,
        dialect: Dialect::V41,
        name: OwnerName::new(&record.name.owner),
        verifier: Verifier(record.verifier),
        principal: Principal::new(&record.principal),
        // A record of before these were kept has none: then only number 1 is taken, as of a new client.
        create_seqid: record.created.map_or(Seqid(0), |created| created.seqid),
        created: record.created.as_ref().map(created_session),
    }
}

fn created_record(answer: &CreatedSession) -> CreatedRecord {
    let persists = if answer.is_persistent { PERSISTS } else { 0 };
    let calls_back = if answer.conn_direction == Direction::Fore { 0 } else { CALLS_BACK };
    CreatedRecord {
        seqid: answer.seqid,
        session: answer.id,
        fore: channel_record(&answer.fore),
        back: back_record(answer.back.as_ref()),
        flags: persists | calls_back,
    }
}

fn created_session(record: &CreatedRecord) -> CreatedSession {
    let calls_back = record.flags & CALLS_BACK != 0;
    CreatedSession {
        id: record.session,
        seqid: record.seqid,
        fore: channel_attrs(&record.fore),
        back: back_attrs(&record.back),
        conn_direction: if calls_back { Direction::Both } else { Direction::Fore },
        is_persistent: record.flags & PERSISTS != 0,
        is_again: false,
    }
}

fn session_image(record: &SessionRecord, slots: &Slots) -> SessionImage {
    const UNKNOWN: SlotImage = SlotImage { seqid: Seqid(0), digest: None, reply: None, is_exact: false };
    let slot = |n| slots.get(&(record.id, SlotId(n))).cloned().unwrap_or(UNKNOWN);
    SessionImage {
        id: record.id,
        client: record.client_id,
        fore: channel_attrs(&record.fore),
        back: back_attrs(&record.back),
        callback_program: record.callback_program,
        is_persistent: true,
        slots: (0..record.fore.slots).map(slot).collect(),
    }
}

fn session_record(session: &SessionImage) -> SessionRecord {
    SessionRecord {
        id: session.id,
        client_id: session.client,
        fore: channel_record(&session.fore),
        back: back_record(session.back.as_ref()),
        callback_program: session.callback_program,
        flags: PERSISTS,
    }
}

/// Without slots where there is no back channel.
fn back_record(attrs: Option<&ChannelAttrs>) -> ChannelRecord {
    attrs.map(channel_record).unwrap_or_default()
}

fn back_attrs(record: &ChannelRecord) -> Option<ChannelAttrs> {
    (record.slots > 0).then(|| channel_attrs(record))
}

const fn channel_record(attrs: &ChannelAttrs) -> ChannelRecord {
    ChannelRecord {
        request_bytes_max: attrs.request_bytes_max,
        reply_bytes_max: attrs.reply_bytes_max,
        cached_bytes_max: attrs.reply_kept_bytes_max,
        operations_max: attrs.ops_max,
        slots: attrs.slots_max,
    }
}

const fn channel_attrs(record: &ChannelRecord) -> ChannelAttrs {
    ChannelAttrs {
        header_pad_bytes: 0,
        request_bytes_max: record.request_bytes_max,
        reply_bytes_max: record.reply_bytes_max,
        reply_kept_bytes_max: record.cached_bytes_max,
        ops_max: record.operations_max,
        slots_max: record.slots,
    }
}
