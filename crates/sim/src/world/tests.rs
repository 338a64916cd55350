#![allow(clippy::unwrap_used, reason = "a test may fail")]

use std::rc::Rc;

use super::{Death, World};

#[test]
fn who_dies_while_the_machine_is_suspended_does_not_hold_up_the_disk_of_the_next() {
    let world = World::new(1, 1, None, false).unwrap();
    world.start_server(Some((Death::Kill, 3_000)), 10);
    world.freeze(60_000);
    world.collect();
    assert!(world.is_pump_due.get(), "the disk has something to do");
    let watched = Rc::clone(&world);
    world.exec.run(10_000, move || watched.lives() == 2);
    world.collect();
    let watched = Rc::clone(&world);
    world.exec.run(10_000, move || !watched.is_pump_due.get());
    assert_eq!(world.lives(), 2);
    assert!(!world.is_pump_due.get(), "the disk does nothing in this life");
}
