//! Delegations: what they are, how they are returned, and what is said of each. Granted in `delegation_offer`, recalled in
//! `contention`.

use holdfast_base::{ChangeId, ClientId, FileKey, Instant};
use serde::{Deserialize, Serialize};

use crate::check::Caller;
use crate::deed::DelegationKind;
use crate::effect::Effect;
use crate::engine::{Engine, Kind, OwnerKey, Standing, State, StateKey};
use crate::error::StateError;
use crate::flushing::Flushing;
use crate::grace::Recorded;
use crate::names::{Dialect, Mount};
use crate::stateid::StateId;

/// The engine's number for a delegation: the key under which edges keep what belongs to it (a lease of the backend, a
/// descriptor). Never reused within one server instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DelegationToken(pub u64);

/// A file's change attribute and size, as somebody sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The change attribute.
    pub change: ChangeId,
    /// Bytes.
    pub size: u64,
}

/// On what grounds a delegation is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grounds {
    /// With this OPEN, which has been committed and not yet answered: the client must have the file open in a way that
    /// fits. To be asked at most once an OPEN.
    Open(StateId),
    /// By itself: WANT_DELEGATION, GET_DIR_DELEGATION, CB_PUSH_DELEG.
    Want,
    /// It was held before the restart (CLAIM_PREVIOUS).
    Reclaim(Recorded),
}

/// A delegation asked for, or thought of by the edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelegationRequest {
    /// Whose it would be.
    pub client: ClientId,
    /// Of what.
    pub file: FileKey,
    /// Which.
    pub kind: DelegationKind,
    /// On what grounds.
    pub grounds: Grounds,
    /// The holder would keep the times too (RFC 9754).
    pub delegates_timestamps: bool,
    /// The file as its holder will first see it: looked at after the OPEN, if it comes with one.
    pub seen: Option<Seen>,
    /// For how many milliseconds it had not changed at all then, nor its attributes; 0 where that is not known.
    pub unchanged_ms: u64,
}

/// Why nothing is delegated (`why_no_delegation4`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyNone {
    /// Delegations are switched off.
    Off,
    /// Others use the file, or did a moment ago.
    Contention,
    /// A limit is reached.
    Resource,
    /// The client cannot be called back.
    NoCallback,
    /// The client has not opened the file in a way that fits.
    NotOpen,
    /// The client had the file open before this OPEN, and may go on with data of it that is not current; or it may know the
    /// directory as it was before.
    OpenBefore,
    /// The client has as good a delegation already.
    Held,
    /// The client has one for writing, which does not become one for reading.
    HeldForWriting,
    /// The client has one that is being granted or returned: who reclaims comes again.
    Passing,
    /// It was taken from who reclaims it, and others have done what it excludes (RFC 8881 section 8.4.3).
    Lost,
    /// What others held before the restart may still be reclaimed.
    Grace,
}

/// A delegation granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delegated {
    /// Its name.
    pub stateid: StateId,
    /// Its token.
    pub token: DelegationToken,
    /// Which.
    pub kind: DelegationKind,
    /// It was reclaimed and cannot be kept: the client is to return it at once (`recall` in OPEN's reply).
    pub is_recalled: bool,
}

/// A delegation as others meet it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteHolder {
    /// Whose.
    pub client: ClientId,
    /// Its token.
    pub token: DelegationToken,
    /// Its name.
    pub stateid: StateId,
    /// The holder keeps the times too: CB_GETATTR may ask for them (RFC 9754).
    pub delegates_timestamps: bool,
    /// It is being recalled: its holder is busy enough.
    pub is_recalled: bool,
}

const fn yes() -> bool {
    true
}

/// A recall under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Recall {
    #[serde(with = "crate::plain")]
    pub(crate) since: Instant,
    /// When it is revoked.
    #[serde(with = "crate::plain")]
    pub(crate) until: Instant,
    /// When the recall is sent again.
    #[serde(with = "crate::plain")]
    pub(crate) retry_at: Option<Instant>,
    /// How often the holder did not know what is recalled.
    pub(crate) unknown: u32,
    /// The holder has said that it heard.
    pub(crate) is_accepted: bool,
    /// It has been asked for, whatever became of that.
    #[serde(default = "yes")]
    pub(crate) is_sent: bool,
    pub(crate) truncates: bool,
    #[serde(default)]
    pub(crate) flushing: Flushing,
}

/// What the holder of a write delegation makes of the attributes (RFC 8881 section 10.4.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HeldAttributes {
    /// As its holder first saw it.
    #[serde(with = "crate::plain")]
    pub(crate) change: ChangeId,
    /// The highest that others were shown (`sc`).
    #[serde(with = "crate::plain")]
    pub(crate) shown: ChangeId,
    /// Once changed by the holder it counts as changed until it is given back.
    pub(crate) is_modified: bool,
}

