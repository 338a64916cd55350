//! RESERVE: room for a file, whose size stays.

use holdfast_base::CapSet;
use holdfast_wire::caps::*;

use crate::world::*;

const ROOM: u64 = 1 << 20;

fn reserve(object: &[u8], offset: u64, bytes: u64) -> Vec<BatchOp<'_>> {
    vec![BatchOp::Reserve { object: at(object), offset, bytes }]
}

/// A file with this in it, made by the client's first transaction.
fn file(client: &mut Client, root: &[u8], data: &[u8]) -> Vec<u8> {
    let ok = client.batch(1, vec![create(at(root), "f", data)]).unwrap();
    made(&ok.results[0]).handle.0.to_vec()
}

fn attrs_after(ok: &BatchOk<'_>) -> Attrs {
    match ok.results[..] {
        [Res::Ok(OpResult::Changed(Some(attrs)))] => attrs,
        _ => panic!("{ok:?}"),
    }
}

#[test]
fn room_is_there_and_the_size_stays() {
    let server = Server::new();
    let (mut a, root) = (Client::new(&server, "a"), server.root_handle());
    assert!(a.hello(TxnId(0)).unwrap().features.contains(Features::RESERVE));
    let f = file(&mut a, &root, b"data");
    let attrs = attrs_after(&a.batch(2, reserve(&f, 1, ROOM)).unwrap());
    assert!(attrs.size == 4 && attrs.used >= ROOM, "{attrs:?}");
    // Sent again it is what it was.
    assert_eq!(attrs_after(&a.batch(2, reserve(&f, 1, ROOM)).unwrap()), attrs);
    assert_eq!(server.read("f"), b"data");
}

#[test]
fn of_nothing_and_beyond_all_and_by_who_may_not_write_it_is_refused() {
    let server = Server::new();
    let (mut a, root) = (Client::new(&server, "a"), server.root_handle());
    let f = file(&mut a, &root, b"");
    for (txn, (offset, bytes)) in [(0, 0), (u64::MAX, 2)].into_iter().enumerate() {
        let ok = a.batch(2 + txn as u64, reserve(&f, offset, bytes)).unwrap();
        assert_eq!(refused(&ok.results[0]), Some(CapsStat::Inval), "{offset} {bytes}");
    }
    let ok = a.batch(4, reserve(&root, 0, ROOM)).unwrap();
    assert!(refused(&ok.results[0]).is_some(), "a directory has no room");
    a.auth = user(4711);
    let ok = a.batch(5, reserve(&f, 0, ROOM)).unwrap();
    assert_eq!(refused(&ok.results[0]), Some(CapsStat::Access));
}

#[test]
fn it_takes_from_others_what_a_write_would() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let f = file(&mut a, &root, b"");
    assert!(a.acquire(&f, CapSet::ALL_X).unwrap().grant.held.contains(CapSet::FILE_X));
    assert_eq!(b.batch(1, reserve(&f, 0, ROOM)), Err(CapsStat::Delay));
    a.give_back();
    // What its attributes are by then the holder of the rest knows.
    let ok = b.batch(1, reserve(&f, 0, ROOM)).unwrap();
    assert!(matches!(ok.results[..], [Res::Ok(OpResult::Changed(_))]), "{ok:?}");
}
