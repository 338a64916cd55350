//! Names of a directory, as far as they are guaranteed; and streams that read directories.

use std::collections::BTreeMap;

use holdfast_base::Instant;
use holdfast_base::limits::CAPS_CONTESTED_MS;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::ask::Generation;
use crate::fresh::Row;
use crate::ids::{Name, NodeId};

/// What is known of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// The object; `None`: there is none of that name.
    pub(crate) node: Option<NodeId>,
    /// The kernel was told that this stays so.
    pub(crate) told: bool,
    /// Its place in listings from here; 0 of absent names.
    pub(crate) cookie: u64,
}

/// What the names say about one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    Present(NodeId),
    Absent,
    Unknown,
}

/// A directory. There are names in it only while `FILE_S` is held.
#[derive(Debug, Default)]
pub(crate) struct Dir {
    names: FxHashMap<Name, Slot>,
    order: BTreeMap<u64, Name>,
    last_cookie: u64,
    /// A name that is not in it does not exist.
    pub(crate) complete: bool,
    pub(crate) filling: Option<Filling>,
    /// It is too large to be filled.
    pub(crate) is_large: bool,
    /// When a directory was last removed from it, or, where that was taken to go on below, from one above it.
    pub(crate) cleared_at: Option<Instant>,
    /// Questions about names since it was last filled.
    pub(crate) misses: u32,
    /// When others' changes last took its names, and the time before that.
    taken_at: [Option<Instant>; 2],
    /// A name was asked for while others took them all the time, and not promised by itself: so often they are taken before one is
    /// asked for again.
    unpromised: u8,
    /// What the kernel may keep of its listings.
    pub(crate) listing: Listing,
    /// How files in it are being read.
    pub(crate) reading: crate::ahead::Reading,
    /// Names that a mutation being asked for is about.
    busy: FxHashMap<Name, u32>,
    /// Names that the journal may have otherwise; `None` while it has none of them, or there is no journal.
    pub(crate) changed: Option<FxHashSet<Name>>,
}

/// A listing from the server that is to make the directory complete.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Filling {
    /// Where it goes on.
    pub(crate) next: u64,
    pub(crate) verifier: u64,
    /// When its first part was asked for.
    pub(crate) at: Generation,
    pub(crate) pages: u32,
}

/// What the kernel may keep of a directory's listings, as long as no name in it changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Listing {
    /// How many times it was another.
    pub(crate) number: u64,
    /// The kernel may have this one.
    pub(crate) is_kept: bool,
    /// It had one that is none any more, and was not told yet.
    pub(crate) is_over: bool,
    /// So many times the kernel has read something of what is in it since it was last told of all attributes: it takes the time
    /// of last access for unknown then, and asks for each again. One listing with attributes costs less.
    pub(crate) aged: u32,
}

/// Attributes that are to be asked for one by one before the whole listing is told again.
const AGED_MIN: u32 = 4;

/// Changes of others after which it is tried again whether a server promises names, which one that does not know how never will.
const UNPROMISED: u8 = 16;

/// Entries told at once for what one that is asked for costs.
const ENTRIES_FOR_ONE: usize = 8;

/// An open directory that is being read.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    pub(crate) source: Source,
    pub(crate) verifier: u64,
    /// The kernel keeps what is read through it, as the listing of this number.
    pub(crate) kept: Option<u64>,
}

/// Where its entries come from. Positions of different sources have nothing to do with each other, so it changes only
/// at the beginning.
#[derive(Debug, Default)]
pub(crate) enum Source {
    /// Not read yet.
    #[default]
    None,
    /// What is known here, as long as it is, up to the last position there was in the beginning: else who renames what he lists
    /// would meet it again behind all others, for ever.
    Known(u64),
    /// What was known here when it ceased to be guaranteed.
    Copy(BTreeMap<u64, (Name, NodeId)>),
    /// The server; with the part it gave last, which began behind the position.
    Server {
        /// The position it began behind.
        after: u64,
        /// The part.
        rows: Vec<Row>,
        /// Nothing comes behind it.
        eof: bool,
        /// When it was asked for.
        at: Generation,
    },
}

impl Source {
    /// Where it ends, if it is what is known here.
    pub(crate) const fn last_known(&self) -> Option<u64> {
        if let Self::Known(last) = self { Some(*last) } else { None }
    }
}

impl Dir {
    pub(crate) fn look(&self, name: &[u8]) -> Known {
        if !self.busy.is_empty() && self.busy.contains_key(name) {
            return Known::Unknown;
        }
        match self.names.get(name) {
            Some(Slot { node: Some(node), .. }) => Known::Present(*node),
            Some(Slot { node: None, .. }) => Known::Absent,
            None if self.complete => Known::Absent,
            None => Known::Unknown,
        }
    }

    /// Notes a name, whatever was known of it. Returns whether the kernel had been told of what was.
    pub(crate) fn put(&mut self, name: &Name, node: Option<NodeId>) -> bool {
        let old = self.names.get(name.as_bytes()).copied();
        let place = old.map_or(0, |old| old.cookie);
        let cookie = match node {
            None => 0,
            // What takes another's name at once takes its place: the name was there all the time.
            Some(_) if place != 0 => place,
            Some(_) => {
                self.last_cookie += 1;
                self.order.insert(self.last_cookie, name.clone());
                self.last_cookie
            }
        };
        if old.and_then(|old| old.node) != node {
            self.list_anew();
        }
        self.note(name);
        if cookie != place {
            self.order.remove(&place);
        }
        self.names.insert(name.clone(), Slot { node, told: false, cookie });
        old.is_some_and(|s| s.told)
    }

