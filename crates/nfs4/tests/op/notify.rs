//! Holders of directory delegations that are told of changed entries (CB_NOTIFY, rfc8881bis section 16.2): what was not
//! asked for is asked back, what was is told.

use holdfast_nfs4::Options;
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Reader};

use crate::client::{CalledBack, Session, open_create, user};
use crate::delegation::is_recall_of;
use crate::scene::{NO_ATTRS, make, on, on_v40};
use crate::world::{Making, World};

const DIR_ATTRS: u32 = NOTIFY4_CHANGE_DIR_ATTRS;
const REMOVE: u32 = NOTIFY4_REMOVE_ENTRY;
const ADD: u32 = NOTIFY4_ADD_ENTRY;
const RENAME: u32 = NOTIFY4_RENAME_ENTRY;
const EXTEND: u32 = NOTIFY4_GFLAG_EXTEND;
const ORDER: u32 = NOTIFY4_CFLAG_ORDER;
const ALL: [u32; 5] = [DIR_ATTRS, REMOVE, ADD, RENAME, EXTEND];

/// Two clients of a directory with files `x` and `y` and a directory `d`.
fn world(notifies: bool) -> (World, Session, Session) {
    let world =
        World::made(Making { choices: Options { notifies, ..Options::default() }, ..Making::default() });
    let (a, mut b) = (Session::with_back(&world, 1, 2), Session::with_back(&world, 2, 2));
    assert_eq!([create(&mut b, b"x"), create(&mut b, b"y")], [NfsStat4::Ok; 2]);
    make(&mut b, b"d", CreateType4::Dir);
    (world, a, b)
}

fn bits(kinds: &[u32]) -> Bitmap4 {
    kinds.iter().fold(Bitmap4::EMPTY, |all, kind| all.with(*kind))
}

fn asked(client: &mut Session, path: &[&[u8]], kinds: &[u32]) -> GetDirDelegation4Ok {
    let now = NfsTime4 { seconds: 0, nseconds: 0 };
    let args = GetDirDelegation4Args {
        signal_deleg_avail: false,
        notification_types: bits(kinds),
        child_attr_delay: now,
        dir_attr_delay: now,
        child_attributes: Bitmap4::of(&[Attr::Type, Attr::FileId, Attr::Acl]),
        dir_attributes: Bitmap4::of(&[Attr::Change, Attr::Mode]),
    };
    on(client, path, &[ArgOp::GetDirDelegation(args)]).ok(OpNum4::GetDirDelegation)
}

fn granted(client: &mut Session, path: &[&[u8]], kinds: &[u32]) -> GetDirDelegation4Granted {
    match asked(client, path, kinds) {
        GetDirDelegation4Ok::Granted(granted) => granted,
        GetDirDelegation4Ok::Unavail(_) => panic!("none"),
    }
}

/// What is granted of the export's root, which is all that is asked for.
fn ask(client: &mut Session, kinds: &[u32]) -> Stateid4 {
    let granted = granted(client, &[], kinds);
    assert_eq!(granted.notification, bits(kinds));
    granted.stateid
}

