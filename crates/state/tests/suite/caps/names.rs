//! Promises of single names: what takes them, what stands beside them, and their bounds.

use holdfast_base::limits::{CAPS_CONTESTED_MS, CAPS_NAMES_PER_CLIENT_MAX, CAPS_NAMES_PRESSED};
use holdfast_base::{CapSet, ClientId, FileKey};
use holdfast_state::*;

use super::{CHANGE, FILE as DIR, world_of_two};
use crate::world::*;

const OTHER_DIR: FileKey = FileKey(2);

fn name(n: u128) -> NameKey {
    NameKey { dir: DIR, name: FileKey(1000 + n) }
}

impl World {
    pub(super) fn promise(&mut self, client: ClientId, key: NameKey) -> CapGrant {
        match self.engine.caps_prepare_name(client, key, self.now).unwrap() {
            CapOffer::Offered(ticket) => self.engine.caps_commit(ticket).unwrap(),
            CapOffer::Held(grant) => grant,
        }
    }

    fn has_name(&self, client: ClientId, key: NameKey) -> bool {
        self.engine.caps_of(client, key.name).held == CapSet::FILE_S
    }

    fn give_back(&mut self, client: ClientId, key: FileKey, keep: CapSet) {
        let seq = self.engine.caps_of(client, key).seq;
        let now = self.now;
        let released = self.engine.caps_release(client, key, (keep, seq), now);
        assert!(matches!(released, CapRelease::Released(_)));
        self.settle();
    }
}

#[test]
fn a_name_is_recalled_for_a_change_of_it_and_of_no_other() {
    let (mut world, a, b) = world_of_two();
    for n in 0..3 {
        assert_eq!(world.promise(a, name(n)).held, CapSet::FILE_S);
    }
    assert!(world.is_clear(DIR, CHANGE, Some(b)), "the directory's other names are nobody's");
    assert!(world.is_clear(name(1).name, CHANGE, Some(a)), "one's own change takes nothing");
    let recalled = world.recalled_by(name(1).name, CHANGE, Some(b));
    assert!(matches!(recalled[..], [(client, keep, _)] if client == a && keep.is_empty()));
    assert!(!world.has_name(a, name(1)) && world.has_name(a, name(0)) && world.has_name(a, name(2)));
    assert!(world.promise(a, name(1)).held.is_empty(), "not while it is being recalled");
    world.give_back(a, name(1).name, CapSet::NONE);
    assert!(world.is_clear(name(1).name, CHANGE, Some(b)));
    assert!(world.has_name(a, name(0)));
    assert_eq!(world.promise(a, name(1)).held, CapSet::FILE_S, "and again as soon as it was made");
}

#[test]
fn who_would_have_the_directory_to_himself_has_all_names_of_others_recalled() {
    let (mut world, a, b) = world_of_two();
    let elsewhere = NameKey { dir: OTHER_DIR, name: FileKey(2000) };
    for key in [name(0), name(1), elsewhere] {
        world.promise(a, key);
    }
    world.promise(b, name(2));
    assert_eq!(world.acquire(b, DIR, CapSet::FILE_X).held, CapSet::FILE_S, "names are in the way");
    let now = world.now;
    let asked = world.engine.caps_contend(DIR, CapSet::FILE_S, b, now);
    assert_eq!(asked, Contention::Clear, "but not of who only looks");
    let asked = world.engine.caps_contend(DIR, CapSet::FILE_X, b, now);
    assert!(matches!(asked, Contention::Recalling { .. }));
    let recalled: Vec<_> = world.settle().into_iter().collect();
    let is_of = |effect: &Effect, key: NameKey| matches!(effect, Effect::CapRecall { client, file, .. } if *client == a && *file == key.name);
    assert_eq!(recalled.len(), 2);
    assert!([name(0), name(1)].iter().all(|key| recalled.iter().any(|effect| is_of(effect, *key))));
    for n in 0..2 {
        world.give_back(a, name(n).name, CapSet::NONE);
    }
    assert!(world.has_name(a, elsewhere) && world.has_name(b, name(2)));
    assert_eq!(world.acquire(b, DIR, CapSet::FILE_X).held, CapSet::FILE_X);
    world.settle();
    assert!(world.promise(a, name(0)).held.is_empty(), "its names may change unseen");
    assert_eq!(world.promise(b, name(0)).held, CapSet::FILE_S, "to others than the one who changes them");
}

