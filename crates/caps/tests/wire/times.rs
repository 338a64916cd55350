//! Modification times that a mount tells for a user who wrote a file and does not own it.

use holdfast_wire::caps::*;

use crate::world::*;

fn time(seconds: i64) -> SetAttrs {
    SetAttrs { mtime: Some(SetTime::At(Time { seconds, nanos: 0 })), ..SetAttrs::default() }
}

/// A file of the superuser's that others may write, last changed at 1000; and a client that holds it, whose user is another.
fn held(server: &Server, mode: u32) -> (Client, Vec<u8>) {
    let mut owner = Client::new(server, "owner");
    let root = server.root_handle();
    let set = SetAttrs { mode: Some(mode), ..time(1000) };
    let (if_taken, want) = (IfTaken::Fail, CapSet::NONE);
    let create = BatchOp::Create { dir: at(&root), name: b"f", if_taken, set, want, data: b"data" };
    let made = made(&owner.batch(1, vec![create]).unwrap().results[0]).handle.0.to_vec();
    let mut client = Client::new(server, "a");
    client.auth = user(7);
    let acquired = client.acquire(&made, CapSet::FILE_X).unwrap();
    assert!(acquired.grant.held.contains(CapSet::FILE_X));
    assert_eq!(acquired.attrs.mtime.seconds, 1000);
    (client, made)
}

/// What a time told in a batch comes to.
fn told(client: &mut Client, txn: u64, file: &[u8], set: SetAttrs) -> Result<i64, CapsStat> {
    let ok = client.batch(txn, vec![BatchOp::SetAttr { object: at(file), set }]).unwrap();
    match &ok.results[0] {
        Res::Ok(OpResult::Changed(Some(attrs))) => Ok(attrs.mtime.seconds),
        other => Err(refused(other).expect("refused")),
    }
}

#[test]
fn who_holds_a_file_and_may_write_it_tells_when_he_did_and_no_other_time() {
    let server = Server::new();
    let (mut client, file) = held(&server, 0o666);
    // His WRITE has moved the time to now; it is to show as when he wrote.
    let ok = client.batch(1, vec![BatchOp::Data { object: at(&file), offset: 0, data: b"his" }]).unwrap();
    assert_eq!(refused(&ok.results[0]), None);
    assert_eq!(told(&mut client, 2, &file, time(5000)), Ok(5000));
    assert_eq!(told(&mut client, 3, &file, time(3000)), Ok(3000), "written before, told later");
    // None before he held it, and none to come.
    assert_eq!(told(&mut client, 4, &file, time(999)), Ok(3000));
    let far = 1 << 40;
    let now = told(&mut client, 5, &file, time(far)).unwrap();
    assert!(now > 1_700_000_000 && now < far, "{now}");
    // And nothing beside it.
    let more = SetAttrs { atime: time(3).mtime, ..time(4000) };
    assert_eq!(told(&mut client, 6, &file, more), Err(CapsStat::Perm));
}

#[test]
fn who_may_not_write_a_file_tells_no_time_of_it() {
    let server = Server::new();
    let (mut client, file) = held(&server, 0o644);
    assert_eq!(told(&mut client, 1, &file, time(5000)), Err(CapsStat::Perm));
}

#[test]
fn who_comes_to_hold_a_file_again_tells_no_time_before_what_he_then_found() {
    let server = Server::new();
    let (mut client, file) = held(&server, 0o666);
    assert_eq!(told(&mut client, 1, &file, time(2000)), Ok(2000));
    let seq = client.acquire(&file, CapSet::FILE_X).unwrap().grant.seq;
    assert_eq!(told(&mut client, 2, &file, time(1500)), Ok(1500), "asking for what he has makes it no later");
    client.release(&file, CapSet::FILE_S, seq).unwrap();
    // Its owner, meanwhile.
    client.auth = user(0);
    assert_eq!(told(&mut client, 3, &file, time(4000)), Ok(4000));
    client.auth = user(7);
    assert!(client.acquire(&file, CapSet::FILE_X).unwrap().grant.held.contains(CapSet::FILE_X));
    assert_eq!(told(&mut client, 4, &file, time(1600)), Ok(4000));
}
