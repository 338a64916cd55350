//! Locks that came through NLM, beside NFSv3.

use holdfast_admin::report::{HoldingKind, Taken};
use holdfast_admin::request::{ClientsWanted, Request, Which};

use crate::client::{Client, NFS3, opaque, word, words};
use crate::server::{Server, root};
use crate::{ask, locks, on};

const NLM: (u32, u32) = (100_021, 4);
const NLM_TEST: u32 = 1;
const NLM_LOCK: u32 = 2;

/// Asks for an exclusive lock of bytes 10 to 19 in the name of a process of this host; the status.
fn lock(client: &mut Client, file: &[u8], (procedure, process): (u32, u32)) -> u32 {
    let mut args = opaque(b"cookie");
    if procedure == NLM_LOCK {
        args.extend(words(&[0]));
    }
    args.extend(words(&[1]));
    args.extend([opaque(b"v3host"), opaque(file), opaque(b"owner")].concat());
    args.extend(words(&[process, 0, 10, 0, 10]));
    if procedure == NLM_LOCK {
        args.extend(words(&[0, 1]));
    }
    let results = client.ask(NLM, procedure, &args);
    word(&results, 3)
}

#[test]
fn locks_of_nfsv3_clients_are_shown_and_taken() {
    let server = Server::start();
    std::fs::write(server.file("a"), "").unwrap();
    let mut client = Client::connect(server.address);
    let dir = root(&mut client);
    let found = client.ask(NFS3, 3, &[opaque(&dir), opaque(b"a")].concat());
    assert_eq!(word(&found, 0), 0, "LOOKUP");
    let file = found[8..8 + word(&found, 1) as usize].to_vec();
    assert_eq!(lock(&mut client, &file, (NLM_LOCK, 7)), 0, "NLM4_GRANTED");
    assert_eq!(lock(&mut client, &file, (NLM_TEST, 8)), 1, "NLM4_DENIED");
    let held = locks(&server, on(&server.file("a")));
    let [held] = &held[..] else { panic!("one lock: {held:?}") };
    assert_eq!((held.kind, &*held.protocol, &*held.client_name), (HoldingKind::Lock, "NLM", "v3host"));
    assert_eq!((held.ranges[0].first, held.ranges[0].last), (10, Some(19)));
    assert!(held.owner.as_ref().unwrap().contains("process 7"));
    let hosts = ask(&server).clients(ClientsWanted { client: Some("v3host".into()), after: None }).unwrap();
    assert_eq!((&*hosts[0].id, hosts[0].locks), ("nlm:v3host@127.0.0.1", 1));
    let which = Which { client: Some("v3host".into()), ..Which::default() };
    let taken: Taken = ask(&server).ask(Request::Release(which)).unwrap();
    assert_eq!(taken.holdings, 1);
    assert_eq!(lock(&mut client, &file, (NLM_TEST, 8)), 0, "free again");
    // As another process: the same request again would be a repetition, and get the reply of the first.
    assert_eq!(lock(&mut client, &file, (NLM_LOCK, 9)), 0);
    let taken: Taken = ask(&server).ask(Request::Revoke { client: "v3host".into() }).unwrap();
    assert_eq!((&*taken.clients, taken.holdings), (&["v3host".to_owned()][..], 1));
    assert_eq!(lock(&mut client, &file, (NLM_TEST, 8)), 0, "free again");
}
