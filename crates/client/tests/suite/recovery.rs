//! What breaks, and how the client gets over it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_base::{ByteRange, SessionId};
use holdfast_client::{
    Attributes, Cancel, Create, CreateKind, CreateMode, Cred, Cx, Error, Event, Hook, Hooked, Io, LockArgs,
    OpenArgs, OpenTarget, Options, SessionEvent, SessionHandle, SetAttributes, WantDelegation, Whose,
};
use holdfast_rpc::link::{EncodedAuth, Link, LinkOptions, Peer, PeerCall, Target};
use holdfast_rpc::{Auth, AuthSys, CallError};
use holdfast_wire::nfs4::{ArgOp, DestroySession4Args, NfsStat4, StableHow4, encode_compound};
use holdfast_wire::rpc::AcceptStat;
use holdfast_xdr::Writer;

use super::relay::Relay;
use super::world::{PATIENCE, User, World};

const WHOLE: ByteRange = ByteRange::ALL;

fn lock(owner: &[u8]) -> LockArgs<'_> {
    LockArgs { owner, range: WHOLE, exclusive: true }
}

#[test]
fn opens_and_locks_outlive_a_killed_server() {
    let mut world = World::new();
    let (user, other) = (world.client(), world.client());
    let (client, cx) = (&user.client, user.cx());
    let file = user.make("file");
    client.lock(cx, &file, &lock(b"me")).unwrap();
    let data = Bytes::from_static(b"before");
    client.write(cx, Io::open(&file), 0, data, StableHow4::FileSync).unwrap();
    for round in 0..2 {
        world.server.kill().unwrap();
        world.server.restart().unwrap();
        let io = Io { file: file.handle(), open: Some(&file), owner: Whose::Of(b"me") };
        let text = format!("after {round}");
        client.write(cx, io, 0, Bytes::from(text.clone()), StableHow4::FileSync).unwrap();
        assert_eq!(client.read(cx, io, 0, 7).unwrap().data, text.as_bytes());
        // The lock is still ours.
        let theirs = other.make("file");
        let refused = other.client.lock(other.cx(), &theirs, &lock(b"them")).unwrap_err();
        assert_eq!(refused.status(), Some(NfsStat4::Denied));
        other.client.close(other.cx(), &theirs).unwrap();
    }
    let said = user.heard.state.lock().clone();
    assert!(said.lost.is_empty() && said.gone.is_empty(), "{said:?}");
    client.unlock(cx.cancel, file.handle(), b"me", WHOLE).unwrap();
    client.close(cx, &file).unwrap();
}

#[test]
fn writers_notice_nothing_of_cut_connections_and_a_server_killed_under_them() {
    let mut world = World::new();
    let relay = Relay::to(&world.address());
    let options = Options { connections: 2, ..Options::new(vec![relay.address.to_string()]) };
    let user = Arc::new(User::connect(options));
    let is_over = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let (user, is_over) = (Arc::clone(&user), Arc::clone(&is_over));
            std::thread::spawn(move || {
                let mut made = 0;
                while !is_over.load(Ordering::SeqCst) {
                    let name = format!("file {n} {made}");
                    let file = user.open(&name, Some(CreateMode::Guarded), WantDelegation::No).file;
                    let text = Bytes::from(name.clone());
                    user.client.write(user.cx(), Io::open(&file), 0, text, StableHow4::FileSync).unwrap();
                    user.client.close(user.cx(), &file).unwrap();
                    user.client
                        .rename(
                            user.cx(),
                            (&user.root, name.as_bytes()),
                            (&user.root, format!("done {n} {made}").as_bytes()),
                        )
                        .unwrap();
                    made += 1;
                }
                made
            })
        })
        .collect();
    for _ in 0..3 {
        for _ in 0..10 {
            std::thread::sleep(Duration::from_millis(30));
            relay.cut();
        }
        world.server.kill().unwrap();
        world.server.restart().unwrap();
    }
    std::thread::sleep(Duration::from_millis(300));
    is_over.store(true, Ordering::SeqCst);
    for (n, writer) in writers.into_iter().enumerate() {
        let made: u32 = writer.join().unwrap();
        assert!(made > 0);
        for i in 0..made {
            let text = std::fs::read_to_string(world.directory.join(format!("done {n} {i}"))).unwrap();
            assert_eq!(text, format!("file {n} {i}"));
        }
    }
}

