use holdfast_base::Cookie;
use holdfast_wire::nfs4::*;

use crate::client::Session;
use crate::scene::{file, on, on_root, on_v40, three_exports, to_export};
use crate::world::World;

fn set<'a>(option: SetXattrOption4, key: &'a [u8], value: &'a [u8]) -> ArgOp<'a> {
    ArgOp::SetXattr(SetXattr4Args { option, key, value })
}

fn get(name: &[u8]) -> ArgOp<'_> {
    ArgOp::GetXattr(GetXattr4Args { name })
}

fn remove(name: &[u8]) -> ArgOp<'_> {
    ArgOp::RemoveXattr(RemoveXattr4Args { name })
}

fn list(cookie: u64, maxcount: u32) -> ArgOp<'static> {
    ArgOp::ListXattrs(ListXattrs4Args { cookie: Cookie(cookie), maxcount })
}

fn world() -> (World, Session) {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    file(&mut client, b"f", 0, b"");
    (world, client)
}

#[test]
fn a_value_is_kept_under_its_name_until_it_is_removed() {
    let (_world, mut client) = world();
    let done: SetXattr4Ok =
        on(&mut client, &[b"f"], &[set(SetXattrOption4::Either, b"k", b"v")]).ok(OpNum4::SetXattr);
    assert_ne!(done.info.before, done.info.after);
    let mut reply = on(&mut client, &[b"f"], &[get(b"k")]);
    assert_eq!(reply.ok::<GetXattr4Ok<'_>>(OpNum4::GetXattr).value, b"v");
    reply.end();
    on(&mut client, &[b"f"], &[remove(b"k")]).ok::<RemoveXattr4Ok>(OpNum4::RemoveXattr);
    on(&mut client, &[b"f"], &[get(b"k")]).fails::<()>(OpNum4::GetXattr, NfsStat4::NoXattr);
    on(&mut client, &[b"f"], &[remove(b"k")]).fails::<()>(OpNum4::RemoveXattr, NfsStat4::NoXattr);
}

#[test]
fn create_wants_a_new_name_and_replace_an_old_one() {
    let (_world, mut client) = world();
    let mut put = |option, value| on(&mut client, &[b"f"], &[set(option, b"k", value)]);
    put(SetXattrOption4::Replace, b"1").fails::<()>(OpNum4::SetXattr, NfsStat4::NoXattr);
    put(SetXattrOption4::Create, b"2").ok::<SetXattr4Ok>(OpNum4::SetXattr);
    put(SetXattrOption4::Create, b"3").fails::<()>(OpNum4::SetXattr, NfsStat4::Exist);
    put(SetXattrOption4::Replace, b"4").ok::<SetXattr4Ok>(OpNum4::SetXattr);
    let mut reply = on(&mut client, &[b"f"], &[get(b"k")]);
    assert_eq!(reply.ok::<GetXattr4Ok<'_>>(OpNum4::GetXattr).value, b"4");
}

#[test]
fn names_and_values_that_cannot_be_are_refused() {
    let (_world, mut client) = world();
    let long = [b'x'; 251];
    for (name, status) in
        [(&b""[..], NfsStat4::Inval), (b"a\0b", NfsStat4::Inval), (&long, NfsStat4::NameTooLong)]
    {
        on(&mut client, &[b"f"], &[set(SetXattrOption4::Either, name, b"v")])
            .fails::<()>(OpNum4::SetXattr, status);
        on(&mut client, &[b"f"], &[get(name)]).fails::<()>(OpNum4::GetXattr, status);
        on(&mut client, &[b"f"], &[remove(name)]).fails::<()>(OpNum4::RemoveXattr, status);
    }
    // With its prefix the longest name has as many bytes as Linux allows.
    on(&mut client, &[b"f"], &[set(SetXattrOption4::Either, &long[..250], b"v")])
        .ok::<SetXattr4Ok>(OpNum4::SetXattr);
    on(&mut client, &[b"f"], &[set(SetXattrOption4::Either, b"k", &[0; 65537])])
        .fails::<()>(OpNum4::SetXattr, NfsStat4::Xattr2Big);
}

#[test]
fn a_listing_goes_page_by_page_and_says_when_it_ends() {
    let (_world, mut client) = world();
    let names: Vec<Vec<u8>> = (0..9).map(|n| format!("name {n}").into_bytes()).collect();
    for name in &names {
        on(&mut client, &[b"f"], &[set(SetXattrOption4::Either, name, b"")])
            .ok::<SetXattr4Ok>(OpNum4::SetXattr);
    }
    let (mut seen, mut cookie, mut pages) = (Vec::new(), 0, 0);
    loop {
        // Room for the frame and three names of 4 + 8 bytes.
        let mut reply = on(&mut client, &[b"f"], &[list(cookie, 16 + 3 * 12 + 11)]);
        let ok: ListXattrs4Ok<'_> = reply.ok(OpNum4::ListXattrs);
        assert_eq!(ok.names.len(), 3);
        seen.extend(ok.names.iter().map(|name| name.0.to_vec()));
        (cookie, pages) = (ok.cookie.0, pages + 1);
        if ok.eof {
            break;
        }
    }
    assert_eq!((seen, pages), (names, 3));
    let mut reply = on(&mut client, &[b"f"], &[list(9, 100)]);
    let ok: ListXattrs4Ok<'_> = reply.ok(OpNum4::ListXattrs);
    assert_eq!((ok.names.len(), ok.eof), (0, true));
    on(&mut client, &[b"f"], &[list(10, 100)]).fails::<()>(OpNum4::ListXattrs, NfsStat4::BadCookie);
    on(&mut client, &[b"f"], &[list(0, 15)]).fails::<()>(OpNum4::ListXattrs, NfsStat4::TooSmall);
    on(&mut client, &[b"f"], &[list(0, 16 + 11)]).fails::<()>(OpNum4::ListXattrs, NfsStat4::TooSmall);
}

#[test]
fn the_pseudo_root_has_none_and_a_read_only_export_takes_none() {
    let world = three_exports();
    let mut client = Session::open(&world, 1, 2);
    let mut reply = on_root(&mut client, &[list(0, 100)]);
    let ok: ListXattrs4Ok<'_> = reply.ok(OpNum4::ListXattrs);
    assert_eq!((ok.names.len(), ok.eof), (0, true));
    on_root(&mut client, &[get(b"k")]).fails::<()>(OpNum4::GetXattr, NfsStat4::NoXattr);
    on_root(&mut client, &[remove(b"k")]).fails::<()>(OpNum4::RemoveXattr, NfsStat4::Rofs);
    let put = set(SetXattrOption4::Either, b"k", b"v");
    let frozen = [&to_export(b"frozen")[..], &[put]].concat();
    assert_eq!(client.run(&frozen).status, NfsStat4::Rofs);
    on_v40(&world, &[], &[get(b"k")]).fails::<()>(OpNum4::Illegal, NfsStat4::OpIllegal);
}
