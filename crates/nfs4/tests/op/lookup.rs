use holdfast_wire::nfs4::*;

use crate::client::Session;
use crate::scene::{file, make, on, on_nothing, on_root, on_v40, three_exports};
use crate::world::World;

fn lookup(objname: &[u8]) -> ArgOp<'_> {
    ArgOp::Lookup(Lookup4Args { objname })
}

#[test]
fn a_name_leads_to_its_object_and_lookupp_back() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    make(&mut client, b"d", CreateType4::Dir);
    let root = client.handle(&[]);
    let mut reply = on(&mut client, &[b"d"], &[ArgOp::Lookupp, ArgOp::GetFh]);
    reply.ok::<()>(OpNum4::Lookupp);
    assert_eq!(reply.ok::<GetFh4Ok<'_>>(OpNum4::GetFh).object, root);
    reply.end();
}

#[test]
fn lookupp_leads_from_an_export_to_the_pseudo_root_and_no_further() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let mut reply = on_root(&mut client, &[ArgOp::GetFh]);
    let top = reply.ok::<GetFh4Ok<'_>>(OpNum4::GetFh).object.to_vec();
    let mut reply = on(&mut client, &[], &[ArgOp::Lookupp, ArgOp::GetFh]);
    reply.ok::<()>(OpNum4::Lookupp);
    assert_eq!(reply.ok::<GetFh4Ok<'_>>(OpNum4::GetFh).object, top);
    on_root(&mut client, &[ArgOp::Lookupp]).fails::<()>(OpNum4::Lookupp, NfsStat4::NoEnt);
}

#[test]
fn names_that_cannot_be_are_refused_by_kind() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    for (name, status) in [
        (&b"absent"[..], NfsStat4::NoEnt),
        (b"", NfsStat4::Inval),
        (b".", NfsStat4::BadName),
        (b"..", NfsStat4::BadName),
        (b"a/b", NfsStat4::BadName),
        (&[b'x'; 256], NfsStat4::NameTooLong),
    ] {
        on(&mut client, &[], &[lookup(name)]).fails::<()>(OpNum4::Lookup, status);
    }
    on_root(&mut client, &[lookup(b"absent")]).fails::<()>(OpNum4::Lookup, NfsStat4::NoEnt);
    on_nothing(&mut client, lookup(b"f")).fails::<()>(OpNum4::Lookup, NfsStat4::NoFileHandle);
    on_nothing(&mut client, ArgOp::Lookupp).fails::<()>(OpNum4::Lookupp, NfsStat4::NoFileHandle);
}

#[test]
fn nothing_is_looked_up_in_files_and_links() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"");
    make(&mut client, b"l", CreateType4::Lnk(b"f"));
    on(&mut client, &[b"f"], &[lookup(b"x")]).fails::<()>(OpNum4::Lookup, NfsStat4::NotDir);
    on(&mut client, &[b"l"], &[lookup(b"x")]).fails::<()>(OpNum4::Lookup, NfsStat4::Symlink);
    on(&mut client, &[b"f"], &[ArgOp::Lookupp]).fails::<()>(OpNum4::Lookupp, NfsStat4::NotDir);
}

#[test]
fn readlink_gives_the_text_of_links_alone() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    make(&mut client, b"l", CreateType4::Lnk(b"some/where"));
    make(&mut client, b"d", CreateType4::Dir);
    let mut reply = on(&mut client, &[b"l"], &[ArgOp::ReadLink]);
    assert_eq!(reply.ok::<ReadLink4Ok<'_>>(OpNum4::ReadLink).link, b"some/where");
    reply.end();
    // 4.0 has no word for a wrong type.
    on(&mut client, &[b"d"], &[ArgOp::ReadLink]).fails::<()>(OpNum4::ReadLink, NfsStat4::WrongType);
    on_v40(&world, &[b"d"], &[ArgOp::ReadLink]).fails::<()>(OpNum4::ReadLink, NfsStat4::Inval);
    on_root(&mut client, &[ArgOp::ReadLink]).fails::<()>(OpNum4::ReadLink, NfsStat4::WrongType);
}

#[test]
fn each_export_is_another_file_system() {
    let world = three_exports();
    let mut client = Session::open(&world, 1, 1);
    let mut roots: Vec<Vec<u8>> = [&b"export"[..], b"other", b"frozen"]
        .iter()
        .map(|name| {
            let fsid = ArgOp::GetAttr(GetAttr4Args { attr_request: Bitmap4::of(&[Attr::Fsid]) });
            let mut reply = on_root(&mut client, &[lookup(name), fsid]);
            reply.ok::<()>(OpNum4::Lookup);
            reply.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr).obj_attributes.values.to_vec()
        })
        .collect();
    roots.sort();
    roots.dedup();
    assert_eq!(roots.len(), 3);
}
