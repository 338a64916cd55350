//! Who has said HELLO: tickets, the connections that recalls go over, and under which handles clients know objects.

use std::sync::{Arc, Weak};

use holdfast_base::limits::{CAPS_CONNECTIONS_MAX, CAPS_TICKETS_PER_CLIENT_MAX};
use holdfast_base::{ClientId, Entropy, ExportId, FileKey, Instant, Timestamp};
use holdfast_export::WireHandle;
use holdfast_rpc::Connection;
use holdfast_wire::caps::Ticket;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Whose a ticket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) client: ClientId,
    pub(crate) incarnation: [u8; 16],
    pub(crate) epoch: u64,
}

/// An object as a client knows it.
struct Known {
    /// Under which it was granted.
    handle: WireHandle,
    /// Calls that may be granting something of it.
    granting: usize,
    /// Of a name that is promised by itself: the export that it is in, which its token does not tell.
    name_in: Option<ExportId>,
    /// The file's modification time when the client came to hold it exclusively, while it does and where that is known.
    written_since: Option<Timestamp>,
}

/// Something of an object may be about to be granted: it can be recalled for as long as this lives, and afterwards if
/// anything is held then.
pub(crate) struct Granting<'m, F: Fn() -> bool> {
    members: &'m Members,
    client: ClientId,
    file: FileKey,
    is_held: F,
}

impl<F: Fn() -> bool> Drop for Granting<'_, F> {
    fn drop(&mut self) {
        let mut table = self.members.table.lock();
        let known = table.clients.get_mut(&self.client).and_then(|of| of.known.get_mut(&self.file));
        if let Some(known) = known {
            known.granting -= 1;
        }
        drop(table);
        self.members.forgets(self.client, self.file, &self.is_held);
    }
}

#[derive(Default)]
struct Client {
    connections: Vec<Weak<Connection>>,
    known: FxHashMap<FileKey, Known>,
    /// Whose transactions may be its own: those of its mounts, the one that came last last.
    incarnations: Vec<[u8; 16]>,
    /// When it was last noted that it lives.
    alive_at: Option<Instant>,
}

#[derive(Default)]
struct Table {
    by_ticket: FxHashMap<Ticket, Member>,
    clients: FxHashMap<ClientId, Client>,
}

impl Table {
    fn add(&mut self, ticket: Ticket, member: Member) {
        self.by_ticket.insert(ticket, member);
        let its = &mut self.clients.entry(member.client).or_default().incarnations;
        its.retain(|of| *of != member.incarnation);
        if its.len() >= CAPS_TICKETS_PER_CLIENT_MAX {
            its.remove(0);
        }
        its.push(member.incarnation);
    }
}

/// All of them.
pub(crate) struct Members {
    table: Mutex<Table>,
    entropy: Mutex<Box<dyn Entropy>>,
}

impl Members {
    pub(crate) fn new(entropy: Box<dyn Entropy>) -> Self {
        Self { table: Mutex::default(), entropy: Mutex::new(entropy) }
    }

    /// The ticket of a member, made when it has none. `None` when it has too many under other incarnations.
    pub(crate) fn ticket(&self, member: Member) -> Option<Ticket> {
        let mut table = self.table.lock();
        // What was said in an earlier epoch is not to be taken for the present one's.
        let is_past = |of: &Member| of.client == member.client && of.epoch != member.epoch;
        table.by_ticket.retain(|_, of| !is_past(of));
        let own = table.by_ticket.iter().filter(|(_, of)| of.client == member.client);
        let mut count = 0;
        for (ticket, of) in own {
            if *of == member {
                let ticket = *ticket;
                table.add(ticket, member);
                return Some(ticket);
            }
            count += 1;
        }
        if count >= CAPS_TICKETS_PER_CLIENT_MAX {
            return None;
        }
        let mut entropy = self.entropy.lock();
        loop {
            let ticket = Ticket(entropy.u64());
            if ticket != Ticket(0) && !table.by_ticket.contains_key(&ticket) {
                table.add(ticket, member);
                return Some(ticket);
            }
        }
    }

    pub(crate) fn of(&self, ticket: Ticket) -> Option<Member> {
        self.table.lock().by_ticket.get(&ticket).copied()
    }

