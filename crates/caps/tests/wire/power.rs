//! Batches across a loss of power: the journal has all of them, the disk what was there after any of their changes, with
//! or without the data. Sent again they lead to what they led to, and are answered as they were.

use std::collections::BTreeMap;

use holdfast_base::{CapSet, Cookie};
use holdfast_state::Grace;
use holdfast_vfs::{
    AttrMask, Backend as _, Caller, CreateHow, CreateMode, Cx, DirEntry, DirListing, File, FileKind, Flow,
    Handle as FsHandle, MemBackend, Name, NewNode, SetAttrs as FsSet, Stability, Wait, WriteAt,
};
use holdfast_wire::caps::*;

use crate::world::*;

/// What is there before: files `old` with a second name `link`, `x`, and a directory `dir`.
struct There {
    root: Vec<u8>,
    old: Vec<u8>,
    x: Vec<u8>,
    dir: Vec<u8>,
}

/// Batches, by what they do.
type Batches = for<'t> fn(&'t There) -> Vec<Vec<BatchOp<'t>>>;

const fn own(txn: u64, op: u32) -> Ref<'static> {
    Ref::Made { txn: TxnId(txn), op }
}

fn rename<'t>(there: &'t There, (from, to): (&'t str, &'t str), victim: Ref<'t>) -> BatchOp<'t> {
    let (from_name, to_name) = (from.as_bytes(), to.as_bytes());
    let (from, how, over) = (at(&there.root), RenameHow::Replace, None);
    BatchOp::Rename { from, from_name, to: from, to_name, how, victim: Some(victim), over }
}

fn set<'t>(object: Ref<'t>, set: SetAttrs) -> BatchOp<'t> {
    BatchOp::SetAttr { object, set }
}

fn mode(mode: u32) -> SetAttrs {
    SetAttrs { mode: Some(mode), ..SetAttrs::default() }
}

fn size(size: u64) -> SetAttrs {
    SetAttrs { size: Some(size), ..SetAttrs::default() }
}

fn data<'t>(object: Ref<'t>, offset: u64, data: &'t str) -> BatchOp<'t> {
    BatchOp::Data { object, offset, data: data.as_bytes() }
}

fn xattr<'t>(object: Ref<'t>, how: SetXattrHow, value: &'t str) -> BatchOp<'t> {
    BatchOp::SetXattr { object, how, name: b"user.k", value: value.as_bytes() }
}

fn link<'t>(there: &'t There, object: Ref<'t>, name: &'t str) -> BatchOp<'t> {
    BatchOp::Link { object, dir: at(&there.root), name: name.as_bytes() }
}

fn symlink<'t>(there: &'t There, name: &'t str, target: &'t str) -> BatchOp<'t> {
    let (dir, name, target) = (at(&there.root), name.as_bytes(), target.as_bytes());
    let (if_taken, set, want) = (IfTaken::Fail, SetAttrs::default(), CapSet::NONE);
    BatchOp::Symlink { dir, name, if_taken, set, want, target }
}

fn pipe<'t>(there: &'t There, name: &'t str) -> BatchOp<'t> {
    let (dir, name, if_taken, kind) = (at(&there.root), name.as_bytes(), IfTaken::Fail, NodeKind::Fifo);
    let (set, want, rdev_major, rdev_minor) = (mode(0o600), CapSet::NONE, 0, 0);
    BatchOp::Mknod { dir, name, if_taken, set, want, kind, rdev_major, rdev_minor }
}

