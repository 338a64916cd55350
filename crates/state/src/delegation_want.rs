//! Delegations that clients want once they can be had (RFC 8881 sections 10.4.7, 18.49): remembered, looked at once a
//! second, and then offered or told of.

use std::collections::BTreeMap;

use holdfast_base::limits::{WANTS_MAX, WANTS_PER_CLIENT_MAX};
use holdfast_base::{ClientId, FileKey, Instant};
use serde::{Deserialize, Serialize};

use crate::deed::DelegationKind;
use crate::delegation::{DelegationRequest, Grounds, WhyNone};
use crate::effect::Effect;
use crate::engine::Engine;
use crate::error::StateError;

/// How a client wants to come by a delegation that it cannot have now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum WantHow {
    /// By being told when there is room for delegations again (`WANT_SIGNAL_DELEG_WHEN_RESRC_AVAIL`).
    Signal,
    /// By being given it when nobody else uses the file any more (`WANT_PUSH_DELEG_WHEN_UNCONTENDED`).
    Push,
}

/// A wish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Want {
    pub(crate) kind: DelegationKind,
    pub(crate) how: WantHow,
}

/// All wishes, by client and file: one each.
#[derive(Debug, Default)]
pub(crate) struct Wants(pub(crate) BTreeMap<(ClientId, FileKey), Want>);

impl Wants {
    pub(crate) fn forget_client(&mut self, client: ClientId) {
        let keys: Vec<_> = self.of_client(client).map(|(key, _)| *key).collect();
        for key in keys {
            self.0.remove(&key);
        }
    }

    /// Whether a client waits for any.
    pub(crate) fn is_wishing(&self, client: ClientId) -> bool {
        self.of_client(client).next().is_some()
    }

    fn of_client(&self, client: ClientId) -> impl Iterator<Item = (&(ClientId, FileKey), &Want)> {
        self.0.range((client, FileKey(0))..=(client, FileKey(u128::MAX)))
    }
}

impl Engine {
    /// Remembers that a client wants a delegation, in place of what it wanted of the file before. When it can be had,
    /// [`Effect::PushDelegation`] or [`Effect::ObjectAvailable`] says so, once.
    ///
    /// # Errors
    /// Those of an unknown client; `Resource`.
    pub fn delegation_want(
        &mut self,
        client: ClientId,
        file: FileKey,
        kind: DelegationKind,
        how: WantHow,
    ) -> Result<(), StateError> {
        let dialect = self.dialect_of(client).ok_or(StateError::StaleClientid)?;
        self.clients.confirmed(client, dialect)?;
        let is_new = !self.wants.0.contains_key(&(client, file));
        let is_full = self.wants.0.len() >= WANTS_MAX
            || self.wants.of_client(client).take(WANTS_PER_CLIENT_MAX).count() == WANTS_PER_CLIENT_MAX;
        if is_new && is_full {
            return Err(StateError::Resource);
        }
        self.wants.0.insert((client, file), Want { kind, how });
        Ok(())
    }

    /// Forgets what a client wants: of one file, or at all (`WANT_CANCEL`).
    pub fn delegation_want_cancel(&mut self, client: ClientId, file: Option<FileKey>) {
        match file {
            Some(file) => drop(self.wants.0.remove(&(client, file))),
            None => self.wants.forget_client(client),
        }
    }

    /// Grants wishes that can be granted by now.
    pub(crate) fn tick_wants(&mut self, now: Instant) {
        if !self.policy.is_delegating {
            return self.drop_wants();
        }
        let mut signalled = None;
        let mut done = Vec::new();
        for ((client, file), want) in &self.wants.0 {
            let (client, file) = (*client, *file);
            match want.how {
                // Who asks after the word is to get it, or it would be told and ask once a second.
                WantHow::Signal => match self.why_no_push(client, file, want.kind, now) {
                    // One word to a client is enough for all it wants; its wishes lie side by side.
                    None if signalled != Some(client) => {
                        self.effects.push(Effect::ObjectAvailable { client });
                        signalled = Some(client);
                    }
                    None | Some(WhyNone::Held | WhyNone::HeldForWriting) => {}
                    Some(_) => continue,
                },
                WantHow::Push => match self.why_no_push(client, file, want.kind, now) {
                    // What it got meanwhile by itself is not given again, but the edge is to forget the wish as well.
                    None | Some(WhyNone::Held | WhyNone::HeldForWriting) => {
                        self.effects.push(Effect::PushDelegation { client, file, kind: want.kind });
                    }
                    Some(_) => continue,
                },
            }
            done.push((client, file));
        }
        for key in done {
            self.wants.0.remove(&key);
        }
    }

    /// Nothing is delegated any more: whoever waits is told not to.
    fn drop_wants(&mut self) {
        let mut told: BTreeMap<ClientId, (bool, bool)> = BTreeMap::new();
        for ((client, _), want) in std::mem::take(&mut self.wants.0) {
            let (pushes, signals) = told.entry(client).or_default();
            *pushes |= want.how == WantHow::Push;
            *signals |= want.how == WantHow::Signal;
        }
        let dropped = told.into_iter();
        let tell = |(client, (pushes, signals))| Effect::WantsCancelled { client, pushes, signals };
        self.effects.extend(dropped.map(tell));
    }

    fn why_no_push(
        &self,
        client: ClientId,
        file: FileKey,
        kind: DelegationKind,
        now: Instant,
    ) -> Option<WhyNone> {
        let done = self.clients.by_id.get(&client)?.is_reclaim_done();
        let (grounds, delegates_timestamps, seen) = (Grounds::Want, false, None);
        let request =
            DelegationRequest { client, file, kind, grounds, delegates_timestamps, seen, unchanged_ms: 0 };
        self.why_no_delegation(&request, done, now)
    }
}
