//! The journal against a model, and its file cut, torn and spoilt in every way a crash can.

use std::collections::BTreeMap;
use std::path::PathBuf;

use holdfast_base::{Entropy, SeededEntropy};
use proptest::prelude::*;

use crate::layout::UNIT;
use crate::scan::scan;
use crate::{BootId, Certainty, Config, EntryId, Journal, JournalError, Keep, OpenError, Recovered};

const BOOT: BootId = BootId([1; 16]);
const LATER_BOOT: BootId = BootId([2; 16]);
const SMALL: Config = Config { bytes: 1 << 20, entries_max: 512 };

/// What a key is bound to: intent and reply. `None` after it was forgotten.
type State = Option<(Vec<u8>, Option<Vec<u8>>)>;

struct World {
    _dir: tempfile::TempDir,
    path: PathBuf,
    journal: Journal,
    /// Every state each key has been in, the present one last.
    history: BTreeMap<u8, Vec<State>>,
    ids: BTreeMap<u8, EntryId>,
    random: SeededEntropy,
}

/// Keys from here on are kept by age.
const FIRST_AGED: u8 = 128;

impl World {
    fn new(seed: u64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal");
        let (journal, found) = Journal::open_on_boot(&path, &SMALL, BOOT).unwrap();
        assert_eq!(found, []);
        Self {
            _dir: dir,
            path,
            journal,
            history: BTreeMap::new(),
            ids: BTreeMap::new(),
            random: SeededEntropy(seed),
        }
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.path).unwrap()
    }

    fn payload(&mut self, max: u64) -> Vec<u8> {
        let mut bytes = vec![0; (self.random.u64() % max) as usize];
        self.random.fill(&mut bytes);
        bytes
    }

    fn set(&mut self, key: u8, state: State) {
        self.history.entry(key).or_insert_with(|| vec![None]).push(state);
    }

    /// One random step. `payload_max` decides how soon the ring wraps.
    fn step(&mut self, keys: u64, payload_max: u64) {
        let aged = self.random.u64().is_multiple_of(4);
        let key = (self.random.u64() % keys) as u8 + if aged { FIRST_AGED } else { 0 };
        let keep = if aged { Keep::Aged } else { Keep::Latest };
        match self.random.u64() % 8 {
            0 => {
                let value = self.payload(payload_max);
                self.ids.insert(key, self.journal.note(&[key], keep, &value).unwrap());
                self.set(key, Some((Vec::new(), Some(value))));
            }
            1 => {
                self.journal.forget_key(&[key]);
                self.ids.remove(&key);
                self.set(key, None);
            }
            2 if self.ids.contains_key(&key) => {
                let _ = self.journal.seal(self.ids[&key]);
            }
            3..6 if self.ids.contains_key(&key) => {
                let reply = self.payload(payload_max);
                match self.journal.finish(self.ids[&key], &reply) {
                    Ok(()) => {
                        let Some((intent, _)) = self.history[&key].last().unwrap().clone() else {
                            unreachable!()
                        };
                        self.set(key, Some((intent, Some(reply))));
                    }
                    // Dropped by age.
                    Err(e) => assert_eq!((e, aged), (JournalError::Gone, true)),
                }
            }
            _ => {
                let intent = self.payload(payload_max);
                self.ids.insert(key, self.journal.begin(&[key], keep, &intent).unwrap());
                self.set(key, Some((intent, None)));
            }
        }
    }

    fn present(&self) -> BTreeMap<u8, State> {
        self.history.iter().map(|(k, h)| (*k, h.last().cloned().flatten())).collect()
    }
}

/// What a scan of these bytes finds.
fn scanned(bytes: &[u8], boot: BootId) -> BTreeMap<u8, State> {
    let found = scan(bytes, boot).unwrap().found;
    found.into_iter().map(|f| (f.key[0], Some((f.intent.to_vec(), f.reply.map(<[u8]>::to_vec))))).collect()
}

fn state(states: &BTreeMap<u8, State>, key: u8) -> State {
    states.get(&key).cloned().flatten()
}