const ALL: &[(&str, Batches)] = &[
    ("made and renamed", |t| {
        vec![vec![create(at(&t.root), "f", "data".as_ref()), rename(t, ("f", "g"), own(1, 0))]]
    }),
    ("an editor's save", |t| {
        let save = |txn| {
            let replace = BatchOp::Rename {
                from: at(&t.root),
                from_name: b"tmp",
                to: at(&t.root),
                to_name: b"old",
                how: RenameHow::Replace,
                victim: Some(own(txn, 0)),
                over: None,
            };
            vec![create(at(&t.root), "tmp", b"new"), data(own(txn, 0), 3, "er"), replace]
        };
        vec![save(1), save(2), save(3)]
    }),
    ("a name used twice", |t| {
        let first = vec![create(at(&t.root), "f", b"first"), rename(t, ("f", "g"), own(1, 0))];
        vec![[first, vec![create(at(&t.root), "f", b"second")]].concat()]
    }),
    ("there and back", |t| vec![vec![rename(t, ("x", "y"), at(&t.x)), rename(t, ("y", "x"), at(&t.x))]]),
    ("all of a file's life", |t| {
        let own = own(1, 0);
        vec![
            vec![
                create(at(&t.root), "f", b""),
                data(own, 0, "abcdef"),
                rename(t, ("f", "g"), own),
                set(own, mode(0o600)),
                set(own, size(3)),
                link(t, own, "h"),
            ],
            vec![unlink(at(&t.root), "g", Some(own)), data(own, 3, "!")],
            vec![unlink(at(&t.root), "h", Some(own)), create(at(&t.root), "g", b"another")],
        ]
    }),
    ("one of its names in the place of the other", |t| {
        vec![vec![unlink(at(&t.root), "old", Some(at(&t.old))), rename(t, ("link", "old"), at(&t.old))]]
    }),
    ("refused, and its name free since", |t| {
        vec![vec![
            create(at(&t.root), "x", b"refused"),
            unlink(at(&t.root), "x", Some(at(&t.x))),
            unlink(at(&t.root), "old", Some(at(&t.x))),
            create(at(&t.root), "y", b""),
        ]]
    }),
    ("through a directory that is gone again", |t| {
        let up = BatchOp::Rename {
            from: own(1, 0),
            from_name: b"f",
            to: at(&t.root),
            to_name: b"f",
            how: RenameHow::NoReplace,
            victim: Some(own(1, 1)),
            over: None,
        };
        let (dir, name, victim) = (at(&t.root), b"d", Some(own(1, 0)));
        let rmdir = BatchOp::Rmdir { dir, name, victim };
        vec![vec![mkdir(at(&t.root), "d"), create(own(1, 0), "f", b"x"), up, rmdir]]
    }),
    ("attributes set, removed and set", |t| {
        let x = at(&t.x);
        let remove = BatchOp::RemoveXattr { object: x, name: b"user.k" };
        vec![vec![
            xattr(x, SetXattrHow::Create, "one"),
            xattr(x, SetXattrHow::Either, "two"),
            remove.clone(),
            xattr(x, SetXattrHow::Create, "three"),
            xattr(x, SetXattrHow::Replace, "four"),
            set(x, mode(0o640)),
        ]]
    }),
    ("attributes of what is gone", |t| {
        let own = own(1, 0);
        vec![vec![
            create(at(&t.root), "f", b"x"),
            xattr(own, SetXattrHow::Create, "one"),
            set(own, mode(0o640)),
            BatchOp::RemoveXattr { object: own, name: b"user.k" },
            BatchOp::Unlink { dir: at(&t.root), name: b"f", victim: None },
        ]]
    }),
    ("appended", |t| {
        let append = |data| BatchOp::Append { object: at(&t.old), data };
        vec![vec![append(&b"one"[..]), append(b"two")], vec![append(b"three")]]
    }),
    ("reserved", |t| {
        let reserve = |object| BatchOp::Reserve { object, offset: 0, bytes: 8192 };
        vec![
            vec![create(at(&t.root), "f", b"ours"), reserve(own(1, 0)), reserve(at(&t.old))],
            vec![BatchOp::Data { object: own(1, 0), offset: 4, data: b"more" }],
        ]
    }),
    ("exchanged", |t| {
        let exchange = BatchOp::Rename {
            from: at(&t.root),
            from_name: b"f",
            to: at(&t.root),
            to_name: b"x",
            how: RenameHow::Exchange,
            victim: None,
            over: None,
        };
        vec![vec![create(at(&t.root), "f", b"ours"), exchange, unlink(at(&t.root), "f", Some(at(&t.x)))]]
    }),
    ("links and pipes", |t| {
        vec![vec![
            symlink(t, "s", "text"),
            rename(t, ("s", "t"), own(1, 0)),
            pipe(t, "s"),
            BatchOp::Unlink { dir: at(&t.root), name: b"s", victim: None },
            symlink(t, "s", "other"),
            rename(t, ("dir", "e"), at(&t.dir)),
            mkdir(at(&t.root), "dir"),
            create(at(&t.dir), "inside", b"x"),
        ]]
    }),
    ("cut and written", |t| {
        let x = at(&t.x);
        vec![vec![data(x, 0, "longer than before"), set(x, size(2)), data(x, 2, "!"), link(t, x, "y")]]
    }),
];

fn name(text: &str) -> Name<'_> {
    Name::new(text.as_bytes()).unwrap()
}

fn furnish(server: &Server) -> There {
    let (fs, root) = (server.disk(), server.root());
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes);
    let file = |called: &str| {
        let set = FsSet { mode: Some(0o644), ..FsSet::default() };
        let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::NONE };
        let handle = fs.create(&cx, &root, name(called), &how).unwrap().node.handle;
        let at = WriteAt { offset: 0, stability: Stability::FileSync, want_change: false };
        fs.write(&cx, File::Stateless(&handle), at, called.as_bytes()).unwrap();
        handle
    };
    let (old, x) = (file("old"), file("x"));
    fs.link(&cx, &old, &root, name("link")).unwrap();
    let dir = fs.make(&cx, &root, name("dir"), NewNode::Directory, &FsSet::default()).unwrap().0.handle;
    let all = fs.uncommitted();
    fs.commit(&all, &mut vec![Ok(()); all.len()]);
    let sealed = |handle: FsHandle| server.sealed(handle);
    There { root: server.root_handle(), old: sealed(old), x: sealed(x), dir: sealed(dir) }
}

