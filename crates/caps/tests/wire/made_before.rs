//! What a former life has made, and has no record of since its machine lost power, while its disk has it.

use holdfast_rpc::Auth;
use holdfast_state::Grace;
use holdfast_wire::caps::*;

use crate::world::*;

type Ops<'r> = Vec<BatchOp<'r>>;

/// Which of its records a journal has.
#[derive(Clone, Copy, PartialEq)]
enum Journal {
    HasNone,
    HasAll,
}

/// A machine has lost power when a mount had heard what came of its first batch. Its disk has all of it.
fn without_power(
    auth: Auth,
    journal: Journal,
    ops: fn(&[u8]) -> Ops<'_>,
) -> (Server, Client, Vec<Made<'static>>) {
    let server = Server::new();
    let (mut client, root) = (Client::new(&server, "a"), server.root_handle());
    client.auth = auth;
    let none = server.journal();
    server.disk().take_pictures();
    let told = client.batch(1, ops(&root)).unwrap();
    let is_made = |result: &&Res<OpResult<'static>>| matches!(result, Res::Ok(OpResult::Made(_)));
    let all = told.results.iter().filter(is_made).map(made).collect();
    let journal = if journal == Journal::HasAll { server.journal() } else { none };
    let mount = client.unplug();
    let disk = server.disk().pictures().pop().unwrap();
    let server = server.restart_behind(&journal, (&disk, &disk));
    let client = back(mount, &server);
    (server, client, all)
}

fn back(mount: Mount, server: &Server) -> Client {
    let mut client = mount.again(server, "a");
    client.hello(TxnId(0)).unwrap();
    client
}

/// The server's process dies, and its machine does not.
fn die(server: Server, client: Client) -> (Server, Client) {
    let mount = client.unplug();
    let server = server.restart(Grace::Over);
    let client = back(mount, &server);
    (server, client)
}

fn file(root: &[u8]) -> Ops<'_> {
    vec![created(root)]
}

const MTIME: Time = Time { seconds: 7, nanos: 0 };

/// As a mount makes a file: with the time of its contents.
fn created(root: &[u8]) -> BatchOp<'_> {
    let set = SetAttrs { mode: Some(0o644), mtime: Some(SetTime::At(MTIME)), ..SetAttrs::default() };
    let (dir, want, if_taken) = (at(root), CapSet::NONE, IfTaken::Fail);
    BatchOp::Create { dir, name: b"f", if_taken, set, want, data: b"data" }
}

/// Of its contents the disk has something else, for they had not come there.
fn lose(server: &Server, name: &str) {
    server.write(name, b"lost");
    server.as_nfs(|fs, cx| {
        let name = holdfast_vfs::Name::new(name.as_bytes()).unwrap();
        let node = fs.lookup(cx, &server.root(), name, holdfast_vfs::AttrMask::STAT).unwrap();
        let at = holdfast_vfs::SetTime::At(holdfast_base::Timestamp { seconds: MTIME.seconds, nanos: 0 });
        let set = holdfast_vfs::SetAttrs { mtime: Some(at), ..Default::default() };
        fs.setattr(cx, holdfast_vfs::File::Stateless(&node.handle), &set, None).unwrap();
    });
}

fn renamed<'r>(root: &'r [u8], victim: Ref<'r>) -> BatchOp<'r> {
    BatchOp::Rename {
        from: at(root),
        from_name: b"f",
        to: at(root),
        to_name: b"g",
        how: RenameHow::Replace,
        victim: Some(victim),
        over: None,
    }
}

/// The file comes as it was made.
fn again<'a>(root: &'a [u8], (data, size): (&'a [u8], Option<u64>), pooled: Handle<'a>) -> BatchOp<'a> {
    let set = SetAttrs { size, mtime: Some(SetTime::At(MTIME)), ..SetAttrs::default() };
    let (dir, want, if_taken) = (at(root), CapSet::NONE, IfTaken::KeepBoth);
    BatchOp::Place { dir, name: b"f", if_taken, set, want, data, pooled }
}

