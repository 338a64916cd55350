//! A client that is ended at its server by somebody else, as one whose process has died is.

use std::time::{Duration, Instant};

use holdfast_base::ByteRange;
use holdfast_client::{CreateMode, Error, KnownAs, LockArgs, OpenFile, Options, WantDelegation, end_former};

use super::relay::Relay;
use super::world::{User, World};

/// Longer than a test waits.
const LEASE_SECONDS: u32 = 90;
/// What a server that is there does not take, and a test can wait.
const SOON: Duration = Duration::from_secs(2);

fn lock(user: &User, file: &OpenFile) -> Result<(), Error> {
    user.client.lock(user.cx(), file, &LockArgs { owner: b"me", range: ByteRange::ALL, exclusive: true })
}

fn options(world: &World) -> Options {
    Options { patience: SOON, ..world.options() }
}

#[test]
fn what_a_client_held_is_free_at_once_when_it_is_ended_by_its_name() {
    let world = World::with(|builder| builder.lease_seconds(LEASE_SECONDS));
    let relay = Relay::to(&world.address());
    let cut_off = User::connect(Options::new(vec![relay.address.to_string()]));
    let (other, bystander) = (world.client(), world.client());
    let file = cut_off.make("file");
    lock(&cut_off, &file).unwrap();
    let delegated = cut_off.open("delegated", Some(CreateMode::Unchecked), WantDelegation::Write).file;
    assert!(cut_off.client.delegated(delegated.handle()).is_some());
    let kept = bystander.make("kept");
    lock(&bystander, &kept).unwrap();
    relay.stall();
    let known = cut_off.client.known_as().unwrap();
    assert_eq!(known.address, relay.address);
    let begun = Instant::now();
    let known = KnownAs { address: world.address().parse().unwrap(), ..known };
    end_former(options(&world), &known).unwrap();
    let theirs = other.open("file", None, WantDelegation::No).file;
    lock(&other, &theirs).unwrap();
    other.open("delegated", None, WantDelegation::No);
    assert!(begun.elapsed() < SOON * 4, "{:?}", begun.elapsed());

    // It was not dead: it comes back as one that the server does not know.
    relay.resume();
    cut_off.open("file", None, WantDelegation::No);
    cut_off.heard.wait("the loss of its lock", |said| !said.lost.is_empty());
    assert!(cut_off.client.holds_locks(file.handle(), b"me"), "until it is given back");
    let taken = LockArgs { owner: b"them", range: ByteRange::ALL, exclusive: true };
    assert!(other.client.lock_test(other.cx(), kept.handle(), &taken).unwrap().is_some(), "another's");
}

#[test]
fn to_a_server_that_knows_no_such_client_nothing_happens() {
    let world = World::new();
    let user = world.client();
    let file = user.make("file");
    lock(&user, &file).unwrap();
    let known = user.client.known_as().unwrap();
    let stranger = KnownAs { owner: b"nobody has this name".to_vec(), ..known };
    end_former(options(&world), &stranger).unwrap();
    end_former(options(&world), &stranger).unwrap();
    assert!(user.client.holds_locks(file.handle(), b"me"));
    user.client.close(user.cx(), &file).unwrap();
    assert!(user.heard.state.lock().lost.is_empty());
}

#[test]
fn a_server_that_is_away_or_does_not_answer_is_not_waited_for() {
    let mut world = World::new();
    let known = world.client().client.known_as().unwrap();
    world.hang();
    let begun = Instant::now();
    end_former(options(&world), &known).unwrap_err();
    assert!(begun.elapsed() < SOON * 3, "{:?}", begun.elapsed());
    world.server.resume().unwrap();
    world.server.kill().unwrap();
    let error = end_former(options(&world), &known).unwrap_err();
    assert!(matches!(error, Error::Unreachable(_)), "{error}");
}