    /// The last position that was given out.
    pub(crate) const fn last_cookie(&self) -> u64 {
        self.last_cookie
    }

    /// Forgets what is known of a name; the directory is not complete any more. Returns whether the kernel was told.
    pub(crate) fn drop_name(&mut self, name: &[u8]) -> bool {
        self.complete = false;
        self.list_anew();
        let old = self.names.remove_entry(name);
        if let Some((name, old)) = &old {
            self.order.remove(&old.cookie);
            self.note(name);
        }
        old.is_some_and(|(_, s)| s.told)
    }

    /// Its names were taken for what others did.
    pub(crate) fn note_taken(&mut self, now: Instant) {
        self.taken_at = [Some(now), self.taken_at[0]];
        self.unpromised = self.unpromised.saturating_sub(1);
    }

    /// A name was asked for, and promised by itself or not.
    pub(crate) fn note_promised(&mut self, is_promised: bool, now: Instant) {
        self.unpromised = if is_promised || !self.is_contested(now) { 0 } else { UNPROMISED };
    }

    /// Whether its names are better asked for one by one: what is read as a whole the next change takes again, and a promised
    /// name stays.
    pub(crate) fn is_asked_by_name(&self, now: Instant) -> bool {
        self.unpromised == 0 && self.is_contested(now)
    }

    /// Whether others change it all the time, as the server sees it, too: then it promises single names.
    fn is_contested(&self, now: Instant) -> bool {
        let [Some(last), Some(before)] = self.taken_at else { return false };
        now.ms_since(last) < CAPS_CONTESTED_MS && last.ms_since(before) < CAPS_CONTESTED_MS
    }

    /// What was listed before is not so any more, or may not be.
    pub(crate) const fn list_anew(&mut self) {
        self.listing.number += 1;
        self.listing.is_over |= self.listing.is_kept;
        self.listing.is_kept = false;
    }

    /// Whether it is better told once more than gone through.
    pub(crate) fn is_aged(&self) -> bool {
        let aged = self.listing.aged;
        aged >= AGED_MIN && (aged as usize).saturating_mul(ENTRIES_FOR_ONE) >= self.len()
    }

    /// The journal may have this name otherwise.
    fn note(&mut self, name: &Name) {
        if let Some(changed) = &mut self.changed {
            changed.insert(name.clone());
        }
    }

    /// The kernel is told that what is known of this name stays so. Returns its place in listings, 0 where it has none.
    pub(crate) fn tell(&mut self, name: &[u8]) -> u64 {
        if let Some(slot) = self.names.get_mut(name) {
            slot.told = true;
            return slot.cookie;
        }
        if self.complete {
            self.names.insert(Name::new(name), Slot { node: None, told: true, cookie: 0 });
        }
        0
    }

    /// Forgets all names; returns those the kernel was told of.
    pub(crate) fn clear(&mut self) -> Vec<Name> {
        self.complete = false;
        self.filling = None;
        self.list_anew();
        self.order.clear();
        if let Some(changed) = &mut self.changed {
            changed.extend(self.names.keys().cloned());
        }
        self.names.drain().filter(|(_, s)| s.told).map(|(name, _)| name).collect()
    }

    /// Nothing is in it but what will be put into it here.
    pub(crate) fn set_complete(&mut self) {
        self.complete = true;
        self.filling = None;
        self.names.retain(|_, s| s.node.is_some() || s.told);
    }

    pub(crate) fn slot(&self, name: &[u8]) -> Option<&Slot> {
        self.names.get(name)
    }

    pub(crate) fn contains(&self, name: &[u8]) -> bool {
        self.names.contains_key(name)
    }

    pub(crate) fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// How many names are known to be there.
    pub(crate) fn count(&self) -> usize {
        self.order.len()
    }

    /// Whether each name is known to be there or not.
    pub(crate) fn is_settled(&self) -> bool {
        self.complete && self.busy.is_empty()
    }

    /// Whether it is known to be empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_settled() && self.order.is_empty()
    }

    /// Whether something is known to be in it.
    pub(crate) fn is_occupied(&self) -> bool {
        !self.order.is_empty()
    }

    /// Entries behind a position, in order.
    pub(crate) fn entries(&self, after: u64) -> impl Iterator<Item = (u64, &Name, NodeId)> {
        self.order.range(after.saturating_add(1)..).filter_map(|(cookie, name)| {
            let node = self.names.get(name).and_then(|s| s.node)?;
            Some((*cookie, name, node))
        })
    }

    pub(crate) fn set_busy(&mut self, name: &Name) {
        *self.busy.entry(name.clone()).or_default() += 1;
    }

    pub(crate) fn end_busy(&mut self, name: &Name) {
        if let Some(count) = self.busy.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                self.busy.remove(name);
            }
        }
    }

    pub(crate) fn is_busy(&self, name: &[u8]) -> bool {
        self.busy.contains_key(name)
    }

    pub(crate) fn check(&self) -> Result<(), String> {
        let present = self.names.values().filter(|s| s.node.is_some()).count();
        if present != self.order.len() {
            return Err(format!("{present} names present, {} in order", self.order.len()));
        }
        let right = |(cookie, name): (&u64, &Name)| self.names.get(name).is_some_and(|s| s.cookie == *cookie);
        if self.order.iter().all(right) { Ok(()) } else { Err("order and names differ".into()) }
    }
}
