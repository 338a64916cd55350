//! Promises about single names of a directory: that one leads to the object that it leads to, or to none. To the rest of
//! the engine each is an object of its own, of which `FILE_S` is held: its key is made by the edge, of the directory and
//! the name. Here stands which directory it belongs to, for what concerns all names of one
//! (`docs/design/caps-protocol.md`, section 3.5).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use holdfast_base::limits::{
    CAPS_CONTESTED_MS, CAPS_NAMES_MAX, CAPS_NAMES_PER_CLIENT_MAX, CAPS_NAMES_PRESSED,
};
use holdfast_base::{CapSet, ClientId, FileKey, Instant};
use rustc_hash::FxHashMap;

use crate::caps::{CapGrant, CapHold, CapOffer, CapRequest};
use crate::caps_set::Forbidden;
use crate::contention::RecentRecalls;
use crate::engine::Engine;
use crate::error::StateError;
use crate::names::Dialect;

/// A name in a directory, to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NameKey {
    /// The directory.
    pub dir: FileKey,
    /// The name in it.
    pub name: FileKey,
}

/// Names that are promised to somebody, or offered.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Their directories.
    dirs: FxHashMap<FileKey, FileKey>,
    /// By directory, and then by whom they are promised to; with their places in time.
    pub(crate) holders: BTreeMap<(FileKey, ClientId, FileKey), u64>,
    /// By whom they are promised to, the oldest first.
    pub(crate) by_age: BTreeSet<(ClientId, u64, FileKey)>,
    pub(crate) by_client: BTreeMap<ClientId, usize>,
    last_place: u64,
    /// What keys of names are made with.
    pub(crate) secret: [u64; 2],
    /// Where `FILE_S` was taken from somebody a moment ago.
    taken: RecentRecalls,
    /// And had been a moment before that.
    taken_again: RecentRecalls,
}

impl Names {
    pub(crate) fn is_name(&self, key: FileKey) -> bool {
        self.dirs.contains_key(&key)
    }

    /// Names with their directories, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = NameKey> {
        self.dirs.iter().map(|(name, dir)| NameKey { dir: *dir, name: *name })
    }

    /// A name is promised to a client, or offered.
    pub(crate) fn put(&mut self, client: ClientId, NameKey { dir, name }: NameKey) {
        self.dirs.insert(name, dir);
        if self.holders.contains_key(&(dir, client, name)) {
            return;
        }
        self.last_place += 1;
        self.holders.insert((dir, client, name), self.last_place);
        self.by_age.insert((client, self.last_place, name));
        *self.by_client.entry(client).or_default() += 1;
    }

    /// It is not any more, `is_last`: to nobody.
    pub(crate) fn end(&mut self, client: ClientId, name: FileKey, is_last: bool) {
        let Some(dir) = self.dirs.get(&name).copied() else { return };
        if let Some(place) = self.holders.remove(&(dir, client, name))
            && let Some(count) = self.by_client.get_mut(&client)
        {
            self.by_age.remove(&(client, place, name));
            *count -= 1;
            if *count == 0 {
                self.by_client.remove(&client);
            }
        }
        if is_last {
            self.dirs.remove(&name);
        }
    }

    /// Names of a directory that are promised to anybody but one.
    fn of_others(
        &self,
        dir: FileKey,
        than: Option<ClientId>,
    ) -> impl Iterator<Item = (ClientId, FileKey)> + '_ {
        let (first, last) = ((dir, ClientId(0), FileKey(0)), (dir, ClientId(u64::MAX), FileKey(u128::MAX)));
        let (before, after) = match than {
            None => (Bound::Included(last), None),
            // What it has itself may be much, and is stepped over.
            Some(own) => (
                Bound::Excluded((dir, own, FileKey(0))),
                Some((Bound::Excluded((dir, own, FileKey(u128::MAX))), Bound::Included(last))),
            ),
        };
        let after = after.map(|range| self.holders.range(range)).into_iter().flatten();
        let before = self.holders.range((Bound::Included(first), before));
        before.chain(after).map(|((_, client, name), _)| (*client, *name))
    }

    /// Whether anybody else is promised a name in this directory.
    pub(crate) fn has_others(&self, dir: FileKey, than: ClientId) -> bool {
        !self.holders.is_empty() && self.of_others(dir, Some(than)).next().is_some()
    }

    /// Whose names are in the way of one more for a client: its own, or those of who has most. `None` while there is room.
    fn crowded_by(&self, client: ClientId) -> Option<ClientId> {
        if self.by_client.get(&client).is_some_and(|count| *count >= CAPS_NAMES_PER_CLIENT_MAX) {
            return Some(client);
        }
        if self.holders.len() < CAPS_NAMES_MAX {
            return None;
        }
        self.by_client.iter().max_by_key(|(_, count)| **count).map(|(client, _)| *client)
    }

    /// Those that a client was promised longest ago.
    fn oldest_of(&self, client: ClientId) -> impl Iterator<Item = FileKey> {
        let all = (client, 0, FileKey(0))..=(client, u64::MAX, FileKey(u128::MAX));
        self.by_age.range(all).take(CAPS_NAMES_PRESSED).map(|(.., name)| *name)
    }

    /// `FILE_S` of a directory, or of a file, is taken from somebody. From several at once counts once.
    pub(crate) fn note_taken(&mut self, file: FileKey, now: Instant) {
        if self.taken.at.get(&file).is_some_and(|at| *at < now && now.ms_since(*at) < CAPS_CONTESTED_MS) {
            self.taken_again.note(file, now);
        }
        self.taken.note(file, now);
    }

    pub(crate) fn sweep(&mut self, now: Instant) {
        self.taken.sweep(now);
        self.taken_again.sweep(now);
    }
}

