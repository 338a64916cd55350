//! Exports that lie elsewhere as well, or instead (RFC 8881 section 11).

use holdfast_base::Cookie;
use holdfast_export::{ExportOptions, Location};
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode as _, Reader};

use crate::client::{Session, open_existing};
use crate::scene::{file, on, on_root, on_v40};
use crate::world::{Making, World};

fn places(texts: &[&str]) -> Vec<Location> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn with(change: impl FnOnce(&mut ExportOptions)) -> World {
    let mut making = Making::default();
    change(&mut making.options);
    World::made(making)
}

fn moved() -> World {
    with(|options| options.moved_to = places(&["192.0.2.7:20490:/there/it", "files.example.org"]))
}

fn getattr(attrs: &[Attr]) -> ArgOp<'static> {
    ArgOp::GetAttr(GetAttr4Args { attr_request: Bitmap4::of(attrs) })
}

fn names(path: &PathName4<'_>) -> Vec<String> {
    path.names.iter().map(|name| String::from_utf8_lossy(name.0).into_owned()).collect()
}

/// Root here, and each server with its root.
fn told(fattr: &Fattr4<'_>) -> (Vec<String>, Vec<(String, Vec<String>)>) {
    let mut values = Reader::new(fattr.values);
    for attr in fattr.mask.iter().take_while(|attr| *attr < Attr::FsLocations as u32) {
        assert_eq!(attr, Attr::Fsid as u32, "nothing else before it is asked for here");
        let _fsid = [values.u64().unwrap(), values.u64().unwrap()];
    }
    let found = FsLocations4::decode(&mut values).unwrap();
    let place = |place: &FsLocation4<'_>| {
        assert_eq!(place.servers.len(), 1);
        (String::from_utf8_lossy(place.servers[0].name).into_owned(), names(&place.rootpath))
    };
    (names(&found.fs_root), found.locations.iter().map(place).collect())
}

fn asked(client: &mut Session, path: &[&[u8]]) -> (Vec<String>, Vec<(String, Vec<String>)>) {
    let mut reply = on(client, path, &[getattr(&[Attr::Fsid, Attr::FsLocations])]);
    let ok = reply.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr);
    told(&ok.obj_attributes)
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn an_export_without_others_has_its_root_and_no_places() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"");
    assert_eq!(asked(&mut client, &[b"f"]), (texts(&["export"]), vec![]));
    let mut reply = on_root(&mut client, &[getattr(&[Attr::FsLocations])]);
    let ok = reply.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr);
    assert_eq!(told(&ok.obj_attributes), (vec![], vec![]));
}

#[test]
fn replicas_are_told_each_with_its_root_and_the_export_is_served() {
    let world = with(|options| options.replicas = places(&["[2001:db8::1]:20490", "other:/x/y"]));
    for minor in [1, 2] {
        let mut client = Session::open(&world, minor as u8, minor);
        file(&mut client, b"f", 0, b"hello");
        let there = vec![
            ("2001:db8::1.80.10".to_owned(), texts(&["export"])),
            ("other".to_owned(), texts(&["x", "y"])),
        ];
        assert_eq!(asked(&mut client, &[b"f"]), (texts(&["export"]), there));
    }
    let mut reply = on_v40(&world, &[], &[getattr(&[Attr::FsLocations])]);
    let ok = reply.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr);
    assert_eq!(told(&ok.obj_attributes).1.len(), 2);
}

#[test]
fn of_an_absent_export_only_where_it_is_is_told() {
    let world = moved();
    let mut client = Session::open(&world, 1, 2);
    let there = vec![
        ("192.0.2.7.80.10".to_owned(), texts(&["there", "it"])),
        ("files.example.org".to_owned(), texts(&["export"])),
    ];
    assert_eq!(asked(&mut client, &[]), (texts(&["export"]), there));
    // What else is asked for along with it is left out, but for what helps to find the border.
    let all = [Attr::Type, Attr::Fsid, Attr::FsLocations, Attr::Owner, Attr::MountedOnFileId];
    let mut reply = on(&mut client, &[], &[getattr(&all)]);
    let mask = reply.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr).obj_attributes.mask;
    assert_eq!(mask, Bitmap4::of(&[Attr::Fsid, Attr::FsLocations, Attr::MountedOnFileId]));
    // Its identity is nobody else's.
    let fsid = |reply: &mut crate::client::Reply| {
        reply.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr).obj_attributes.values[..16].to_vec()
    };
    let own = fsid(&mut on(&mut client, &[], &[getattr(&[Attr::Fsid, Attr::FsLocations])]));
    let above = fsid(&mut on_root(&mut client, &[getattr(&[Attr::Fsid])]));
    assert_ne!(own, above);
}

