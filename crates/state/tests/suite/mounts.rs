//! Several users and several mounts of one client, beside its own delegation.

use crate::world::World;
use holdfast_base::{ClientId, FileKey};
use holdfast_state::{Access, Claim, Deed, DelegationKind, Effect, Grounds, Offer, Share, StateError};

const READ: Share = Share { access: Access::READ, deny: Access::NONE };
const BOTH: Share = Share { access: Access::BOTH, deny: Access::NONE };
const WRITE: DelegationKind = DelegationKind::Write;

/// An open-owner as Linux names it: by the super block, and by the user.
fn owner(block: u8, user: u8) -> String {
    String::from_utf8([b"open id:".as_slice(), &[0, 0, 0, block, 0, 0, 0, user, 0, 0, 0, 0]].concat())
        .unwrap()
}

fn recalls(world: &mut World) -> usize {
    world.settle().iter().filter(|effect| matches!(effect, Effect::Recall { .. })).count()
}

/// A world in which a client has a file open, for one user of one mount, with a write delegation.
fn delegated() -> (World, ClientId) {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    let open = world.open(client, &owner(1, 1), 1, BOTH).unwrap();
    let Ok(Offer::Offered(ticket)) = world.offer(client, 1, WRITE, Grounds::Open(open)) else {
        panic!("none")
    };
    world.engine.delegation_commit(ticket, world.now).unwrap();
    world.settle();
    (world, client)
}

#[test]
fn another_user_of_the_mount_opens_beside_its_delegation() {
    let (mut world, client) = delegated();
    world.open(client, &owner(1, 2), 1, BOTH).unwrap();
    assert_eq!(recalls(&mut world), 0);
    assert_eq!(world.engine.holds_delegation(client, FileKey(1)), Some(WRITE));
}

#[test]
fn another_mount_of_the_client_has_it_recalled() {
    for other in [owner(2, 1), "open id:".to_owned(), "somebody".to_owned()] {
        let (mut world, client) = delegated();
        let opened = world.open_claiming(client, &other, 1, READ, Claim::New);
        assert_eq!(opened, Err(StateError::Delay), "{other:?}");
        assert_eq!(recalls(&mut world), 1);
    }
}

#[test]
fn users_of_one_mount_are_one_when_a_delegation_is_asked_for_and_mounts_are_not() {
    for (second, is_granted) in [(owner(1, 2), true), (owner(2, 1), false)] {
        let mut world = World::new();
        let (client, _) = world.client("a", 1);
        world.open(client, &owner(1, 1), 1, BOTH).unwrap();
        world.open(client, &second, 1, BOTH).unwrap();
        assert_eq!(world.why_none(client, 1, WRITE).is_none(), is_granted, "{second:?}");
    }
}

#[test]
fn what_came_without_an_open_is_of_no_mount() {
    let mut world = World::new();
    let (client, _) = world.client("a", 1);
    world.delegate(client, 1, WRITE);
    assert_eq!(world.open_claiming(client, &owner(1, 1), 1, READ, Claim::New), Err(StateError::Delay));
    assert!(world.contend(1, Deed::ReadData, None));
}
