//! Random histories of caps clients against a model that keeps everything in one list and judges bit by bit. A name in one
//! of the files, as if that were a directory, is among what is held.

use holdfast_base::limits::CAPS_RECALLED_MS;
use holdfast_base::{CapSet, ClientId, Entropy, FileKey, Instant, SeededEntropy};
use holdfast_state::*;

use super::CHANGE;
use crate::world::*;

const FILES: u64 = 3;

/// A name in one of them. With it there are as many objects as are looked at for one that is asked back.
const NAME: NameKey = NameKey { dir: FileKey(0), name: FileKey(100) };

fn dir_of(key: FileKey) -> Option<FileKey> {
    (key == NAME.name).then_some(NAME.dir)
}

/// Shared bits of the four kinds; exclusive ones are the next higher.
const KINDS: [u32; 4] = [1, 4, 16, 64];

#[derive(Clone, Debug)]
struct Held {
    client: ClientId,
    file: FileKey,
    bits: u32,
    granted: u64,
    /// What may stay, and since when it is asked for.
    recall: Option<(u32, Instant)>,
    /// What might stay when the last recall began.
    told: u32,
}

#[derive(Debug, Default)]
struct Model {
    held: Vec<Held>,
    recalled_at: Vec<(FileKey, Instant)>,
    numbers: u64,
    /// Objects that may be held of in all; none where there is no bound.
    bound: Option<usize>,
}

/// What must be gone, bit by bit, for this deed: from the table in the protocol's document.
fn is_forbidden(deed: Deed, bit: u32) -> bool {
    let (kind, is_exclusive) = match bit {
        1 | 2 => ('A', bit == 2),
        4 | 8 => ('L', bit == 8),
        16 | 32 => ('X', bit == 32),
        _ => ('F', bit == 128),
    };
    match deed {
        Deed::ReadData | Deed::OpenRead | Deed::LookEntries => is_exclusive && "FA".contains(kind),
        Deed::LookAttrs => is_exclusive,
        Deed::LookXattrs => is_exclusive && "XA".contains(kind),
        Deed::LookRights => is_exclusive && kind == 'A',
        Deed::WriteData | Deed::Truncate | Deed::OpenWrite | Deed::ChangeEntries(_) => {
            kind == 'F' || (kind == 'A' && is_exclusive)
        }
        Deed::ChangeAttrs => "AXF".contains(kind) || is_exclusive,
        Deed::ChangeName => kind == 'L' || (kind == 'F' && is_exclusive),
    }
}

impl Held {
    fn is_asked(&mut self, keep: u32, since: Instant) {
        if self.recall.is_none() {
            self.told = keep;
        }
        self.recall = Some((keep, since));
    }
}

fn sound(bits: u32) -> u32 {
    KINDS.iter().map(|shared| if bits & shared == 0 { 0 } else { bits & (shared | shared << 1) }).sum()
}

fn without_forbidden(bits: u32, deed: Deed) -> u32 {
    sound((0..8).map(|n| 1 << n).filter(|bit| !is_forbidden(deed, *bit)).fold(0, |all, bit| all | bit & bits))
}

impl Model {
    fn of(&self, client: ClientId, file: FileKey) -> u32 {
        self.held.iter().find(|h| h.client == client && h.file == file).map_or(0, |h| h.bits)
    }

    fn is_recent(&self, file: FileKey, now: Instant) -> bool {
        let last = self.recalled_at.iter().rev().find(|(of, _)| *of == file);
        last.is_some_and(|(_, at)| now.ms_since(*at) < CAPS_RECALLED_MS)
    }