fn of_key(found: &[Recovered], key: &[u8]) -> Option<Recovered> {
    found.iter().find(|r| r.key == key).cloned()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// A process killed at any moment leaves what it had recorded, over many rounds of the ring.
    #[test]
    fn a_kill_at_any_step_loses_nothing(seed: u64) {
        let mut world = World::new(seed);
        for step in 0..3000 {
            world.step(40, 3000);
            if step % 50 != 0 {
                continue;
            }
            let (found, expected) = (scanned(&world.bytes(), BOOT), world.present());
            for (key, wanted) in &expected {
                let is = state(&found, *key);
                let is_dropped = *key >= FIRST_AGED && is.is_none();
                prop_assert!(is == *wanted || is_dropped, "key {key} at step {step}");
            }
        }
        // Nobody forced: the ring did when it would have overwritten what no force had covered.
        prop_assert!(world.journal.usage().waits > 0);
    }

    /// Cut the log at any byte: what is found is what had been recorded wholly before that byte.
    #[test]
    fn a_log_cut_at_any_byte_is_an_earlier_state(seed: u64, garbage: bool) {
        let mut world = World::new(seed);
        let mut states = vec![BTreeMap::new()];
        let first = scan_end(&world.bytes());
        let mut ends = vec![first];
        // Few enough to stay in the first segment, so that positions in the file are positions in the log.
        for _ in 0..60 {
            world.step(8, 400);
            let bytes = world.bytes();
            ends.push(scan_end(&bytes));
            states.push(world.present());
        }
        let whole = world.bytes();
        let last = *ends.last().unwrap();
        for _ in 0..200 {
            let cut = first + (world.random.u64() as usize) % (last - first + 1);
            let mut torn = whole.clone();
            if garbage { world.random.fill(&mut torn[cut..last]); } else { torn[cut..].fill(0); }
            let complete = ends.iter().rposition(|end| *end <= cut).unwrap();
            let found = scanned(&torn, BOOT);
            let mut allowed = vec![&states[complete]];
            // A record of which only padding was cut off is whole.
            allowed.extend(states.get(complete + 1).filter(|_| ends[complete + 1] - cut < UNIT));
            let is_one = allowed.iter().any(|states| {
                states.keys().chain(found.keys()).all(|key| state(&found, *key) == state(states, *key))
            });
            prop_assert!(is_one, "cut at {cut}");
        }
    }

    /// A power cut leaves each sector old or new at random. Every key is then as it was at the last force, or as
    /// it was at some moment since; never older, never mixed.
    #[test]
    fn a_power_cut_takes_no_key_back_behind_the_last_force(seed: u64) {
        let mut world = World::new(seed);
        let mut disk = world.bytes();
        let mut forced: BTreeMap<u8, usize> = BTreeMap::new();
        for step in 0..2500u64 {
            world.step(40, 2500);
            if step % 40 == 39 {
                let now = world.bytes();
                let mut torn = disk.clone();
                for (old, new) in torn.chunks_mut(512).zip(now.chunks(512)) {
                    if world.random.u64().is_multiple_of(2) { old.copy_from_slice(new); }
                }
                let found = scanned(&torn, LATER_BOOT);
                for (key, history) in &world.history {
                    let is = state(&found, *key);
                    let since = forced.get(key).copied().unwrap_or(0);
                    let is_dropped = *key >= FIRST_AGED && is.is_none();
                    prop_assert!(is_dropped || history[since..].contains(&is), "key {key} at step {step}");
                }
            }
            if step % 25 == 0 {
                world.journal.force().unwrap();
                disk = world.bytes();
                forced = world.history.iter().map(|(k, h)| (*k, h.len() - 1)).collect();
            }
        }
        // Forces of the ring's own would have made the image of the disk above too old.
        prop_assert_eq!(world.journal.usage().waits, 0);
    }

    /// Bytes spoilt anywhere: no panic, and nothing is found that was never written.
    #[test]
    fn spoilt_bytes_are_never_believed(seed: u64) {
        let mut world = World::new(seed);
        (0..600).for_each(|_| world.step(40, 2000));
        let whole = world.bytes();
        for _ in 0..20 {
            let mut spoilt = whole.clone();
            for _ in 0..1 + world.random.u64() % 40 {
                let at = (world.random.u64() as usize) % spoilt.len();
                spoilt[at] ^= (1 + world.random.u64() % 255) as u8;
            }
            let cut = (world.random.u64() as usize) % spoilt.len();
            if world.random.u64().is_multiple_of(4) { spoilt.truncate(cut); }
            let Ok(found) = scan(&spoilt, BOOT) else { continue };
            for f in found.found {
                let is: State = Some((f.intent.to_vec(), f.reply.map(<[u8]>::to_vec)));
                let known = world.history[&f.key[0]].iter().flatten().any(|(i, r)| {
                    Some(i) == is.as_ref().map(|s| &s.0) && (r == &is.as_ref().unwrap().1 || is.as_ref().unwrap().1.is_none())
                });
                prop_assert!(known, "key {}", f.key[0]);
            }
        }
    }

    /// Any bytes at all may stand in the file.
    #[test]
    fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..20_000), is_headed: bool) {
        if is_headed && bytes.len() > 8192 {
            let layout = crate::layout::Layout { segment_bytes: 4096, segments: 1, salt: 7 };
            bytes[..40].copy_from_slice(&layout.header(BOOT));
            prop_assert!(scan(&bytes, BOOT).is_ok());
        } else {
            let _ = scan(&bytes, BOOT);
        }
    }
}