/// Everything by its path, as far as it matters.
type Tree = BTreeMap<String, (FileKind, u32, u32, Vec<u8>, Vec<u8>)>;

fn tree(fs: &MemBackend) -> Tree {
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes);
    let (mut tree, mut left) = (Tree::new(), vec![(String::new(), fs.root().unwrap())]);
    while let Some((path, dir)) = left.pop() {
        let mut names = Vec::new();
        let listing = DirListing { dir: &dir, from: Cookie(0), want: None };
        let take = &mut |entry: DirEntry<'_>| {
            names.push(String::from_utf8(entry.name.to_vec()).unwrap());
            Flow::Continue
        };
        fs.readdir(&cx, listing, take).unwrap();
        for called in names.into_iter().filter(|called| called != "." && called != "..") {
            let node = fs.lookup(&cx, &dir, name(&called), AttrMask::STAT).unwrap();
            let mut text = vec![0; node.attrs.size as usize];
            match node.attrs.kind {
                FileKind::Regular => {
                    fs.read(&cx, File::Stateless(&node.handle), 0, &mut text).unwrap();
                }
                FileKind::Symlink => text = fs.readlink(&cx, &node.handle).unwrap(),
                _ => text.clear(),
            }
            let xattr = fs.getxattr(&cx, &node.handle, b"user.k").unwrap_or_default();
            let path = format!("{path}/{called}");
            if node.attrs.kind == FileKind::Directory {
                left.push((path.clone(), node.handle));
            }
            tree.insert(path, (node.attrs.kind, node.attrs.mode, node.attrs.nlink, text, xattr));
        }
    }
    tree
}

/// Sends all that there is, or the first so many; what each operation is answered.
fn send(client: &mut Client, batches: &[Vec<BatchOp<'_>>]) -> Vec<Vec<Option<CapsStat>>> {
    let send = |(txn, ops): (u64, &Vec<BatchOp<'_>>)| {
        client.batch(txn, ops.clone()).unwrap().results.iter().map(refused).collect()
    };
    (1..).zip(batches).map(send).collect()
}

fn back(mount: Mount, server: &Server) -> Client {
    let mut client = mount.again(server, "a");
    client.hello(TxnId(0)).unwrap();
    client
}

#[test]
fn what_went_with_the_machine_is_done_again_and_nothing_else() {
    for (what, batches) in ALL {
        let server = Server::new();
        let there = furnish(&server);
        let mut client = Client::new(&server, "a");
        let batches = batches(&there);
        server.disk().take_pictures();
        let answered = send(&mut client, &batches);
        let pictures = server.disk().pictures();
        assert!(pictures.len() > 2, "{what}");
        let (led_to, journal) = (tree(server.disk()), server.journal());
        let mut mount = client.unplug();
        let mut server = server;
        let cases = pictures.iter().enumerate().flat_map(|(at, of)| [(at, of, of), (at, of, &pictures[0])]);
        for (at, picture, data) in cases {
            // The first batches come again, and then the server dies once more, alone.
            for killed_after in 0..batches.len() {
                let has_data = std::ptr::eq(picture, data);
                let of = pictures.len() - 1;
                let what = format!("{what}: change {at} of {of}, with data {has_data}, again {killed_after}");
                server = server.restart_behind(&journal, (picture, data));
                if killed_after > 0 {
                    let mut client = back(mount, &server);
                    send(&mut client, &batches[..killed_after]);
                    mount = client.unplug();
                    server = server.restart(Grace::Over);
                }
                let mut client = back(mount, &server);
                assert_eq!(send(&mut client, &batches), answered, "{what}");
                assert_eq!(tree(server.disk()), led_to, "{what}");
                let through = batches.len() as u64;
                assert_eq!(client.stable(&server, through).unwrap().failed, [], "{what}");
                assert_eq!(server.disk().uncommitted(), [], "{what}");
                mount = client.unplug();
                server = server.restart_after_power_loss(Grace::Over);
                let mut client = back(mount, &server);
                assert_eq!(send(&mut client, &batches), answered, "{what}: when all was stable");
                assert_eq!(tree(server.disk()), led_to, "{what}: when all was stable");
                mount = client.unplug();
            }
        }
    }
}
