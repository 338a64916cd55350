//! APPEND: data where a file ends by then, once.

use holdfast_base::CapSet;
use holdfast_state::{Access, Backing, Caller, Claim, Grace, OpenId, OpenRequest, Share};
use holdfast_wire::caps::*;

use crate::world::*;

fn append<'a>(object: &'a [u8], data: &'a [u8]) -> Vec<BatchOp<'a>> {
    vec![BatchOp::Append { object: at(object), data }]
}

fn appended(ok: &BatchOk<'_>) -> (u64, u32) {
    match ok.results[..] {
        [Res::Ok(OpResult::Appended(Appended { offset, count, .. }))] => (offset, count),
        _ => panic!("{ok:?}"),
    }
}

/// A file with this in it, made by the client's first transaction.
fn file(client: &mut Client, root: &[u8], data: &[u8]) -> Vec<u8> {
    let ok = client.batch(1, vec![create(at(root), "log", data)]).unwrap();
    made(&ok.results[0]).handle.0.to_vec()
}

#[test]
fn each_is_where_the_one_before_has_ended_whoever_that_was() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let log = file(&mut a, &root, b"begin ");
    assert_eq!(appended(&b.batch(1, append(&log, b"one ")).unwrap()), (6, 4));
    let ok = a.batch(2, append(&log, b"two ")).unwrap();
    assert_eq!(appended(&ok), (10, 4));
    let [Res::Ok(OpResult::Appended(Appended { attrs: Some(attrs), .. }))] = ok.results[..] else { panic!() };
    assert_eq!(attrs.size, 14);
    assert_eq!(server.read("log"), b"begin one two ");
    let refusal = a.batch(3, append(&root, b"x")).unwrap();
    assert!(refused(&refusal.results[0]).is_some(), "a directory has no end");
}

#[test]
fn what_is_sent_again_is_appended_once_and_told_as_before() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let log = file(&mut a, &root, b"");
    a.batch(2, append(&log, b"one ")).unwrap();
    b.batch(1, append(&log, b"two ")).unwrap();
    assert_eq!(appended(&a.batch(2, append(&log, b"one ")).unwrap()), (0, 4));
    assert_eq!(server.read("log"), b"one two ");
}

#[test]
fn what_the_exclusive_holder_has_not_sent_comes_before_it() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let log = file(&mut a, &root, b"");
    assert!(a.acquire(&log, CapSet::ALL_X).unwrap().grant.held.contains(CapSet::FILE_X));
    assert_eq!(b.batch(1, append(&log, b"later ")), Err(CapsStat::Delay));
    a.batch(2, vec![BatchOp::Data { object: at(&log), offset: 0, data: b"first " }]).unwrap();
    a.give_back();
    assert_eq!(appended(&b.batch(1, append(&log, b"later ")).unwrap()), (6, 6));
    assert_eq!(server.read("log"), b"first later ");
}

#[test]
fn who_has_the_file_open_and_denies_writing_is_waited_for() {
    let server = Server::new();
    let (mut a, b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let log = file(&mut a, &root, b"");
    let (session, key) = (b.session, object(&server, &log).key());
    let opened = server.running.manager.step(|engine, now| {
        let client = engine.sessions().get(session).unwrap().client();
        let share = Share { access: Access::READ, deny: Access::WRITE };
        let request = OpenRequest { client, owner: b"o", file: key, share, claim: Claim::New };
        let opened = engine.open(&request, now).unwrap();
        if let Backing::Needed(access) = opened.backing {
            engine.attach(&opened.ticket, OpenId(1), access).unwrap();
        }
        (client, engine.open_commit(opened.ticket).unwrap())
    });
    let (client, open) = opened.unwrap();
    assert_eq!(a.batch(2, append(&log, b"late")), Err(CapsStat::Delay));
    assert_eq!(server.read("log"), b"");
    let closed = server.running.manager.step(|engine, now| engine.close(Caller::V41(client), open, key, now));
    closed.unwrap().unwrap();
    assert_eq!(appended(&a.batch(2, append(&log, b"late")).unwrap()), (0, 4));
}

/// After a death of the server, of the machine's power as well, or not.
fn again_after(power: bool, meanwhile: impl FnOnce(&Server)) -> (Server, BatchOk<'static>) {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    let log = file(&mut client, &root, b"begin ");
    client.batch(2, append(&log, b"one ")).unwrap();
    meanwhile(&server);
    let mount = client.unplug();
    let server =
        if power { server.restart_after_power_loss(Grace::Over) } else { server.restart(Grace::Over) };
    let mut client = mount.again(&server, "a");
    client.hello(TxnId(0)).unwrap();
    let made = client.batch(1, vec![create(at(&root), "log", b"begin ")]).unwrap();
    assert!(refused(&made.results[0]).is_none());
    let again = client.batch(2, append(&log, b"one ")).unwrap();
    client.stable(&server, 2).unwrap();
    assert_eq!(server.uncommitted(), []);
    (server, again)
}

#[test]
fn what_a_former_life_has_appended_is_not_appended_again() {
    let (server, again) = again_after(false, |server| server.write("log", b"begin one others"));
    assert_eq!(appended(&again), (6, 4));
    assert_eq!(server.read("log"), b"begin one others");
}

#[test]
fn what_was_cut_short_before_it_was_written_is_appended_where_the_file_ends_then() {
    let (server, again) = again_after(false, |server| server.write("log", b"begin others "));
    assert_eq!(appended(&again), (13, 4));
    assert_eq!(server.read("log"), b"begin others one ");
}

#[test]
fn what_went_with_the_machine_is_appended_anew() {
    let (server, again) = again_after(true, |server| server.write("log", b"begin "));
    assert_eq!(appended(&again), (6, 4));
    assert_eq!(server.read("log"), b"begin one ");
}
