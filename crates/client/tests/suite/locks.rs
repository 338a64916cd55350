//! Owners of locks, and the opens that they lock through.

use std::time::Duration;

use holdfast_base::ByteRange;
use holdfast_client::{
    Attributes, Cancel, CreateMode, Cx, Error, LockArgs, OpenArgs, OpenFile, OpenTarget, Options,
    WantDelegation,
};
use holdfast_wire::nfs4::NfsStat4;

use super::relay::Relay;
use super::world::{PATIENCE, User, World};

const READ: u32 = 1;
const BOTH: u32 = 3;

fn range(first: u64, last: u64) -> ByteRange {
    ByteRange::from_bounds(first, last).unwrap()
}

fn open(user: &User, access: u32) -> OpenFile {
    let args = OpenArgs {
        target: OpenTarget::Name(&user.root, b"file"),
        access,
        deny: 0,
        create: None,
        delegation: WantDelegation::No,
        want: Attributes::STAT,
    };
    user.client.open(user.cx(), &args).unwrap().file
}

fn lock(user: &User, file: &OpenFile, (range, exclusive): (ByteRange, bool)) -> Result<(), Error> {
    user.client.lock(user.cx(), file, &LockArgs { owner: b"me", range, exclusive })
}

/// What another client would be refused.
fn is_held(other: &User, file: &OpenFile, range: ByteRange) -> bool {
    let args = LockArgs { owner: b"them", range, exclusive: true };
    other.client.lock_test(other.cx(), file.handle(), &args).unwrap().is_some()
}

/// An owner's name is used again, by somebody with another open file, and the former one's open lives on for a while.
#[test]
fn a_lock_outlives_the_open_that_its_owner_had_others_through_before() {
    let world = World::new();
    let (user, other) = (world.client(), world.client());
    user.make("file");
    let (first, second) = (open(&user, BOTH), open(&user, BOTH));
    lock(&user, &first, (ByteRange::ALL, true)).unwrap();
    user.client.unlock(&user.cancel, first.handle(), b"me", ByteRange::ALL).unwrap();
    lock(&user, &second, (ByteRange::ALL, true)).unwrap();
    user.client.close(user.cx(), &first).unwrap();
    assert!(is_held(&other, &second, ByteRange::ALL));
    assert!(user.client.holds_locks(second.handle(), b"me"));
    user.client.close(user.cx(), &second).unwrap();
    assert!(!is_held(&other, &second, ByteRange::ALL));
}

/// The server ends with an open what was locked through it, at whatever time it comes to that.
#[test]
fn an_owner_whose_open_is_being_closed_begins_anew_through_a_living_one() {
    let world = World::new();
    let relay = Relay::to(&world.address());
    let (user, other) = (User::connect(Options::new(vec![relay.address.to_string()])), world.client());
    user.make("file");
    for held in [false, true] {
        let (first, second) = (open(&user, BOTH), open(&user, BOTH));
        lock(&user, &first, (range(0, 9), true)).unwrap();
        if !held {
            user.client.unlock(&user.cancel, first.handle(), b"me", ByteRange::ALL).unwrap();
        }
        relay.stall();
        std::thread::scope(|scope| {
            let closing = scope.spawn(|| user.client.close(user.cx(), &first));
            std::thread::sleep(Duration::from_millis(200));
            let locking = scope.spawn(|| lock(&user, &second, (range(20, 29), true)));
            std::thread::sleep(Duration::from_millis(200));
            relay.resume();
            closing.join().unwrap().unwrap();
            locking.join().unwrap().unwrap();
        });
        assert!(is_held(&other, &second, range(20, 29)), "held before: {held}");
        assert!(!is_held(&other, &second, range(0, 9)));
        assert!(user.heard.state.lock().lost.is_empty());
        user.client.close(user.cx(), &second).unwrap();
    }
}

#[test]
fn a_file_is_not_closed_under_a_lock_that_is_asked_for_through_it() {
    let world = World::new();
    let relay = Relay::to(&world.address());
    let (user, other) = (User::connect(Options::new(vec![relay.address.to_string()])), world.client());
    let theirs = other.open("file", Some(CreateMode::Unchecked), WantDelegation::No).file;
    let (first, second) = (open(&user, BOTH), open(&user, BOTH));
    relay.stall_answers();
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let given_up = scope.spawn(|| {
            let args = LockArgs { owner: b"me", range: range(0, 9), exclusive: true };
            user.client.lock(Cx::new(&user.cred, &cancel), &first, &args)
        });
        let until = std::time::Instant::now() + PATIENCE;
        while !is_held(&other, &theirs, range(0, 9)) && std::time::Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        cancel.cancel();
        assert_eq!(given_up.join().unwrap(), Err(Error::Cancelled));
        // The server has granted it, through what is closed now.
        let closing = scope.spawn(|| user.client.close(user.cx(), &first));
        std::thread::sleep(Duration::from_millis(200));
        let locking = scope.spawn(|| lock(&user, &second, (range(20, 29), true)));
        std::thread::sleep(Duration::from_millis(200));
        relay.resume();
        closing.join().unwrap().unwrap();
        locking.join().unwrap().unwrap();
    });
    assert!(is_held(&other, &theirs, range(20, 29)));
    assert!(!is_held(&other, &theirs, range(0, 9)));
}

/// The first locks of an owner, asked for at once through opens of which one is closed later.
#[test]
fn several_first_locks_of_an_owner_are_all_his() {
    let world = World::new();
    let (user, other) = (world.client(), world.client());
    user.make("file");
    let file = open(&user, BOTH);
    std::thread::scope(|scope| {
        let lockers: Vec<_> = (0..8u64)
            .map(|n| {
                scope.spawn({
                    let (user, file) = (&user, &file);
                    move || lock(user, file, (range(10 * n, 10 * n + 4), n % 2 == 0))
                })
            })
            .collect();
        lockers.into_iter().for_each(|locker| locker.join().unwrap().unwrap());
    });
    assert!((0..8u64).all(|n| is_held(&other, &file, range(10 * n, 10 * n + 4))));
    user.client.unlock(&user.cancel, file.handle(), b"me", ByteRange::ALL).unwrap();
    assert!(!is_held(&other, &file, ByteRange::ALL));
}

#[test]
fn a_lock_goes_through_an_open_that_may_do_what_it_is_for() {
    let mut world = World::new();
    let (user, other) = (world.client(), world.client());
    user.make("file");
    for (first, second, is_exclusive) in [(READ, BOTH, true), (2, READ, false)] {
        let (first, second) = (open(&user, first), open(&user, second));
        lock(&user, &first, (range(0, 9), !is_exclusive)).unwrap();
        let (more, without) =
            ((range(0, 19), is_exclusive), lock(&user, &first, (range(0, 19), is_exclusive)));
        assert_eq!(without.unwrap_err().status(), Some(NfsStat4::OpenMode), "through the first open alone");
        lock(&user, &second, more).unwrap();
        // It is reclaimed as it was granted.
        world.server.kill().unwrap();
        world.server.restart().unwrap();
        lock(&user, &second, (range(30, 39), is_exclusive)).unwrap();
        assert!(is_held(&other, &second, range(10, 19)));
        assert!(user.heard.state.lock().lost.is_empty());
        user.client.close(user.cx(), &second).unwrap();
        assert!(is_held(&other, &second, range(30, 39)), "he began through the other one");
        user.client.close(user.cx(), &first).unwrap();
        assert!(!is_held(&other, &second, ByteRange::ALL));
    }
}
