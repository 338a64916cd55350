//! An exclusive create is whole or has not begun: the server is killed in the midst of one, and the client that sends it again
//! to the next server is not told that its own file is in the way.

use std::rc::Rc;

use holdfast_ledger::failpoint::Point;
use holdfast_wire::nfs3::{Create3Args, CreateHow3, NfsStat3, Proc3};
use holdfast_xdr::{Reader, to_bytes};

use crate::nfs3::{self, clear, nfs};
use crate::nfs4::{self, OPENS};
use crate::server::World;

/// Where a create comes by: its file is made, and it has its name.
const STEPS: [usize; 2] = [1, 2];

#[test]
fn an_exclusive_create_of_nfs3_that_was_cut_short_succeeds_when_it_is_sent_again() {
    let world = Rc::new(World::new(Point::HalfMade, true));
    let client = nfs3::Client::of(&world);
    let create = |verifier: u8| {
        let how = CreateHow3::Exclusive([verifier; 8]);
        world.call(nfs(Proc3::Create), &to_bytes(&Create3Args { place: client.at("new"), how }))
    };
    let status = |call: &[u8]| Reader::new(&world.exchange(call)).u32().unwrap();
    for step in STEPS {
        let call = create(7);
        assert_eq!(world.kill_at(step, &call, || ()), None, "the server dies, step {step}");
        assert_eq!(status(&call), NfsStat3::Ok as u32, "the retry, step {step}");
        assert_eq!(status(&create(7)), NfsStat3::Ok as u32, "known again, step {step}");
        assert_eq!(status(&create(8)), NfsStat3::Exist as u32, "another's, step {step}");
        clear(&world.files());
    }
}

#[test]
fn so_does_an_exclusive_open_of_every_minor_version() {
    for minor in 0..=2 {
        let world = Rc::new(World::new(Point::HalfMade, true));
        let mut client = nfs4::Client::new(&world, "exclusive", minor);
        let is_meant =
            |case: &&nfs4::Case| case.name.starts_with("OPEN, exclusive") && case.minors.contains(&minor);
        for case in OPENS.iter().filter(is_meant) {
            for step in STEPS {
                client.strike_at(step, case, Point::HalfMade);
            }
        }
        assert_eq!(world.kills(), STEPS.len());
    }
}