#[test]
fn everything_else_in_an_absent_export_hears_moved() {
    let world = moved();
    let mut client = Session::open(&world, 1, 2);
    let refused = |client: &mut Session, op: ArgOp<'_>, num| {
        on(client, &[], &[op]).fails::<()>(num, NfsStat4::Moved);
    };
    refused(&mut client, getattr(&[Attr::Fsid, Attr::MountedOnFileId]), OpNum4::GetAttr);
    refused(&mut client, ArgOp::GetFh, OpNum4::GetFh);
    refused(&mut client, ArgOp::SaveFh, OpNum4::SaveFh);
    refused(&mut client, ArgOp::Lookupp, OpNum4::Lookupp);
    refused(&mut client, ArgOp::Lookup(Lookup4Args { objname: b"f" }), OpNum4::Lookup);
    refused(&mut client, ArgOp::Access(Access4Args { access: 1 }), OpNum4::Access);
    refused(&mut client, ArgOp::Remove(Remove4Args { target: b"f" }), OpNum4::Remove);
    let listing = ReadDir4Args {
        cookie: Cookie(0),
        cookieverf: [0; 8],
        dircount: 0,
        maxcount: 8192,
        attr_request: Bitmap4::of(&[Attr::FsLocations]),
    };
    refused(&mut client, ArgOp::ReadDir(listing), OpNum4::ReadDir);
    let open = open_existing(b"f", b"owner", OPEN4_SHARE_ACCESS_READ);
    refused(&mut client, ArgOp::Open(open), OpNum4::Open);
    let verify = |attr| Verify4Args { obj_attributes: Fattr4 { mask: Bitmap4::of(attr), values: &[0; 16] } };
    refused(&mut client, ArgOp::Verify(verify(&[Attr::Fsid])), OpNum4::Verify);
    refused(&mut client, ArgOp::Verify(verify(&[Attr::FsLocations, Attr::Size])), OpNum4::Verify);
}

#[test]
fn a_listing_with_an_absent_export_in_it_tells_or_hears_moved() {
    let world = moved();
    let mut client = Session::open(&world, 1, 1);
    let listing = |attrs: &[Attr]| {
        ArgOp::ReadDir(ReadDir4Args {
            cookie: Cookie(0),
            cookieverf: [0; 8],
            dircount: 0,
            maxcount: 8192,
            attr_request: Bitmap4::of(attrs),
        })
    };
    on_root(&mut client, &[listing(&[Attr::Fsid])]).fails::<()>(OpNum4::ReadDir, NfsStat4::Moved);
    let told = |client: &mut Session, attrs: &[Attr]| {
        let mut reply = on_root(client, &[listing(attrs)]);
        let ok = reply.ok::<ReadDir4Ok<'_>>(OpNum4::ReadDir);
        assert_eq!(ok.entries.len(), 1);
        let of = &ok.entries[0].attrs;
        (of.mask, of.values.to_vec())
    };
    let (mask, values) =
        told(&mut client, &[Attr::RdAttrError, Attr::Fsid, Attr::Size, Attr::MountedOnFileId]);
    assert_eq!(mask, Bitmap4::of(&[Attr::Fsid, Attr::RdAttrError, Attr::MountedOnFileId]));
    assert_eq!(values[16..20], (NfsStat4::Moved as u32).to_be_bytes());
    // Who asks where it lies is told of no error (RFC 8881 section 11.4.2).
    let (mask, values) = told(&mut client, &[Attr::RdAttrError, Attr::Fsid, Attr::FsLocations, Attr::Size]);
    assert_eq!(mask, Bitmap4::of(&[Attr::Fsid, Attr::RdAttrError, Attr::FsLocations]));
    assert_eq!(values[16..20], (NfsStat4::Ok as u32).to_be_bytes());
}

/// The flags of an empty compound's SEQUENCE.
fn flags(client: &mut Session) -> u32 {
    client.seqid = client.seqid.next();
    let args = client.peer.args(&[ArgOp::Sequence(client.sequence())]);
    client.peer.exchange(&args).ok::<Sequence4Ok>(OpNum4::Sequence).status_flags
}

#[test]
fn who_held_something_of_what_moves_is_told_until_it_has_met_it() {
    let world = World::new();
    let (mut holder, mut other) = (Session::open(&world, 1, 1), Session::open(&world, 2, 1));
    file(&mut holder, b"f", 0, b"hello");
    let handle = holder.handle(&[b"f"]);
    world.move_away(&places(&["192.0.2.7"]), &[&handle]);
    assert_eq!(flags(&mut other) & SEQ4_STATUS_LEASE_MOVED, 0, "it held nothing");
    assert_ne!(flags(&mut holder) & SEQ4_STATUS_LEASE_MOVED, 0);
    // To ask where it is does not count: RFC 8881 section 11.10.9.1.
    let put = ArgOp::PutFh(PutFh4Args { object: &handle });
    let mut reply = holder.run(&[put.clone(), getattr(&[Attr::FsLocations])]);
    reply.ok::<()>(OpNum4::PutFh);
    assert_eq!(told(&reply.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr).obj_attributes).1.len(), 1);
    assert_ne!(flags(&mut holder) & SEQ4_STATUS_LEASE_MOVED, 0);
    let mut reply = holder.run(&[put, getattr(&[Attr::Size])]);
    reply.ok::<()>(OpNum4::PutFh);
    reply.fails::<()>(OpNum4::GetAttr, NfsStat4::Moved);
    assert_eq!(flags(&mut holder) & SEQ4_STATUS_LEASE_MOVED, 0);
    // Nothing is held of it here any more, so that it may go.
    let destroy = [ArgOp::DestroySession(DestroySession4Args { sessionid: holder.id })];
    holder.peer.compound(&destroy).ok::<()>(OpNum4::DestroySession);
    let destroy = [ArgOp::DestroyClientId(DestroyClientId4Args { clientid: holder.client })];
    holder.peer.compound(&destroy).ok::<()>(OpNum4::DestroyClientId);
}
