//! Who waits for a lock is told of it under the file's handle: however soon the lock is free, however many others wait or
//! waited, and no longer than somebody waits.

use std::sync::Arc;

use holdfast_base::limits::{LOCK_WAIT_FRESH_MS, LOCK_WAITED_FILES_MAX, LOCK_WAITERS_PER_CLIENT_MAX};
use holdfast_export::LocalUse;
use holdfast_manager::{Agent, NotKept};
use holdfast_state::Effect;
use holdfast_vfs::LockKind;
use holdfast_wire::nfs4::*;
use parking_lot::Mutex;

use crate::client::{Session, open_create};
use crate::lock::{bytes, file, lock, locku, open_wanting, run};
use crate::scene::on;
use crate::world::{LEASE_MS, Making, World};

/// What happens once a step has left an effect, before whoever made the step goes on.
struct Meanwhile {
    is_it: fn(&Effect) -> bool,
    act: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Agent for Meanwhile {
    fn run(&self, effect: &Effect) -> Result<(), NotKept> {
        if (self.is_it)(effect) {
            let act = self.act.lock().take();
            act.into_iter().for_each(|act| act());
        }
        Ok(())
    }
}

fn meanwhile(
    world: &World,
    is_it: fn(&Effect) -> bool,
    act: impl FnOnce() + Send + 'static,
) -> Arc<Meanwhile> {
    let agent = Arc::new(Meanwhile { is_it, act: Mutex::new(Some(Box::new(act))) });
    let weak = Arc::downgrade(&agent);
    world.manager.register(weak);
    agent
}

fn open(client: &mut Session) -> Stateid4 {
    open_wanting(client, OPEN4_SHARE_ACCESS_WANT_NO_DELEG)
}

fn is_told(client: &mut Session, owner: &[u8], fh: &[u8]) {
    let call = client.peer.call();
    let CbArgOp::NotifyLock(told) = call.op() else { panic!("{call:?}") };
    assert_eq!((told.lock_owner.owner, told.fh), (owner, fh));
}

#[test]
fn who_waits_is_called_when_the_lock_is_free_before_the_reply_says_that_it_is_not() {
    let world = World::new();
    let [mut gone, mut holder] = [1, 3].map(|host| Session::open(&world, host, 2));
    let mut waiter = Session::with_back(&world, 2, 2);
    let [of_gone, of_holder, of_waiter] = [&mut gone, &mut holder, &mut waiter].map(open);
    run(&mut gone, lock(of_gone, b"g", LockType4::Write, 0, 5)).ok::<Lock4Ok>(OpNum4::Lock);
    let held: Lock4Ok = run(&mut holder, lock(of_holder, b"h", LockType4::Write, 5, 5)).ok(OpNum4::Lock);
    world.pass(LEASE_MS / 2);
    let fh = waiter.handle(&[b"f"]);
    holder.run(&[]);
    world.pass(LEASE_MS / 2 + 1);
    // The one is away for good; the other unlocks while the first one's locks are let go of.
    let is_gone = |effect: &Effect| matches!(effect, Effect::ReleaseLocks(_));
    let unlock = move || {
        run(&mut holder, locku(held.lock_stateid, 5, 5)).ok::<Locku4Ok>(OpNum4::Locku);
    };
    let happens = meanwhile(&world, is_gone, unlock);
    let asked = lock(of_waiter, b"w", LockType4::WriteWait, 0, 10);
    run(&mut waiter, asked.clone()).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
    assert!(happens.act.lock().is_none());
    is_told(&mut waiter, b"w", &fh);
    run(&mut waiter, asked).ok::<Lock4Ok>(OpNum4::Lock);
    world.check();
}

#[test]
fn who_waits_for_a_local_process_is_called_when_it_lets_go_before_the_reply() {
    let world = World::new();
    let mut waiter = Session::with_back(&world, 2, 2);
    let of = open(&mut waiter);
    let (fh, key) = (waiter.handle(&[b"f"]), file(&world).key());
    world.fs.lock_outside(&file(&world), bytes(5, 9), LockKind::Write).unwrap();
    let manager = Arc::clone(&world.manager);
    let is_back = |effect: &Effect| matches!(effect, Effect::ReleaseLocks(_));
    let let_go = move || manager.step(|engine, now| engine.freed_outside(key, bytes(5, 9), now)).unwrap();
    let happens = meanwhile(&world, is_back, let_go);
    let asked = lock(of, b"w", LockType4::WriteWait, 0, 10);
    run(&mut waiter, asked).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
    assert!(happens.act.lock().is_none());
    is_told(&mut waiter, b"w", &fh);
    world.check();
}

/// Where to open the file for its locks may mean to wait, a request is run twice, and must keep its place in line.
#[test]
fn who_is_let_in_is_so_however_often_its_request_is_run() {
    let world = World::new();
    let mut holder = Session::open(&world, 1, 2);
    let [mut first, mut second] = [2, 3].map(|host| Session::with_back(&world, host, 2));
    let of = open(&mut holder);
    let [of_first, of_second] = [&mut first, &mut second].map(open);
    let held: Lock4Ok = run(&mut holder, lock(of, b"h", LockType4::Write, 0, 5)).ok(OpNum4::Lock);
    let fh = first.handle(&[b"f"]);
    let asked = lock(of_first, b"1", LockType4::WriteWait, 0, 5);
    run(&mut first, asked.clone()).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
    let behind = lock(of_second, b"2", LockType4::WriteWait, 0, 5);
    run(&mut second, behind).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
    run(&mut holder, locku(held.lock_stateid, 0, 5)).ok::<Locku4Ok>(OpNum4::Locku);
    is_told(&mut first, b"1", &fh);
    // By its handle, for a LOOKUP would have the rest run where it may wait.
    world.fs.block_every(1);
    let mut reply = first.run(&[ArgOp::PutFh(PutFh4Args { object: &fh }), asked]);
    reply.ok::<()>(OpNum4::PutFh);
    reply.ok::<Lock4Ok>(OpNum4::Lock);
    world.fs.block_every(0);
    assert!(second.peer.calls().is_empty(), "it is not its turn");
    world.check();
}

/// Each would be told of the lock when the other is refused it, and ask, and be refused it.
#[test]
fn two_that_wait_for_a_local_process_do_not_call_on_each_other() {
    let world = World::new();
    let [mut first, mut second] = [2, 3].map(|host| Session::with_back(&world, host, 2));
    let [of_first, of_second] = [&mut first, &mut second].map(open);
    let fh = first.handle(&[b"f"]);
    world.fs.lock_outside(&file(&world), bytes(5, 9), LockKind::Write).unwrap();
    let asked = [
        lock(of_first, b"1", LockType4::WriteWait, 0, 10),
        lock(of_second, b"2", LockType4::WriteWait, 0, 20),
    ];
    for _ in 0..3 {
        for (client, asked) in [&mut first, &mut second].into_iter().zip(&asked) {
            run(client, asked.clone()).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
        }
        assert!(first.peer.calls().is_empty() && second.peer.calls().is_empty());
    }
    // Whom the process is not in the way of is let in all the same.
    let mut other = Session::with_back(&world, 4, 2);
    let of_other = open(&mut other);
    let held: Lock4Ok = run(&mut other, lock(of_other, b"o", LockType4::Write, 30, 5)).ok(OpNum4::Lock);
    run(&mut second, lock(of_second, b"3", LockType4::WriteWait, 30, 5))
        .fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
    run(&mut other, locku(held.lock_stateid, 30, 5)).ok::<Locku4Ok>(OpNum4::Locku);
    is_told(&mut second, b"3", &fh);
    world.fs.unlock_outside(&file(&world));
    is_told(&mut first, b"1", &fh);
    let [first_asks, second_asks] = asked;
    let held: Lock4Ok = run(&mut first, first_asks).ok(OpNum4::Lock);
    assert!(second.peer.calls().is_empty());
    run(&mut first, locku(held.lock_stateid, 0, 10)).ok::<Locku4Ok>(OpNum4::Locku);
    is_told(&mut second, b"2", &fh);
    run(&mut second, second_asks).ok::<Lock4Ok>(OpNum4::Lock);
    world.check();
}

#[test]
fn a_handle_is_forgotten_when_nobody_waits_any_more() {
    let world = World::new();
    let (mut holder, mut waiter) = (Session::open(&world, 1, 2), Session::with_back(&world, 2, 2));
    let (of_holder, of_waiter) = (open(&mut holder), open(&mut waiter));
    let held: Lock4Ok = run(&mut holder, lock(of_holder, b"h", LockType4::Write, 0, 5)).ok(OpNum4::Lock);
    let asked = lock(of_waiter, b"w", LockType4::WriteWait, 0, 5);
    run(&mut waiter, asked.clone()).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
    world.pass(1);
    assert_eq!(world.nfs.held_files().named.len(), 1);
    run(&mut holder, locku(held.lock_stateid, 0, 5)).ok::<Locku4Ok>(OpNum4::Locku);
    run(&mut waiter, asked).ok::<Lock4Ok>(OpNum4::Lock);
    world.pass(1);
    assert!(world.nfs.held_files().named.is_empty());
    world.check();
}

/// Has one client wait for what another has of this file.
fn wait_for(holder: &mut Session, waiter: &mut Session, name: &str) {
    let wanted = OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG;
    let open = ArgOp::Open(open_create(name.as_bytes(), b"o", wanted));
    let held = lock(Stateid4::CURRENT, name.as_bytes(), LockType4::Write, 0, 1);
    let mut reply = on(holder, &[], &[open.clone(), held]);
    reply.ok::<Open4Ok<'_>>(OpNum4::Open);
    reply.ok::<Lock4Ok>(OpNum4::Lock);
    let asked = lock(Stateid4::CURRENT, name.as_bytes(), LockType4::WriteWait, 0, 1);
    let mut reply = on(waiter, &[], &[open, asked]);
    reply.ok::<Open4Ok<'_>>(OpNum4::Open);
    reply.fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
}

#[test]
fn who_waits_is_called_however_many_others_were_waited_for_meanwhile() {
    let mut making = Making::default();
    making.options.local = LocalUse::None;
    let world = World::made(making);
    let (mut holder, mut waiter) = (Session::open(&world, 1, 2), Session::with_back(&world, 2, 2));
    let (of_holder, of_waiter) = (open(&mut holder), open(&mut waiter));
    let held: Lock4Ok = run(&mut holder, lock(of_holder, b"h", LockType4::Write, 0, 5)).ok(OpNum4::Lock);
    let fh = waiter.handle(&[b"f"]);
    let asked = lock(of_waiter, b"w", LockType4::WriteWait, 0, 5);
    for n in 0..=LOCK_WAITED_FILES_MAX {
        if n % (LOCK_WAITERS_PER_CLIENT_MAX - 1) == 0 {
            // The others have given up, as far as anybody can tell.
            world.pass(LOCK_WAIT_FRESH_MS / 2);
            run(&mut waiter, asked.clone()).fails::<Lock4Denied<'_>>(OpNum4::Lock, NfsStat4::Denied);
            holder.run(&[]);
            world.pass(LOCK_WAIT_FRESH_MS / 2 + 1);
        }
        wait_for(&mut holder, &mut waiter, &format!("file {n}"));
    }
    let waited = world.nfs.inspect(holdfast_state::Engine::census).waiters;
    assert!(waited < LOCK_WAITED_FILES_MAX / 2, "{waited}");
    run(&mut holder, locku(held.lock_stateid, 0, 5)).ok::<Locku4Ok>(OpNum4::Locku);
    is_told(&mut waiter, b"w", &fh);
    world.pass(1);
    assert_eq!(world.nfs.held_files().named.len(), waited, "those alone that somebody waits for");
    world.check();
}