#[test]
fn a_file_that_is_there_is_filled_again_and_none_is_made_beside_it() {
    for (data, size) in [(&b"data"[..], None), (b"", Some(2)), (b"ab", Some(3))] {
        let (server, mut client, before) = without_power(user(1000), Journal::HasNone, file);
        let root = server.root_handle();
        lose(&server, "f");
        let ok = client.batch_again(1, vec![again(&root, (data, size), before[0].handle)]).unwrap();
        let told = made(&ok.results[0]);
        assert_eq!((told.handle, told.other_name), (before[0].handle, &b""[..]));
        assert_eq!(server.names(), ["f"]);
        let has = told.attrs.map(|attrs| (attrs.size, attrs.mtime.seconds));
        assert_eq!(has, Some((size.unwrap_or(4), 7)));
        assert!(server.read("f").starts_with(data));
        client.stable(&server, 1).unwrap();
        assert_eq!(server.uncommitted(), []);
    }
}

#[test]
fn that_it_is_there_is_on_record_so_that_it_is_neither_filled_nor_made_once_more() {
    let (server, mut client, before) = without_power(user(1000), Journal::HasNone, file);
    let root = server.root_handle();
    let first = || vec![again(&root, (b"data", None), before[0].handle)];
    client.batch_again(1, first()).unwrap();
    server.write("f", b"what others have written since");
    let (server, mut client) = die(server, client);
    let ok = client.batch_again(1, first()).unwrap();
    assert_eq!(made(&ok.results[0]).handle, before[0].handle);
    assert_eq!(server.read("f"), b"what others have written since");
    let second = || vec![unlink(at(&root), "f", Some(at(before[0].handle.0)))];
    client.batch(2, second()).unwrap();
    let (server, mut client) = die(server, client);
    client.batch_again(1, first()).unwrap();
    client.batch_again(2, second()).unwrap();
    assert_eq!(server.names(), [""; 0]);
}

/// With the removal of its name on the disk as well as on record it is known to have been made.
#[test]
fn what_is_removed_after_it_was_found_is_not_made_again_though_power_fails_once_more() {
    let (server, mut client, before) = without_power(user(1000), Journal::HasNone, file);
    let root = server.root_handle();
    let first = || vec![again(&root, (b"data", None), before[0].handle)];
    let second = || vec![unlink(at(&root), "f", Some(at(before[0].handle.0)))];
    client.batch_again(1, first()).unwrap();
    client.batch(2, second()).unwrap();
    let mount = client.unplug();
    let server = server.restart_after_power_loss(Grace::Over);
    let mut client = back(mount, &server);
    client.batch_again(1, first()).unwrap();
    client.batch_again(2, second()).unwrap();
    assert_eq!(server.names(), [""; 0]);
}

#[test]
fn a_file_that_has_another_name_by_now_is_filled_where_it_is() {
    fn renaming(root: &[u8]) -> Ops<'_> {
        vec![created(root), renamed(root, Ref::Made { txn: TxnId(1), op: 0 })]
    }
    fn linking(root: &[u8]) -> Ops<'_> {
        let own = Ref::Made { txn: TxnId(1), op: 0 };
        let link = BatchOp::Link { object: own, dir: at(root), name: b"g" };
        vec![created(root), link, unlink(at(root), "f", Some(own))]
    }
    for ops in [renaming, linking] {
        let (server, mut client, before) = without_power(user(1000), Journal::HasNone, ops);
        let root = server.root_handle();
        lose(&server, "g");
        let come = || {
            let mut ops = ops(&root);
            ops[0] = again(&root, (b"data", None), before[0].handle);
            ops
        };
        let ok = client.batch_again(1, come()).unwrap();
        assert_eq!(made(&ok.results[0]).handle, before[0].handle);
        assert_eq!((server.names(), server.read("g")), (vec!["g".to_owned()], b"data".to_vec()));
        server.write("g", b"theirs");
        let (server, mut client) = die(server, client);
        client.batch_again(1, come()).unwrap();
        assert_eq!((server.names(), server.read("g")), (vec!["g".to_owned()], b"theirs".to_vec()));
    }
}