    fn grantable(&self, client: ClientId, file: FileKey, want: u32, now: Instant) -> u32 {
        let is_held = self.held.iter().any(|held| held.client == client && held.file == file);
        if !is_held && self.bound.is_some_and(|bound| self.held.len() >= bound) {
            return 0;
        }
        let mut can = want;
        if self.is_recent(file, now) && dir_of(file).is_none() {
            can &= 0x55;
        }
        let others = || self.held.iter().filter(|held| held.client != client);
        if others().any(|held| dir_of(held.file) == Some(file)) {
            can &= !128;
        }
        if others().any(|held| dir_of(file) == Some(held.file) && held.bits & 128 != 0) {
            can = 0;
        }
        for held in self.held.iter().filter(|held| held.file == file) {
            if held.client == client {
                can &= held.recall.map_or(0xff, |(keep, _)| keep);
                continue;
            }
            for shared in KINDS {
                if held.bits & (shared << 1) != 0 {
                    can &= !(shared | shared << 1);
                } else if held.bits & shared != 0 {
                    can &= !(shared << 1);
                }
            }
        }
        sound(can)
    }

    /// Returns what the client may go by, and how it is numbered when it is news.
    fn acquire(&mut self, client: ClientId, file: FileKey, want: u32, now: Instant) -> u32 {
        let can = self.grantable(client, file, want, now);
        let had = self.of(client, file);
        if had & can != can {
            self.numbers += 1;
            let number = self.numbers;
            match self.held.iter_mut().find(|h| h.client == client && h.file == file) {
                Some(held) => (held.bits, held.granted) = (had | can, number),
                None => {
                    let (bits, granted, recall, told) = (can, number, None, 0);
                    self.held.push(Held { client, file, bits, granted, recall, told });
                }
            }
        }
        let held = self.held.iter().find(|h| h.client == client && h.file == file);
        held.map_or(0, |held| held.bits & held.recall.map_or(0xff, |(keep, _)| keep))
    }

    /// Returns whether the deed is clear, and whom it has asked now.
    fn contend(
        &mut self,
        file: FileKey,
        deed: Deed,
        by: Option<ClientId>,
        now: Instant,
    ) -> (Option<Instant>, Vec<(ClientId, u32)>) {
        let (mut earliest, mut asked) = (None::<Instant>, Vec::new());
        let mut is_any_new = false;
        for held in self.held.iter_mut().filter(|held| held.file == file && Some(held.client) != by) {
            let keep = without_forbidden(held.bits, deed);
            if keep == held.bits {
                continue;
            }
            let (still, since) = held.recall.unwrap_or((held.bits, now));
            if held.recall.is_none() || without_forbidden(still, deed) != still {
                is_any_new |= held.recall.is_none();
                self.numbers += 1;
                held.is_asked(without_forbidden(still, deed), since);
                asked.push((held.client, without_forbidden(still, deed)));
            }
            earliest = Some(earliest.map_or(since, |known| known.min(since)));
        }
        if is_any_new {
            self.recalled_at.push((file, now));
        }
        (earliest, asked)
    }

    /// What is asked back for want of room. There are too few objects for it to be more than one at a time, or for
    /// some of a client's not to be looked at.
    fn press(&mut self, now: Instant) -> Option<(ClientId, FileKey)> {
        let under_way = self.held.iter().filter(|held| held.recall.is_some()).count();
        let bound = self.bound.filter(|bound| self.held.len() > bound + under_way)?;
        assert!(bound < 10, "a bound of ten and more is asked for before it is reached");
        let of = |client: ClientId| self.held.iter().filter(move |held| held.client == client);
        let free = self.held.iter().enumerate().filter(|(_, held)| held.recall.is_none());
        let (at, _) = free.max_by_key(|(_, held)| {
            let is_exclusive = held.bits & 0xaa != 0;
            (of(held.client).count(), held.client, !is_exclusive, std::cmp::Reverse(held.granted))
        })?;
        self.numbers += 1;
        let held = &mut self.held[at];
        held.is_asked(0, now);
        Some((held.client, held.file))
    }

