//! Who the clients are, and revoking one.

use holdfast_admin::AskError;
use holdfast_admin::report::{Client, Taken};
use holdfast_admin::request::{ClientsWanted, Code, Request};
use holdfast_wire::nfs4::NfsStat4;

use crate::nfs4::Nfs4;
use crate::server::Server;
use crate::{ask, locks, of_client};

fn clients(server: &Server, client: Option<&str>) -> Vec<Client> {
    ask(server).clients(ClientsWanted { client: client.map(str::to_owned), after: None }).unwrap()
}

#[test]
fn clients_are_shown_with_what_they_hold_and_found_by_id_name_and_address() {
    let server = Server::start();
    let mut one = Nfs4::new(server.address, "one", 1);
    let open = one.open("a");
    one.lock("a", open).unwrap();
    let _two = Nfs4::new(server.address, "two", 0);
    let all = clients(&server, None);
    let found = |name: &str| all.iter().find(|client| client.name == name).expect(name);
    let (one, two) = (found("one"), found("two"));
    assert_eq!((&*one.protocol, one.opens, one.locks, one.sessions), ("NFSv4.1+", 1, 1, 1));
    assert_eq!((&*one.back_channel, &*one.addresses), ("up", &["127.0.0.1".to_owned()][..]));
    assert_eq!((&*two.protocol, two.opens, two.locks), ("NFSv4.0", 0, 0));
    assert!(one.is_confirmed && two.is_confirmed && !one.is_courteous);
    let left = one.lease_left_ms.expect("its lease runs");
    assert!(left > 30_000 && left <= 60_000, "{left}");
    assert_eq!(one.idle_ms, Some(60_000 - left));
    for chosen in ["127.0.0.1", &one.id, &one.name] {
        let [found] = &clients(&server, Some(chosen))[..] else { panic!("one client is {chosen}") };
        assert_eq!(found.id, one.id);
    }
}

#[test]
fn a_client_revoked_holds_nothing_and_others_get_what_it_had() {
    let server = Server::start();
    let mut holder = Nfs4::new(server.address, "holder", 1);
    let mut next = Nfs4::new(server.address, "next", 1);
    let (a, b) = (holder.open("a"), next.open("a"));
    holder.lock("a", a).unwrap();
    assert_eq!(next.lock("a", b).unwrap_err(), NfsStat4::Denied);
    let taken: Taken = ask(&server).ask(Request::Revoke { client: "holder".into() }).unwrap();
    assert_eq!((&*taken.clients, taken.holdings), (&["holder".to_owned()][..], 2));
    next.lock("a", b).unwrap();
    assert!(locks(&server, of_client("holder")).is_empty());
    assert!(!clients(&server, None).iter().any(|client| client.name == "holder"));
    let again = ask(&server).ask::<Taken>(Request::Revoke { client: "holder".into() }).unwrap_err();
    assert!(matches!(again, AskError::Refused(refusal) if refusal.code == Code::NotFound));
}