/// Where the log of the first segment ends.
fn scan_end(bytes: &[u8]) -> usize {
    let (layout, _) = crate::layout::Layout::parse(bytes).unwrap();
    let mut at = crate::layout::HEADER_BYTES;
    while let Some(record) = crate::record::parse(&bytes[at..], layout.salt) {
        at += record.size();
    }
    at
}

#[test]
fn entries_outlive_the_process_with_their_certainty() {
    let world = World::new(1);
    let j = &world.journal;
    j.begin(b"intent", Keep::Latest, b"i").unwrap();
    let done = j.begin(b"done", Keep::Aged, b"i").unwrap();
    j.finish(done, b"r").unwrap();
    let sealed = j.begin(b"sealed", Keep::Latest, b"i").unwrap();
    j.finish(sealed, b"r").unwrap();
    j.seal(sealed).unwrap();
    j.note(b"note", Keep::Latest, b"n").unwrap();
    let World { _dir, path, journal, .. } = world;
    drop(journal);

    let (journal, found) = Journal::open_on_boot(&path, &SMALL, BOOT).unwrap();
    let certainty = |found: &[Recovered], key| of_key(found, key).unwrap().certainty;
    assert_eq!(
        found.iter().map(|r| &r.key[..]).collect::<Vec<_>>(),
        [&b"intent"[..], b"done", b"sealed", b"note"]
    );
    assert_eq!(of_key(&found, b"intent").unwrap().reply, None);
    assert_eq!(of_key(&found, b"note").unwrap().reply.as_deref(), Some(&b"n"[..]));
    assert_eq!(certainty(&found, b"done"), Certainty::ProcessDied);
    assert_eq!(certainty(&found, b"sealed"), Certainty::Sealed);
    drop(journal);

    let (journal, found) = Journal::open_on_boot(&path, &SMALL, LATER_BOOT).unwrap();
    assert_eq!(certainty(&found, b"done"), Certainty::MachineDied);
    assert_eq!(certainty(&found, b"sealed"), Certainty::Sealed);
    // One is settled, then the process dies: the other stays in doubt, though the boot is the same.
    journal.finish(of_key(&found, b"intent").unwrap().id, b"settled").unwrap();
    drop(journal);
    let (_journal, found) = Journal::open_on_boot(&path, &SMALL, LATER_BOOT).unwrap();
    assert_eq!(certainty(&found, b"done"), Certainty::MachineDied);
    assert_eq!(certainty(&found, b"intent"), Certainty::ProcessDied);
}

#[test]
fn an_unknown_boot_is_never_the_same_boot() {
    let World { _dir, path, journal, .. } = World::new(1);
    drop(journal);
    let unknown = BootId([0; 16]);
    let (journal, _) = Journal::open_on_boot(&path, &SMALL, unknown).unwrap();
    journal.note(b"k", Keep::Latest, b"v").unwrap();
    drop(journal);
    let (_, found) = Journal::open_on_boot(&path, &SMALL, unknown).unwrap();
    assert_eq!(found[0].certainty, Certainty::MachineDied);
    assert!(BootId::current().is_known());
}

#[test]
fn a_newer_entry_takes_the_place_of_an_older_and_its_id() {
    let world = World::new(1);
    let old = world.journal.begin(b"slot", Keep::Latest, b"1").unwrap();
    let new = world.journal.begin(b"slot", Keep::Latest, b"2").unwrap();
    assert_eq!(world.journal.finish(old, b"late"), Err(JournalError::Gone));
    assert_eq!(world.journal.seal(old), Err(JournalError::Gone));
    world.journal.forget(old);
    assert_eq!(world.journal.finish(new, b"r"), Ok(()));
    assert_eq!(world.journal.usage().entries, 1);
    assert!(new.order() > old.order());
}