fn create(client: &mut Session, name: &[u8]) -> NfsStat4 {
    let open = open_create(name, b"o", OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
    on(client, &[], &[ArgOp::Open(open)]).status
}

fn mkdir(client: &mut Session, objname: &[u8]) -> NfsStat4 {
    let create = Create4Args { objtype: CreateType4::Dir, objname, createattrs: NO_ATTRS };
    on(client, &[], &[ArgOp::Create(create)]).status
}

fn remove(client: &mut Session, target: &[u8]) -> NfsStat4 {
    on(client, &[], &[ArgOp::Remove(Remove4Args { target })]).status
}

fn rename(client: &mut Session, oldname: &[u8], newname: &[u8]) -> NfsStat4 {
    on(client, &[], &[ArgOp::SaveFh, ArgOp::Rename(Rename4Args { oldname, newname })]).status
}

/// Out of the export's root into `d`.
fn move_down(client: &mut Session, oldname: &[u8], newname: &[u8]) -> NfsStat4 {
    let enter = ArgOp::Lookup(Lookup4Args { objname: b"d" });
    on(client, &[], &[ArgOp::SaveFh, enter, ArgOp::Rename(Rename4Args { oldname, newname })]).status
}

fn link(client: &mut Session, old: &[u8], newname: &[u8]) -> NfsStat4 {
    let enter = ArgOp::Lookup(Lookup4Args { objname: b"export" });
    let back = [ArgOp::SaveFh, ArgOp::PutRootFh, enter, ArgOp::Link(Link4Args { newname })];
    on(client, &[old], &back).status
}

/// What a call tells, in words, each change by itself.
fn told(call: &CalledBack, stateid: Stateid4) -> Vec<String> {
    let CbArgOp::Notify(notify) = call.op() else { panic!("{:?} is no notification", call.op()) };
    assert_eq!(notify.stateid, stateid);
    notify.changes.iter().map(in_words).collect()
}

fn in_words(change: &Notify4<'_>) -> String {
    let name = |entry: &NotifyEntry4<'_>| String::from_utf8_lossy(entry.file).into_owned();
    let added = |added: &NotifyAdd4<'_>| {
        let asked = Bitmap4::of(&[Attr::Type, Attr::FileId]);
        assert_eq!(added.new_entry.attrs.mask, asked, "of what was asked for");
        assert_eq!((added.new_entry_cookie, added.prev_entry, added.last_entry), (None, None, false));
        let gone = added.old_entry.map(|old| format!(" over {}", name(&old.old_entry)));
        format!("{}{}", name(&added.new_entry), gone.unwrap_or_default())
    };
    let kinds: Vec<_> = change.mask.iter().collect();
    let [kind] = kinds[..] else { panic!("{kinds:?} in one") };
    let mut r = Reader::new(change.values);
    let words = match kind {
        DIR_ATTRS => {
            let changed = NotifyAttr4::decode(&mut r).unwrap().changed_entry;
            assert_eq!((changed.file, changed.attrs.mask), (&b""[..], Bitmap4::from(Attr::Change)));
            "itself".into()
        }
        ADD => format!("+{}", added(&NotifyAdd4::decode(&mut r).unwrap())),
        REMOVE => format!("-{}", name(&NotifyRemove4::decode(&mut r).unwrap().old_entry)),
        RENAME => {
            let NotifyRename4 { old_entry, new_entry } = NotifyRename4::decode(&mut r).unwrap();
            format!("{} to {}", name(&old_entry.old_entry), added(&new_entry))
        }
        other => panic!("{other} is not told of"),
    };
    r.finish().unwrap();
    words
}

