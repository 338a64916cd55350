use holdfast_wire::nfs4::*;
use holdfast_xdr::from_bytes;

use crate::client::{Peer, Reply, Session, at, user};
use crate::scene::{file, make, on, on_nothing, on_root, on_v40};
use crate::world::World;

fn getattr(attrs: &[Attr]) -> ArgOp<'static> {
    ArgOp::GetAttr(GetAttr4Args { attr_request: Bitmap4::of(attrs) })
}

#[test]
fn attributes_come_in_the_order_of_their_numbers_and_unknown_ones_are_left_out() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"hello");
    // CloneBlkSize is of 4.2: in 4.1 it is not supported, and so not told.
    let asked = [Attr::Size, Attr::Type, Attr::CloneBlkSize, Attr::Acl];
    let mut reply = on(&mut client, &[b"f"], &[getattr(&asked)]);
    let got = reply.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr).obj_attributes;
    assert_eq!(got.mask, Bitmap4::of(&[Attr::Type, Attr::Size]));
    assert_eq!(got.values, [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5]);
    reply.end();
}

#[test]
fn attributes_far_beyond_the_known_are_left_out_too() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    client.seqid = client.seqid.next();
    let head = client.peer.args(&[&[ArgOp::Sequence(client.sequence())], at(&[]).as_slice()].concat());
    // The count of operations stands after the tag and the minor version.
    let mut args = head;
    args[15] += 1;
    args.extend_from_slice(&OpNum4::GetAttr.as_u32().to_be_bytes());
    let mut words = [0u32; 33];
    words[0] = 32;
    words[1] = 1 << Attr::Type as u32;
    words[32] = 1 << 8;
    args.extend(words.iter().flat_map(|word| word.to_be_bytes()));
    let mut reply = client.peer.exchange(&args);
    reply.ok::<Sequence4Ok>(OpNum4::Sequence);
    reply.ok::<()>(OpNum4::PutRootFh);
    reply.ok::<()>(OpNum4::Lookup);
    let got = reply.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr).obj_attributes;
    assert_eq!((got.mask, got.values), (Bitmap4::of(&[Attr::Type]), &[0, 0, 0, 2][..]));
}

/// An object of each kind, made by the superuser, and the directories above them.
fn every_kind(world: &World) -> Vec<Vec<ArgOp<'static>>> {
    const OTHERS: [(&[u8], CreateType4<'_>); 6] = [
        (b"d", CreateType4::Dir),
        (b"l", CreateType4::Lnk(b"f")),
        (b"s", CreateType4::Sock),
        (b"p", CreateType4::Fifo),
        (b"b", CreateType4::Blk(SpecData4 { major: 1, minor: 3 })),
        (b"c", CreateType4::Chr(SpecData4 { major: 1, minor: 3 })),
    ];
    let mut maker = Session::open(world, 1, 2);
    maker.peer.auth = user(0);
    file(&mut maker, b"f", 0, b"hello");
    for (name, kind) in OTHERS {
        make(&mut maker, name, kind);
    }
    let names = OTHERS.iter().map(|(name, _)| *name);
    let below = std::iter::once(&b"f"[..]).chain(names).map(|name| at(&[name]));
    [vec![ArgOp::PutRootFh], at(&[])].into_iter().chain(below).collect()
}