#[test]
fn a_full_journal_refuses_at_once_and_works_again_when_room_is_made() {
    let world = World::new(1);
    let big = vec![7; 30_000];
    let mut kept = Vec::new();
    let refused = loop {
        match world.journal.begin(&[kept.len() as u8], Keep::Latest, &big) {
            Ok(id) => kept.push(id),
            Err(e) => break e,
        }
    };
    assert_eq!(refused, JournalError::Full);
    assert!((10..20).contains(&kept.len()), "half of the ring: {}", kept.len());
    // Old requests can be answered and new ones on other keys served as soon as one goes.
    assert_eq!(world.journal.finish(kept[0], b""), Ok(()));
    world.journal.forget(kept[1]);
    for n in 0..500u32 {
        let id = world.journal.begin(b"again", Keep::Latest, &big[..20_000]).unwrap();
        world.journal.finish(id, &n.to_be_bytes()).unwrap();
        world.journal.forget(id);
    }
    assert_eq!(world.journal.usage().entries, kept.len() - 1);
    assert_eq!(scanned(&world.bytes(), BOOT).len(), kept.len() - 1);
}

#[test]
fn aged_entries_make_way_the_oldest_first_and_only_with_their_reply() {
    let world = World::new(1);
    let pending = world.journal.begin(b"pending", Keep::Aged, b"i").unwrap();
    for n in 0..20_000u32 {
        let id = world.journal.begin(&n.to_be_bytes(), Keep::Aged, &[1; 100]).unwrap();
        world.journal.finish(id, &[2; 100]).unwrap();
    }
    let usage = world.journal.usage();
    assert!(usage.entries <= SMALL.entries_max && usage.entries > SMALL.entries_max / 4, "{usage:?}");
    assert_eq!(world.journal.finish(pending, b"r"), Ok(()));
    let bytes = world.bytes();
    let orders: Vec<u64> = scan(&bytes, BOOT).unwrap().found.iter().map(|f| f.order).collect();
    assert_eq!(orders.last(), Some(&20_001));
}

#[test]
fn an_index_full_of_what_must_stay_refuses() {
    let world = World::new(1);
    for n in 0..SMALL.entries_max as u32 {
        world.journal.begin(&n.to_be_bytes(), Keep::Latest, b"").unwrap();
    }
    assert_eq!(world.journal.begin(b"one more", Keep::Latest, b""), Err(JournalError::Full));
    world.journal.begin(&0u32.to_be_bytes(), Keep::Latest, b"same key").unwrap();
    assert!(world.journal.forget_key(&1u32.to_be_bytes()));
    assert!(!world.journal.forget_key(&1u32.to_be_bytes()));
    world.journal.begin(b"one more", Keep::Latest, b"").unwrap();
}

#[test]
fn bounds_are_refused_and_change_nothing() {
    let world = World::new(1);
    let (long_key, long) = ([0; 129], vec![0; (32 << 10) + 1]);
    assert!(matches!(world.journal.begin(&long_key, Keep::Latest, b""), Err(JournalError::Bounds(_))));
    assert!(matches!(world.journal.begin(b"", Keep::Latest, b""), Err(JournalError::Bounds(_))));
    assert!(matches!(world.journal.note(b"k", Keep::Latest, &long), Err(JournalError::Bounds(_))));
    let id = world.journal.begin(&long_key[1..], Keep::Latest, &long[1..]).unwrap();
    assert!(matches!(world.journal.finish(id, &long), Err(JournalError::Bounds(_))));
    assert_eq!(world.journal.finish(id, &long[1..]), Ok(()));
}

#[test]
fn the_file_is_private_locked_reserved_and_can_change_its_size() {
    use std::os::unix::fs::MetadataExt;
    let World { _dir, path, journal, .. } = World::new(1);
    journal.note(b"k", Keep::Latest, b"v").unwrap();
    let meta = std::fs::metadata(&path).unwrap();
    assert_eq!(meta.mode() & 0o777, 0o600);
    assert!(meta.blocks() * 512 >= meta.len(), "blocks are reserved");
    let again = Journal::open(&path, &SMALL).err().unwrap();
    assert!(matches!(&again, OpenError::InUse { path: p } if *p == path), "{again:?}");
    assert!(again.to_string().contains(path.to_str().unwrap()));
    drop(journal);
    let larger = Config { bytes: 4 << 20, ..SMALL };
    let (journal, found) = Journal::open_on_boot(&path, &larger, BOOT).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(journal.usage().live_bytes_max, 2 << 20);
    drop(journal);
    let none = Journal::open(&path, &Config { bytes: 1000, ..SMALL }).err().unwrap();
    assert!(matches!(none, OpenError::Size { bytes: 1000, .. }), "{none:?}");
    assert_eq!(
        Journal::open_on_boot(&path, &SMALL, BOOT).unwrap().1.len(),
        1,
        "the failed open took nothing"
    );
}