/// One client's delegation of one file or directory, offered or granted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Delegation {
    /// Granted; none while the first offer is out.
    pub(crate) granted: Option<DelegationKind>,
    /// Offered and not yet committed, with the offer's number.
    pub(crate) offered: Option<(DelegationKind, u64)>,
    pub(crate) delegates_timestamps: bool,
    /// Offered to who reclaims it, and so granted whatever others do.
    #[serde(default)]
    pub(crate) is_due: bool,
    /// Reclaimed, and to be returned at once.
    pub(crate) is_unwelcome: bool,
    #[serde(with = "crate::plain")]
    pub(crate) granted_at: Instant,
    pub(crate) recall: Option<Recall>,
    pub(crate) attributes: HeldAttributes,
    /// 4.0: the open-owner whose OPEN it came with, and which of that owner's operations that was.
    #[serde(default)]
    pub(crate) came_by: Option<(OwnerKey, u64)>,
    /// The mount of its client's that it came to, where that can be told.
    #[serde(default)]
    pub(crate) mount: Option<Mount>,
}

impl Delegation {
    /// Everything it excludes others from by now.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = DelegationKind> {
        self.granted.into_iter().chain(self.offered.map(|(kind, _)| kind))
    }
}

impl StateKey {
    pub(crate) const fn delegation(self) -> DelegationToken {
        DelegationToken(self.0.to_u64())
    }
}

impl DelegationToken {
    pub(crate) const fn key(self) -> StateKey {
        StateKey(crate::slab::Key::from_u64(self.0))
    }
}

impl Engine {
    /// DELEGRETURN (RFC 8881 section 18.6, RFC 7530 section 16.8).
    ///
    /// # Errors
    /// Those of a stateid; when it was revoked `DelegRevoked`, in 4.0 `Expired`, which has no FREE_STATEID and so
    /// forgets it by this.
    pub fn delegation_return(
        &mut self,
        caller: Caller,
        stateid: StateId,
        file: FileKey,
        now: Instant,
    ) -> Result<(), StateError> {
        let key = match self.resolve(caller, stateid, file, now) {
            Ok(key) => key,
            Err(StateError::Expired) => {
                if let Ok(key) = self.locate(caller, stateid)
                    && let Ok(state) = self.state(key)
                    && state.standing == Standing::DelegationRevoked
                {
                    self.drop_revoked(key, now);
                }
                return Err(StateError::Expired);
            }
            Err(error) => return Err(error),
        };
        if self.delegation(key)?.recall.is_some() {
            self.recent_recalls.note(file, now);
        }
        self.drop_state(key, now);
        Ok(())
    }

    /// The state of this client's delegation of a file, offered or granted.
    pub(crate) fn delegation_on(&self, client: ClientId, file: FileKey) -> Option<StateKey> {
        let all = &self.files.get(&file)?.delegations;
        all.iter().copied().find(|key| self.states.get(key.0).is_some_and(|state| state.client == client))
    }

    pub(crate) fn delegation(&self, key: StateKey) -> Result<&Delegation, StateError> {
        match &self.state(key)?.kind {
            Kind::Delegation(delegation) => Ok(delegation),
            _ => Err(StateError::BadStateid),
        }
    }

    pub(crate) fn delegation_mut(&mut self, key: StateKey) -> Result<&mut Delegation, StateError> {
        match &mut self.state_mut(key)?.kind {
            Kind::Delegation(delegation) => Ok(delegation),
            _ => Err(StateError::BadStateid),
        }
    }

    /// The mount that has a file open, when it is one alone.
    pub(crate) fn mount_of_opens(&self, client: ClientId, file: FileKey) -> Option<Mount> {
        let opens = self.files.get(&file)?.opens.iter().filter_map(|key| self.states.get(key.0));
        let mut mounts = opens.filter(|state| state.client == client).map(|state| self.mount_of(state));
        let first = mounts.next()??;
        mounts.all(|mount| mount == Some(first)).then_some(first)
    }

    fn mount_of(&self, state: &State) -> Option<Mount> {
        Mount::of(self.owners.get(state.owner?.0)?.name.as_bytes())
    }

    /// Whether an open-owner is of the mount that its client's delegation of a file came to.
    pub(crate) fn is_of_holders_mount(&self, client: ClientId, file: FileKey, owner: &[u8]) -> bool {
        let held = self.delegation_on(client, file).and_then(|key| self.delegation(key).ok()?.mount);
        held.is_some() && held == Mount::of(owner)
    }

    /// Whether a client holds any delegation, or is being offered one.
    #[must_use]
    pub fn has_delegations(&self, client: ClientId) -> bool {
        self.clients.by_id.get(&client).is_some_and(|client| client.delegations > 0)
    }