/// A change, what it is told as, and which kind that is.
type Changing = (fn(&mut Session) -> NfsStat4, &'static str, u32);

const CHANGES: [Changing; 6] = [
    (|by| create(by, b"new"), "+new", ADD),
    (|by| remove(by, b"x"), "-x", REMOVE),
    (|by| rename(by, b"x", b"z"), "x to z", RENAME),
    (|by| mkdir(by, b"e"), "+e", ADD),
    (|by| link(by, b"x", b"x2"), "+x2", ADD),
    (|by| move_down(by, b"x", b"x"), "-x", REMOVE),
];

/// That a change by another waits until the delegation is given back, and that its holder is told nothing else.
fn assert_recalled(kinds: &[u32], is_granted: bool, change: fn(&mut Session) -> NfsStat4) {
    let (world, mut a, mut b) = world(true);
    let granted = granted(&mut a, &[], kinds);
    assert_eq!(granted.notification, if is_granted { bits(kinds) } else { Bitmap4::EMPTY });
    assert_eq!(change(&mut b), NfsStat4::Delay, "{kinds:?}: not before it is given back");
    assert!(is_recall_of(&a.peer.call(), granted.stateid));
    let back = ArgOp::DelegReturn(DelegReturn4Args { deleg_stateid: granted.stateid });
    on(&mut a, &[], &[back]).ok::<()>(OpNum4::DelegReturn);
    assert_eq!(change(&mut b), NfsStat4::Ok);
    assert!(a.peer.calls().is_empty());
    world.check();
}

#[test]
fn who_asks_for_nothing_is_asked_back_before_each_change() {
    for (change, ..) in CHANGES {
        assert_recalled(&[], false, change);
    }
}

#[test]
fn a_client_has_one_delegation_of_a_directory() {
    let (world, mut a, _) = world(true);
    ask(&mut a, &[ADD, EXTEND]);
    for kinds in [&[ADD, EXTEND][..], &ALL, &[]] {
        assert!(matches!(asked(&mut a, &[], kinds), GetDirDelegation4Ok::Unavail(false)));
    }
    world.check();
}

#[test]
fn who_goes_by_the_order_of_entries_is_told_nothing_and_is_asked_back() {
    let ordered = [DIR_ATTRS, REMOVE, ADD, RENAME, EXTEND, ORDER];
    for kinds in [&[ADD][..], &ALL[..4], &ordered, &[ORDER, ADD]] {
        assert_recalled(kinds, false, |by| create(by, b"new"));
    }
}

#[test]
fn flags_alone_have_nothing_told() {
    for kinds in [&[EXTEND][..], &[DIR_ATTRS, EXTEND], &[NOTIFY4_CHANGE_CHILD_ATTRS, EXTEND]] {
        assert_recalled(kinds, false, |by| create(by, b"new"));
    }
}

#[test]
fn a_change_is_told_where_its_kind_was_asked_for_and_is_asked_for_else() {
    for kind in [ADD, REMOVE, RENAME] {
        for (change, words, of) in CHANGES {
            if of != kind {
                assert_recalled(&[kind, EXTEND], true, change);
                continue;
            }
            let (world, mut a, mut b) = world(true);
            let stateid = ask(&mut a, &[kind, EXTEND]);
            assert_eq!(change(&mut b), NfsStat4::Ok, "nobody waits");
            assert_eq!(told(&a.peer.call(), stateid), [words]);
            world.check();
        }
    }
}

#[test]
fn what_is_not_known_or_not_offered_is_not_granted() {
    let (world, mut a, mut b) = world(true);
    let others = [NOTIFY4_CHANGE_CHILD_ATTRS, NOTIFY4_CHANGE_COOKIE_VERIFIER, NOTIFY4_CHANGE_AUTH, 40];
    let granted_a = granted(&mut a, &[], &[&ALL[..], &others].concat());
    assert_eq!(granted_a.notification, bits(&ALL));
    assert_eq!(granted_a.child_attributes, Bitmap4::of(&[Attr::Type, Attr::FileId]));
    assert_eq!(granted_a.dir_attributes, Bitmap4::from(Attr::Change));
    let granted_b = granted(&mut b, &[], &[REMOVE, EXTEND]);
    let attributes = (granted_b.child_attributes, granted_b.dir_attributes);
    assert_eq!(attributes, (Bitmap4::EMPTY, Bitmap4::EMPTY), "of nothing that is told");
    world.check();
}

#[test]
fn the_directorys_attributes_come_with_each_change_where_they_were_asked_for() {
    let (world, mut a, mut b) = world(true);
    let stateid = ask(&mut a, &[DIR_ATTRS, REMOVE, EXTEND]);
    assert_eq!(create(&mut a, b"mine"), NfsStat4::Ok, "of a kind that it did not ask for, and its own");
    assert!(a.peer.calls().is_empty());
    assert_eq!(remove(&mut b, b"mine"), NfsStat4::Ok);
    assert_eq!(told(&a.peer.call(), stateid), ["-mine", "itself"]);
    world.check();
}

#[test]
fn ones_own_changes_are_neither_told_nor_in_ones_way() {
    for kinds in [&[RENAME, EXTEND][..], &ALL] {
        let (world, mut a, mut b) = world(true);
        let stateid = ask(&mut a, kinds);
        let own = [create(&mut a, b"m"), rename(&mut a, b"m", b"n"), move_down(&mut a, b"y", b"y")];
        assert_eq!(own, [NfsStat4::Ok; 3]);
        assert_eq!([link(&mut a, b"x", b"l"), remove(&mut a, b"l")], [NfsStat4::Ok; 2]);
        assert!(a.peer.calls().is_empty());
        assert_eq!(rename(&mut b, b"n", b"o"), NfsStat4::Ok);
        assert_eq!(told(&a.peer.call(), stateid)[0], "n to o");
        world.check();
    }
}

#[test]
fn of_several_holders_each_is_told_what_the_others_do_and_who_has_no_client_id() {
    let (world, mut a, mut b) = world(true);
    let (of_a, of_b) = (ask(&mut a, &[ADD, EXTEND]), ask(&mut b, &[ADD, EXTEND]));
    assert_eq!(create(&mut a, b"m"), NfsStat4::Ok);
    assert!(a.peer.calls().is_empty());
    let call = b.peer.call();
    assert_eq!(told(&call, of_b), ["+m"]);
    b.peer.answer(&call, NfsStat4::Ok, b"");
    let make = Create4Args { objtype: CreateType4::Dir, objname: b"e", createattrs: NO_ATTRS };
    assert_eq!(on_v40(&world, &[], &[ArgOp::Create(make)]).status, NfsStat4::Ok);
    assert_eq!(
        (told(&a.peer.call(), of_a), told(&b.peer.call(), of_b)),
        (vec!["+e".into()], vec!["+e".into()])
    );
    world.check();
}

#[test]
fn a_rename_across_directories_is_a_removal_in_one_and_an_addition_in_the_other() {
    let (world, mut a, mut b) = world(true);
    let from = ask(&mut a, &[REMOVE, EXTEND]);
    let to = granted(&mut a, &[b"d"], &[ADD, EXTEND]).stateid;
    assert_eq!(move_down(&mut b, b"x", b"x"), NfsStat4::Ok);
    let calls = a.peer.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!((told(&calls[0], from), told(&calls[1], to)), (vec!["-x".into()], vec!["+x".into()]));
    calls.iter().for_each(|call| a.peer.answer(call, NfsStat4::Ok, b""));
    assert_eq!(move_down(&mut b, b"y", b"x"), NfsStat4::Ok);
    let calls = a.peer.calls();
    assert_eq!(told(&calls[1], to), ["+x over x"], "with what went");
    world.check();
}

/// RFC 8881 section 18.26.3: both names stay.
#[test]
fn a_rename_of_a_files_name_onto_another_of_its_names_changes_nothing_and_is_not_told() {
    let (world, mut a, mut b) = world(true);
    assert_eq!(link(&mut b, b"x", b"x2"), NfsStat4::Ok);
    let stateid = ask(&mut a, &[ADD, REMOVE, RENAME, EXTEND]);
    assert_eq!([rename(&mut b, b"x", b"x2"), rename(&mut b, b"y", b"y")], [NfsStat4::Ok; 2]);
    assert!(a.peer.calls().is_empty());
    assert_eq!(rename(&mut b, b"x", b"y"), NfsStat4::Ok);
    assert_eq!(told(&a.peer.call(), stateid), ["x to y over y"]);
    world.check();
}

#[test]
fn changes_are_told_in_order_one_call_after_the_other() {
    let (world, mut a, mut b) = world(true);
    let stateid = ask(&mut a, &[ADD, REMOVE, RENAME, EXTEND]);
    assert_eq!(create(&mut b, b"new"), NfsStat4::Ok);
    let first = a.peer.call();
    assert_eq!(told(&first, stateid), ["+new"]);
    assert_eq!([create(&mut b, b"z"), rename(&mut b, b"z", b"x"), remove(&mut b, b"x")], [NfsStat4::Ok; 3]);
    assert!(a.peer.calls().is_empty(), "one after the other");
    a.peer.answer(&first, NfsStat4::Ok, b"");
    let second = a.peer.call();
    let expected = ["+z", "z to x over x", "-x"];
    assert_eq!(told(&second, stateid), expected);
    a.peer.answer(&second, NfsStat4::Delay, b"");
    world.pass(1000);
    let again = a.peer.call();
    assert_eq!(told(&again, stateid), expected, "it asked for time");
    a.peer.answer(&again, NfsStat4::Ok, b"");
    assert_eq!(create(&mut b, b"w"), NfsStat4::Ok);
    assert_eq!(told(&a.peer.call(), stateid), ["+w"]);
    world.check();
}

#[test]
fn what_is_not_told_or_not_heard_has_the_delegation_recalled() {
    let (world, mut a, mut b) = world(true);
    let stateid = ask(&mut a, &ALL);
    assert_eq!(create(&mut b, b"new"), NfsStat4::Ok);
    let call = a.peer.call();
    a.peer.answer(&call, NfsStat4::ServerFault, b"");
    assert!(is_recall_of(&a.peer.call(), stateid), "what it has missed it is to know");
    assert_eq!(create(&mut b, b"newer"), NfsStat4::Ok, "nor does anybody wait for that");
    assert!(a.peer.calls().is_empty());
    let (world2, mut a, mut b) = self::world(true);
    let stateid = ask(&mut a, &ALL);
    let values = 0o700u32.to_be_bytes();
    let obj_attributes = Fattr4 { mask: Bitmap4::of(&[Attr::Mode]), values: &values };
    b.peer.auth = user(0);
    let set = [ArgOp::SetAttr(SetAttr4Args { stateid: Stateid4::ANONYMOUS, obj_attributes })];
    assert_eq!(on(&mut b, &[], &set).status, NfsStat4::Delay);
    assert!(is_recall_of(&a.peer.call(), stateid), "of attributes nobody is told");
    world.check();
    world2.check();
}

#[test]
fn without_the_option_there_is_only_the_recall() {
    let (world, mut a, mut b) = world(false);
    let granted = granted(&mut a, &[], &ALL);
    assert_eq!(granted.notification, Bitmap4::EMPTY);
    assert_eq!(mkdir(&mut b, b"e"), NfsStat4::Delay);
    assert!(is_recall_of(&a.peer.call(), granted.stateid));
    world.check();
}

#[test]
fn who_hears_too_slowly_gives_back() {
    let (world, mut a, mut b) = world(true);
    let stateid = ask(&mut a, &ALL);
    for _ in 0..80 {
        assert_eq!((create(&mut b, b"new"), remove(&mut b, b"new")), (NfsStat4::Ok, NfsStat4::Ok));
    }
    let calls = a.peer.calls();
    assert_eq!(calls.len(), 2, "the first notification, and");
    assert!(is_recall_of(&calls[1], stateid));
    world.check();
}