    /// Whether it counted. What was last told of it was told under the number `last`.
    fn release(
        &mut self,
        (client, file): (ClientId, FileKey),
        (keep, seq, last): (u32, u64, u64),
        now: Instant,
    ) -> bool {
        let Some(held) = self.held.iter_mut().find(|h| h.client == client && h.file == file) else {
            return true;
        };
        if seq < held.granted {
            return false;
        }
        // What it may have been told under numbers that it has not seen.
        let told = if held.recall.is_some() { held.told } else { held.bits };
        held.bits &= if seq < last { keep | told } else { keep };
        if held.recall.is_some_and(|(may, _)| held.bits & !may == 0) {
            held.recall = None;
            self.recalled_at.push((file, now));
        }
        self.held.retain(|held| held.bits != 0);
        true
    }
}

const DEEDS: [Deed; 12] = [
    Deed::ReadData,
    Deed::LookAttrs,
    Deed::LookEntries,
    Deed::LookXattrs,
    Deed::LookRights,
    Deed::WriteData,
    Deed::Truncate,
    Deed::ChangeAttrs,
    Deed::ChangeName,
    CHANGE,
    Deed::OpenRead,
    Deed::OpenWrite,
];

struct History {
    world: World,
    model: Model,
    clients: Vec<ClientId>,
    dice: SeededEntropy,
    seen: usize,
    named: usize,
    pressed: usize,
}

impl History {
    fn new(seed: u64) -> Self {
        let mut world = World::new();
        let clients = ["a", "b", "c"].map(|name| {
            let (client, _) = world.client(name, 1);
            world.engine.caps_hello(client).unwrap();
            world.engine.caps_path(client, true);
            client
        });
        world.settle();
        Self {
            world,
            model: Model::default(),
            clients: clients.to_vec(),
            dice: SeededEntropy(seed),
            seen: 0,
            named: 0,
            pressed: 0,
        }
    }

    fn roll(&mut self, sides: u64) -> u64 {
        self.dice.u64() % sides
    }

    fn step(&mut self) {
        let which = self.roll(3) as usize;
        let client = self.clients[which];
        let file = FileKey(u128::from(self.roll(FILES)));
        let set = sound(self.dice.u64() as u32 & 0xff);
        let now = self.world.now;
        match self.roll(12) {
            0..3 => {
                let request = CapRequest {
                    client,
                    file,
                    want: CapSet(set).sound(),
                    is_beside_writers: false,
                    reclaim: None,
                };
                let grant = match self.world.engine.caps_prepare(&request, now).unwrap() {
                    CapOffer::Offered(ticket) => self.world.engine.caps_commit(ticket).unwrap(),
                    CapOffer::Held(grant) => grant,
                };
                assert_eq!(grant.held.0, self.model.acquire(client, file, set, now));
                self.seen += usize::from(!grant.held.is_empty());
                assert!(self.world.settle().is_empty());
            }
            3..5 => self.deed(client, file),
            5 => self.world.pass(self.dice.u64() % CAPS_RECALLED_MS),
            6 => self.press(),
            7 => self.release(client, file, set),
            8 => self.name(client),
            9 => self.deed(client, NAME.name),
            10 => self.release(client, NAME.name, 0),
            _ => self.outside(file),
        }
    }

    fn name(&mut self, client: ClientId) {
        let now = self.world.now;
        let grant = self.world.promise(client, NAME);
        assert_eq!(grant.held.0, self.model.acquire(client, NAME.name, 64, now));
        self.named += usize::from(!grant.held.is_empty());
        let names = self.model.held.iter().filter(|held| dir_of(held.file).is_some());
        assert_eq!(self.world.engine.caps_names(), names.count());
        assert!(self.world.settle().is_empty());
    }

