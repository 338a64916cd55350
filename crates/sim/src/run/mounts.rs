//! A seed of Holdfast mounts: who takes part, what goes wrong, and what is looked at in the end.

use std::collections::BTreeMap;
use std::rc::Rc;

use holdfast_cache::NodeId;
use holdfast_vfs::{
    AttrMask, Backend, Caller, Cx, DirListing, File, FileKind, Flow, FsResult, Handle, Name, Wait,
};

use super::{Options, Outcome, PATIENCE_MS, UNREST_MS, outcome, people, tell_held};
use crate::client::app::HOSTS_MAX;
use crate::client::v4::{Client4, Kind};
use crate::life::LEASE_MS;
use crate::mount::Mount;
use crate::mount::app::{Application, BASE, Pace};
use crate::oracle::mounts::model::{BLOCK, Look, OnDisk};
use crate::rng::Rng;
use crate::world::World;

/// What is as each world has it.
struct Plan {
    mounts: usize,
    /// Clients of NFS beside them.
    others: usize,
    /// All is put on the disk in the end, or not: then power fails, and all die with what they have.
    pace: Pace,
    /// Somebody may be cut off for longer than its lease.
    is_harsh: bool,
}

impl Plan {
    fn of(rng: &mut Rng) -> Self {
        Self {
            mounts: rng.between(2, 3) as usize,
            others: if rng.percent(40) { rng.between(1, 2) as usize } else { 0 },
            pace: Pace {
                steps: rng.between(10, 50),
                pace_ms: rng.pick(&[30, 300, 1_500]),
                is_peaceful: rng.percent(50),
                is_synced: rng.percent(60),
            },
            is_harsh: rng.percent(20),
        }
    }
}

/// Runs the world of a seed in which there are mounts.
///
/// # Errors
/// When this machine has no place for the journal's file.
pub fn run_mounts(seed: u64, options: Options) -> std::io::Result<Outcome> {
    let mut rng = Rng::new(seed ^ 0x6d6f_756e_7473);
    let plan = Plan::of(&mut rng);
    let hosts = plan.mounts + plan.others;
    debug_assert!(hosts <= HOSTS_MAX);
    let world = World::new(seed, hosts, options.plant, options.is_told)?;
    super::furnish(&world, hosts);
    if let Err(error) = world.machine.furnish(BASE, true) {
        world.oracles.violated(format!("the world cannot be furnished: {error:?}"));
    }
    super::plant_in_disk(&world, options.plant);
    // By numbers of its own, so that what else happens in a world is what it was.
    let mut leases = Rng::new(seed ^ 0x6c65_6173_6573);
    if leases.percent(25) {
        world.machine.disk.be_short_of_leases(leases.pick(&[1, 3, 10]));
    }
    world.start_server(world.next_death(), world.next_down_ms());
    for host in 0..plan.mounts {
        mount(&world, host, &plan, &mut rng);
    }
    people(&world, plan.mounts..hosts, &mut rng);
    gremlin(&world, hosts, plan.is_harsh, rng.fork());
    let watched = Rc::clone(&world);
    world.exec.run(PATIENCE_MS + UNREST_MS, move || {
        !watched.oracles.is_content() || watched.oracles.progress(|progress| progress.is_over())
    });
    finish(&world, &plan);
    Ok(outcome(seed, &world))
}

fn mount(world: &Rc<World>, host: usize, plan: &Plan, rng: &mut Rng) {
    let kind = Kind { minor: 1 + rng.below(2) as u32, answers_callbacks: true };
    let client = Client4::new(world, host, kind, 1, rng.fork());
    let mount = Mount::new(&client, rng.fork());
    world.exec.spawn(client.keep_alive_for(LEASE_MS / 5));
    let applications: Vec<_> =
        (0..rng.between(1, 2)).map(|number| Application::new(&mount, number, rng.fork())).collect();
    applications.iter().for_each(Application::expect);
    let pace = plan.pace;
    let world = Rc::clone(world);
    let exec = Rc::clone(&world.exec);
    exec.spawn(async move {
        let base = async {
            Rc::clone(&mount).start().await?;
            mount.run(|m, turn, now| m.lookup(turn, NodeId::ROOT, BASE.as_bytes(), now)).await
        };
        let Ok(holdfast_cache::Lookup::Found(base)) = base.await else {
            return world.oracles.violated(format!("{} does not begin", mount.name()));
        };
        world.oracles.mounts(|mounts| mounts.begins(host, base.node));
        for application in applications {
            world.exec.spawn(application.run(base.node, pace));
        }
    });
}

