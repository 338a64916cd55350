//! One seed: who takes part, what goes wrong, and what is looked at in the end.

mod mounts;

use std::collections::BTreeSet;
use std::rc::Rc;

use holdfast_vfs::{AttrMask, Backend, Caller, Cx, DirListing, File, Flow, FsResult, Handle, Name, Wait};

use crate::client::app::{BLOCK, BLOCKS, FILES, HOSTS_MAX, Process, directory_name, file_name};
use crate::client::liar::lie;
use crate::client::v3::Client3;
use crate::client::v4::{Client4, Kind};
use crate::disk::Fault;
use crate::life::Plant;
use crate::oracle::data::Mark;
use crate::rng::Rng;
use crate::world::World;

pub use mounts::run_mounts;

/// How long things may fail, at most, in milliseconds.
const UNREST_MS: u64 = 60_000;

/// How long everybody may take to end once nothing fails any more: many leases and grace periods.
const PATIENCE_MS: u64 = 600_000;

/// How long who is told of changes in a directory may take to hear of the last one: as long as anybody may be cut off, and
/// more.
const HEARING_MS: u64 = 60_000;

/// How a world is run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// A defect in the server.
    pub plant: Option<Plant>,
    /// Lines for people are kept.
    pub is_told: bool,
}

/// What came of a seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Over everything that happened.
    pub digest: u64,
    /// What must not have happened, first first; empty when all is well.
    pub violations: Vec<String>,
    /// The last lines for people.
    pub lines: Vec<String>,
    /// How much happened.
    pub events: u64,
    /// How often the server lived.
    pub lives: u64,
    /// How often one process of it took another's place, as planned.
    pub handovers: u64,
    /// Things that clients did.
    pub steps: u64,
    /// Operations of the disk that failed, but for commits.
    pub disk_faults: u64,
    /// Delegations that clients had back after a restart.
    pub delegations_reclaimed: u64,
    /// Reads that clients served of what they had kept over CLOSE.
    pub reads_kept: u64,
    /// Servers that were dead and not wholly gone: a leak of this simulation, or of the server's end.
    pub left_over: u64,
    /// Operations of mounts' applications, how often one lost its promises, and how many were had back after a restart.
    pub of_mounts: (usize, u64, usize),
    /// How long it took in the world, in milliseconds.
    pub ms: u64,
}

/// Runs the world of a seed.
///
/// # Errors
/// When this machine has no place for the journal's file.
pub fn run(seed: u64, options: Options) -> std::io::Result<Outcome> {
    let mut rng = Rng::new(seed);
    let hosts = rng.between(2, HOSTS_MAX as u64) as usize;
    // One more for a client that lies.
    let world = World::new(seed, hosts + 1, options.plant, options.is_told)?;
    furnish(&world, hosts);
    plant_in_disk(&world, options.plant);
    world.start_server(world.next_death(), world.next_down_ms());
    people(&world, 0..hosts, &mut rng);
    gremlin(&world, hosts, rng.fork());
    if world.is_scarce {
        scarcity(&world, Rng::new(seed ^ 0x6c65_7373));
    }
    if Rng::new(seed ^ 0x6661_756c_7473).percent(30) {
        disk_faults(&world, Rng::new(seed ^ 0x6469_736b));
    }
    if rng.percent(40) {
        world.exec.spawn(lie(Rc::clone(&world), hosts, rng.fork()));
    }
    let watched = Rc::clone(&world);
    world.exec.run(PATIENCE_MS + UNREST_MS, move || {
        !watched.oracles.is_content() || watched.oracles.progress(|progress| progress.is_over())
    });
    if world.oracles.is_content() {
        hear_the_last(&world);
    }
    if world.oracles.is_content() {
        finish(&world, hosts);
    }
    Ok(outcome(seed, &world))
}

/// Defects that are the disk's.
fn plant_in_disk(world: &World, plant: Option<Plant>) {
    match plant {
        Some(Plant::AnswerBeforeCommit) => world.machine.disk.lie_about_commits(),
        Some(Plant::StaleReads) => world.machine.disk.read_stale(),
        Some(Plant::KeepChange) => world.machine.disk.keep_change(),
        _ => {}
    }
}

/// Gives those time who are told of changes in directories, when nothing changes any more; then they must know.
fn hear_the_last(world: &Rc<World>) {
    let kept = |world: &World| {
        let mut kept = Vec::new();
        world.oracles.listings(|listings| {
            kept.extend(listings.kept());
            Ok(())
        });
        world.oracles.grants(|grants| {
            kept.retain(|(grant, _)| grants.is_believed(world.now(), *grant));
            Ok(())
        });
        kept
    };
    if kept(world).is_empty() {
        return;
    }
    let watched = Rc::clone(world);
    world.exec.run(world.now() + HEARING_MS, move || !watched.oracles.is_content());
    for (grant, of) in kept(world) {
        match names_in(world, &directory_name(of)) {
            Ok(found) => world.oracles.listings(|listings| listings.compare(grant, &found)),
            Err(error) => world.oracles.violated(format!("a directory cannot be looked at: {error:?}")),
        }
    }
}

