//! The network: ordered streams that are late, cut at any moment, or cut off for a while.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};

use holdfast_wire::nfs4::{CB_COMPOUND, CbArgOp, CbCompoundArgsHeader, NFS4_CALLBACK_PROGRAM};
use holdfast_wire::rpc::{CallBody, MsgType, Prefix};
use holdfast_xdr::{Decode, Reader};

use super::calls::PATIENCE_MS;
use super::{Endpoint, Link, LinkId, Noted, World};
use crate::life::{LEASE_MS, Plant};

impl World {
    pub(super) fn net_ms(&self, host: usize) -> u64 {
        let mut rng = self.rng.borrow_mut();
        let ms = match rng.below(100) {
            0..8 if !self.is_calm() => rng.between(20, 300),
            8..10 if !self.is_calm() => rng.between(300, 4_000),
            _ => rng.between(1, 4),
        };
        ms + self.partitioned_until.borrow()[host].saturating_sub(self.now())
    }

    /// A callback leaves the server. If it recalls a delegation, its holder has a while to hear of that; unless recalls
    /// are dropped by this defect, and the world has it.
    pub(super) fn is_recall_dropped(&self, callback: &[u8], plant: Plant) -> bool {
        let Some(stateid) = recalled_by(callback) else { return false };
        if self.plant == Some(plant) {
            return true;
        }
        let until = self.now() + LEASE_MS / 2;
        self.oracles.grants(|grants| {
            grants.recalled(stateid, until);
            Ok(())
        });
        false
    }

    /// Opens a connection; `None` when nobody listens.
    pub async fn connect(&self, host: usize, endpoint: Weak<dyn Endpoint>) -> Option<LinkId> {
        self.exec.sleep(self.net_ms(host)).await;
        while !self.is_awake() {
            self.exec.sleep(self.frozen_until.get() - self.now()).await;
        }
        // An address of its own for each host; the port changes with the connection.
        let id = self.last_link.get() + 1;
        let peer: SocketAddr = ([192, 0, 2, host as u8 + 1], 600 + (id % 400) as u16).into();
        let side = self.with_life(|life| life.base.another(peer))?;
        self.last_link.set(id);
        let now = self.now();
        let link = Link {
            host,
            endpoint,
            side: Some(side),
            to_server_at: now,
            to_client_at: now,
            is_open: true,
            deaf_after: u64::MAX,
            called: VecDeque::new(),
        };
        self.links.borrow_mut().insert(id, link);
        self.note(Noted::Connected, &id.to_be_bytes());
        self.tell(|| format!("client {host}: connected (link {id})"));
        self.exec.sleep(self.net_ms(host)).await;
        Some(id)
    }

    /// Sends a record to the server.
    pub fn send(&self, id: LinkId, record: Vec<u8>) {
        let Some(host) = self.links.borrow().get(&id).filter(|link| link.is_open).map(|link| link.host)
        else {
            return;
        };
        let at = self.now() + self.net_ms(host);
        let mut links = self.links.borrow_mut();
        let Some(link) = links.get_mut(&id) else { return };
        link.to_server_at = link.to_server_at.max(at);
        let wait = link.to_server_at - self.now();
        drop(links);
        self.later(wait, move |world| world.at_server(id, &record));
    }

    pub(super) fn at_server(self: &Rc<Self>, id: LinkId, record: &[u8]) {
        if !self.is_awake() {
            let (wait, record) = (self.frozen_until.get() - self.now(), record.to_vec());
            return self.later(wait, move |world| world.at_server(id, &record));
        }
        let side = {
            let mut links = self.links.borrow_mut();
            let Some(link) = links.get_mut(&id).filter(|link| self.now() <= link.deaf_after) else { return };
            link.side.take()
        };
        let Some(mut side) = side else {
            // A server that knows nothing of the connection resets it.
            return self.tell_lost(id);
        };
        self.note(Noted::ToServer, record);
        self.serve(|_, _| side.deliver(record));
        if !self.is_up() {
            return;
        }
        let is_closed = side.connection().is_closed();
        if let Some(link) = self.links.borrow_mut().get_mut(&id) {
            link.side = (!is_closed).then_some(side);
        }
        if is_closed {
            return self.tell_lost(id);
        }
        // What was offloaded may run later than what comes next.
        if self.rng.borrow_mut().percent(if self.is_calm() { 0 } else { 25 }) {
            if !self.is_work_due.replace(true) {
                let ms = self.disk_ms();
                self.later(ms, |world| {
                    world.is_work_due.set(false);
                    if world.is_up() {
                        world.collect();
                    }
                });
            }
        } else {
            self.collect();
        }
    }

    /// The time for answers to the server's calls is over, a while after they were made.
    pub(super) fn give_up_calls(&self) {
        let due = |(_, at): &(u32, u64)| at + PATIENCE_MS <= self.now();
        self.serve(|_, _| {
            for link in self.links.borrow_mut().values_mut() {
                while let Some((xid, _)) = link.called.front().copied().filter(due) {
                    link.called.pop_front();
                    if let Some(side) = &link.side {
                        side.time_out_call(xid);
                    }
                }
            }
        });
    }

