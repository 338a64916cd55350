//! Many clients come back to a server that was killed, not all of them at once: each has what it had, and nobody else, before
//! the last has said that it has reclaimed everything.

use std::fs;
use std::rc::Rc;

use holdfast_ledger::failpoint::Point;
use holdfast_wire::nfs4::NfsStat4;

use crate::nfs4::Client;
use crate::revoked::Holder;
use crate::server::World;

const CLIENTS: usize = 200;

struct Crowd {
    world: Rc<World>,
    holders: Vec<Holder>,
    names: Vec<&'static str>,
}

impl Crowd {
    /// Clients of 4.1, each with a file that it denies all others.
    fn new() -> Self {
        let world = Rc::new(World::lasting(None, Point::BeforeSend, true));
        let names: Vec<&'static str> = (0..CLIENTS).map(|n| &*format!("of-{n}").leak()).collect();
        let holders = names.iter().map(|name| {
            fs::write(world.files().join(name), b"precious").unwrap();
            let mut holder = Holder::named(&world, name, 1);
            holder.open(name.as_bytes());
            holder
        });
        let holders = holders.collect();
        Self { world, holders, names }
    }

    fn reclaim(&mut self, which: std::ops::Range<usize>) {
        for n in which {
            assert_eq!(self.holders[n].reclaim(self.names[n].as_bytes()), NfsStat4::Ok, "{}", self.names[n]);
        }
    }
}

#[test]
fn each_has_back_what_it_had_and_grace_lasts_until_the_last_has() {
    let mut crowd = Crowd::new();
    crowd.world.kill();
    crowd.reclaim(0..CLIENTS / 2);
    // Once more in the middle of it: who had reclaimed does so again.
    crowd.world.kill();
    crowd.reclaim(0..CLIENTS);
    let mut newcomer = Client::new(&crowd.world, "newcomer", 1);
    let (last, others) = crowd.holders.split_last_mut().unwrap();
    others.iter_mut().for_each(|holder| holder.client.complete_reclaims());
    assert_eq!(newcomer.try_open(crowd.names[0].as_bytes()), NfsStat4::Grace);
    last.client.complete_reclaims();
    for name in &crowd.names {
        assert_eq!(newcomer.try_open(name.as_bytes()), NfsStat4::ShareDenied, "{name}");
    }
}