/// The names in a directory of the root, as they are on the disk.
fn names_in(world: &World, name: &str) -> FsResult<BTreeSet<String>> {
    let (files, caller) = (world.machine.disk.files(), Caller::root());
    let cx = Cx::new(&caller, Wait::Yes);
    let dir = files.lookup(&cx, &files.root()?, Name::new(name.as_bytes())?, AttrMask::NONE)?.handle;
    list(&files, &cx, &dir)
}

fn outcome(seed: u64, world: &Rc<World>) -> Outcome {
    let violations = world.oracles.violations();
    violations.iter().for_each(|violation| {
        world.note(crate::world::Noted::Oracle, violation.as_bytes());
        world.tell(|| format!("VIOLATION: {violation}"));
    });
    if !violations.is_empty() {
        tell_held(world);
    }
    let outcome = Outcome {
        seed,
        digest: world.trace.digest(),
        violations,
        lines: world.trace.lines(usize::MAX),
        events: world.trace.events(),
        lives: world.lives(),
        handovers: world.handovers(),
        delegations_reclaimed: delegations_reclaimed(world),
        reads_kept: reads_kept(world),
        steps: world.oracles.progress(|progress| progress.steps()),
        left_over: world.left_over(),
        disk_faults: world.machine.disk.faults_met(),
        of_mounts: world.oracles.mounts(|mounts| mounts.counts()),
        ms: world.now(),
    };
    // Tasks hold the world, and the world holds them.
    world.exec.clear();
    outcome
}

fn delegations_reclaimed(world: &World) -> u64 {
    let mut count = 0;
    world.oracles.reclaims(|reclaims| {
        count = reclaims.delegations();
        Ok(())
    });
    count
}

fn reads_kept(world: &World) -> u64 {
    let mut count = 0;
    world.oracles.data(|data| {
        count = data.reads_kept();
        Ok(())
    });
    count
}

/// What the server, if it still runs, says that its clients hold.
fn tell_held(world: &Rc<World>) {
    let held = world.with_life(|life| {
        life.nfs4.inspect(|engine| {
            let files = engine.report_files().into_iter();
            files.map(|file| format!("{file:?}: {:?}", engine.report_file(file))).collect::<Vec<_>>()
        })
    });
    held.iter().flatten().for_each(|line| world.tell(|| format!("server: holds {line}")));
}

fn furnish(world: &Rc<World>, hosts: usize) {
    let made = (0..FILES)
        .map(|file| world.machine.furnish(&file_name(file), false))
        .chain((0..hosts).map(|host| world.machine.furnish(&directory_name(host), true)));
    for furnished in made {
        if let Err(error) = furnished {
            world.oracles.violated(format!("the world cannot be furnished: {error:?}"));
        }
    }
}

fn people(world: &Rc<World>, hosts: std::ops::Range<usize>, rng: &mut Rng) {
    for host in hosts {
        let steps = rng.between(3, 9);
        match rng.below(10) {
            0..5 => client4(world, host, 1 + rng.below(2) as u32, steps, rng),
            5..7 => client4(world, host, 0, steps, rng),
            _ => {
                let client = Client3::new(world, host, rng.fork());
                world.exec.spawn(client.run(steps));
            }
        }
    }
}

fn client4(world: &Rc<World>, host: usize, minor: u32, steps: u64, rng: &mut Rng) {
    let kind = Kind { minor, answers_callbacks: rng.percent(80) };
    let client = start4(world, (host, 1), kind, steps, rng);
    if !rng.percent(15) {
        return;
    }
    // It dies in the middle of things, and perhaps starts again.
    let (at, again) = (rng.between(2_000, 30_000), rng.percent(60).then(|| rng.between(500, 30_000)));
    let (world2, mut later) = (Rc::clone(world), rng.fork());
    world.exec.spawn(async move {
        world2.exec.sleep(at).await;
        if world2.oracles.progress(|progress| progress.is_over()) {
            // Nothing more is to happen, while some hear the last of directories that they watch.
            return;
        }
        client.die();
        world2.oracles.progress(|progress| {
            for number in 0..2 {
                progress.done(&format!("{}, process {number}", client.name()));
            }
        });
        if let Some(ms) = again {
            let who = format!("client {host} to be started again");
            world2.oracles.progress(|progress| progress.doing(&who, world2.now(), "waits"));
            world2.exec.sleep(ms).await;
            start4(&world2, (host, 2), kind, steps, &mut later);
            world2.oracles.progress(|progress| progress.done(&who));
        }
    });
}