/// As when whoever made it comes back long after.
#[test]
fn what_others_have_written_into_it_since_stays_and_another_is_made_beside_it() {
    for theirs in [&b"theirs"[..], b""] {
        let (server, mut client, before) = without_power(user(1000), Journal::HasNone, file);
        let root = server.root_handle();
        server.pass(1000);
        server.write("f", theirs);
        let ok = client.batch_again(1, vec![again(&root, (b"ours", None), before[0].handle)]).unwrap();
        let beside = made(&ok.results[0]);
        assert!(beside.handle != before[0].handle && beside.other_name.starts_with(b"f-"));
        assert_eq!(server.read("f"), theirs);
    }
}

#[test]
fn what_cannot_be_it_is_made_as_by_a_create() {
    let (server, mut client, before) = without_power(user(1000), Journal::HasNone, file);
    let root = server.root_handle();
    let come = |pooled| vec![again(&root, (b"ours", None), pooled)];
    // It is another's by now, who may not like it to be written.
    server.as_nfs(|fs, cx| {
        let set = holdfast_vfs::SetAttrs { uid: Some(7), mode: Some(0o600), ..Default::default() };
        let f = object(&server, before[0].handle.0);
        fs.setattr(cx, holdfast_vfs::File::Stateless(&f), &set, None).unwrap();
    });
    let ok = client.batch_again(1, come(before[0].handle)).unwrap();
    let beside = made(&ok.results[0]);
    assert!(beside.handle != before[0].handle && beside.other_name.starts_with(b"f-"));
    assert_eq!(server.read("f"), b"data");
    assert_eq!(server.read(std::str::from_utf8(beside.other_name).unwrap()), b"ours");
    // A directory, and what is gone.
    let ok = client.batch_again(2, come(Handle(&root))).unwrap();
    assert!(made(&ok.results[0]).handle.0 != root);
    let gone = made(&ok.results[0]);
    let name = std::str::from_utf8(gone.other_name).unwrap();
    client.batch(3, vec![unlink(at(&root), name, Some(at(gone.handle.0)))]).unwrap();
    let ok = client.batch_again(4, come(gone.handle)).unwrap();
    assert!(made(&ok.results[0]).handle != gone.handle);
    // The first time it is sent nothing can have been done.
    client.auth = user(0);
    let ok = client.batch(5, come(before[0].handle)).unwrap();
    assert!(made(&ok.results[0]).handle != before[0].handle && server.read("f") == b"data");
}

/// So comes what is no file, and is there.
#[test]
fn a_change_of_nothing_stands_for_a_make_whether_that_is_on_record_or_not() {
    fn others(root: &[u8]) -> Ops<'_> {
        let (dir, if_taken, set, want) = (at(root), IfTaken::KeepBoth, SetAttrs::default(), CapSet::NONE);
        let link = BatchOp::Symlink { dir, name: b"l", if_taken, set, want, target: b"d" };
        let (kind, rdev_major, rdev_minor) = (NodeKind::Fifo, 0, 0);
        let pipe = BatchOp::Mknod { dir, name: b"p", if_taken, set, want, kind, rdev_major, rdev_minor };
        vec![mkdir(at(root), "d"), link, pipe]
    }
    for journal in [Journal::HasNone, Journal::HasAll] {
        let (server, mut client, before) = without_power(user(1000), journal, others);
        let root = server.root_handle();
        let dir = at(before[0].handle.0);
        let come = || {
            let nothing = |made: &Made<'static>| BatchOp::SetAttr {
                object: at(made.handle.0),
                set: SetAttrs::default(),
            };
            let mut ops: Ops<'_> = before.iter().map(nothing).collect();
            ops.push(mkdir(dir, "within"));
            ops
        };
        let ok = client.batch_again(1, come()).unwrap();
        assert!(ok.results.iter().all(|result| refused(result).is_none()), "{:?}", ok.results);
        let within = made(&ok.results[3]).handle;
        let (server, mut client) = die(server, client);
        let ok = client.batch_again(1, come()).unwrap();
        assert_eq!(made(&ok.results[3]).handle, within);
        assert_eq!(server.names(), ["d", "l", "p"]);
        assert_eq!(
            client
                .batch(2, vec![unlink(at(&root), "l", Some(at(before[1].handle.0)))])
                .unwrap()
                .results
                .len(),
            1
        );
    }
}