#[test]
fn what_a_cut_connection_left_unanswered_happens_once() {
    let world = World::new();
    let relay = Relay::to(&world.address());
    let user = User::connect(Options::new(vec![relay.address.to_string()]));
    let (client, cx) = (&user.client, user.cx());
    let set = SetAttributes::default();
    for n in 0..10 {
        let name = format!("dir{n}");
        relay.lose_next_answer();
        // Carried out, its answer lost, asked again: a second execution would answer EXIST.
        client
            .create(cx, (&user.root, name.as_bytes()), CreateKind::Directory, &set, Attributes::STAT)
            .unwrap();
        relay.lose_next_answer();
        client.remove(cx, &user.root, name.as_bytes()).unwrap();
    }
    let (accepted, lost) = relay.counts();
    assert!(lost == 20 && accepted > 20, "{accepted} connections, {lost} answers lost");
}

/// A server keeps no reply that it is not asked to keep, and tells who asks again that it had done it (RFC 8881 section
/// 2.10.6.1.3). Nobody asks to have those kept that may be asked anew.
#[test]
fn what_a_cut_connection_left_unanswered_is_asked_anew_where_its_reply_was_not_kept() {
    let world = World::new();
    let relay = Relay::to(&world.address());
    let user = User::connect(Options::new(vec![relay.address.to_string()]));
    let (client, cx) = (&user.client, user.cx());
    let set = SetAttributes::default();
    client.create(cx, (&user.root, b"dir"), CreateKind::Directory, &set, Attributes::STAT).unwrap();
    for _ in 0..5 {
        relay.lose_next_answer();
        client.getattr(cx, &user.root, Attributes::STAT).unwrap();
        relay.lose_next_answer();
        client.lookup(cx, &user.root, b"dir", Attributes::STAT).unwrap();
        relay.lose_next_answer();
        let listed = client.readdir(cx, &user.root, (0, [0; 8]), 4096, Attributes::STAT).unwrap();
        assert_eq!(listed.entries.len(), 1);
    }
    let (accepted, lost) = relay.counts();
    assert!(lost == 15 && accepted > 15, "{accepted} connections, {lost} answers lost");
}