impl Engine {
    /// Offers a promise of a name, to be committed as [`Engine::caps_prepare`]'s offers are. Refused, which is no error,
    /// while somebody else may change names of the directory unseen.
    ///
    /// # Errors
    /// As [`Engine::caps_prepare`].
    pub fn caps_prepare_name(
        &mut self,
        client: ClientId,
        key: NameKey,
        now: Instant,
    ) -> Result<CapOffer, StateError> {
        let holds = self.caps.by_file.get(&key.dir).map(Vec::as_slice).unwrap_or_default();
        let may_be_changed =
            holds.iter().any(|hold| hold.client != client && hold.all().contains(CapSet::FILE_X));
        let is_new = self.caps.hold(client, key.name).is_none();
        // Another name, or an object, whose key is the same.
        let is_taken = self
            .caps
            .names
            .dirs
            .get(&key.name)
            .map_or_else(|| self.caps.by_file.contains_key(&key.name), |dir| *dir != key.dir);
        if is_taken {
            return Ok(CapOffer::Held(CapGrant::default()));
        }
        let crowded_by = self.caps.names.crowded_by(client).filter(|_| is_new);
        if let Some(of) = crowded_by {
            self.press_names(of, now);
        }
        if may_be_changed || crowded_by.is_some() {
            self.clients.confirmed(client, Dialect::V41)?;
            return Ok(CapOffer::Held(self.caps_of(client, key.name)));
        }
        let (file, want) = (key.name, CapSet::FILE_S);
        let request = CapRequest { client, file, want, is_beside_writers: false, reclaim: None };
        let offer = self.caps_prepare(&request, now)?;
        if matches!(offer, CapOffer::Offered(_)) {
            self.caps.names.put(client, key);
        }
        Ok(offer)
    }

    /// Whether `FILE_S` of a directory, if it were given now, would soon be taken again.
    #[must_use]
    pub fn caps_is_contested(&self, dir: FileKey, now: Instant) -> bool {
        let last = self.caps.names.taken_again.at.get(&dir);
        last.is_some_and(|at| now.ms_since(*at) < CAPS_CONTESTED_MS)
    }

    /// What the edge makes keys of names with, so that nobody can choose names whose keys meet in a table. It goes along to
    /// another process, as the keys do.
    #[must_use]
    pub const fn caps_names_secret(&self) -> [u64; 2] {
        self.caps.names.secret
    }

    /// Notes that entries of a directory are about to be taken from somebody, for what another client does. What a local process
    /// does takes names too, all of them: they would be no better there.
    pub(crate) fn note_entries_taken(
        &mut self,
        dir: FileKey,
        forbidden: Forbidden,
        by: Option<ClientId>,
        now: Instant,
    ) {
        let is_outside = by.is_none() && forbidden == Forbidden::ALL;
        let takes_entries = |hold: &CapHold| {
            let is_theirs = Some(hold.client) != by && hold.recall.is_none();
            let has_them = is_theirs && hold.held.contains(CapSet::FILE_S);
            has_them && !forbidden.leaves(hold.held).contains(CapSet::FILE_S)
        };
        let holds = self.caps.by_file.get(&dir).map(Vec::as_slice).unwrap_or_default();
        if !is_outside && holds.iter().any(takes_entries) {
            self.caps.names.note_taken(dir, now);
        }
    }

    /// How many names are promised, in all.
    #[must_use]
    pub fn caps_names(&self) -> usize {
        self.caps.names.holders.len()
    }

    /// Recalls some names of a client, those that it was promised longest ago: what it still needs it asks for again. Clients
    /// forget names without a word, so that this is how room comes back.
    fn press_names(&mut self, client: ClientId, now: Instant) {
        let is_idle = |engine: &Self, name| {
            let hold = engine.caps.hold(client, name);
            hold.is_some_and(|hold| hold.recall.is_none() && hold.offered.is_none())
        };
        let due: Vec<_> = self.caps.names.oldest_of(client).filter(|name| is_idle(self, *name)).collect();
        for name in due {
            self.begin_cap_recall(client, name, CapSet::NONE, now);
        }
    }

    /// Recalls all names of a directory that others than `by` are promised; since when, at the longest, it is waited for.
    pub(crate) fn contend_with_names(
        &mut self,
        dir: FileKey,
        by: Option<ClientId>,
        now: Instant,
    ) -> Option<Instant> {
        if self.caps.names.holders.is_empty() {
            return None;
        }
        let others: Vec<_> = self.caps.names.of_others(dir, by).collect();
        let mut clients: Vec<_> = others.iter().map(|(client, _)| *client).collect();
        clients.dedup();
        self.expire_lapsed(clients, now);
        let waited = others
            .into_iter()
            .filter_map(|(client, name)| self.contend_with_hold(client, name, Forbidden::ALL, now));
        waited.min()
    }
}
