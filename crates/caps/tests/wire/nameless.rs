//! Files without a name.

use holdfast_base::limits::{CAPS_NAMELESS_MS, CAPS_NAMELESS_PER_CLIENT_MAX};
use holdfast_export::ExportOptions;
use holdfast_vfs::{AttrMask, FsError, OpenMode};
use holdfast_wire::caps::*;

use crate::world::*;

fn make(client: &mut Client, dir: &[u8], mode: u32) -> Result<NamelessOk<'static>, CapsStat> {
    let set = SetAttrs { mode: Some(mode), ..SetAttrs::default() };
    client.call(CapsProc::Nameless, &NamelessArgs { ticket: client.ticket, dir: Handle(dir), set })
}

fn link<'a>(object: Handle<'a>, dir: &'a [u8], name: &'a str) -> Vec<BatchOp<'a>> {
    vec![BatchOp::Link { object: Ref::Handle(object), dir: at(dir), name: name.as_bytes() }]
}

const BOTH: OpenMode = OpenMode { read: true, write: true, nfs_exceptions: false };

#[test]
fn a_file_without_a_name_is_kept_until_it_is_open_and_no_longer() {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    client.auth = user(1000);
    let [left, opened, named] = [0o600, 0o400, 0o640].map(|mode| {
        let made = make(&mut client, &root, mode).unwrap();
        assert_eq!((made.attrs.nlink, made.attrs.mode, made.attrs.uid), (0, mode, 1000));
        made.handle
    });
    assert!(server.names().is_empty());
    let open = server.as_nfs(|fs, cx| fs.open(cx, &object(&server, opened.0), BOTH)).unwrap();
    let ok = client.batch(1, link(named, &root, "named")).unwrap();
    assert_eq!((refused(&ok.results[0]), server.names()), (None, vec!["named".to_owned()]));
    let is_there = |handle: Handle<'_>| {
        server.as_nfs(|fs, cx| fs.getattr(cx, &object(&server, handle.0), AttrMask::NONE)).map(drop)
    };
    server.pass(CAPS_NAMELESS_MS - 1);
    server.running.caps.tick();
    assert_eq!(is_there(left), Ok(()));
    server.pass(1);
    server.running.caps.tick();
    assert_eq!((is_there(left), is_there(opened)), (Err(FsError::Stale), Ok(())));
    drop(open);
    assert_eq!((is_there(opened), is_there(named)), (Err(FsError::Stale), Ok(())));
    let gone = client.batch(2, link(left, &root, "gone")).unwrap();
    assert_eq!(refused(&gone.results[0]), Some(CapsStat::Stale));
}

#[test]
fn one_client_fills_its_own_room_and_no_other() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    for _ in 0..CAPS_NAMELESS_PER_CLIENT_MAX {
        make(&mut a, &root, 0o600).unwrap();
    }
    assert_eq!(make(&mut a, &root, 0o600), Err(CapsStat::Delay));
    assert!(make(&mut b, &root, 0o600).is_ok());
    server.pass(CAPS_NAMELESS_MS);
    server.running.caps.tick();
    assert!(make(&mut a, &root, 0o600).is_ok());
}

#[test]
fn nothing_of_a_directory_is_recalled_for_it_and_its_rules_hold() {
    let server = Server::new();
    let (mut a, mut b, root) = (Client::new(&server, "a"), Client::new(&server, "b"), server.root_handle());
    let held = b.acquire(&root, CapSet::FILE_X).unwrap().grant.held;
    make(&mut a, &root, 0o600).unwrap();
    assert_eq!(b.acquire(&root, CapSet::NONE).unwrap().grant.held, held);
    assert!(held.contains(CapSet::FILE_X) && b.recalls.is_empty());
    let ok = a.batch(1, vec![mkdir(at(&root), "d")]);
    assert_eq!(ok, Err(CapsStat::Delay), "an entry would be another thing");

    let server = Server::with(&ExportOptions { is_read_only: true, ..ExportOptions::default() });
    let mut client = Client::new(&server, "a");
    assert_eq!(make(&mut client, &server.root_handle(), 0o600), Err(CapsStat::Rofs));
}