    /// A local process is in a directory: nothing of it or of its names stays.
    fn outside(&mut self, dir: FileKey) {
        let now = self.world.now;
        let mut asked = Vec::new();
        for at in 0..self.model.held.len() {
            let held = &self.model.held[at];
            let is_asked = held.recall.is_some_and(|(keep, _)| keep == 0);
            if is_asked || (held.file != dir && dir_of(held.file) != Some(dir)) {
                continue;
            }
            let (client, file) = (held.client, held.file);
            if held.recall.is_none() {
                self.model.recalled_at.push((file, now));
            }
            self.model.numbers += 1;
            let held = &mut self.model.held[at];
            held.is_asked(0, held.recall.map_or(now, |(_, since)| since));
            asked.push((client, file));
        }
        self.world.engine.contend_outside(dir, CHANGE, now);
        let effects = self.world.settle().into_iter().map(|effect| match effect {
            Effect::CapRecall { client, keep, file, .. } if keep.is_empty() => (client, file),
            other => panic!("{other:?}"),
        });
        let mut effects: Vec<_> = effects.collect();
        effects.sort_unstable();
        asked.sort_unstable();
        assert_eq!(effects, asked);
    }

    fn deed(&mut self, client: ClientId, file: FileKey) {
        let now = self.world.now;
        let deed = DEEDS[self.roll(12) as usize];
        let by = (self.roll(4) > 0).then_some(client);
        let (since, mut asked) = self.model.contend(file, deed, by, now);
        // Holders are in no order.
        asked.sort_unstable();
        assert_eq!(self.world.engine.is_contended(file, deed, by), since.is_some());
        let contention = self.world.engine.contend(file, deed, by, now);
        let expected = since.map_or(Contention::Clear, |since| Contention::Recalling { since });
        assert_eq!(contention, expected, "{deed:?}");
        let effects = self.world.settle().into_iter().map(|effect| match effect {
            Effect::CapRecall { client, keep, file: of, .. } if of == file => (client, keep.0),
            other => panic!("{other:?}"),
        });
        let mut effects: Vec<_> = effects.collect();
        effects.sort_unstable();
        assert_eq!(effects, asked);
    }

    /// There is another bound from now on, or none, and the second is over.
    fn press(&mut self) {
        let now = self.world.now;
        self.model.bound = (self.roll(2) == 0).then(|| self.roll(8) as usize);
        let policy = *self.world.engine.policy();
        let capabilities_max = self.model.bound.unwrap_or(Policy::default().capabilities_max);
        self.world.engine.set_policy(Policy { capabilities_max, ..policy });
        let expected = self.model.press(now);
        self.world.engine.tick(now);
        let effects = self.world.settle().into_iter().map(|effect| match effect {
            Effect::CapRecall { client, keep, file, .. } if keep.is_empty() => (client, file),
            other => panic!("{other:?}"),
        });
        assert_eq!(effects.collect::<Vec<_>>(), Vec::from_iter(expected));
        self.pressed += usize::from(expected.is_some());
    }

    /// Mostly as a client would that has seen everything.
    fn release(&mut self, client: ClientId, file: FileKey, set: u32) {
        let now = self.world.now;
        let known = self.world.engine.caps_of(client, file);
        let keep = if self.roll(2) == 0 { known.held.0 } else { set };
        let seq = if self.roll(5) == 0 { known.seq.saturating_sub(1 + self.roll(4)) } else { known.seq };
        let held = self.model.held.iter().find(|h| h.client == client && h.file == file).cloned();
        let counts = self.model.release((client, file), (keep, seq, known.seq), now);
        let outcome = self.world.engine.caps_release(client, file, (CapSet(keep).sound(), seq), now);
        assert_eq!(matches!(outcome, CapRelease::Released(_)), counts);
        assert_eq!(self.world.engine.caps_in_force(client, file).0, self.model.of(client, file));
        let is_less = held.is_some_and(|held| held.bits != self.model.of(client, file));
        assert_eq!(self.world.settle().len(), usize::from(is_less));
    }
}

#[test]
fn random_histories_agree_with_the_model() {
    let (mut granted, mut named, mut pressed) = (0, 0, 0);
    for seed in 0..300 {
        let mut history = History::new(seed);
        for _ in 0..600 {
            history.step();
        }
        granted += history.seen;
        named += history.named;
        pressed += history.pressed;
    }
    assert!(granted > 10_000 && named > 2000 && pressed > 1000, "{granted} {named} {pressed}");
}
