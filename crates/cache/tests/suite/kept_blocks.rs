//! Contents of files in blocks on the mount's own disk: whatever is shown of a file is what it has, though the server is away,
//! the disk fails, is slow or loses what was not forced, others change the file, and the mount dies between any two steps.

use std::collections::BTreeMap;

use crate::world::World;
use crate::world::choice::config;
use crate::world::fs::ROOT;
use crate::world::store::Store;
use bytes::Bytes;
use holdfast_cache::*;
use proptest::prelude::*;

mod histories;
mod rules;

const FILES: [&str; 3] = ["f", "g", "h"];

/// One thing that somebody does.
#[derive(Clone, Debug)]
enum Step {
    Read {
        file: usize,
        offset: u8,
        len: u8,
    },
    Write {
        file: usize,
        offset: u8,
        len: u8,
        byte: u8,
    },
    Truncate {
        file: usize,
        size: u8,
    },
    /// The same by another mount; while the server is away from this one, there.
    TheirWrite {
        file: usize,
        offset: u8,
        len: u8,
        byte: u8,
    },
    TheirTruncate {
        file: usize,
        size: u8,
    },
    /// They look at it, so that what this mount holds exclusively is recalled.
    TheirRead {
        file: usize,
    },
    Sync,
    Pump,
    /// The journal is brought up to date.
    Keep,
    /// The server goes. (What was on its way then is of other tests.)
    Away,
    Back,
    /// The mount's daemon is killed, or its host loses its power, and another life begins without the server.
    Die {
        loses_power: bool,
    },
    /// The disk fails so often, takes nothing for now, or its journal does not.
    Disk {
        fails: u64,
        is_slow: bool,
        is_behind: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let f = || 0..FILES.len();
    let at = || 0..100_u8;
    prop_oneof![
        12 => (f(), at(), 1..120_u8).prop_map(|(file, offset, len)| Step::Read { file, offset, len }),
        4 => f().prop_map(|file| Step::Read { file, offset: 0, len: 200 }),
        5 => (f(), at(), 1..50_u8, 1..=255_u8)
            .prop_map(|(file, offset, len, byte)| Step::Write { file, offset, len, byte }),
        2 => (f(), 0..3_u8, 16..50_u8, 1..=255_u8)
            .prop_map(|(file, block, len, byte)| Step::Write { file, offset: block * 16, len, byte }),
        3 => (f(), at()).prop_map(|(file, size)| Step::Truncate { file, size }),
        2 => (f(), at(), 1..50_u8, 1..=255_u8)
            .prop_map(|(file, offset, len, byte)| Step::TheirWrite { file, offset, len, byte }),
        1 => (f(), at()).prop_map(|(file, size)| Step::TheirTruncate { file, size }),
        2 => f().prop_map(|file| Step::TheirRead { file }),
        2 => Just(Step::Sync),
        6 => Just(Step::Pump),
        2 => Just(Step::Keep),
        3 => Just(Step::Away),
        4 => Just(Step::Back),
        2 => any::<bool>().prop_map(|loses_power| Step::Die { loses_power }),
        2 => (0..4_u64, 0..3_u8, 0..4_u8).prop_map(|(fails, slow, behind)| Step::Disk {
            fails, is_slow: slow == 0, is_behind: behind == 0
        }),
    ]
}

/// A mount that keeps blocks of 16 bytes, nothing of a file as a whole, and another mount.
fn keeping(seed: u64, slots: u32) -> World {
    let mut world = World::new(2, true, seed);
    world.server.is_shy = false;
    for client in &mut world.clients {
        let settings = client.machine.settings_mut();
        (settings.direct, settings.pooled_max, settings.ahead_after) = (false, 0, 1000);
        (settings.whole_bytes_max, settings.block_bytes, settings.io_bytes) = (0, 16, 64);
    }
    world.kept = Some(BTreeMap::new());
    world.store = Some(Store::default());
    world.slots = slots;
    world.clients[0].machine.keep_blocks(slots);
    world.clients[0].machine.follow();
    // As whom its callers act it knows.
    make(&mut world, 0, "own", b"own");
    write(&mut world, 0, "own", 0, b"own").unwrap();
    world.drain();
    world.keep(0);
    world
}

type Done<T> = Result<T, Errno>;

fn find(world: &mut World, c: usize, name: &str) -> Done<NodeId> {
    match world.run(c, |m, t, now| m.lookup(t, NodeId::ROOT, name.as_bytes(), now))? {
        Lookup::Found(entry) => Ok(entry.node),
        Lookup::Absent { .. } => Err(Errno::ENOENT),
    }
}

/// Opens a file, does something with it, and closes it.
fn with<T>(
    world: &mut World,
    (c, name, write): (usize, &str, bool),
    work: impl FnOnce(&mut World, Fh) -> Done<T>,
) -> Done<T> {
    let node = find(world, c, name)?;
    let flags = OpenFlags { access: Access { read: true, write }, ..OpenFlags::default() };
    let fh = world.run(c, |m, t, now| m.open(t, node, flags, now))?.fh;
    let done = work(world, fh);
    let flushed = world.run(c, |m, t, now| m.flush(t, fh, now));
    let now = world.now();
    world.clients[c].machine.release(fh, now);
    world.invalidate(c);
    flushed.or_else(|errno| if world.alone { Ok(()) } else { Err(errno) })?;
    done
}

fn read(world: &mut World, c: usize, name: &str, (offset, len): (u64, u32)) -> Done<Vec<u8>> {
    with(world, (c, name, false), |world, fh| {
        Ok(world.run(c, |m, t, now| m.read(t, fh, offset, len, now))?.concat())
    })
}

fn write(world: &mut World, c: usize, name: &str, offset: u64, data: &[u8]) -> Done<()> {
    with(world, (c, name, true), |world, fh| {
        let mut done = 0;
        while done < data.len() {
            let part = Bytes::copy_from_slice(&data[done..]);
            done += world.run(c, |m, t, now| m.write(t, fh, offset + done as u64, &part, now))? as usize;
        }
        Ok(())
    })
}

fn truncate(world: &mut World, c: usize, name: &str, size: u64) -> Done<()> {
    let node = find(world, c, name)?;
    let changes = Changes { size: Some(size), ..Changes::default() };
    world.run(c, |m, t, now| m.setattr(t, node, &changes, now)).map(drop)
}

fn make(world: &mut World, c: usize, name: &str, data: &[u8]) {
    let flags = OpenFlags { access: Access { read: true, write: true }, ..OpenFlags::default() };
    let made = world.run(c, |m, t, now| m.create(t, NodeId::ROOT, name.as_bytes(), 0o644, flags, now));
    let fh = made.unwrap().1.fh;
    let now = world.now();
    world.clients[c].machine.release(fh, now);
    write(world, c, name, 0, data).unwrap();
}

/// The server is away from the first mount, or the connection to it.
fn go_away(world: &mut World) {
    world.clients[0].replies.clear();
    world.clients[0].reading.clear();
    let machine = &mut world.clients[0].machine;
    machine.hold(true);
    machine.assume();
    (world.alone, world.server.unwatched) = (true, true);
}

/// The first mount's daemon begins anew, without the server.
fn die(world: &mut World, loses_power: bool) {
    world.disk_after_death(loses_power);
    let (kept, now) = (world.kept.clone().unwrap(), world.now());
    let settings = *world.clients[0].machine.settings_mut();
    let capacity = world.slots;
    let client = &mut world.clients[0];
    client.machine = Machine::restore(&kept, settings, now).expect("what was kept makes a machine");
    client.kernel = Default::default();
    client.machine.keep_blocks(capacity);
    client.machine.follow();
    world.is_behind = false;
    world.kept = Some(BTreeMap::new());
    world.keep(0);
    go_away(world);
    world.check(0);
}

/// What files may contain: after a death, any that they had since the journal was last seen to be up to date.
#[derive(Default)]
struct Seen {
    may: [Vec<Vec<u8>>; 3],
    since: [Vec<Vec<u8>>; 3],
    /// What was written here since the server went, and where others have been.
    is_ours: [bool; 3],
    is_theirs: [bool; 3],
    /// So much was read while the server was away, and could not be.
    read: u64,
    failed: u64,
}

impl Seen {
    fn change(&mut self, file: usize, change: impl Fn(&mut Vec<u8>)) {
        self.may[file].iter_mut().for_each(change);
        let now = self.may[file].clone();
        self.since[file].extend(now);
    }

