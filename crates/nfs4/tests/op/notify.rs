//! Holders of directory delegations that are told of changed entries (CB_NOTIFY).

use holdfast_nfs4::Options;
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Reader};

use crate::client::{CalledBack, Session, open_create};
use crate::delegation::is_recall_of;
use crate::scene::{NO_ATTRS, on};
use crate::world::{Making, World};

const KINDS: [u32; 4] =
    [NOTIFY4_CHANGE_DIR_ATTRS, NOTIFY4_REMOVE_ENTRY, NOTIFY4_ADD_ENTRY, NOTIFY4_RENAME_ENTRY];

fn world(notifies: bool) -> (World, Session, Session) {
    let world =
        World::made(Making { choices: Options { notifies, ..Options::default() }, ..Making::default() });
    let (a, b) = (Session::with_back(&world, 1, 2), Session::with_back(&world, 2, 2));
    (world, a, b)
}

fn ask(client: &mut Session, kinds: &[u32]) -> GetDirDelegation4Granted {
    let now = NfsTime4 { seconds: 0, nseconds: 0 };
    let args = GetDirDelegation4Args {
        signal_deleg_avail: false,
        notification_types: kinds.iter().fold(Bitmap4::EMPTY, |all, kind| all.with(*kind)),
        child_attr_delay: now,
        dir_attr_delay: now,
        child_attributes: Bitmap4::of(&[Attr::Type, Attr::FileId, Attr::Acl]),
        dir_attributes: Bitmap4::of(&[Attr::Change, Attr::Mode]),
    };
    let mut reply = on(client, &[], &[ArgOp::GetDirDelegation(args)]);
    match reply.ok(OpNum4::GetDirDelegation) {
        GetDirDelegation4Ok::Granted(granted) => granted,
        GetDirDelegation4Ok::Unavail(_) => panic!("none"),
    }
}

fn create(client: &mut Session, name: &[u8]) -> NfsStat4 {
    let open = open_create(name, b"o", OPEN4_SHARE_ACCESS_READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
    on(client, &[], &[ArgOp::Open(open)]).status
}

fn remove(client: &mut Session, target: &[u8]) -> NfsStat4 {
    on(client, &[], &[ArgOp::Remove(Remove4Args { target })]).status
}

fn rename(client: &mut Session, oldname: &[u8], newname: &[u8]) -> NfsStat4 {
    on(client, &[], &[ArgOp::SaveFh, ArgOp::Rename(Rename4Args { oldname, newname })]).status
}

/// What a call tells, in words; that the directory changed goes without saying, and is checked here.
fn told(call: &CalledBack, stateid: Stateid4) -> Vec<String> {
    let CbArgOp::Notify(notify) = call.op() else { panic!("{:?} is no notification", call.op()) };
    assert_eq!(notify.stateid, stateid);
    let name = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
    let added = |added: &NotifyAdd4<'_>| {
        let asked = Bitmap4::of(&[Attr::Type, Attr::FileId]);
        assert_eq!(added.new_entry.attrs.mask, asked, "of what was asked for");
        let over = if added.old_entry.is_some() { " over another" } else { "" };
        format!("{}{over}", name(added.new_entry.file))
    };
    let mut all = Vec::new();
    for change in notify.changes {
        let mut r = Reader::new(change.values);
        match change.mask.iter().next().unwrap() {
            NOTIFY4_CHANGE_DIR_ATTRS => {
                let changed = NotifyAttr4::decode(&mut r).unwrap().changed_entry;
                assert_eq!((changed.file, changed.attrs.mask), (&b""[..], Bitmap4::from(Attr::Change)));
            }
            NOTIFY4_ADD_ENTRY => all.push(format!("+{}", added(&NotifyAdd4::decode(&mut r).unwrap()))),
            NOTIFY4_REMOVE_ENTRY => {
                all.push(format!("-{}", name(NotifyRemove4::decode(&mut r).unwrap().old_entry.file)));
            }
            NOTIFY4_RENAME_ENTRY => {
                let renamed = NotifyRename4::decode(&mut r).unwrap();
                all.push(format!(
                    "{} to {}",
                    name(renamed.old_entry.old_entry.file),
                    added(&renamed.new_entry)
                ));
            }
            other => panic!("{other} is not told of"),
        }
        r.finish().unwrap();
    }
    all
}