/// Sends a client's compound.
type Send = dyn FnMut(&[ArgOp<'_>]) -> Reply;

/// A client of a minor version.
fn client_of(world: &World, minor: u32) -> Box<Send> {
    if minor == 0 {
        let mut peer = Peer::new(world, 99, 0);
        Box::new(move |ops| peer.compound(ops))
    } else {
        let mut session = Session::open(world, minor as u8, minor);
        Box::new(move |ops| session.run(ops))
    }
}

/// Has a client run an operation on an object; the reply stands before its result.
fn ask(client: &mut Send, place: &[ArgOp<'_>], op: ArgOp<'_>) -> Reply {
    let mut reply = client(&[place, &[op]].concat());
    reply.ok::<()>(OpNum4::PutRootFh);
    for _ in 1..place.len() {
        reply.ok::<()>(OpNum4::Lookup);
    }
    reply
}

/// RFC 7530 section 5.6, RFC 8881 section 5.6.
const REQUIRED: Bitmap4 = Bitmap4::from_bits(0xfff | 1 << Attr::FileHandle as u32);

/// RFC 8881 section 5.5, RFC 8275 section 5, RFC 9754 section 5.
const WRITE_ONLY: Bitmap4 = Bitmap4::of(&[
    Attr::TimeAccessSet,
    Attr::TimeModifySet,
    Attr::ModeUmask,
    Attr::TimeDelegAccess,
    Attr::TimeDelegModify,
]);

#[test]
fn every_kind_of_object_has_every_required_attribute_and_whatever_it_says_that_it_has() {
    let world = World::new();
    let places = every_kind(&world);
    for (minor, place) in (0..3).flat_map(|minor| places.iter().map(move |place| (minor, place))) {
        let mut client = client_of(&world, minor);
        let mut get = |attr_request| {
            let asked = ArgOp::GetAttr(GetAttr4Args { attr_request });
            let mut reply = ask(&mut client, place, asked);
            let got = reply.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr).obj_attributes;
            assert_eq!(got.mask, attr_request, "{place:?} in 4.{minor}");
            got.values.to_vec()
        };
        let supported: Bitmap4 = from_bytes(&get(Bitmap4::from(Attr::SupportedAttrs))).unwrap();
        assert_eq!(REQUIRED.minus(supported), Bitmap4::EMPTY, "{place:?} in 4.{minor}");
        assert_eq!(supported.has(Attr::SuppAttrExclCreat), minor >= 1);
        assert_eq!(supported.has(Attr::XattrSupport), minor >= 2);
        get(supported.minus(WRITE_ONLY));
        // Why attributes are not there is no attribute, and not compared (RFC 8881 section 18.31.3).
        let mask = supported.minus(WRITE_ONLY).minus(Bitmap4::from(Attr::RdAttrError));
        let values = get(mask);
        let obj_attributes = Fattr4 { mask, values: &values };
        let same = ArgOp::Verify(Verify4Args { obj_attributes });
        ask(&mut client, place, same).ok::<()>(OpNum4::Verify);
        let other = ArgOp::Nverify(Nverify4Args { obj_attributes });
        ask(&mut client, place, other).fails::<()>(OpNum4::Nverify, NfsStat4::Same);
    }
}

#[test]
fn extended_attributes_are_had_in_exports_and_not_above_them() {
    let world = World::new();
    let places = every_kind(&world);
    let mut client = client_of(&world, 2);
    for (n, place) in places.iter().enumerate() {
        let mut reply = ask(&mut client, place, getattr(&[Attr::XattrSupport]));
        let got = reply.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr).obj_attributes;
        assert_eq!(from_bytes::<bool>(got.values).unwrap(), n > 0, "{place:?}");
    }
}

#[test]
fn what_can_only_be_set_cannot_be_asked_for() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    for attr in [Attr::TimeAccessSet, Attr::TimeModifySet, Attr::ModeUmask] {
        on(&mut client, &[], &[getattr(&[Attr::Size, attr])]).fails::<()>(OpNum4::GetAttr, NfsStat4::Inval);
    }
    on_nothing(&mut client, getattr(&[Attr::Size])).fails::<()>(OpNum4::GetAttr, NfsStat4::NoFileHandle);
}

#[test]
fn an_exports_root_is_mounted_on_its_place_in_the_pseudo_root() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    let mut below = on(&mut client, &[], &[getattr(&[Attr::Fsid, Attr::FileId])]);
    let below = below.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr).obj_attributes.values.to_vec();
    let mut above = on_root(&mut client, &[getattr(&[Attr::Fsid, Attr::FileId])]);
    let above = above.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr).obj_attributes.values.to_vec();
    assert_ne!(below[..16], above[..16], "two file systems");
    let mut mounted = on(&mut client, &[], &[getattr(&[Attr::MountedOnFileId])]);
    let mounted = mounted.ok::<GetAttr4Ok<'_>>(OpNum4::GetAttr).obj_attributes.values.to_vec();
    assert_ne!(mounted, below[16..], "not the root's own number");
}