#[test]
fn several_connections_carry_calls_and_are_made_again() {
    let world = World::new();
    let relay = Relay::to(&world.address());
    let options = Options { connections: 3, ..Options::new(vec![relay.address.to_string()]) };
    let user = User::connect(options);
    let until = Instant::now() + PATIENCE;
    while relay.counts().0 < 3 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    relay.cut();
    std::thread::scope(|scope| {
        for n in 0..16 {
            let user = &user;
            scope.spawn(move || {
                for _ in 0..20 {
                    user.client.getattr(user.cx(), &user.root, Attributes::STAT).unwrap();
                }
                user.make(&format!("file{n}"));
            });
        }
    });
    while relay.counts().0 < 6 {
        assert!(Instant::now() < until, "only {} connections", relay.counts().0);
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Deaf;

impl Peer for Deaf {
    fn called(&self, _: PeerCall) {}
    fn broke(&self, _: &Link) {}
}

/// Ends a session behind its owner's back.
fn destroy(world: &World, session: SessionId) {
    let address = world.address().parse().unwrap();
    let link = Link::connect(address, &LinkOptions::default(), Arc::new(Deaf)).unwrap();
    let mut w = Writer::new();
    let args = DestroySession4Args { sessionid: session };
    encode_compound(&mut w, b"", 2, &[ArgOp::DestroySession(args)]);
    let auth = EncodedAuth::new(&Auth::Sys(AuthSys::default()));
    let target = Target { program: 100_003, version: 4, procedure: 1 };
    let args = [w.into_vec().into()];
    let until = Instant::now() + PATIENCE;
    let status = || {
        let reply = link.call(target, &auth, &args, (&Cancel::new(), None)).unwrap();
        u32::from_be_bytes(*reply.results().first_chunk().unwrap())
    };
    // DELAY while a request of it runs (RFC 8881 section 18.37.3): one over a connection that has been cut, perhaps.
    while let status = status()
        && status != NfsStat4::Ok as u32
    {
        assert_eq!(status, NfsStat4::Delay as u32, "DESTROY_SESSION was refused");
        assert!(Instant::now() < until, "a request of the session does not end");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_destroyed_session_is_replaced_and_the_state_stays() {
    let world = World::new();
    let user = world.client();
    let (client, cx) = (&user.client, user.cx());
    let file = user.make("file");
    client.lock(cx, &file, &lock(b"me")).unwrap();
    let first = client.session_id().unwrap();
    destroy(&world, first);
    client.write(cx, Io::open(&file), 0, Bytes::from_static(b"x"), StableHow4::Unstable).unwrap();
    assert_ne!(client.session_id().unwrap(), first);
    client.unlock(cx.cancel, file.handle(), b"me", WHOLE).unwrap();
    assert!(user.heard.state.lock().lost.is_empty());
}

#[test]
fn locks_lost_to_an_expired_lease_are_told_and_the_file_stays_open() {
    let world = World::with(|builder| builder.lease_seconds(2));
    let relay = Relay::to(&world.address());
    let user = User::connect(Options::new(vec![relay.address.to_string()]));
    let other = world.client();
    let file = user.make("file");
    user.client.lock(user.cx(), &file, &lock(b"me")).unwrap();
    relay.stall();
    // The server keeps the lock until the lease is over and somebody wants it.
    let theirs = other.make("file");
    other.client.lock_wait(other.cx(), &theirs, &lock(b"them")).unwrap();
    relay.resume();
    user.heard.wait("the loss of the lock", |said| !said.lost.is_empty());
    let io = Io { file: file.handle(), open: Some(&file), owner: Whose::Of(b"me") };
    let write = |io| user.client.write(user.cx(), io, 0, Bytes::from_static(b"x"), StableHow4::Unstable);
    let anybodys = Io { owner: Whose::Unknown, ..io };
    assert_eq!([write(io), write(anybodys)].map(Result::unwrap_err), [Error::Lost, Error::Lost]);
    let size = SetAttributes { size: Some(0), ..SetAttributes::default() };
    let cut = || user.client.setattr(user.cx(), file.handle(), Some(&file), &size, Attributes::STAT);
    assert_eq!(cut().unwrap_err(), Error::Lost);
    assert!(user.client.has_lost_locks(file.handle()));
    // Who holds no lock may go on, and the owner too once it has unlocked.
    write(Io::open(&file)).unwrap();
    user.client.unlock(user.cx().cancel, file.handle(), b"me", WHOLE).unwrap();
    assert!(!user.client.has_lost_locks(file.handle()));
    write(io).unwrap();
    write(anybodys).unwrap();
    cut().unwrap();
    let refused = user.client.lock(user.cx(), &file, &lock(b"me")).unwrap_err();
    assert_eq!(refused.status(), Some(NfsStat4::Denied));
}

#[test]
fn who_has_unlocked_all_loses_nothing_with_the_lease_nor_with_the_server() {
    let mut world = World::with(|builder| builder.lease_seconds(2));
    let relay = Relay::to(&world.address());
    let user = User::connect(Options::new(vec![relay.address.to_string()]));
    let (file, held) = (user.make("file"), user.make("held"));
    for (file, owner) in [(&file, b"me"), (&held, b"us")] {
        user.client.lock(user.cx(), file, &lock(owner)).unwrap();
    }
    user.client.unlock(user.cx().cancel, file.handle(), b"me", WHOLE).unwrap();
    relay.stall();
    let other = world.client();
    let theirs = other.make("held");
    other.client.lock_wait(other.cx(), &theirs, &lock(b"them")).unwrap();
    relay.resume();
    user.heard.wait("the loss of the lock", |said| !said.lost.is_empty());
    let works = || {
        assert!(!user.client.has_lost_locks(file.handle()));
        let io = Io { owner: Whose::Unknown, ..Io::open(&file) };
        user.client.write(user.cx(), io, 0, Bytes::from_static(b"x"), StableHow4::Unstable).unwrap();
        user.client.lock(user.cx(), &file, &lock(b"me")).unwrap();
        user.client.unlock(user.cx().cancel, file.handle(), b"me", WHOLE).unwrap();
    };
    works();
    world.server.kill().unwrap();
    world.server.restart().unwrap();
    works();
    assert_eq!(user.heard.state.lock().lost.len(), 1, "the lock that was held");
}

#[test]
fn who_comes_back_after_the_grace_of_a_restarted_server_loses_locks_and_keeps_files() {
    let mut world = World::with(|builder| builder.lease_seconds(1));
    let relay = Relay::to(&world.address());
    let user = User::connect(Options::new(vec![relay.address.to_string()]));
    let (file, plain) = (user.make("file"), user.make("plain"));
    user.client.lock(user.cx(), &file, &lock(b"me")).unwrap();
    relay.stall();
    relay.cut();
    world.server.kill().unwrap();
    world.server.restart().unwrap();
    let other = world.client();
    let theirs = other.make("file");
    other.client.lock_wait(other.cx(), &theirs, &lock(b"them")).unwrap();
    relay.resume();
    let io = Io { file: file.handle(), open: Some(&file), owner: Whose::Of(b"me") };
    user.heard.wait("the loss of the lock", |said| said.lost.len() == 1);
    assert_eq!(user.client.read(user.cx(), io, 0, 1).unwrap_err(), Error::Lost);
    for file in [&file, &plain] {
        let data = Bytes::from_static(b"x");
        user.client.write(user.cx(), Io::open(file), 0, data, StableHow4::Unstable).unwrap();
    }
    assert!(user.heard.state.lock().events.contains(&Event::StateLost));
}

#[test]
fn who_waits_for_a_lock_gets_it_when_it_is_free_or_gives_up_at_once() {
    let world = World::new();
    let (holder, waiter) = (world.client(), world.client());
    let (held, wanted) = (holder.make("file"), waiter.make("file"));
    holder.client.lock(holder.cx(), &held, &lock(b"holder")).unwrap();
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let impatient = scope.spawn(|| {
            let outcome = waiter.client.lock_wait(Cx::new(&waiter.cred, &cancel), &wanted, &lock(b"two"));
            (outcome, Instant::now())
        });
        let patient = scope.spawn(|| {
            waiter.client.lock_wait(waiter.cx(), &wanted, &lock(b"one")).unwrap();
            Instant::now()
        });
        // By now it is asked for once a second.
        std::thread::sleep(Duration::from_millis(2200));
        let given = Instant::now();
        cancel.cancel();
        let (outcome, freed) = impatient.join().unwrap();
        assert_eq!(outcome.unwrap_err(), Error::Cancelled);
        // Before it would have asked again.
        assert!(freed.saturating_duration_since(given) < Duration::from_millis(400));
        let freed = Instant::now();
        holder.client.unlock(holder.cx().cancel, held.handle(), b"holder", WHOLE).unwrap();
        let took = patient.join().unwrap().saturating_duration_since(freed);
        assert!(took < Duration::from_secs(10), "{took:?}");
    });
}

/// What waits for nobody, on a machine that is busy with other tests: the server hangs until it is told to go on.
const AT_ONCE: Duration = Duration::from_secs(8);

#[test]
fn who_gives_up_on_a_hung_server_is_free_at_once_and_nothing_is_left_open() {
    let world = World::new();
    let user = world.client();
    let file = user.make("file");
    world.hang();
    let cancels: Vec<_> = (0..3).map(|_| Cancel::new()).collect();
    std::thread::scope(|scope| {
        let waiters: Vec<_> = cancels
            .iter()
            .enumerate()
            .map(|(n, cancel)| {
                let (user, file) = (&user, &file);
                scope.spawn(move || {
                    let cx = Cx::new(&user.cred, cancel);
                    let outcome = match n {
                        0 => user.client.getattr(cx, &user.root, Attributes::STAT).map(drop),
                        1 => user.client.lock(cx, file, &lock(b"me")),
                        _ => {
                            let io = Io::open(file);
                            user.client
                                .write(cx, io, 0, Bytes::from_static(b"x"), StableHow4::Unstable)
                                .map(drop)
                        }
                    };
                    (outcome, Instant::now())
                })
            })
            .collect();
        std::thread::sleep(Duration::from_millis(200));
        for (cancel, waiter) in cancels.iter().zip(waiters) {
            let given = Instant::now();
            cancel.cancel();
            let (outcome, freed) = waiter.join().unwrap();
            assert_eq!(outcome.unwrap_err(), Error::Cancelled);
            let took = freed.saturating_duration_since(given);
            assert!(took < AT_ONCE, "{took:?}");
        }
    });
    world.server.resume().unwrap();
    // The lock that was granted to nobody is let go again.
    let other = world.client();
    let theirs = other.make("file");
    other.client.lock_wait(other.cx(), &theirs, &lock(b"them")).unwrap();
    user.client.getattr(user.cx(), &user.root, Attributes::STAT).unwrap();
}

#[test]
fn an_open_that_was_given_up_is_closed_when_its_answer_comes_after_all() {
    let world = World::new();
    let relay = Relay::to(&world.address());
    let user = User::connect(Options::new(vec![relay.address.to_string()]));
    let other = world.client();
    let set = SetAttributes::default();
    for (name, breaks) in [("answered", false), ("cut", true)] {
        let args = OpenArgs {
            target: OpenTarget::Name(&user.root, name.as_bytes()),
            access: 3,
            deny: 3,
            create: Some(Create { mode: CreateMode::Unchecked, set: &set }),
            delegation: WantDelegation::No,
            want: Attributes::STAT,
        };
        let try_theirs = || other.client.open(other.cx(), &OpenArgs { deny: 0, create: None, ..args });
        relay.stall_answers();
        let cancel = Cancel::new();
        let given_up = std::thread::scope(|scope| {
            let opener = scope.spawn(|| user.client.open(Cx::new(&user.cred, &cancel), &args));
            let until = Instant::now() + PATIENCE;
            while !world.directory.join(name).exists() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(100));
            cancel.cancel();
            opener.join().unwrap()
        });
        assert_eq!(given_up.unwrap_err(), Error::Cancelled);
        // The server has it open and denies it to others, while nobody here knows.
        assert_eq!(try_theirs().unwrap_err(), Error::Nfs(NfsStat4::ShareDenied));
        if breaks {
            relay.cut();
        }
        relay.resume();
        let until = Instant::now() + PATIENCE;
        while let Err(e) = try_theirs() {
            assert_eq!(e, Error::Nfs(NfsStat4::ShareDenied));
            assert!(Instant::now() < until, "it stays open");
        }
    }
}

#[test]
fn giving_up_at_any_moment_leaves_no_slot_taken_and_no_file_open() {
    let world = World::new();
    let relay = Relay::to(&world.address());
    let user = User::connect(Options::new(vec![relay.address.to_string()]));
    let other = world.client();
    drop(user.make("file"));
    let until = Instant::now() + Duration::from_secs(2);
    let set = SetAttributes::default();
    let create = Some(Create { mode: CreateMode::Unchecked, set: &set });
    let target = OpenTarget::Name(&user.root, b"file");
    let (delegation, want) = (WantDelegation::No, Attributes::STAT);
    let args = OpenArgs { target, access: 3, deny: 0, create, delegation, want };
    std::thread::scope(|scope| {
        for n in 0..6u64 {
            let (user, args) = (&user, &args);
            scope.spawn(move || {
                let mut round = n;
                while Instant::now() < until {
                    round += 1;
                    let cancel = Cancel::new();
                    let giver = cancel.clone();
                    std::thread::spawn(move || {
                        std::thread::sleep(Duration::from_micros(round * 97 % 1500));
                        giver.cancel();
                    });
                    let cx = Cx::new(&user.cred, &cancel);
                    let Ok(opened) = user.client.open(cx, args) else { continue };
                    let owner = n.to_be_bytes();
                    let _ = user.client.lock(cx, &opened.file, &lock(&owner));
                    let _ = user.client.getattr(cx, &user.root, Attributes::STAT);
                }
            });
        }
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(70));
            relay.cut();
        }
    });
    let alone = OpenArgs { deny: 3, create: None, ..args };
    let until = Instant::now() + PATIENCE;
    while let Err(e) = other.client.open(other.cx(), &alone) {
        assert_eq!(e, Error::Nfs(NfsStat4::ShareDenied));
        assert!(Instant::now() < until, "a file stays open");
        std::thread::sleep(Duration::from_millis(10));
    }
    let slots = user.client.limits().slots;
    std::thread::scope(|scope| {
        for _ in 0..slots {
            scope.spawn(|| user.client.getattr(user.cx(), &user.root, Attributes::STAT).unwrap());
        }
    });
    assert_eq!(user.client.limits().slots, slots);
}

