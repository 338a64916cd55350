//! Whose requests of 4.0 are: most of them do not say. Those that name a client tell of all others on the same
//! connection, as long as no other client is named there: without this a client would be in the way of its own
//! delegation whenever it looks at its file. A connection has one process at its other end; one that serves several
//! clients is attributed to none.

use holdfast_base::ClientId;
use holdfast_state::ConnId;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

/// Connections on which clients of 4.0 were named; `None` for those with more than one. Bounded by the connections.
#[derive(Default)]
pub(crate) struct Attribution(RwLock<FxHashMap<ConnId, Option<ClientId>>>);

impl Attribution {
    /// A request on this connection named a client, rightly.
    pub(crate) fn note(&self, conn: ConnId, client: ClientId) {
        if self.0.read().get(&conn) == Some(&Some(client)) {
            return;
        }
        self.0
            .write()
            .entry(conn)
            .and_modify(|of| *of = of.filter(|of| *of == client))
            .or_insert(Some(client));
    }

    /// The one client named on this connection.
    pub(crate) fn of(&self, conn: ConnId) -> Option<ClientId> {
        self.0.read().get(&conn).copied().flatten()
    }

    pub(crate) fn forget(&self, conn: ConnId) {
        self.0.write().remove(&conn);
    }

    /// As plain data: connections, and the client of each; 0, which no client is, where there is more than one.
    pub(crate) fn freeze(&self) -> Vec<(u64, u64)> {
        self.0.read().iter().map(|(conn, of)| (conn.0, of.map_or(0, |client| client.0))).collect()
    }

    /// Goes on with it: connections keep their numbers.
    pub(crate) fn thaw(&self, image: &[(u64, u64)]) {
        let client = |of: u64| (of != 0).then_some(ClientId(of));
        self.0.write().extend(image.iter().map(|(conn, of)| (ConnId(*conn), client(*of))));
    }

    /// A client is no more: the connection may go on as its successor's.
    pub(crate) fn client_gone(&self, client: ClientId) {
        self.0.write().retain(|_, of| *of != Some(client));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_its_only_clients_and_nobodys_once_there_are_two() {
        let all = Attribution::default();
        let (conn, one, other) = (ConnId(1), ClientId(1), ClientId(2));
        assert_eq!(all.of(conn), None);
        all.note(conn, one);
        all.note(conn, one);
        assert_eq!((all.of(conn), all.of(ConnId(2))), (Some(one), None));
        all.note(conn, other);
        all.note(conn, one);
        assert_eq!(all.of(conn), None);
        all.note(ConnId(2), one);
        let next = Attribution::default();
        next.thaw(&all.freeze());
        next.note(conn, one);
        assert_eq!((next.of(conn), next.of(ConnId(2))), (None, Some(one)));
        all.forget(conn);
        all.note(conn, one);
        all.client_gone(one);
        all.note(conn, other);
        assert_eq!(all.of(conn), Some(other));
    }
}
