//! What is made, and what is removed that is not there, while clients may still reclaim: that waits for those alone that may have had
//! the directory to themselves, and have named something in it that nobody has heard of.

use std::fs;
use std::rc::Rc;
use std::time::{Duration, Instant};

use holdfast_ledger::failpoint::Point;
use holdfast_wire::caps::CapSet;
use holdfast_wire::nfs3::{Create3Args, CreateHow3, Mkdir3Args, NfsStat3, Proc3};
use holdfast_wire::nfs4::NfsStat4;
use holdfast_xdr::{Encode, Reader, to_bytes};

use crate::nfs3::{Client, mode, nfs};
use crate::nfs4::Client as Nfs4Client;
use crate::revoked::Holder;
use crate::server::World;
use crate::tree::Mount;
use crate::wire::PATIENCE;

/// A world of one file, in which grace ends when all have said that they are done.
fn world() -> Rc<World> {
    let world = World::lasting(None, Point::BeforeSend, true);
    fs::write(world.files().join("theirs"), b"precious").unwrap();
    Rc::new(world)
}

fn status(client: &Client, procedure: Proc3, args: &impl Encode) -> u32 {
    let results = client.world.exchange(&client.world.call(nfs(procedure), &to_bytes(args)));
    Reader::new(&results).u32().unwrap()
}

fn create(client: &Client, name: &str, how: CreateHow3) -> u32 {
    status(client, Proc3::Create, &Create3Args { place: client.at(name), how })
}

fn mkdir(client: &Client, name: &str) -> u32 {
    status(client, Proc3::Mkdir, &Mkdir3Args { place: client.at(name), attributes: mode(0o700) })
}

/// What becomes of each of the ways to make something, and of the removal of nothing.
fn changes(client: &Client) -> [u32; 5] {
    [
        create(client, "unchecked", CreateHow3::Unchecked(mode(0o600))),
        create(client, "guarded", CreateHow3::Guarded(mode(0o600))),
        create(client, "exclusive", CreateHow3::Exclusive([1; 8])),
        mkdir(client, "directory"),
        status(client, Proc3::Remove, &client.at("nothing")),
    ]
}

const AS_EVER: [u32; 5] = {
    let made = NfsStat3::Ok as u32;
    [made, made, made, made, NfsStat3::NoEnt as u32]
};

#[test]
fn clients_without_capabilities_keep_nobody_from_making_something() {
    for minor in 0..=2 {
        let world = world();
        Holder::named(&world, "holder", minor).open(b"theirs");
        world.kill();
        assert_eq!(changes(&Client::of(&world)), AS_EVER, "4.{minor}");
        let mut newcomer = Nfs4Client::new(&world, "newcomer", 1);
        assert_eq!(newcomer.try_open(b"theirs"), NfsStat4::Grace, "4.{minor}: what it had is its own still");
    }
}

#[test]
fn a_mount_that_may_have_had_the_directory_alone_is_waited_for_and_nobody_else() {
    let world = world();
    let mut holder = Holder::named(&world, "holder", 1);
    holder.open(b"theirs");
    let mut client = Nfs4Client::new(&world, "mount", 1);
    let mut mount = Mount::new(&world, client.session());
    let root = mount.root.clone();
    assert_eq!(mount.acquire(&root).0, CapSet::ALL_X);
    world.kill();
    let stranger = Client::of(&world);
    assert_eq!(changes(&stranger), [NfsStat3::Jukebox as u32; 5]);
    // It has nothing to claim any more; the other is away.
    client.complete_reclaims();
    let began = Instant::now();
    while mkdir(&stranger, "first") != NfsStat3::Ok as u32 {
        assert!(began.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(changes(&stranger), AS_EVER);
    let mut newcomer = Nfs4Client::new(&world, "newcomer", 1);
    assert_eq!(newcomer.try_open(b"theirs"), NfsStat4::Grace);
    assert_eq!(holder.reclaim(b"theirs"), NfsStat4::Ok);
}

#[test]
fn an_exclusive_create_that_was_answered_is_known_again_whoever_is_waited_for() {
    let world = world();
    let stranger = Client::of(&world);
    let exclusive = |name, verifier| create(&stranger, name, CreateHow3::Exclusive([verifier; 8]));
    assert_eq!(exclusive("made", 7), NfsStat3::Ok as u32);
    let client = Nfs4Client::new(&world, "mount", 1);
    let mut mount = Mount::new(&world, client.session());
    let root = mount.root.clone();
    assert_eq!(mount.acquire(&root).0, CapSet::ALL_X);
    world.kill();
    assert_eq!(exclusive("made", 7), NfsStat3::Ok as u32);
    assert_eq!(exclusive("made", 8), NfsStat3::Exist as u32, "another's");
    assert_eq!(exclusive("new", 7), NfsStat3::Jukebox as u32, "that is to be made first");
}