#[test]
fn verify_tells_same_from_not_same_and_nverify_the_other_way_round() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"hello");
    let (five, six) = (5u64.to_be_bytes(), 6u64.to_be_bytes());
    let size = |values| Fattr4 { mask: Bitmap4::of(&[Attr::Size]), values };
    let mut ask = |op, values| {
        let obj_attributes = size(values);
        let arg = match op {
            OpNum4::Verify => ArgOp::Verify(Verify4Args { obj_attributes }),
            _ => ArgOp::Nverify(Nverify4Args { obj_attributes }),
        };
        on(&mut client, &[b"f"], &[arg])
    };
    ask(OpNum4::Verify, &five).ok::<()>(OpNum4::Verify);
    ask(OpNum4::Verify, &six).fails::<()>(OpNum4::Verify, NfsStat4::NotSame);
    ask(OpNum4::Nverify, &six).ok::<()>(OpNum4::Nverify);
    ask(OpNum4::Nverify, &five).fails::<()>(OpNum4::Nverify, NfsStat4::Same);
}

#[test]
fn verify_refuses_what_is_not_supported_or_makes_no_sense() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    for (attr, status) in [
        (Attr::Acl, NfsStat4::AttrNotSupp),
        (Attr::RdAttrError, NfsStat4::Inval),
        (Attr::TimeModifySet, NfsStat4::Inval),
    ] {
        let obj_attributes = Fattr4 { mask: Bitmap4::of(&[attr]), values: &[0; 4] };
        on(&mut client, &[], &[ArgOp::Verify(Verify4Args { obj_attributes })])
            .fails::<()>(OpNum4::Verify, status);
        on(&mut client, &[], &[ArgOp::Nverify(Nverify4Args { obj_attributes })])
            .fails::<()>(OpNum4::Nverify, status);
    }
}

#[test]
fn access_names_only_rights_that_the_kind_of_object_has() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 2);
    file(&mut client, b"f", 0, b"");
    make(&mut client, b"d", CreateType4::Dir);
    let every = 0x1ff;
    let mut ask = |path: &[&[u8]], access| {
        on(&mut client, path, &[ArgOp::Access(Access4Args { access })]).ok::<Access4Ok>(OpNum4::Access)
    };
    assert_eq!(ask(&[b"f"], every).supported, every & !(ACCESS4_LOOKUP | ACCESS4_DELETE));
    assert_eq!(ask(&[b"d"], every).supported, every & !ACCESS4_EXECUTE);
    assert_eq!(ask(&[b"f"], ACCESS4_READ | ACCESS4_LOOKUP).supported, ACCESS4_READ);
    assert_eq!(ask(&[b"f"], 0), Access4Ok { supported: 0, access: 0 });
    let pseudo =
        on_root(&mut client, &[ArgOp::Access(Access4Args { access: every })]).ok::<Access4Ok>(OpNum4::Access);
    let reading = ACCESS4_READ | ACCESS4_LOOKUP;
    assert_eq!((pseudo.supported, pseudo.access), (every & !ACCESS4_EXECUTE, reading));
}

#[test]
fn rights_over_extended_attributes_are_unknown_before_4_2() {
    let world = World::new();
    let mut client = Session::open(&world, 1, 1);
    file(&mut client, b"f", 0, b"");
    let ask = ArgOp::Access(Access4Args { access: ACCESS4_READ | ACCESS4_XAREAD | 1 << 20 });
    let got = on(&mut client, &[b"f"], std::slice::from_ref(&ask)).ok::<Access4Ok>(OpNum4::Access);
    assert_eq!(got, Access4Ok { supported: ACCESS4_READ, access: ACCESS4_READ });
    let got = on_v40(&world, &[b"f"], &[ask]).ok::<Access4Ok>(OpNum4::Access);
    assert_eq!(got.supported, ACCESS4_READ);
}
