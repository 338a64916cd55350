//! Sequences of NFSv3 and MOUNT calls, mostly well-formed, with handles that earlier replies gave. Every call is
//! answered, and the file systems hold together.

use holdfast_vfs::FsError;
use holdfast_wire::mount3::{MOUNT_PROGRAM, MOUNT_V3};
use holdfast_wire::nfs3::{NFS_V3, NFS3_PROGRAM};

use crate::field::{self, Known, remember};
use crate::input::Input;
use crate::procedures::PROCEDURES;
use crate::world::World;

/// Calls in one input at most.
const CALLS_MAX: usize = 64;

/// Failures of a backend that a server may meet at any time.
const FAILURES: [FsError; 6] =
    [FsError::Io, FsError::NoSpace, FsError::Stale, FsError::Quota, FsError::Delay, FsError::Access];

/// See the module.
///
/// # Panics
/// When something does not hold.
pub fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new();
    let mut known = Known { handles: world.roots(), ..Known::default() };
    for _ in 0..CALLS_MAX {
        if input.is_empty() {
            break;
        }
        step(&mut world, &mut input, &mut known);
    }
    world.end();
}

fn step(world: &mut World, input: &mut Input<'_>, known: &mut Known) {
    let uid = u32::from(input.u8() % 3) * 500;
    match input.u8() {
        0..=199 => {}
        200..=207 => return world.reconnect(),
        208..=215 => return disturb(world, input),
        216..=231 => return mount(world, input),
        _ => return raw(world, input, known, uid),
    }
    let procedure = input.below(PROCEDURES.len());
    let mut args = Vec::new();
    field::write_all(PROCEDURES[procedure], input, known, &mut args);
    let Some(results) = world.call(NFS3_PROGRAM, NFS_V3, procedure as u32, uid, &args) else { return };
    learn(world, &results, known);
    world.check();
}

/// Notes handles; and of a listing the verifier and a cookie, wherever they may stand.
fn learn(world: &World, results: &[u8], known: &mut Known) {
    for handle in world.handles_in(results) {
        remember(&mut known.handles, handle.to_vec());
    }
    if let Some(verifier) = results.get(92..100).and_then(|v| v.try_into().ok()) {
        remember(&mut known.verifiers, verifier);
    }
    for tail in [results.len().wrapping_sub(16), results.len().wrapping_sub(32)] {
        if let Some(cookie) = results.get(tail..tail.wrapping_add(8)).and_then(|v| v.try_into().ok()) {
            remember(&mut known.cookies, cookie);
        }
    }
}

/// Arguments that may be anything.
fn raw(world: &mut World, input: &mut Input<'_>, known: &Known, uid: u32) {
    let procedure = u32::from(input.u8() % 24);
    let mut args = Vec::new();
    if let Some(handle) = input.pick(&known.handles) {
        args.extend((handle.len() as u32).to_be_bytes());
        args.extend(handle);
    }
    let n = input.below(200);
    args.extend(input.bytes(n));
    world.call(NFS3_PROGRAM, NFS_V3, procedure, uid, &args);
    world.check();
}

fn mount(world: &mut World, input: &mut Input<'_>) {
    let procedure = u32::from(input.u8() % 7);
    let paths: [&[u8]; 6] = [b"/s", b"/a", b"/", b"/s/a/b", b"", b"/../s//"];
    let path = input.pick(&paths).copied().unwrap_or(b"/");
    let mut args = (path.len() as u32).to_be_bytes().to_vec();
    args.extend(path);
    args.resize(args.len().next_multiple_of(4), 0);
    world.call(MOUNT_PROGRAM, MOUNT_V3, procedure, 0, &args);
}

/// Lets the backend misbehave as a real one may.
pub(crate) fn disturb(world: &World, input: &mut Input<'_>) {
    let files = &world.files()[input.below(2)];
    match input.u8() % 6 {
        0 => files.block_every(u64::from(input.u8() % 4)),
        1 => files.fail_next_call(FAILURES[input.below(FAILURES.len())]),
        2 => files.fail_next_commit(FAILURES[input.below(FAILURES.len())]),
        3 => files.give_spans(input.u8() % 2 == 1),
        4 => files.set_read_only(input.u8() % 4 == 1),
        _ => world.clock.advance(std::time::Duration::from_secs(u64::from(input.u8()))),
    }
}