    pub(super) fn to_client(&self, id: LinkId, record: Vec<u8>) {
        if is_call(&record)
            && let Some((xid, _)) = record.split_first_chunk()
            && let Some(link) = self.links.borrow_mut().get_mut(&id)
        {
            link.called.push_back((u32::from_be_bytes(*xid), self.now()));
        }
        // Also of what goes to a connection that only the server believes in.
        if callback_in(&record).is_some_and(|args| self.is_recall_dropped(args, Plant::DropRecalls)) {
            return;
        }
        let Some(host) = self.links.borrow().get(&id).filter(|link| link.is_open).map(|link| link.host)
        else {
            return;
        };
        let is_swallowed = self.plant == Some(Plant::SwallowReplies) && host == 0 && self.now() > 5_000;
        if is_swallowed && record.len() > 120 {
            self.swallowed.set(self.swallowed.get() + 1);
            return;
        }
        let at = self.now() + self.net_ms(host);
        let mut links = self.links.borrow_mut();
        let Some(link) = links.get_mut(&id) else { return };
        link.to_client_at = link.to_client_at.max(at);
        let wait = link.to_client_at - self.now();
        drop(links);
        self.later(wait, move |world| {
            let endpoint = {
                let links = world.links.borrow();
                let Some(link) = links.get(&id).filter(|link| link.is_open) else { return };
                link.endpoint.upgrade()
            };
            world.note(Noted::ToClient, &record);
            if let Some(endpoint) = endpoint {
                endpoint.received(id, &record);
            }
        });
    }

    /// Tells the client, a little later, that its connection is gone.
    pub(super) fn tell_lost(&self, id: LinkId) {
        self.later(1, move |world| {
            let endpoint = {
                let mut links = world.links.borrow_mut();
                let Some(link) = links.get_mut(&id).filter(|link| link.is_open) else { return };
                link.is_open = false;
                link.endpoint.upgrade()
            };
            world.note(Noted::Lost, &id.to_be_bytes());
            world.tell(|| format!("link {id} is lost"));
            if let Some(endpoint) = endpoint {
                endpoint.lost(id);
            }
            world.close_side(id);
        });
    }

    /// The server notices that a connection ended, now or much later; until a moment before, what is on its way
    /// still reaches it.
    pub(super) fn close_side(&self, id: LinkId) {
        let mut rng = self.rng.borrow_mut();
        let deaf_ms = if rng.percent(50) { 0 } else { rng.between(1, 2_000) };
        let notices_ms = deaf_ms + if rng.percent(70) { 1 } else { rng.between(1, 30_000) };
        drop(rng);
        if let Some(link) = self.links.borrow_mut().get_mut(&id) {
            link.deaf_after = self.now() + deaf_ms;
        }
        self.later(notices_ms, move |world| {
            let link = world.links.borrow_mut().remove(&id);
            if let Some(side) = link.and_then(|link| link.side) {
                world.serve(|_, _| side.close());
                if world.is_up() {
                    world.collect();
                }
            }
        });
    }

    /// The client lets go of its connection.
    pub fn hang_up(&self, id: LinkId) {
        let is_open = self.links.borrow_mut().get_mut(&id).is_some_and(|l| std::mem::take(&mut l.is_open));
        if is_open {
            self.close_side(id);
        }
    }

    /// Cuts one of the connections.
    pub fn cut(&self, nth: u64) {
        let open: Vec<LinkId> =
            self.links.borrow().iter().filter(|(_, l)| l.is_open).map(|(id, _)| *id).collect();
        if let Some(id) = open.get(nth as usize % open.len().max(1)) {
            self.note(Noted::Fault, &id.to_be_bytes());
            self.tell(|| format!("network: link {id} is cut"));
            self.tell_lost(*id);
        }
    }

    /// A client's packets do not pass for so long.
    pub fn partition(&self, host: usize, ms: u64) {
        self.note(Noted::Fault, &ms.to_be_bytes());
        self.tell(|| format!("network: client {host} is cut off for {ms} ms"));
        self.partitioned_until.borrow_mut()[host] = self.now() + ms;
    }

    /// The server's machine sleeps for so long.
    pub fn freeze(&self, ms: u64) {
        self.note(Noted::Fault, &ms.to_be_bytes());
        self.tell(|| format!("server: suspended for {ms} ms"));
        self.frozen_until.set(self.now() + ms);
    }
}

/// Whether a record of the server's is a call that it waits for the answer of.
fn is_call(record: &[u8]) -> bool {
    Prefix::decode(&mut Reader::new(record)).is_ok_and(|prefix| prefix.mtype == MsgType::Call)
}

/// The arguments of a record's CB_COMPOUND, if it is one.
fn callback_in(record: &[u8]) -> Option<&[u8]> {
    let mut r = Reader::new(record);
    Prefix::decode(&mut r).ok().filter(|prefix| prefix.mtype == MsgType::Call)?;
    let body = CallBody::decode(&mut r).ok()?;
    (body.proc == CB_COMPOUND && body.prog == NFS4_CALLBACK_PROGRAM).then(|| r.rest())
}

/// The delegation that a callback recalls, if it does.
fn recalled_by(args: &[u8]) -> Option<[u8; 12]> {
    let mut r = Reader::new(args);
    let header = CbCompoundArgsHeader::decode(&mut r).ok()?;
    for _ in 0..header.ops {
        if let CbArgOp::Recall(recall) = CbArgOp::decode(&mut r).ok()? {
            return Some(recall.stateid.other);
        }
    }
    None
}
