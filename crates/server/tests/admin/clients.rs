//! Who the clients are, and revoking one.

use holdfast_admin::AskError;
use holdfast_admin::report::{Client as Shown, HoldingKind, Taken};
use holdfast_admin::request::{ClientsWanted, Code, Request, Which};
use holdfast_wire::caps::CapSet;
use holdfast_wire::nfs4::NfsStat4;

use crate::client::Client;
use crate::mount::Mount;
use crate::nfs4::Nfs4;
use crate::server::{Server, root};
use crate::{ask, locks, of_client, on};

fn clients(server: &Server, client: Option<&str>) -> Vec<Shown> {
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
fn what_mounts_hold_is_counted_and_listed_by_path_when_asked_for() {
    let server = Server::start();
    std::fs::create_dir(server.file("dir")).unwrap();
    std::fs::write(server.file("file"), "content").unwrap();
    let session = Nfs4::new(server.address, "a mount", 1);
    let mut mount = Mount::new(&server, session.session());
    let root = root(&mut Client::connect(server.address));
    let (dir, file) = (mount.look_up(&root, b"dir"), mount.look_up(&root, b"file"));
    assert!(mount.acquire(&dir, CapSet::ALL_X).held.contains(CapSet::FILE_X));
    assert_eq!(mount.acquire(&file, CapSet::ALL_S).held, CapSet::ALL_S);
    let [client] = &clients(&server, Some("a mount"))[..] else { panic!("one client") };
    assert_eq!((client.capabilities, client.capabilities_recalled), (2, 0));
    assert!(locks(&server, of_client("a mount")).is_empty(), "not unless they are asked for");
    let kinds = vec![HoldingKind::Capability];
    let held = locks(&server, Which { kinds: kinds.clone(), ..of_client("a mount") });
    let mut shown: Vec<_> = held.iter().map(|held| (held.path.as_deref(), held.access.as_deref())).collect();
    shown.sort_unstable();
    let (dir_path, file_path) = (server.file("dir"), server.file("file"));
    let all = [
        (dir_path.to_str(), Some("auth=x link=x xattr=x file=x")),
        (file_path.to_str(), Some("auth=s link=s xattr=s file=s")),
    ];
    assert_eq!(shown, all);
    assert!(held.iter().all(|held| held.recalled_unix_ms.is_none() && held.client_name == "a mount"));
    // A local process changes what is held: it is asked back, and shown so until it is given.
    std::fs::write(server.file("dir/local"), "").unwrap();
    let asked = mount.next_recall();
    let held = locks(&server, Which { kinds, ..on(&dir_path) });
    assert!(matches!(&held[..], [held] if held.recalled_unix_ms.is_some()), "{held:?}");
    assert_eq!(clients(&server, Some("a mount"))[0].capabilities_recalled, 1);
    mount.release(&asked);
    assert_eq!(clients(&server, Some("a mount"))[0].capabilities, 1);
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
