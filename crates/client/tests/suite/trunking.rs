//! Several addresses of one server (RFC 8881 section 2.10.5), against a server by script: sessions reach from one to the other where
//! `minor_id` is the same, the client id where it is not.

use std::sync::Arc;

use holdfast_client::{Cancel, Client, Cred, Options};
use holdfast_wire::nfs4::NfsStat4;

use super::protocol::Guest;
use super::script::Script;
use super::world::Heard;

/// A client of both addresses of a server, the first in use, with so many connections.
fn of(script: &Script, other: std::net::SocketAddr, connections: usize) -> Guest {
    let (heard, cancel) = (Arc::new(Heard::default()), Cancel::new());
    let servers = vec![script.address.to_string(), other.to_string()];
    let options = Options { connections, ..Options::new(servers) };
    let client = Client::connect(options, Arc::clone(&heard) as _, &cancel).unwrap();
    Guest { client, heard, cred: Cred::own(), cancel }
}

#[test]
fn a_session_is_bound_only_where_it_reaches() {
    for (minor_id, bound_at) in [(0, 1), (1, 0)] {
        let script = Script::new();
        let other = script.also_at(minor_id);
        let guest = of(&script, other, 2);
        guest.look();
        script.shared.wait("a second connection", |state| !state.bound.is_empty());
        assert_eq!(script.shared.state.lock().bound, [bound_at], "minor_id {minor_id}");
    }
}

#[test]
fn where_its_session_does_not_reach_a_client_makes_one_and_keeps_its_state() {
    for (minor_id, sessions) in [(0, 1), (1, 2)] {
        let script = Script::new();
        let other = script.also_at(minor_id);
        let guest = of(&script, other, 1);
        let file = guest.open();
        assert!(guest.client.remove_server(&script.address.to_string()));
        guest.look();
        assert_eq!(guest.client.servers().1, Some(other.to_string()));
        let state = script.shared.state.lock();
        assert_eq!((state.sessions, state.reclaimed, state.opens), (sessions, 0, 1), "minor_id {minor_id}");
        drop((state, file));
    }
}

#[test]
fn connections_to_where_the_session_was_do_not_keep_a_client_from_the_next_one() {
    let script = Script::new();
    let other = script.also_at(1);
    let guest = of(&script, other, 2);
    guest.look();
    script.shared.wait("a second connection", |state| state.bound == [0]);
    script.turn_away();
    script.shared.wait("a session there", |state| state.sessions > 1);
    script.shared.wait("a second connection", |state| state.bound.contains(&1));
    guest.look();
    assert_eq!(guest.client.servers().1, Some(other.to_string()));
    assert_eq!(script.shared.state.lock().sessions, 2, "it makes one there, and no more");
}

#[test]
fn a_server_that_does_not_take_a_client_in_does_not_keep_it_from_others() {
    for refusal in [NfsStat4::ServerFault, NfsStat4::Perm] {
        let script = Script::new();
        let other = script.also_at(0);
        let guest = of(&script, other, 1);
        guest.look();
        script.shared.state.lock().introductions = [refusal; 100].into();
        script.turn_away();
        let third = Script::new();
        assert!(guest.client.add_server(third.address.to_string()));
        guest.look();
        assert_eq!(guest.client.servers().1, Some(third.address.to_string()), "{refusal}");
    }
}