/// What goes wrong besides the server's deaths.
fn gremlin(world: &Rc<World>, hosts: usize, is_harsh: bool, mut rng: Rng) {
    let world = Rc::clone(world);
    let until = if rng.percent(15) { 0 } else { rng.between(10_000, UNREST_MS) };
    let exec = Rc::clone(&world.exec);
    exec.spawn(async move {
        while world.now() < until {
            world.exec.sleep(rng.between(200, 6_000)).await;
            let longest = if is_harsh { 30_000 } else { 2_500 };
            match rng.below(20) {
                0..8 => world.cut(rng.number()),
                8..12 => {
                    let host = rng.below(hosts as u64) as usize;
                    world.partition(host, rng.between(100, longest));
                }
                12..15 => world.freeze(rng.between(10, longest)),
                15..18 => world.replace_server(rng.between(20, 400)),
                _ => {
                    let days = rng.between(0, 20) as i64 - 10;
                    world.tell(|| format!("calendar: jumps by {days} hours"));
                    world.machine.jump_wall(days * 3_600_000);
                }
            }
        }
        world.calm_down();
    });
}

/// Looks at what was done, and at what is left when power has failed at the very end.
fn finish(world: &Rc<World>, plan: &Plan) {
    let stuck = world.oracles.progress(|progress| progress.stuck());
    if world.oracles.is_content() {
        stuck.iter().for_each(|who| world.oracles.violated(format!("did not end: {who}")));
    }
    if !stuck.is_empty() {
        tell_held(world);
        world.living_mounts().iter().for_each(|mount| mount.tell_all());
    }
    hear_at_last(world);
    let trees = match world.oracles.mounts(|mounts| mounts.explain()) {
        Ok(trees) => trees,
        Err(why) => return world.oracles.violated(format!("coherence: {why}")),
    };
    let Some(trees) = trees.filter(|_| world.oracles.is_content()) else { return };
    for mount in world.living_mounts() {
        for failure in mount.failures() {
            world.oracles.violated(format!("{}: what was done has failed: {failure}", mount.name()));
        }
    }
    world.end_server();
    let found = match found(world) {
        Ok(found) => found,
        Err(error) => return world.oracles.violated(format!("what is left cannot be looked at: {error:?}")),
    };
    let is_there = |expected: &OnDisk| {
        if plan.pace.is_synced {
            *expected == found
        } else {
            expected.iter().all(|(path, of)| found.get(path) == Some(of))
        }
    };
    let expected: Vec<_> = trees.iter().map(|tree| tree.on_disk(plan.pace.is_synced)).collect();
    if !expected.iter().any(is_there) {
        let what = format!("durability: on the disk is {found:#?}, to be there was {:#?}", expected.first());
        world.oracles.violated(what);
    }
}

/// Mounts that do not know whether what they were promised goes on hear of it: who judges is to know, too.
fn hear_at_last(world: &Rc<World>) {
    let mounts = world.living_mounts();
    for mount in mounts.iter().filter(|mount| mount.is_in_doubt()) {
        world.exec.spawn(Rc::clone(mount).hears_at_last());
    }
    if world.oracles.is_content() {
        let asked = mounts.clone();
        world.exec.run(world.now() + LEASE_MS, move || !asked.iter().any(|mount| mount.is_in_doubt()));
    }
    mounts.iter().for_each(|mount| mount.ends());
}

/// All that is in the directory that mounts use, as it is on the disk.
fn found(world: &World) -> FsResult<OnDisk> {
    let (files, caller) = (world.machine.disk.files(), Caller::root());
    let cx = Cx::new(&caller, Wait::Yes);
    let base = files.lookup(&cx, &files.root()?, Name::new(BASE.as_bytes())?, AttrMask::NONE)?.handle;
    let mut found = OnDisk::new();
    walk(&files, &cx, &base, "", &mut found)?;
    Ok(found)
}

fn walk(files: &dyn Backend, cx: &Cx<'_>, dir: &Handle, above: &str, found: &mut OnDisk) -> FsResult<()> {
    let mut names = Vec::new();
    let listing = DirListing { dir, from: crate::disk::START, want: None };
    files.readdir(cx, listing, &mut |entry| {
        names.push(entry.name.to_vec());
        Flow::Continue
    })?;
    for name in names {
        let node = files.lookup(cx, dir, Name::new(&name)?, AttrMask::STAT)?;
        let attrs = files.getattr(cx, &node.handle, AttrMask::STAT)?;
        let path = format!("{above}/{}", String::from_utf8_lossy(&name));
        let is_dir = attrs.kind == FileKind::Directory;
        let (nlink, size) = if is_dir { (0, 0) } else { (attrs.nlink, attrs.size) };
        let blocks = if is_dir { BTreeMap::new() } else { blocks(files, cx, &node.handle, size)? };
        found.insert(path.clone(), (Look { is_dir, mode: attrs.mode & 0o7777, nlink, size }, blocks));
        if is_dir {
            walk(files, cx, &node.handle, &path, found)?;
        }
    }
    Ok(())
}

fn blocks(files: &dyn Backend, cx: &Cx<'_>, file: &Handle, size: u64) -> FsResult<BTreeMap<u64, u64>> {
    let mut blocks = BTreeMap::new();
    for block in 0..size.div_ceil(BLOCK) {
        let mut bytes = [0; 8];
        files.read(cx, File::Stateless(file), block * BLOCK, &mut bytes)?;
        let mark = u64::from_be_bytes(bytes);
        if mark != 0 {
            blocks.insert(block, mark);
        }
    }
    Ok(blocks)
}