#[test]
fn a_force_by_somebody_else_counts_and_its_failure_is_as_final_as_one_of_our_own() {
    use std::io::{Error, ErrorKind};
    let w = World::new(6);
    w.journal.note(b"a", Keep::Latest, b"value").unwrap();
    assert!(w.journal.force_by(&mut |_| None).is_none(), "he did nothing");
    let forced = || w.journal.ring.lock().forced_seq();
    let before = forced();
    // What is recorded while he is at it may have come too late for him.
    let done = w.journal.force_by(&mut |_| {
        w.journal.note(b"b", Keep::Latest, b"value").unwrap();
        Some(Ok(()))
    });
    assert!(done.is_some_and(|done| done.is_ok()));
    assert!(before < forced() && forced() < w.journal.ring.lock().last_seq());
    let failed = w.journal.force_by(&mut |_| Some(Err(Error::from(ErrorKind::StorageFull))));
    assert!(failed.is_some_and(|done| done.is_err()));
    assert!(w.journal.force_by(&mut |_| panic!("nobody is asked any more")).is_none());
    assert!(w.journal.force().is_err());
}

/// Where the first block is that was reserved only, as the file system says once all is on disk; on some (tmpfs) none is.
fn first_unwritten(file: &std::fs::File) -> u64 {
    file.sync_all().unwrap();
    rustix::fs::seek(file, rustix::fs::SeekFrom::Hole(0)).unwrap()
}

#[test]
fn a_force_finds_the_blocks_it_writes_written_before_but_for_one_a_segment() {
    let w = World::new(5);
    let file = std::fs::File::open(&w.path).unwrap();
    let layout = crate::layout::Layout::parse(&w.bytes()).unwrap().0;
    assert!(first_unwritten(&file) >= layout.segment_at(2) as u64, "the first and the second segment");
    for number in 0..400u32 {
        let head_before = w.journal.ring.lock().head();
        w.journal.note(&number.to_le_bytes(), Keep::Aged, &[7; 1000]).unwrap();
        let head = w.journal.ring.lock().head();
        if head != head_before {
            assert!(
                first_unwritten(&file) >= layout.segment_at(head + 2) as u64,
                "the one after segment {head}"
            );
        }
    }
    assert!(w.journal.ring.lock().head() >= 2, "it went on through several");
}

#[test]
fn what_was_written_between_two_forces_may_have_come_round_to_any_place() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("journal");
    let (journal, _) = Journal::open_on_boot(&path, &SMALL, BOOT).unwrap();
    let value = [7; 4000];
    // From nothing to a little more than all of it; and a little less, which ends before the place where it began.
    for records in (0..300).step_by(7).chain([262, 262, 250, 250]) {
        for _ in 0..records {
            journal.note(b"key", Keep::Latest, &value).unwrap();
        }
        journal.force().unwrap();
        journal.force_by(&mut |_| Some(Ok(()))).unwrap().unwrap();
    }
    drop(journal);
    let (_, found) = Journal::open_on_boot(&path, &SMALL, LATER_BOOT).unwrap();
    assert_eq!(of_key(&found, b"key").unwrap().reply.unwrap(), value);
}

#[test]
fn a_foreign_or_damaged_file_is_an_error_that_names_the_way_out() {
    let World { _dir, path, journal, .. } = World::new(1);
    drop(journal);
    let good = std::fs::read(&path).unwrap();
    for spoil in [0, 7, 9, 38] {
        let mut bad = good.clone();
        bad[spoil] ^= 0x40;
        std::fs::write(&path, &bad).unwrap();
        let e = Journal::open(&path, &SMALL).err().unwrap();
        assert!(matches!(e, OpenError::Damaged { .. }) && e.to_string().contains("Moved away"), "{e}");
    }
    std::fs::write(&path, &good[..good.len() / 2]).unwrap();
    assert!(matches!(Journal::open(&path, &SMALL).err(), Some(OpenError::Damaged { .. })));
}

#[test]
fn a_segment_that_lost_its_end_is_reported() {
    let world = World::new(1);
    for n in 0..20u8 {
        world.journal.note(&[n], Keep::Aged, &[n; 20_000]).unwrap();
    }
    let mut bytes = world.bytes();
    assert_eq!(scan(&bytes, BOOT).unwrap().damaged_segments, 0);
    let at = crate::layout::HEADER_BYTES + 50_000;
    bytes[at] ^= 1;
    let scan = scan(&bytes, BOOT).unwrap();
    assert_eq!((scan.damaged_segments, scan.found.len() < 20, scan.found.len() > 10), (1, true, true));
}