fn start4(
    world: &Rc<World>,
    (host, starts): (usize, u64),
    kind: Kind,
    steps: u64,
    rng: &mut Rng,
) -> Rc<Client4> {
    let client = Client4::new(world, host, kind, starts, rng.fork());
    world.exec.spawn(Rc::clone(&client).keep_alive());
    for number in 0..rng.between(1, 2) {
        let process = Process::new(&client, number, rng.fork());
        // Counted from now, so that nobody ends before all have begun.
        process.expect();
        world.exec.spawn(process.run(steps));
    }
    client
}

/// What goes wrong besides the server's deaths.
fn gremlin(world: &Rc<World>, hosts: usize, mut rng: Rng) {
    let world = Rc::clone(world);
    let until = if rng.percent(15) { 0 } else { rng.between(10_000, UNREST_MS) };
    let exec = Rc::clone(&world.exec);
    exec.spawn(async move {
        while world.now() < until {
            world.exec.sleep(rng.between(200, 6_000)).await;
            match rng.below(24) {
                20..24 => world.replace_server(rng.between(20, 400)),
                0..9 => world.cut(rng.number()),
                9..12 => {
                    let ms =
                        if rng.percent(70) { rng.between(100, 5_000) } else { rng.between(5_000, 30_000) };
                    world.partition(rng.below(hosts as u64) as usize, ms);
                }
                12..14 => {
                    let days = rng.between(0, 20) as i64 - 10;
                    world.tell(|| format!("calendar: jumps by {days} hours"));
                    world.machine.jump_wall(days * 3_600_000);
                }
                14..16 => world.freeze(if rng.percent(70) {
                    rng.between(10, 3_000)
                } else {
                    rng.between(3_000, 25_000)
                }),
                16..18 => {
                    world.tell(|| "disk: the next commit of data fails".into());
                    world.machine.disk.fail_next_commit();
                }
                _ => {
                    let applies = rng.percent(50);
                    world.tell(|| format!("records: the next transaction fails, applied: {applies}"));
                    world.machine.store.fail_next(applies);
                }
            }
        }
        world.calm_down();
    });
}

/// Memory is short now and then.
fn scarcity(world: &Rc<World>, mut rng: Rng) {
    let world = Rc::clone(world);
    let exec = Rc::clone(&world.exec);
    exec.spawn(async move {
        while !world.is_calm() {
            world.exec.sleep(rng.between(1_000, 15_000)).await;
            let (delegations, slots) = (rng.below(4) as usize, rng.between(1, 8) as usize);
            world.press((delegations, slots), rng.between(1_000, 25_000));
        }
    });
}

/// The disk fails at more than commits, and is full now and then.
fn disk_faults(world: &Rc<World>, mut rng: Rng) {
    let world = Rc::clone(world);
    let exec = Rc::clone(&world.exec);
    exec.spawn(async move {
        loop {
            world.exec.sleep(rng.between(500, 8_000)).await;
            if world.is_calm() {
                return;
            }
            match rng.below(8) {
                0..2 => world.fail_next(Fault::Read),
                2..5 => world.fail_next(Fault::Write { is_done: rng.percent(50) }),
                5..7 => world.fail_next(Fault::Names),
                _ => world.fill_disk(rng.between(500, 15_000)),
            }
        }
    });
}

/// Looks at what is left, as if power had failed at the very end.
fn finish(world: &Rc<World>, hosts: usize) {
    let stuck = world.oracles.progress(|progress| progress.stuck());
    for who in &stuck {
        world.oracles.violated(format!("did not end: {who}"));
    }
    if !stuck.is_empty() {
        tell_held(world);
    }
    world.end_server();
    let files = world.machine.disk.files();
    if let Err(broken) = files.check() {
        return world.oracles.violated(format!("the file system does not hold together: {broken}"));
    }
    let now = world.now();
    let look = || -> FsResult<()> {
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes);
        let root = files.root()?;
        for file in 0..FILES {
            let handle =
                files.lookup(&cx, &root, Name::new(file_name(file).as_bytes())?, AttrMask::NONE)?.handle;
            for block in 0..BLOCKS {
                let mut bytes = [0; 8];
                files.read(&cx, File::Stateless(&handle), block * BLOCK, &mut bytes)?;
                let mark = Mark::from_be_bytes(bytes);
                world.oracles.data(|data| data.read((file, block), mark, (now, now)));
            }
        }
        for host in 0..hosts {
            let found = names_in(world, &directory_name(host))?;
            world.oracles.once(|once| once.found(host, &found));
        }
        Ok(())
    };
    if let Err(error) = look() {
        world.oracles.violated(format!("what is left cannot be looked at: {error:?}"));
    }
}

fn list(files: &dyn Backend, cx: &Cx<'_>, dir: &Handle) -> FsResult<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    let listing = DirListing { dir, from: crate::disk::START, want: None };
    files.readdir(cx, listing, &mut |entry| {
        names.insert(String::from_utf8_lossy(entry.name).into_owned());
        Flow::Continue
    })?;
    Ok(names)
}