    /// Whose transactions may be a client's own.
    pub(crate) fn incarnations(&self, client: ClientId) -> Vec<[u8; 16]> {
        self.table.lock().clients.get(&client).map(|of| of.incarnations.clone()).unwrap_or_default()
    }

    /// A client shows that it lives; whether that is to be noted: once a second will do.
    pub(crate) fn is_news(&self, client: ClientId, now: Instant) -> bool {
        let mut table = self.table.lock();
        let of = table.clients.entry(client).or_default();
        let is_news = of.alive_at.is_none_or(|at| now.ms_since(at) >= 1000);
        if is_news {
            of.alive_at = Some(now);
        }
        is_news
    }

    /// Recalls of this client may go over this connection from now on.
    pub(crate) fn bind(&self, client: ClientId, connection: &Arc<Connection>) {
        let mut table = self.table.lock();
        let connections = &mut table.clients.entry(client).or_default().connections;
        connections
            .retain(|of| of.upgrade().is_some_and(|of| !of.is_closed() && !Arc::ptr_eq(&of, connection)));
        if connections.len() >= CAPS_CONNECTIONS_MAX {
            connections.remove(0);
        }
        connections.push(Arc::downgrade(connection));
    }

    /// A connection is gone. Clients that cannot be called any more.
    pub(crate) fn unbind(&self, connection: &Arc<Connection>) -> Vec<ClientId> {
        let mut lost = Vec::new();
        for (id, client) in &mut self.table.lock().clients {
            let before = client.connections.len();
            client.connections.retain(|of| of.upgrade().is_some_and(|of| !Arc::ptr_eq(&of, connection)));
            if before > 0 && client.connections.is_empty() {
                lost.push(*id);
            }
        }
        lost
    }

    /// The connection to call a client over, the one bound last first.
    pub(crate) fn connection(&self, client: ClientId) -> Option<Arc<Connection>> {
        let table = self.table.lock();
        let connections = table.clients.get(&client)?.connections.iter().rev();
        connections.filter_map(Weak::upgrade).find(|connection| !connection.is_closed())
    }

    /// A client holds something under this handle.
    pub(crate) fn knows(&self, client: ClientId, file: FileKey, handle: WireHandle) {
        self.note(client, file, (handle, 0));
    }