    fn kept(&mut self) {
        self.since = self.may.clone();
    }

    fn dies(&mut self) {
        for (may, since) in self.may.iter_mut().zip(&self.since) {
            *may = since.clone();
            may.sort();
            may.dedup();
        }
    }

    fn shows(&mut self, file: usize, (offset, len): (usize, usize), data: &[u8], when: &str) {
        let part = |all: &Vec<u8>| all[offset.min(all.len())..(offset + len).min(all.len())].to_vec();
        let before = self.may[file].clone();
        self.may[file].retain(|all| part(all) == data);
        assert!(!self.may[file].is_empty(), "{when}: {data:?} is none of {before:?} at {offset}");
    }
}

fn put(all: &mut Vec<u8>, offset: usize, len: usize, byte: u8) {
    all.resize(all.len().max(offset + len), 0);
    all[offset..offset + len].fill(byte);
}

/// Everything of the first mount is where it belongs: in its journal, and where the server is there, with that.
fn settle(world: &mut World, seen: &mut Seen) {
    if !world.alone {
        world.drain();
    }
    world.is_behind = false;
    world.keep(0);
    seen.kept();
}

fn their_change(world: &mut World, seen: &mut Seen, file: usize, change: impl Fn(&mut Vec<u8>)) {
    let ino = world.server.fs.look(ROOT, FILES[file].as_bytes()).unwrap().unwrap();
    world.ms += 1;
    let mtime = i64::try_from(world.ms).unwrap() + 1_000_000;
    let inode = world.server.fs.get_mut(ino).unwrap();
    change(&mut inode.data);
    inode.mtime = mtime;
    seen.is_theirs[file] = true;
}

fn come_back(world: &mut World, seen: &mut Seen) {
    let now = world.now();
    world.clients[1].machine.caps_lost(now);
    world.is_behind = false;
    world.server.unwatched = true;
    let before = seen.may.clone();
    world.come_back(false, false);
    world.drain();
    world.keep(0);
    for (file, name) in FILES.iter().enumerate() {
        let ino = world.server.fs.look(ROOT, name.as_bytes()).unwrap().expect("nobody has removed it");
        let there = world.server.fs.get(ino).unwrap().data.clone();
        if seen.is_theirs[file] {
            // What was written here is beside it.
            seen.may[file] = vec![there];
        } else {
            seen.shows(file, (0, 1000), &there, "at the server");
        }
    }
    let names: Vec<Vec<u8>> = world.server.fs.inodes[&ROOT].entries.keys().cloned().collect();
    for name in names.iter().filter(|name| name.contains(&b'-')) {
        let file = FILES.iter().position(|of| of.as_bytes()[0] == name[0]).unwrap();
        let ino = world.server.fs.look(ROOT, name).unwrap().unwrap();
        let ours = world.server.fs.get(ino).unwrap().data.clone();
        assert!(seen.is_theirs[file] && seen.is_ours[file], "{name:?} is nobody's: {ours:?}");
        let told = world.clients[0].machine.conflicts().iter();
        let told = told.filter(|told| told.kept_as.as_ref().is_some_and(|of| of.as_bytes() == &name[..]));
        let told: Vec<_> = told.map(|told| told.what.as_str()).collect();
        let is_it = |what: &&str| before[file].iter().any(|all| ours == lacking(all, what));
        assert!(told.iter().any(is_it), "{ours:?} is none of {:?} by {told:?}", before[file]);
        world.run(1, |m, t, now| m.unlink(t, NodeId::ROOT, name, now)).unwrap();
    }
    (seen.is_ours, seen.is_theirs) = Default::default();
    seen.kept();
}

/// What a file that is set apart is to contain, by what is told to be lost of it.
fn lacking(all: &[u8], what: &str) -> Vec<u8> {
    let mut all = all.to_vec();
    let places = what.split_once("zeros: ").map_or("", |(_, places)| places);
    for place in places.split(", ").filter(|place| !place.is_empty()) {
        let (from, to) = place.split_once('-').unwrap();
        if let Some(lost) = all.get_mut(from.parse().unwrap()..=to.parse().unwrap()) {
            lost.fill(0);
        }
    }
    all
}

/// One step, while the server is there or not.
#[expect(clippy::too_many_lines, reason = "a flat match")]
fn step_by(world: &mut World, seen: &mut Seen, step: &Step) {
    let is_away = world.alone;
    world.ms += 3;
    match *step {
        Step::Read { file, offset, len } => match read(world, 0, FILES[file], (offset.into(), len.into())) {
            Ok(data) => {
                seen.read += u64::from(is_away);
                seen.shows(file, (offset.into(), len.into()), &data, "by the mount");
            }
            Err(errno) => {
                assert_eq!((errno, is_away), (Errno::ETIMEDOUT, true));
                seen.failed += 1;
            }
        },
        Step::Write { file, offset, len, byte } => {
            let data = vec![byte; len.into()];
            match write(world, 0, FILES[file], offset.into(), &data) {
                Ok(()) => {
                    seen.change(file, |all| put(all, offset.into(), len.into(), byte));
                    seen.is_ours[file] = true;
                }
                Err(errno) => assert_eq!((errno, is_away), (Errno::ETIMEDOUT, true)),
            }
        }
        Step::Truncate { file, size } => match truncate(world, 0, FILES[file], size.into()) {
            Ok(()) => {
                seen.change(file, |all| all.resize(size.into(), 0));
                seen.is_ours[file] = true;
            }
            Err(errno) => assert_eq!((errno, is_away), (Errno::ETIMEDOUT, true)),
        },
        Step::TheirWrite { file, offset, len, byte } if is_away => {
            their_change(world, seen, file, |all| put(all, offset.into(), len.into(), byte));
        }
        Step::TheirTruncate { file, size } if is_away => {
            their_change(world, seen, file, |all| all.resize(size.into(), 0));
        }
        Step::TheirWrite { file, offset, len, byte } if !is_away => {
            write(world, 1, FILES[file], offset.into(), &vec![byte; len.into()]).unwrap();
            seen.change(file, |all| put(all, offset.into(), len.into(), byte));
        }
        Step::TheirTruncate { file, size } if !is_away => {
            truncate(world, 1, FILES[file], size.into()).unwrap();
            seen.change(file, |all| all.resize(size.into(), 0));
        }
        Step::TheirRead { file } if !is_away => {
            let data = read(world, 1, FILES[file], (0, 200)).unwrap();
            seen.shows(file, (0, 200), &data, "by the other mount");
        }
        Step::Sync | Step::Keep => settle(world, seen),
        Step::Pump if is_away => world.write_blocks(false),
        Step::Pump => world.pump(0),
        Step::Away if !is_away => {
            settle(world, seen);
            (seen.is_ours, seen.is_theirs) = Default::default();
            go_away(world);
        }
        Step::Back if is_away => come_back(world, seen),
        Step::Die { loses_power } => {
            if !is_away {
                settle(world, seen);
                (seen.is_ours, seen.is_theirs) = Default::default();
            }
            die(world, loses_power);
            seen.dies();
        }
        Step::Disk { fails, is_slow, is_behind } => {
            let store = world.store.as_mut().unwrap();
            (store.fails, store.is_slow) = (fails, is_slow);
            // What goes out has to be in the journal before: it may be behind while nothing does.
            world.is_behind = is_behind && is_away;
        }
        _ => {}
    }
}

fn shows_what_there_is(steps: &[Step], seed: u64, slots: u32) -> (u64, u64) {
    let mut world = keeping(seed, slots);
    world.slots = slots;
    let mut seen = Seen::default();
    for (file, name) in FILES.iter().enumerate() {
        let data: Vec<u8> = (0..90 - 20 * file).map(|at| (at + 100 * file) as u8 | 1).collect();
        make(&mut world, 1, name, &data);
        seen.may[file] = vec![data];
    }
    world.drain();
    world.keep(0);
    seen.kept();
    for step in steps {
        step_by(&mut world, &mut seen, step);
    }
    if world.alone {
        come_back(&mut world, &mut seen);
    }
    for (file, name) in FILES.iter().enumerate() {
        let data = read(&mut world, 0, name, (0, 200)).unwrap();
        seen.shows(file, (0, 200), &data, "in the end");
    }
    (seen.read, seen.failed)
}

proptest! {
    #![proptest_config(config(400))]

    #[test]
    fn whatever_is_shown_of_a_file_is_what_it_has(
        steps in prop::collection::vec(step(), 1..60), seed in any::<u64>(), slots in 1..30_u32
    ) {
        shows_what_there_is(&steps, seed, slots);
    }
}