#[test]
fn an_exclusive_grant_and_a_promise_of_a_name_that_are_both_offered_are_not_both_given() {
    let (mut world, a, b) = world_of_two();
    let want = CapSet::FILE_X;
    let request = CapRequest { client: b, file: DIR, want, is_beside_writers: false, reclaim: None };
    let now = world.now;
    let CapOffer::Offered(of_dir) = world.engine.caps_prepare(&request, now).unwrap() else { panic!() };
    assert!(matches!(world.engine.caps_prepare_name(a, name(0), now), Ok(CapOffer::Held(_))));
    world.engine.caps_abort(of_dir);
    let CapOffer::Offered(of_name) = world.engine.caps_prepare_name(a, name(0), now).unwrap() else {
        panic!()
    };
    let CapOffer::Offered(of_dir) = world.engine.caps_prepare(&request, now).unwrap() else { panic!() };
    assert_eq!(of_dir.all(), CapSet::FILE_S);
    world.engine.caps_abort(of_name);
    world.engine.caps_abort(of_dir);
    assert_eq!(world.engine.caps_names(), 0);
    world.settle();
}

#[test]
fn what_a_local_process_does_to_a_directory_takes_all_names_of_it() {
    let (mut world, a, b) = world_of_two();
    world.promise(a, name(0));
    world.promise(b, name(0));
    world.promise(b, name(1));
    let elsewhere = NameKey { dir: OTHER_DIR, name: FileKey(2000) };
    world.promise(a, elsewhere);
    let now = world.now;
    world.engine.contend_outside(DIR, CHANGE, now);
    let recalls = world.settle().into_iter().filter(|effect| matches!(effect, Effect::CapRecall { .. }));
    assert_eq!(recalls.count(), 3);
    assert!(!world.has_name(a, name(0)) && !world.has_name(b, name(1)) && world.has_name(a, elsewhere));
}

#[test]
fn a_directory_is_contested_once_its_entries_were_taken_twice_within_a_moment() {
    let (mut world, a, b) = world_of_two();
    let is_contested = |world: &World| world.engine.caps_is_contested(DIR, world.now);
    let take = |world: &mut World, deed| {
        world.acquire(a, DIR, CapSet::FILE_S);
        world.recalled_by(DIR, deed, Some(b));
        world.give_back(a, DIR, CapSet::NONE);
    };
    take(&mut world, CHANGE);
    assert!(!is_contested(&world), "once may be once");
    world.pass(CAPS_CONTESTED_MS);
    take(&mut world, CHANGE);
    assert!(!is_contested(&world), "as long ago as that it does not count");
    world.pass(CAPS_CONTESTED_MS / 2);
    take(&mut world, CHANGE);
    assert!(is_contested(&world));
    world.pass(CAPS_CONTESTED_MS);
    assert!(!is_contested(&world));
    for _ in 0..2 {
        world.acquire(a, OTHER_DIR, CapSet::FILE_X);
        world.recalled_by(OTHER_DIR, Deed::LookEntries, Some(b));
        world.give_back(a, OTHER_DIR, CapSet::FILE_S);
        world.pass(1);
    }
    assert!(!world.engine.caps_is_contested(OTHER_DIR, world.now), "a look takes no entries");
    for _ in 0..3 {
        world.acquire(a, OTHER_DIR, CapSet::FILE_S);
        let now = world.now;
        world.engine.contend_outside(OTHER_DIR, CHANGE, now);
        world.settle();
        world.give_back(a, OTHER_DIR, CapSet::NONE);
        world.pass(1);
    }
    assert!(!world.engine.caps_is_contested(OTHER_DIR, world.now), "a local process would take names, too");
}