    /// What a client holds of a file.
    #[must_use]
    pub fn holds_delegation(&self, client: ClientId, file: FileKey) -> Option<DelegationKind> {
        self.delegation(self.delegation_on(client, file)?).ok()?.granted
    }

    /// The same as it was told when it was granted; `is_recalled`: it is wanted back by now.
    #[must_use]
    pub fn held_delegation(&self, client: ClientId, file: FileKey) -> Option<Delegated> {
        let key = self.delegation_on(client, file)?;
        let delegation = self.delegation(key).ok()?;
        let is_recalled = delegation.recall.is_some();
        let (stateid, kind) = (self.stateid(key).ok()?, delegation.granted?);
        Some(Delegated { stateid, token: key.delegation(), kind, is_recalled })
    }

    /// Whose a delegation is, of what, which, and its name; `None` when it is not granted, or not any more.
    #[must_use]
    pub fn delegation_of(
        &self,
        token: DelegationToken,
    ) -> Option<(ClientId, FileKey, DelegationKind, StateId)> {
        let key = token.key();
        let state = self.state(key).ok().filter(|state| state.standing == Standing::Good)?;
        let kind = self.delegation(key).ok()?.granted?;
        Some((state.client, state.file, kind, self.stateid(key).ok()?))
    }

    /// The holder of a write delegation of a file, other than `by`: whom to ask for its attributes (CB_GETATTR).
    #[must_use]
    pub fn write_delegation(&self, file: FileKey, by: Option<ClientId>) -> Option<WriteHolder> {
        let mut keys = self.files.get(&file)?.delegations.iter().copied();
        keys.find_map(|key| {
            let delegation = self.delegation(key).ok()?;
            let client = self.state(key).ok()?.client;
            if delegation.granted != Some(DelegationKind::Write) || Some(client) == by {
                return None;
            }
            Some(WriteHolder {
                client,
                token: key.delegation(),
                stateid: self.stateid(key).ok()?,
                delegates_timestamps: delegation.delegates_timestamps,
                is_recalled: delegation.recall.is_some(),
            })
        })
    }

    /// Judges what the holder of a write delegation says of the file (RFC 8881 section 10.4.3). `change` and `size`:
    /// from CB_GETATTR; `server`: what the server sees. Returns what to show others when the holder has changed the
    /// file, in which case times are to be shown as now; a file once changed counts as changed again at each ask,
    /// until its holder has written everything back.
    /// `None` when it has not, or holds no such delegation: the server's own attributes are right.
    pub fn delegated_attributes(
        &mut self,
        token: DelegationToken,
        change: ChangeId,
        size: u64,
        server: Seen,
    ) -> Option<Seen> {
        let delegation = self.delegation_mut(token.key()).ok()?;
        if delegation.granted != Some(DelegationKind::Write) {
            return None;
        }
        let held = &mut delegation.attributes;
        // What the holder wrote through, or changed by SETATTR, moves the server's own value on.
        let is_news = change != held.change && change != server.change;
        let is_clean = change == held.change && size == server.size;
        held.is_modified |= is_news || size != server.size;
        // A holder that has written everything back since, and may have set times itself: they are to stay. Only when
        // the server's own value is past all that was shown, so that it never goes back.
        held.is_modified &= !(is_clean && server.change > held.shown);
        held.shown = held.shown.max(server.change);
        if !held.is_modified {
            return None;
        }
        held.shown = ChangeId(held.shown.0.wrapping_add(1));
        Some(Seen { change: held.shown, size })
    }

    /// A delegation's name goes, or stands for nothing any more.
    pub(crate) fn end_delegation(&mut self, key: StateKey, now: Instant) {
        let Ok(state) = self.state(key) else { return };
        let (client, file) = (state.client, state.file);
        let Kind::Delegation(delegation) = &state.kind else { return };
        let granted = delegation.granted;
        let kind = granted.or(delegation.offered.map(|(kind, _)| kind));
        self.recalls.remove(&key);
        self.delegations -= 1;
        self.tally.granted(granted, None);
        if let Some(of) = self.clients.by_id.get_mut(&client) {
            of.delegations -= 1;
        }
        self.leave_file(file, |of| of.delegations.retain(|other| *other != key));
        if let Some(kind) = kind {
            self.effects.push(Effect::DelegationEnded { token: key.delegation(), file, client, kind });
        }
        self.wake_waiters(file, None, now);
    }

    /// The error for what became of a revoked delegation.
    pub(crate) const fn revoked_error(dialect: Dialect) -> StateError {
        match dialect {
            // RFC 7530 section 10.4.6.
            Dialect::V40 => StateError::Expired,
            Dialect::V41 => StateError::DelegRevoked,
        }
    }
}