#[test]
fn a_program_that_the_server_does_not_have_is_told_so() {
    let world = World::new();
    let user = world.client();
    let target = Target { program: 0x2048_4699, version: 1, procedure: 0 };
    let refused = user.client.call_program(target, user.cx(), &[]).unwrap_err();
    assert_eq!(refused, Error::Rpc(CallError::NotRun(AcceptStat::ProgUnavail)));
    // The null procedure of one that it has.
    let target = Target { program: 100_003, version: 4, procedure: 0 };
    assert!(user.client.call_program(target, user.cx(), &[]).unwrap().is_empty());
}

#[test]
fn hooks_hear_of_sessions_connections_and_restarts() {
    let mut world = World::new();
    let relay = Relay::to(&world.address());
    let user = User::connect(Options::new(vec![relay.address.to_string()]));
    let _file = user.make("file");
    let events = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let noted = Arc::clone(&events);
    let hook: Hook = Arc::new(move |handle: &SessionHandle<'_>, event: SessionEvent| {
        let target = Target { program: 100_003, version: 4, procedure: 0 };
        let called = handle.call_program(target, &Cred::own(), &[]);
        noted.lock().push((event.is_new_session, event.must_reclaim, called.is_ok()));
        Hooked::Done
    });
    user.client.on_new_session(hook);
    let look = || drop(user.client.getattr(user.cx(), &user.root, Attributes::STAT).unwrap());
    let wait = |wanted| {
        let until = Instant::now() + PATIENCE;
        while events.lock().last() != Some(&wanted) {
            assert!(Instant::now() < until, "{wanted:?}: {:?}", events.lock());
            look();
        }
    };
    wait((true, false, true));
    relay.cut();
    wait((false, false, true));
    destroy(&world, user.client.session_id().unwrap());
    look();
    wait((true, false, true));
    world.server.kill().unwrap();
    world.server.restart().unwrap();
    look();
    wait((true, true, true));
}

