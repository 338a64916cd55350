use holdfast_base::Cookie;
use holdfast_vfs::FsError;
use holdfast_wire::nfs4::*;

use crate::client::Session;
use crate::scene::{file, make, on, on_root, on_v40, three_exports};
use crate::world::World;

const ALL: ReadDir4Args = ReadDir4Args {
    cookie: Cookie(0),
    cookieverf: [0; 8],
    dircount: 0,
    maxcount: 8192,
    attr_request: Bitmap4::EMPTY,
};

fn names(ok: &ReadDir4Ok<'_>) -> Vec<Vec<u8>> {
    ok.entries.iter().map(|entry| entry.name.to_vec()).collect()
}

fn fails(client: &mut Session, path: &[&[u8]], args: ReadDir4Args, status: NfsStat4) {
    on(client, path, &[ArgOp::ReadDir(args)]).fails::<()>(OpNum4::ReadDir, status);
}

#[test]
fn small_pages_give_each_entry_once_and_end_with_eof() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let mut expected: Vec<Vec<u8>> = (0..20).map(|n| format!("file {n}").into_bytes()).collect();
    for name in &expected {
        file(&mut client, name, 0, b"");
    }
    let (mut seen, mut cookie, mut pages) = (Vec::new(), Cookie(0), 0);
    loop {
        let args = ReadDir4Args { cookie, maxcount: 150, attr_request: Bitmap4::of(&[Attr::Size]), ..ALL };
        let mut reply = on(&mut client, &[], &[ArgOp::ReadDir(args)]);
        let before = reply.bytes.len();
        let ok: ReadDir4Ok<'_> = reply.ok(OpNum4::ReadDir);
        assert!(before < 150 + 200, "the page is bounded");
        seen.extend(names(&ok));
        pages += 1;
        cookie = ok.entries.last().unwrap().cookie;
        if ok.eof {
            break;
        }
    }
    assert!(pages > 5, "{pages}");
    seen.sort();
    expected.sort();
    assert_eq!(seen, expected);
}

#[test]
fn a_page_too_small_for_anything_is_refused_and_an_empty_listing_needs_sixteen_bytes() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    make(&mut client, b"d", CreateType4::Dir);
    fails(&mut client, &[b"d"], ReadDir4Args { maxcount: 15, ..ALL }, NfsStat4::TooSmall);
    let mut reply = on(&mut client, &[b"d"], &[ArgOp::ReadDir(ReadDir4Args { maxcount: 16, ..ALL })]);
    let ok: ReadDir4Ok<'_> = reply.ok(OpNum4::ReadDir);
    assert_eq!((ok.entries.len(), ok.eof), (0, true));
    reply.end();
    // The entry "d" does not fit.
    fails(&mut client, &[], ReadDir4Args { maxcount: 24, ..ALL }, NfsStat4::TooSmall);
}

#[test]
fn dircount_bounds_names_but_never_to_none() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    for name in [&b"a"[..], b"b", b"c"] {
        file(&mut client, name, 0, b"");
    }
    let page = |client: &mut Session, dircount| {
        let mut reply = on(client, &[], &[ArgOp::ReadDir(ReadDir4Args { dircount, ..ALL })]);
        names(&reply.ok::<ReadDir4Ok<'_>>(OpNum4::ReadDir)).len()
    };
    assert_eq!(page(&mut client, 32), 2);
    assert!(page(&mut client, 1) >= 1);
    assert_eq!(page(&mut client, 0), 3);
}

#[test]
fn cookies_and_requests_that_cannot_be_are_refused() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    for cookie in [1, 2] {
        fails(&mut client, &[], ReadDir4Args { cookie: Cookie(cookie), ..ALL }, NfsStat4::BadCookie);
    }
    let attr_request = Bitmap4::of(&[Attr::TimeModifySet]);
    fails(&mut client, &[], ReadDir4Args { attr_request, ..ALL }, NfsStat4::Inval);
}

#[test]
fn only_directories_are_listed() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"");
    make(&mut client, b"l", CreateType4::Lnk(b"f"));
    for name in [b"f", b"l"] {
        fails(&mut client, &[name], ALL, NfsStat4::NotDir);
        on_v40(&world, &[name], &[ArgOp::ReadDir(ALL)]).fails::<()>(OpNum4::ReadDir, NfsStat4::NotDir);
    }
}

#[test]
fn the_pseudo_root_lists_the_exports_page_by_page() {
    let world = three_exports();
    let mut client = Session::open(&world, 1, 1);
    let attr_request = Bitmap4::of(&[Attr::Type, Attr::RdAttrError]);
    let (mut seen, mut cookie) = (Vec::new(), Cookie(0));
    loop {
        let args = ReadDir4Args { cookie, maxcount: 80, attr_request, ..ALL };
        let mut reply = on_root(&mut client, &[ArgOp::ReadDir(args)]);
        let ok: ReadDir4Ok<'_> = reply.ok(OpNum4::ReadDir);
        seen.extend(names(&ok));
        cookie = ok.entries.last().unwrap().cookie;
        assert!(ok.entries.iter().all(|entry| entry.attrs.mask == attr_request));
        if ok.eof {
            break;
        }
    }
    seen.sort();
    assert_eq!(seen, [&b"export"[..], b"frozen", b"other"]);
    on_root(&mut client, &[ArgOp::ReadDir(ReadDir4Args { maxcount: 30, ..ALL })])
        .fails::<()>(OpNum4::ReadDir, NfsStat4::TooSmall);
}

#[test]
fn an_export_that_cannot_be_looked_at_hides_no_other() {
    let world = three_exports();
    let mut client = Session::open(&world, 1, 1);
    let mut list = |attr_request| {
        world.fs.fail_next_call(FsError::Io);
        on_root(&mut client, &[ArgOp::ReadDir(ReadDir4Args { attr_request, ..ALL })])
    };
    let mut reply = list(Bitmap4::of(&[Attr::Type, Attr::RdAttrError]));
    let ok: ReadDir4Ok<'_> = reply.ok(OpNum4::ReadDir);
    assert_eq!((ok.entries.len(), ok.eof), (3, true));
    let failed = ok.entries.iter().find(|entry| entry.name == b"export").unwrap();
    assert_eq!(failed.attrs.mask, Bitmap4::of(&[Attr::RdAttrError]));
    assert_eq!(failed.attrs.values, NfsStat4::Io.as_u32().to_be_bytes());
    list(Bitmap4::of(&[Attr::Type])).fails::<()>(OpNum4::ReadDir, NfsStat4::Io);
}