#[test]
fn several_holders_lose_the_entries_at_once_and_that_is_once() {
    let (mut world, a, b) = world_of_two();
    world.acquire(a, DIR, CapSet::FILE_S);
    world.acquire(b, DIR, CapSet::FILE_S);
    world.recalled_by(DIR, CHANGE, None);
    assert!(!world.engine.caps_is_contested(DIR, world.now));
}

#[test]
fn names_have_a_bound_of_their_own_and_are_counted_as_objects() {
    let (mut world, a, b) = world_of_two();
    for n in 0..CAPS_NAMES_PER_CLIENT_MAX as u128 {
        let now = world.now;
        let offer = world.engine.caps_prepare_name(a, name(n), now).unwrap();
        let CapOffer::Offered(ticket) = offer else { panic!("{n}: {offer:?}") };
        let _ = world.engine.caps_commit(ticket).unwrap();
    }
    assert!(world.promise(a, name(u128::from(u32::MAX))).held.is_empty());
    let recalls = |effects: Vec<Effect>| {
        let of = |effect| {
            matches!(effect, Effect::CapRecall { client, file, .. }
            if client == a && file < name(CAPS_NAMES_PRESSED as u128).name)
        };
        effects.into_iter().filter(|effect| of(effect.clone())).count()
    };
    let effects = world.settle();
    assert_eq!((effects.len(), recalls(effects)), (CAPS_NAMES_PRESSED, CAPS_NAMES_PRESSED), "the oldest go");
    assert!(world.promise(a, name(u128::from(u32::MAX))).held.is_empty());
    assert!(world.settle().is_empty(), "and no others before they are gone");
    assert!(world.promise(a, name(7)).held.is_empty());
    world.give_back(a, name(7).name, CapSet::NONE);
    assert_eq!(world.promise(a, name(7)).held, CapSet::FILE_S, "there is room for one");
    assert_eq!(world.promise(b, name(7)).held, CapSet::FILE_S, "nobody fills another's");
    assert_eq!(world.engine.caps_count(a), CAPS_NAMES_PER_CLIENT_MAX);
    assert_eq!(world.engine.caps_names(), CAPS_NAMES_PER_CLIENT_MAX + 1);
    assert!(world.engine.report_caps_files().is_empty(), "they are no objects that anybody could be shown");
    world.settle();
    let now = world.now;
    world.engine.caps_bye(a, now);
    assert_eq!(world.engine.caps_names(), 1);
    world.settle();
}

#[test]
fn a_planned_restart_knows_which_holds_are_names() {
    let (mut world, a, b) = world_of_two();
    world.promise(a, name(0));
    world.promise(a, name(1));
    world.recalled_by(name(1).name, CHANGE, Some(b));
    world.restart_as_planned();
    world.engine.caps_path(a, true);
    world.engine.caps_path(b, true);
    assert!(world.has_name(a, name(0)));
    assert_eq!(world.engine.caps_names(), 2);
    assert_eq!(world.acquire(b, DIR, CapSet::FILE_X).held, CapSet::FILE_S);
    let now = world.now;
    world.engine.contend_outside(DIR, CHANGE, now);
    assert!(!world.has_name(a, name(0)));
}

#[test]
fn two_names_of_one_key_are_not_both_promised() {
    let (mut world, a, _) = world_of_two();
    world.promise(a, name(0));
    let same = NameKey { dir: OTHER_DIR, name: name(0).name };
    assert!(world.promise(a, same).held.is_empty());
    world.acquire(a, OTHER_DIR, CapSet::FILE_S);
    let object = NameKey { dir: DIR, name: OTHER_DIR };
    assert!(world.promise(a, object).held.is_empty(), "nor one that is an object's");
}