#[test]
fn a_soft_mount_gives_up_by_itself() {
    let world = World::new();
    let options = Options { soft: true, patience: Duration::from_millis(500), ..world.options() };
    let user = User::connect(options);
    world.hang();
    let began = Instant::now();
    let outcome = user.client.getattr(user.cx(), &user.root, Attributes::STAT);
    assert_eq!(outcome.unwrap_err(), Error::TimedOut);
    assert!(began.elapsed() < PATIENCE);
    world.server.resume().unwrap();
    let until = Instant::now() + PATIENCE;
    while user.client.getattr(user.cx(), &user.root, Attributes::STAT).is_err() {
        assert!(Instant::now() < until);
    }
}

#[test]
fn the_next_server_is_tried_when_one_is_gone() {
    let world = World::new();
    let relays = [Relay::to(&world.address()), Relay::to(&world.address())];
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let servers = vec![nobody.to_string(), relays[0].address.to_string(), relays[1].address.to_string()];
    let user = User::connect(Options::new(servers.clone()));
    assert_eq!(user.client.servers().1.as_deref(), Some(servers[1].as_str()));
    let file = user.make("file");
    user.client.lock(user.cx(), &file, &lock(b"me")).unwrap();
    let session = user.client.session_id();
    user.client.set_servers(vec![servers[2].clone()]);
    user.client.write(user.cx(), Io::open(&file), 0, Bytes::from_static(b"x"), StableHow4::Unstable).unwrap();
    // Both ways lead to one server: it says so, and the session goes on.
    assert_eq!(user.client.session_id(), session);
    assert!(relays[1].counts().0 > 0);
    user.heard
        .wait("the second connection", |said| said.events.contains(&Event::Connected(servers[2].clone())));
}

#[test]
fn connections_spread_over_the_addresses_of_one_server_but_not_to_another() {
    let (world, stranger) = (World::new(), World::new());
    let relays = [Relay::to(&world.address()), Relay::to(&world.address()), Relay::to(&stranger.address())];
    let servers = relays.iter().map(|relay| relay.address.to_string()).collect();
    let user = User::connect(Options { connections: 3, ..Options::new(servers) });
    let until = Instant::now() + PATIENCE;
    // One each of the two addresses, and a second one of the first in the stranger's place.
    while (relays[0].counts().0, relays[1].counts().0) != (2, 1) {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(relays[2].counts().0, 1, "it was asked who it is");
    user.make("here");
    assert!(world.directory.join("here").exists() && !stranger.directory.join("here").exists());
}

#[test]
fn nobody_waits_for_a_dead_server_when_a_client_is_shut_down() {
    let world = World::new();
    let user = world.client();
    let _file = user.make("file");
    world.hang();
    let began = Instant::now();
    user.client.shutdown();
    assert!(began.elapsed() < AT_ONCE);
    let after = user.client.getattr(user.cx(), &user.root, Attributes::STAT).unwrap_err();
    assert_eq!(after, Error::Closed);
    world.server.resume().unwrap();
}