    /// A client may be granted something under this handle.
    pub(crate) fn may_know<F: Fn() -> bool>(
        &self,
        (client, file): (ClientId, FileKey),
        handle: WireHandle,
        is_held: F,
    ) -> Granting<'_, F> {
        self.note(client, file, (handle, 1));
        Granting { members: self, client, file, is_held }
    }

    fn note(&self, client: ClientId, file: FileKey, (handle, granting): (WireHandle, usize)) {
        let mut table = self.table.lock();
        let known = &mut table.clients.entry(client).or_default().known;
        let known =
            known.entry(file).or_insert(Known { handle, granting: 0, name_in: None, written_since: None });
        (known.handle, known.granting) = (handle, known.granting + granting);
    }

    /// What it may be granted is a name in this export. Before it is.
    pub(crate) fn is_name_in(&self, client: ClientId, name: FileKey, export: ExportId) {
        let mut table = self.table.lock();
        if let Some(known) = table.clients.get_mut(&client).and_then(|of| of.known.get_mut(&name)) {
            known.name_in = Some(export);
        }
    }

    /// The names that are promised by themselves, and the exports that they are in.
    pub(crate) fn names(&self) -> Vec<(FileKey, ExportId)> {
        let table = self.table.lock();
        let known = table.clients.values().flat_map(|of| &of.known);
        known.filter_map(|(name, known)| Some((*name, known.name_in?))).collect()
    }

    /// It may write the file unseen, which has this modification time: what it will have written is not older.
    pub(crate) fn writes_since(&self, client: ClientId, file: FileKey, mtime: Timestamp) {
        let mut table = self.table.lock();
        if let Some(known) = table.clients.get_mut(&client).and_then(|of| of.known.get_mut(&file)) {
            known.written_since.get_or_insert(mtime);
        }
    }

    /// It may not any more.
    pub(crate) fn writes_no_more(&self, client: ClientId, file: FileKey) {
        let mut table = self.table.lock();
        if let Some(known) = table.clients.get_mut(&client).and_then(|of| of.known.get_mut(&file)) {
            known.written_since = None;
        }
    }

    pub(crate) fn written_since(&self, client: ClientId, file: FileKey) -> Option<Timestamp> {
        self.table.lock().clients.get(&client)?.known.get(&file)?.written_since
    }

    pub(crate) fn handle(&self, client: ClientId, file: FileKey) -> Option<WireHandle> {
        self.table.lock().clients.get(&client)?.known.get(&file).map(|known| known.handle)
    }

    /// Under which handles clients know what they hold.
    pub(crate) fn handles(&self) -> Vec<(FileKey, WireHandle)> {
        let table = self.table.lock();
        let known = table.clients.values().flat_map(|of| &of.known);
        known.map(|(file, known)| (*file, known.handle)).collect()
    }

    /// A client held nothing of an object any more. It is asked once more whether it does: who says so may have been slow, and
    /// another call have granted it something since, which could not be recalled without the handle.
    pub(crate) fn forgets(&self, client: ClientId, file: FileKey, is_held: impl Fn() -> bool) {
        let mut table = self.table.lock();
        let Some(of) = table.clients.get_mut(&client) else { return };
        // Under the lock: whoever grants notes the handle first.
        if of.known.get(&file).is_some_and(|known| known.granting == 0) && !is_held() {
            of.known.remove(&file);
        }
    }

    /// Everything said under a client's tickets is void.
    pub(crate) fn revoke(&self, client: ClientId) {
        let mut table = self.table.lock();
        table.by_ticket.retain(|_, of| of.client != client);
        if let Some(of) = table.clients.get_mut(&client) {
            of.known.values_mut().for_each(|known| known.written_since = None);
        }
    }

    /// Tickets, and what they stand for.
    pub(crate) fn tickets(&self) -> Vec<(Ticket, Member)> {
        self.table.lock().by_ticket.iter().map(|(ticket, member)| (*ticket, *member)).collect()
    }

    /// The numbers of connections that clients can be called over, the one bound last last.
    pub(crate) fn bound(&self) -> Vec<(ClientId, u64)> {
        let table = self.table.lock();
        let of = |(id, client): (&ClientId, &Client)| {
            let connections = client.connections.iter().filter_map(Weak::upgrade);
            connections.map(|connection| (*id, connection.id())).collect::<Vec<_>>()
        };
        table.clients.iter().flat_map(of).collect()
    }

    /// Goes on with a ticket of a former process.
    pub(crate) fn adopt(&self, ticket: Ticket, member: Member) {
        self.table.lock().add(ticket, member);
    }

    /// A ticket is given up.
    pub(crate) fn drop_ticket(&self, ticket: Ticket) {
        let mut table = self.table.lock();
        let Some(member) = table.by_ticket.remove(&ticket) else { return };
        if let Some(client) = table.clients.get_mut(&member.client) {
            client.incarnations.retain(|of| *of != member.incarnation);
        }
    }

    /// All tickets are given up; what they stand for stays.
    pub(crate) fn drop_tickets(&self) {
        self.table.lock().by_ticket.clear();
    }

    /// A client is gone.
    pub(crate) fn remove(&self, client: ClientId) {
        let mut table = self.table.lock();
        table.by_ticket.retain(|_, of| of.client != client);
        table.clients.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_base::SeededEntropy;
    use std::cell::Cell;

    #[test]
    fn a_handle_is_known_for_as_long_as_anything_is_held_or_may_be_granted() {
        let (members, is_held) = (Members::new(Box::new(SeededEntropy(1))), Cell::new(false));
        let (key, handle) = ((ClientId(1), FileKey(2)), WireHandle::new(b"handle").unwrap());
        let is_known = || members.handle(key.0, key.1).is_some();
        let first = members.may_know(key, handle, || is_held.get());
        let second = members.may_know(key, handle, || is_held.get());
        drop(first);
        members.forgets(key.0, key.1, || is_held.get());
        assert!(is_known(), "the other call may be granted something yet");
        is_held.set(true);
        drop(second);
        members.forgets(key.0, key.1, || is_held.get());
        assert!(is_known(), "it was");
        is_held.set(false);
        members.forgets(key.0, key.1, || is_held.get());
        assert!(!is_known());
        drop(members.may_know(key, handle, || is_held.get()));
        assert!(!is_known(), "nothing was granted");
    }
}