#[test]
fn who_asks_is_told_of_entries_one_call_after_the_other() {
    let (world, mut a, mut b) = world(true);
    let granted = ask(&mut a, &KINDS);
    assert_eq!(granted.notification.iter().collect::<Vec<_>>(), {
        let mut kinds = KINDS.to_vec();
        kinds.sort_unstable();
        kinds
    });
    assert_eq!(granted.child_attributes, Bitmap4::of(&[Attr::Type, Attr::FileId]));
    assert_eq!(granted.dir_attributes, Bitmap4::from(Attr::Change));
    assert_eq!(create(&mut b, b"x"), NfsStat4::Ok, "nobody waits");
    let first = a.peer.call();
    assert_eq!(told(&first, granted.stateid), ["+x"]);
    assert_eq!(create(&mut b, b"y"), NfsStat4::Ok);
    assert_eq!(rename(&mut b, b"y", b"x"), NfsStat4::Ok);
    assert_eq!(remove(&mut a, b"x"), NfsStat4::Ok, "its own changes are told too");
    assert!(a.peer.calls().is_empty(), "one after the other");
    a.peer.answer(&first, NfsStat4::Ok, b"");
    let second = a.peer.call();
    assert_eq!(told(&second, granted.stateid), ["+y", "y to x over another", "-x"]);
    a.peer.answer(&second, NfsStat4::Delay, b"");
    world.pass(1000);
    let again = a.peer.call();
    assert_eq!(told(&again, granted.stateid).len(), 3, "it asked for time");
    a.peer.answer(&again, NfsStat4::Ok, b"");
    assert_eq!(create(&mut b, b"z"), NfsStat4::Ok);
    assert_eq!(told(&a.peer.call(), granted.stateid), ["+z"]);
    world.check();
}

#[test]
fn what_is_not_told_or_not_heard_has_the_delegation_recalled() {
    let (world, mut a, mut b) = world(true);
    let granted = ask(&mut a, &KINDS);
    assert_eq!(create(&mut b, b"x"), NfsStat4::Ok);
    let call = a.peer.call();
    a.peer.answer(&call, NfsStat4::ServerFault, b"");
    assert!(is_recall_of(&a.peer.call(), granted.stateid), "what it has missed it is to know");
    assert_eq!(create(&mut b, b"y"), NfsStat4::Ok, "nor does anybody wait for that");
    assert!(a.peer.calls().is_empty());
    let (world2, mut a, mut b) = self::world(true);
    let granted = ask(&mut a, &KINDS);
    let values = 0o700u32.to_be_bytes();
    let obj_attributes = Fattr4 { mask: Bitmap4::of(&[Attr::Mode]), values: &values };
    b.peer.auth = crate::client::user(0);
    let set = [ArgOp::SetAttr(SetAttr4Args { stateid: Stateid4::ANONYMOUS, obj_attributes })];
    assert_eq!(on(&mut b, &[], &set).status, NfsStat4::Delay);
    assert!(is_recall_of(&a.peer.call(), granted.stateid), "of attributes nobody is told");
    world.check();
    world2.check();
}

#[test]
fn without_the_option_or_without_asking_for_all_there_is_only_the_recall() {
    for (notifies, kinds) in [(false, &KINDS[..]), (true, &KINDS[1..])] {
        let (world, mut a, mut b) = world(notifies);
        let granted = ask(&mut a, kinds);
        assert_eq!(granted.notification, Bitmap4::EMPTY);
        let make = Create4Args { objtype: CreateType4::Dir, objname: b"d", createattrs: NO_ATTRS };
        assert_eq!(on(&mut b, &[], &[ArgOp::Create(make)]).status, NfsStat4::Delay);
        assert!(is_recall_of(&a.peer.call(), granted.stateid));
        world.check();
    }
}

#[test]
fn who_hears_too_slowly_gives_back() {
    let (world, mut a, mut b) = world(true);
    let granted = ask(&mut a, &KINDS);
    for _ in 0..80 {
        assert_eq!((create(&mut b, b"x"), remove(&mut b, b"x")), (NfsStat4::Ok, NfsStat4::Ok));
    }
    let calls = a.peer.calls();
    assert_eq!(calls.len(), 2, "the first notification, and");
    assert!(is_recall_of(&calls[1], granted.stateid));
    world.check();
}
