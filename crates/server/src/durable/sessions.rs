//! Session records as NFSv4 uses them, and sessions of a former life put together again.

use std::io;

use anyhow::{Context, Result};
use holdfast_base::limits::RECORD_WAIT_MS;
use holdfast_base::{Seqid, SessionId, SlotId};
use holdfast_ledger::{Ledger, Remembered};
use holdfast_nfs4::SessionRecords;
use holdfast_recovery::{ChannelRecord, ClientRecord, RecordChange, Records, SessionRecord};
use holdfast_state::{
    ChannelAttrs, ClientImage, Dialect, OwnerName, Principal, SessionImage, SlotImage, Snapshot, Verifier,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::Durable;
use super::scribe::Patience;

/// `CREATE_SESSION4_FLAG_PERSIST`: the only flag that a record is ever stored with.
const PERSISTS: u32 = 1;

impl SessionRecords for Durable {
    fn session_made(&self, session: &SessionImage) -> io::Result<()> {
        let record = SessionRecord {
            id: session.id,
            client_id: session.client,
            fore: channel_record(&session.fore),
            back: session.back.as_ref().map(channel_record).unwrap_or_default(),
            callback_program: session.callback_program,
            flags: PERSISTS,
        };
        let is_first = self.inner.lock().coming.insert(record.id);
        let made = move |this: &Self| this.session_made_now(record);
        let made = self.write((RECORD_WAIT_MS, Patience::Stays), made);
        if is_first {
            // Not by a retry: whom it repeats may be at it still.
            self.inner.lock().coming.remove(&record.id);
        }
        made.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
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
    fn session_made_now(&self, record: SessionRecord) -> io::Result<()> {
        self.records.store(&[RecordChange::Session(record)]).map_err(io::Error::other)?;
        self.inner.lock().sessions.insert(record.id, record);
        Ok(())
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

/// The recorded sessions whose clients are recorded too; what is left of others is removed, and what is remembered of
/// slots without a session is forgotten.
pub(super) fn with_their_clients(
    records: &Records,
    ledger: &Ledger,
    (clients, remembered): (&[ClientRecord], &[Remembered]),
) -> Result<Vec<SessionRecord>> {
    let all = records.sessions().context("session records")?;
    let recorded: FxHashSet<_> = clients.iter().map(|client| client.client_id).collect();
    let has_client = |s: &SessionRecord| recorded.contains(&s.client_id);
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
pub(super) fn snapshot(
    clients: &[ClientRecord],
    sessions: &[SessionRecord],
    remembered: &[Remembered],
) -> Snapshot {
    let slots = slots_of(remembered);
    let owners: FxHashSet<_> = sessions.iter().map(|session| session.client_id).collect();
    let has_session = |client: &&ClientRecord| owners.contains(&client.client_id);
    Snapshot {
        clients: clients.iter().filter(has_session).map(client_image).collect(),
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
        // Not recorded: a client learns the next number from EXCHANGE_ID before it makes another session.
        create_seqid: Seqid(0),
        created: None,
    }
}

fn session_image(record: &SessionRecord, slots: &Slots) -> SessionImage {
    const UNKNOWN: SlotImage = SlotImage { seqid: Seqid(0), digest: None, reply: None, is_exact: false };
    let slot = |n| slots.get(&(record.id, SlotId(n))).cloned().unwrap_or(UNKNOWN);
    SessionImage {
        id: record.id,
        client: record.client_id,
        fore: channel_attrs(&record.fore),
        back: (record.back.slots > 0).then(|| channel_attrs(&record.back)),
        callback_program: record.callback_program,
        is_persistent: true,
        slots: (0..record.fore.slots).map(slot).collect(),
    }
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
