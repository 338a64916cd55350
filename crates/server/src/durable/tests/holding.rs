//! What a client's record says that it may hold.

use holdfast_manager::Unreclaimed;

use super::*;

#[test]
fn only_who_was_on_record_with_capabilities_is_waited_for_by_who_makes_something() {
    let named = |n: u8| ClientImage { name: OwnerName::new(&[n]), ..client(Dialect::V41, u64::from(n)) };
    let lives = Lives::new();
    let first = lives.next();
    for n in [1, 2] {
        first.persist(&named(n)).unwrap();
        first.reclaim_done(ClientId(u64::from(n)));
    }
    first.will_hold(&named(1)).unwrap();
    first.will_hold_caps(&named(2)).unwrap();
    assert!(first.may_hold(ClientId(1)) && !first.may_hold_caps(ClientId(1)), "an open is no capability");
    assert!(first.may_hold(ClientId(2)) && first.may_hold_caps(ClientId(2)));
    drop(first);
    let second = lives.next();
    assert_eq!(second.unreclaimed(), Unreclaimed::Capabilities);
    // It stays on record with them in this life, whatever it does first.
    second.persist(&named(2)).unwrap();
    second.will_hold(&named(2)).unwrap();
    assert!(second.may_hold_caps(ClientId(2)));
    drop(second);
    let third = lives.next();
    third.persist(&named(2)).unwrap();
    third.reclaim_done(ClientId(2));
    third.forgotten();
    assert_eq!(third.unreclaimed(), Unreclaimed::Delegations);
    third.persist(&named(1)).unwrap();
    third.reclaim_done(ClientId(1));
    third.forgotten();
    assert_eq!(third.unreclaimed(), Unreclaimed::Nothing);
}
