//! Delegations: given, recalled, returned, revoked, claimed; the calls about them.

use holdfast_base::{Offset, Seqid};
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Encode, Writer, to_bytes};

use crate::client::{CalledBack, Peer, Reply, Session, open_create, open_existing};
use crate::scene::{file, on};
use crate::wanted::dir_delegation;
use crate::world::{LEASE_MS, Making, World};

pub(crate) const READ: u32 = OPEN4_SHARE_ACCESS_READ;
pub(crate) const WRITE: u32 = OPEN4_SHARE_ACCESS_WRITE;
pub(crate) const BOTH: u32 = OPEN4_SHARE_ACCESS_BOTH;

const CONTENDED: OpenDelegation4<'static> = OpenDelegation4::NoneExt(OpenNoneDelegation4::Contention(false));

/// A world with a file `f`, two clients that can be called back.
pub(crate) fn two() -> (World, Session, Session) {
    two_in(World::new())
}

/// Makes the file that [`open`] opens.
pub(crate) fn make(world: &World) {
    let mut maker = Session::open(world, 9, 2);
    let made = file(&mut maker, b"f", 0, b"hello");
    close(&mut maker, made);
}

fn two_in(world: World) -> (World, Session, Session) {
    make(&world);
    let (a, b) = (Session::with_back(&world, 1, 2), Session::with_back(&world, 2, 2));
    (world, a, b)
}

pub(crate) fn close(client: &mut Session, open_stateid: Stateid4) {
    let close = Close4Args { seqid: Seqid(0), open_stateid };
    on(client, &[b"f"], &[ArgOp::Close(close)]).ok::<Close4Ok>(OpNum4::Close);
}

pub(crate) fn open(client: &mut Session, access: u32) -> Open4Ok<'static> {
    let mut reply = on(client, &[], &[ArgOp::Open(open_existing(b"f", b"o", access))]);
    owned(reply.ok(OpNum4::Open))
}

pub(crate) fn owned(opened: Open4Ok<'_>) -> Open4Ok<'static> {
    fn ace(ace: NfsAce4<'_>) -> NfsAce4<'static> {
        assert_eq!(ace.who, b"OWNER@");
        NfsAce4 { who: b"OWNER@", ..ace }
    }
    let read = |d: OpenReadDelegation4<'_>| OpenReadDelegation4 {
        stateid: d.stateid,
        recall: d.recall,
        permissions: ace(d.permissions),
    };
    let write = |d: OpenWriteDelegation4<'_>| OpenWriteDelegation4 {
        stateid: d.stateid,
        recall: d.recall,
        space_limit: d.space_limit,
        permissions: ace(d.permissions),
    };
    let Open4Ok { stateid, cinfo, rflags, attrset, delegation } = opened;
    let delegation = match delegation {
        OpenDelegation4::None => OpenDelegation4::None,
        OpenDelegation4::NoneExt(why) => OpenDelegation4::NoneExt(why),
        OpenDelegation4::Read(d) => OpenDelegation4::Read(read(d)),
        OpenDelegation4::Write(d) => OpenDelegation4::Write(write(d)),
        OpenDelegation4::ReadAttrsDeleg(d) => OpenDelegation4::ReadAttrsDeleg(read(d)),
        OpenDelegation4::WriteAttrsDeleg(d) => OpenDelegation4::WriteAttrsDeleg(write(d)),
    };
    Open4Ok { stateid, cinfo, rflags, attrset, delegation }
}

/// The name of what was delegated.
pub(crate) fn name(opened: &Open4Ok<'_>) -> Stateid4 {
    match opened.delegation {
        OpenDelegation4::Read(d) | OpenDelegation4::ReadAttrsDeleg(d) => d.stateid,
        OpenDelegation4::Write(d) | OpenDelegation4::WriteAttrsDeleg(d) => d.stateid,
        none => panic!("{none:?} is no delegation"),
    }
}

pub(crate) fn try_open(client: &mut Session, access: u32) -> Reply {
    on(client, &[], &[ArgOp::Open(open_existing(b"f", b"o", access))])
}

pub(crate) fn give_back(client: &mut Session, deleg_stateid: Stateid4) {
    on(client, &[b"f"], &[ArgOp::DelegReturn(DelegReturn4Args { deleg_stateid })])
        .ok::<()>(OpNum4::DelegReturn);
}

/// The flags of a SEQUENCE alone.
pub(crate) fn flags(client: &mut Session) -> u32 {
    client.seqid = client.seqid.next();
    let mut reply = client.peer.compound(&[ArgOp::Sequence(client.sequence())]);
    reply.ok::<Sequence4Ok>(OpNum4::Sequence).status_flags
}

pub(crate) fn is_recall_of(call: &CalledBack, stateid: Stateid4) -> bool {
    matches!(call.op(), CbArgOp::Recall(recall) if recall.stateid == stateid)
}

#[test]
fn who_opens_for_reading_is_given_a_read_delegation_and_the_owners_rights() {
    let (world, mut a, mut b) = two();
    for client in [&mut a, &mut b] {
        let OpenDelegation4::Read(read) = open(client, READ).delegation else { panic!("none given") };
        assert!(!read.recall);
        assert_eq!(read.permissions.ace_type, ACE4_ACCESS_ALLOWED_ACE_TYPE);
        assert_eq!(read.permissions.access_mask & ACE4_WRITE_DATA, 0);
    }
    world.check();
}

#[test]
fn who_opens_for_writing_alone_is_given_a_write_delegation_with_room() {
    let (world, mut a, mut b) = two();
    let OpenDelegation4::Write(write) = open(&mut a, BOTH).delegation else { panic!("none given") };
    let SpaceLimit4::Size(limit) = write.space_limit else { panic!("a limit by size") };
    assert!(limit > 5, "{limit}");
    drop(a);
    assert_eq!(try_open(&mut b, READ).status, NfsStat4::Delay, "not beside the write delegation");
    world.check();
}

#[test]
fn nothing_is_given_to_whom_cannot_be_called_back_or_does_not_want() {
    let (world, mut a, _) = two();
    let mut deaf = Session::open(&world, 3, 2);
    assert_eq!(open(&mut deaf, READ).delegation, OpenDelegation4::None);
    let why = open(&mut deaf, READ | OPEN4_SHARE_ACCESS_WANT_READ_DELEG).delegation;
    assert_eq!(why, OpenDelegation4::NoneExt(OpenNoneDelegation4::Resource(false)));
    let why = open(&mut a, READ | OPEN4_SHARE_ACCESS_WANT_NO_DELEG).delegation;
    assert_eq!(why, OpenDelegation4::NoneExt(OpenNoneDelegation4::NotWanted));
    let why = open(&mut a, READ | OPEN4_SHARE_ACCESS_WANT_CANCEL).delegation;
    assert_eq!(why, OpenDelegation4::NoneExt(OpenNoneDelegation4::Cancelled));
    let unseen = open(&mut a, READ);
    assert_eq!(unseen.delegation, OpenDelegation4::None, "the file was not looked at after the others");
    close(&mut a, unseen.stateid);
    assert!(matches!(open(&mut a, READ).delegation, OpenDelegation4::Read(_)));
    world.check();
}

#[test]
fn a_conflict_recalls_with_the_request_it_came_with_and_goes_on_once_it_is_returned() {
    let (world, mut a, mut b) = two();
    let fh = a.handle(&[b"f"]);
    let held = name(&open(&mut a, READ));
    let granted_by = a.seqid;
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Delay);
    let call = a.peer.call();
    assert!(is_recall_of(&call, held));
    assert!(matches!(call.op(), CbArgOp::Recall(recall) if recall.fh == fh && !recall.truncate));
    let refers = &call.sequence().referring_call_lists;
    let slot = a.sequence().slotid;
    let expected = vec![ReferringCall4 { sequenceid: granted_by, slotid: slot }];
    assert_eq!((refers[0].sessionid, &refers[0].calls), (a.id, &expected));
    a.peer.answer(&call, NfsStat4::Ok, b"");
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Delay, "answered is not returned");
    assert!(a.peer.calls().is_empty(), "asked once");
    give_back(&mut a, held);
    let after = open(&mut b, WRITE | OPEN4_SHARE_ACCESS_WANT_ANY_DELEG);
    assert_eq!(after.delegation, CONTENDED, "what was just recalled is not given");
    let again = ArgOp::DelegReturn(DelegReturn4Args { deleg_stateid: held });
    on(&mut a, &[b"f"], &[again]).fails::<()>(OpNum4::DelegReturn, NfsStat4::BadStateid);
    world.check();
}

#[test]
fn what_is_not_returned_is_revoked_and_its_holder_told_until_it_is_freed() {
    let (world, mut a, mut b) = two();
    let held = name(&open(&mut a, READ));
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Delay);
    let call = a.peer.call();
    a.peer.answer(&call, NfsStat4::Ok, b"");
    for _ in 0..3 {
        world.pass(LEASE_MS / 2);
        assert_eq!(flags(&mut b), 0);
        flags(&mut a);
    }
    assert_eq!(*world.records.losers.lock(), [a.client], "on record before another has it");
    open(&mut b, WRITE);
    assert_eq!(flags(&mut a), SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
    let none = OpenDelegation4::NoneExt(OpenNoneDelegation4::Resource(false));
    assert_eq!(open(&mut a, READ | OPEN4_SHARE_ACCESS_WANT_ANY_DELEG).delegation, CONTENDED);
    let other = open_create(b"g", b"o", READ | OPEN4_SHARE_ACCESS_WANT_ANY_DELEG);
    let mut reply = on(&mut a, &[], &[ArgOp::Open(other)]);
    assert_eq!(reply.ok::<Open4Ok<'_>>(OpNum4::Open).delegation, none, "not before it has taken note");
    let mut reply = a.run(&[ArgOp::TestStateid(TestStateid4Args { stateids: vec![held] })]);
    let tested: TestStateid4Ok = reply.ok(OpNum4::TestStateid);
    assert_eq!(tested.status_codes, [NfsStat4::DelegRevoked]);
    let back = ArgOp::DelegReturn(DelegReturn4Args { deleg_stateid: held });
    on(&mut a, &[b"f"], &[back]).fails::<()>(OpNum4::DelegReturn, NfsStat4::DelegRevoked);
    a.run(&[ArgOp::FreeStateid(FreeStateid4Args { stateid: held })]).ok::<()>(OpNum4::FreeStateid);
    assert_eq!(flags(&mut a), 0);
    assert!(world.records.losers.lock().is_empty(), "it knows");
    world.check();
}

#[test]
fn a_holder_that_does_not_know_it_yet_or_asks_for_time_is_asked_again() {
    let (world, mut a, mut b) = two();
    let held = name(&open(&mut a, READ));
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Delay);
    let call = a.peer.call();
    a.peer.answer(&call, NfsStat4::BadStateid, b"");
    world.pass(10_000);
    let call = a.peer.call();
    assert!(is_recall_of(&call, held));
    a.peer.answer(&call, NfsStat4::Delay, b"");
    world.pass(1_000);
    let call = a.peer.call();
    assert!(is_recall_of(&call, held));
    a.peer.answer(&call, NfsStat4::Ok, b"");
    assert_eq!(flags(&mut a), 0);
    give_back(&mut a, held);
    open(&mut b, WRITE);
    world.check();
}

/// An answer shows that callbacks get through, whatever it says.
#[test]
fn a_holder_that_answers_with_an_error_is_asked_again_and_counts_as_reached() {
    let (world, mut a, mut b) = two();
    let held = name(&open(&mut a, READ));
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Delay);
    for error in [NfsStat4::ServerFault, NfsStat4::Resource] {
        let call = a.peer.call();
        assert!(is_recall_of(&call, held));
        a.peer.answer(&call, error, b"");
        assert_eq!(flags(&mut a), 0, "{error:?}");
        world.pass(holdfast_base::limits::RECALL_RETRY_MS);
    }
    let call = a.peer.call();
    a.peer.answer(&call, NfsStat4::ServerFault, b"");
    for _ in 0..3 {
        world.pass(LEASE_MS / 2);
        flags(&mut a);
        flags(&mut b);
    }
    open(&mut b, WRITE);
    assert_eq!(flags(&mut a), SEQ4_STATUS_RECALLABLE_STATE_REVOKED, "not for longer than a recall lasts");
    world.check();
}

#[test]
fn a_recall_lost_with_its_connection_comes_again_on_the_next_one() {
    let (world, mut a, mut b) = two();
    let held = name(&open(&mut a, READ));
    let old = std::mem::replace(&mut a.peer, Peer::new(&world, 1, 2));
    old.wire.close();
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Delay);
    let down = SEQ4_STATUS_CB_PATH_DOWN_SESSION | SEQ4_STATUS_CB_PATH_DOWN;
    assert_eq!(flags(&mut a) & down, down);
    let bind = BindConnToSession4Args {
        sessionid: a.id,
        dir: ChannelDirFromClient4::ForeOrBoth,
        use_conn_in_rdma_mode: false,
    };
    assert_eq!(a.peer.compound(&[ArgOp::BindConnToSession(bind)]).status, NfsStat4::Ok);
    let call = a.peer.call();
    assert!(is_recall_of(&call, held));
    a.peer.answer(&call, NfsStat4::Ok, b"");
    assert_eq!(flags(&mut a), 0);
    give_back(&mut a, held);
    open(&mut b, WRITE);
    world.check();
}

#[test]
fn a_client_that_counts_slots_differently_is_told_of_the_fault() {
    let (world, mut a, mut b) = two();
    open(&mut a, READ);
    assert_eq!(try_open(&mut b, WRITE).status, NfsStat4::Delay);
    let call = a.peer.call();
    a.peer.refuse(&call, NfsStat4::SeqMisordered);
    assert_ne!(flags(&mut a) & SEQ4_STATUS_BACKCHANNEL_FAULT, 0);
    world.check();
}

fn getattr(client: &mut Session, attrs: &[Attr]) -> Result<(u64, u64), NfsStat4> {
    let attr_request = Bitmap4::of(attrs);
    let mut reply = on(client, &[b"f"], &[ArgOp::GetAttr(GetAttr4Args { attr_request })]);
    if reply.status != NfsStat4::Ok {
        return Err(reply.status);
    }
    let attrs: GetAttr4Ok<'_> = reply.ok(OpNum4::GetAttr);
    let values: Vec<u64> = attrs
        .obj_attributes
        .values
        .chunks(8)
        .map(|value| u64::from_be_bytes(value.try_into().unwrap()))
        .collect();
    Ok((values[0], values[1]))
}

fn held_attrs(change: u64, size: u64) -> Vec<u8> {
    let values: Vec<u8> = [change, size].iter().flat_map(|value| value.to_be_bytes()).collect();
    let mask = Bitmap4::of(&[Attr::Change, Attr::Size]);
    to_bytes(&CbGetAttr4Ok { obj_attributes: Fattr4 { mask, values: &values } })
}

/// What one sees of change and size while the other, who holds the file, is asked and tells these.
fn look_and_tell(
    looker: &mut Session,
    holder: &mut Session,
    held: (u64, u64),
) -> Result<(u64, u64), NfsStat4> {
    let both = [Attr::Change, Attr::Size];
    std::thread::scope(|scope| {
        let look = scope.spawn(|| getattr(looker, &both));
        while !holder.peer.is_called() {
            assert!(!look.is_finished(), "it waits for what the holder says");
            std::thread::yield_now();
        }
        // Noted, it is about to be sent.
        let call = std::iter::repeat_with(|| holder.peer.calls().pop()).flatten().next().unwrap();
        let CbArgOp::GetAttr(args) = call.op() else { panic!("{:?}", call.op()) };
        assert_eq!(args.attr_request, Bitmap4::of(&both));
        holder.peer.answer(&call, NfsStat4::Ok, &held_attrs(held.0, held.1));
        look.join().unwrap()
    })
}

#[test]
fn who_looks_at_a_file_sees_what_its_holder_has_not_written_back() {
    let (world, mut a, mut b) = two_in(World::made(Making { pool_threads: 1, ..Making::default() }));
    open(&mut a, BOTH);
    let (change, size) = getattr(&mut a, &[Attr::Change, Attr::Size]).unwrap();
    assert_eq!(size, 5);
    assert!(a.peer.calls().is_empty(), "nobody is asked about his own");
    assert_eq!(look_and_tell(&mut b, &mut a, (change, 5)), Ok((change, 5)), "it has changed nothing");
    // However soon: the holder may have written since it was asked.
    let (seen, size) = look_and_tell(&mut b, &mut a, (change + 1, 4096)).unwrap();
    assert_eq!(size, 4096);
    assert!(seen > change);
    world.check();
}

#[test]
fn who_could_not_wait_for_a_holders_answer_has_it_give_back_however_soon_he_comes() {
    let (world, mut a, mut b) = two();
    let held = name(&open(&mut a, BOTH));
    let both = [Attr::Change, Attr::Size];
    let (change, _) = getattr(&mut a, &both).unwrap();
    assert_eq!(getattr(&mut b, &both), Err(NfsStat4::Delay));
    assert_eq!(getattr(&mut b, &both), Err(NfsStat4::Delay));
    let call = a.peer.call();
    a.peer.answer(&call, NfsStat4::Ok, &held_attrs(change, 5));
    assert_eq!(getattr(&mut b, &both), Err(NfsStat4::Delay));
    assert!(is_recall_of(&a.peer.call(), held), "asked again, he might have to be put off for ever");
    give_back(&mut a, held);
    assert_eq!(getattr(&mut b, &both).unwrap().1, 5);
    world.check();
}

#[test]
fn who_comes_too_late_for_a_holders_answer_has_it_give_back_and_asks_no_more() {
    let (world, mut a, mut b) = two();
    let held = name(&open(&mut a, BOTH));
    let both = [Attr::Change, Attr::Size];
    let (change, _) = getattr(&mut a, &both).unwrap();
    assert_eq!(getattr(&mut b, &both), Err(NfsStat4::Delay));
    let call = a.peer.call();
    a.peer.answer(&call, NfsStat4::Ok, &held_attrs(change + 1, 4096));
    world.pass(10_000);
    flags(&mut a);
    assert_eq!(getattr(&mut b, &both), Err(NfsStat4::Delay));
    assert!(is_recall_of(&a.peer.call(), held), "an answer as old as that may be wrong");
    give_back(&mut a, held);
    assert_eq!(getattr(&mut b, &both).unwrap().1, 5);
    world.check();
}

#[test]
fn a_holders_answer_is_not_weighed_against_what_was_written_since() {
    let (world, mut a, mut b) = two();
    let held = name(&open(&mut a, BOTH));
    let both = [Attr::Change, Attr::Size];
    let (change, _) = getattr(&mut a, &both).unwrap();
    assert_eq!(getattr(&mut b, &both), Err(NfsStat4::Delay));
    let call = a.peer.call();
    a.peer.answer(&call, NfsStat4::Ok, &held_attrs(change, 5));
    let write =
        Write4Args { stateid: held, offset: Offset(5), stable: StableHow4::FileSync, data: b" there" };
    on(&mut a, &[b"f"], &[ArgOp::Write(write)]).ok::<Write4Ok>(OpNum4::Write);
    match getattr(&mut b, &both) {
        Err(NfsStat4::Delay) => {}
        seen => assert_eq!(seen.unwrap().1, 11, "what its holder has written through"),
    }
    world.check();
}

#[test]
fn a_holder_that_does_not_tell_is_recalled() {
    let (world, mut a, mut b) = two();
    let held = name(&open(&mut a, BOTH));
    let both = [Attr::Change, Attr::Size];
    assert_eq!(getattr(&mut b, &both), Err(NfsStat4::Delay));
    let call = a.peer.call();
    a.peer.answer(&call, NfsStat4::BadHandle, b"");
    assert_eq!(getattr(&mut b, &both), Err(NfsStat4::Delay));
    assert!(is_recall_of(&a.peer.call(), held));
    give_back(&mut a, held);
    assert_eq!(getattr(&mut b, &both).unwrap().1, 5);
    world.check();
}

/// SETATTR of delegated times.
fn tell_times(client: &mut Session, stateid: Stateid4, access: Option<i64>, modify: Option<i64>) -> NfsStat4 {
    let mut values = Writer::new();
    let mut mask = Bitmap4::EMPTY;
    for (attr, seconds) in [(Attr::TimeDelegAccess, access), (Attr::TimeDelegModify, modify)] {
        if let Some(seconds) = seconds {
            mask = mask.with_attr(attr);
            NfsTime4 { seconds, nseconds: 7 }.encode(&mut values);
        }
    }
    let obj_attributes = Fattr4 { mask, values: values.as_slice() };
    on(client, &[b"f"], &[ArgOp::SetAttr(SetAttr4Args { stateid, obj_attributes })]).status
}

fn mtime(client: &mut Session) -> NfsTime4 {
    let attr_request = Bitmap4::from(Attr::TimeModify);
    let mut reply = on(client, &[b"f"], &[ArgOp::GetAttr(GetAttr4Args { attr_request })]);
    let attrs: GetAttr4Ok<'_> = reply.ok(OpNum4::GetAttr);
    holdfast_xdr::from_bytes(attrs.obj_attributes.values).unwrap()
}

#[test]
fn the_holder_alone_tells_the_times_and_no_times_to_come() {
    let (world, mut a, mut b) = two();
    let plain = open(&mut b, READ);
    assert_eq!(tell_times(&mut b, name(&plain), Some(5), None), NfsStat4::BadStateid);
    give_back(&mut b, name(&plain));
    close(&mut b, plain.stateid);
    world.pass(20_000);
    flags(&mut a);
    flags(&mut b);
    let opened = open(&mut a, BOTH | OPEN4_SHARE_ACCESS_WANT_DELEG_TIMESTAMPS);
    let OpenDelegation4::WriteAttrsDeleg(held) = opened.delegation else { panic!("{:?}", opened.delegation) };
    let was = mtime(&mut a);
    assert_eq!(tell_times(&mut a, opened.stateid, None, Some(was.seconds + 1)), NfsStat4::BadStateid);
    assert_eq!(tell_times(&mut a, held.stateid, None, Some(was.seconds - 1)), NfsStat4::Ok);
    assert_eq!(mtime(&mut a).seconds, was.seconds - 1, "the owner sets them back, as by utimensat");
    assert_eq!(tell_times(&mut a, held.stateid, Some(was.seconds + 1), Some(was.seconds + 1)), NfsStat4::Ok);
    assert_eq!(mtime(&mut a), NfsTime4 { seconds: was.seconds + 1, nseconds: 7 });
    assert_eq!(tell_times(&mut a, held.stateid, None, Some(i64::MAX)), NfsStat4::Ok);
    assert!(mtime(&mut a).seconds < i64::MAX / 2, "nor into the future");
    world.check();
}

#[test]
fn open_arguments_tell_what_open_understands_and_delegated_times_are_not_read() {
    let (_world, mut a, _) = two();
    let attr_request = Bitmap4::from(Attr::OpenArguments);
    let mut reply = on(&mut a, &[b"f"], &[ArgOp::GetAttr(GetAttr4Args { attr_request })]);
    let attrs: GetAttr4Ok<'_> = reply.ok(OpNum4::GetAttr);
    let told: OpenArguments4 = holdfast_xdr::from_bytes(attrs.obj_attributes.values).unwrap();
    // RFC 9754 section 3: bits 3, 4, 5 as the wants are numbered, 17, 18, 20 and 21 for the flags beside them.
    assert_eq!(told.share_access_want.iter().collect::<Vec<_>>(), [3, 4, 5, 17, 18, 20, 21]);
    assert_eq!(told.share_access.iter().collect::<Vec<_>>(), [1, 2, 3]);
    assert_eq!(told.share_deny.iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert_eq!(told.open_claim.iter().collect::<Vec<_>>(), [0, 1, 2, 4, 5]);
    assert_eq!(told.create_mode.iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    let attr_request = Bitmap4::from(Attr::TimeDelegModify);
    on(&mut a, &[b"f"], &[ArgOp::GetAttr(GetAttr4Args { attr_request })])
        .fails::<()>(OpNum4::GetAttr, NfsStat4::Inval);
}

pub(crate) fn read_with(client: &mut Session, stateid: Stateid4) -> NfsStat4 {
    let read = Read4Args { stateid, offset: Offset(0), count: 5 };
    on(client, &[b"f"], &[ArgOp::Read(read)]).status
}

pub(crate) fn write_with(client: &mut Session, stateid: Stateid4) -> NfsStat4 {
    let offset = Offset(0);
    let write = Write4Args { stateid, offset, stable: StableHow4::Unstable, data: b"HELLO" };
    on(client, &[b"f"], &[ArgOp::Write(write)]).status
}

#[test]
fn a_delegation_may_stand_in_place_of_an_open_and_serves_reads_and_writes() {
    let (world, mut a, mut b) = two();
    let instead = OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;
    let opened = open(&mut a, BOTH | instead);
    assert_eq!(opened.stateid, Stateid4::ANONYMOUS);
    assert_ne!(opened.rflags & OPEN4_RESULT_NO_OPEN_STATEID, 0);
    let held = name(&opened);
    assert_eq!((read_with(&mut a, held), write_with(&mut a, held)), (NfsStat4::Ok, NfsStat4::Ok));
    assert_eq!(world.nfs.census().1, 0, "no open is kept");
    assert_eq!(read_with(&mut b, held), NfsStat4::BadStateid, "it is not the other's");
    // What is open at the client becomes an open here before the delegation goes.
    assert_eq!(try_open(&mut b, READ).status, NfsStat4::Delay);
    let claim = Open4Args { claim: OpenClaim4::DelegCurFh(held), ..open_existing(b"", b"o", BOTH | instead) };
    let mut reply = on(&mut a, &[b"f"], &[ArgOp::Open(claim)]);
    let claimed: Open4Ok<'_> = reply.ok(OpNum4::Open);
    assert_ne!(claimed.stateid, Stateid4::ANONYMOUS);
    let claimed = claimed.stateid;
    give_back(&mut a, held);
    assert_eq!(read_with(&mut a, held), NfsStat4::BadStateid);
    assert_eq!(write_with(&mut a, claimed), NfsStat4::Ok);
    open(&mut b, READ);
    assert_eq!(world.fs.open_files(), 2, "one each, and none for the delegation");
    world.check();
}

#[test]
fn an_owner_that_has_the_file_open_keeps_its_open_beside_the_delegation() {
    let (world, mut a, mut b) = two();
    let instead = OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;
    let more = open(&mut b, BOTH | OPEN4_SHARE_ACCESS_WANT_READ_DELEG | instead);
    assert_eq!(
        more.rflags & OPEN4_RESULT_NO_OPEN_STATEID,
        0,
        "no delegation to read replaces an open to write"
    );
    close(&mut b, more.stateid);
    give_back(&mut b, name(&more));
    let writer = open(&mut b, BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
    let first = open(&mut a, READ | OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION);
    assert_eq!(first.delegation, OpenDelegation4::None);
    close(&mut b, writer.stateid);
    let again = open(&mut a, READ | OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION);
    assert_eq!(again.stateid, Stateid4 { seqid: Seqid(2), ..first.stateid });
    assert_eq!(again.rflags & OPEN4_RESULT_NO_OPEN_STATEID, 0);
    name(&again);
    world.check();
}

#[test]
fn a_name_in_a_directory_can_be_claimed_under_a_delegation_too() {
    let (world, mut a, mut b) = two();
    let held = name(&open(&mut a, READ));
    let by_name = OpenClaimDelegateCur4 { delegate_stateid: held, file: b"f" };
    let claim =
        |owner| Open4Args { claim: OpenClaim4::DelegateCur(by_name), ..open_existing(b"", owner, READ) };
    on(&mut a, &[], &[ArgOp::Open(claim(b"p"))]).ok::<Open4Ok<'_>>(OpNum4::Open);
    on(&mut b, &[], &[ArgOp::Open(claim(b"p"))]).fails::<()>(OpNum4::Open, NfsStat4::BadStateid);
    let purge = ArgOp::DelegPurge(DelegPurge4Args { clientid: a.client });
    a.run(&[purge]).fails::<()>(OpNum4::DelegPurge, NfsStat4::NotSupp);
    let former = Open4Args { claim: OpenClaim4::DelegPrevFh, ..open_existing(b"", b"p", READ) };
    on(&mut a, &[b"f"], &[ArgOp::Open(former)]).fails::<()>(OpNum4::Open, NfsStat4::NotSupp);
    world.check();
}

#[test]
fn the_end_of_a_client_ends_what_was_delegated_to_it() {
    let (world, mut a, mut b) = two();
    open(&mut a, BOTH);
    world.pass(LEASE_MS - 1_000);
    flags(&mut b);
    world.pass(2_000);
    open(&mut b, BOTH);
    world.check();
}

/// A world with a file, and these to reclaim what they had.
fn in_grace(recorded: &[&[u8]]) -> World {
    let world = World::new();
    let mut maker = Session::open(&world, 9, 2);
    let made = file(&mut maker, b"f", 0, b"hello");
    close(&mut maker, made);
    world.nfs.set_grace(holdfast_state::Grace::Until(holdfast_base::Instant(30_000)));
    world.records.may_reclaim.lock().extend(recorded.iter().map(|name| name.to_vec()));
    world
}

#[test]
fn what_was_held_before_a_restart_is_reclaimed_in_grace_by_whom_is_recorded() {
    let world = in_grace(&[b"client of host 1"]);
    let with_back = |mut args: CreateSession4Args<'static>| {
        args.flags = CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
        args
    };
    let mut a = Session::with(&world, 1, 2, with_back);
    let mut b = Session::with(&world, 2, 2, with_back);
    let instead = OPEN4_SHARE_ACCESS_WANT_OPEN_XOR_DELEGATION;
    let claim =
        |held| Open4Args { claim: OpenClaim4::Previous(held), ..open_existing(b"", b"o", BOTH | instead) };
    let before = world.records.holders.lock().clone();
    let stranger = ArgOp::Open(claim(OpenDelegationType4::Read));
    on(&mut b, &[b"f"], &[stranger]).fails::<()>(OpNum4::Open, NfsStat4::ReclaimBad);
    assert_eq!(try_open(&mut b, READ).status, NfsStat4::Grace);
    assert_eq!(dir_delegation(&mut b, &[]).status, NfsStat4::Ok);
    assert_eq!(*world.records.holders.lock(), before, "who merely tried is no holder");
    let mut reply = on(&mut a, &[b"f"], &[ArgOp::Open(claim(OpenDelegationType4::Write))]);
    let reclaimed = owned(reply.ok(OpNum4::Open));
    let OpenDelegation4::Write(held) = reclaimed.delegation else { panic!("{:?}", reclaimed.delegation) };
    assert!(!held.recall);
    assert_eq!(read_with(&mut a, held.stateid), NfsStat4::Ok);
    assert_eq!(reclaimed.rflags & OPEN4_RESULT_NO_OPEN_STATEID, 0, "the open is its again as well");
    assert_eq!(read_with(&mut a, reclaimed.stateid), NfsStat4::Ok);
    // Its session broke on the way, say: it begins again, and has them still.
    let mut reply = on(&mut a, &[b"f"], &[ArgOp::Open(claim(OpenDelegationType4::Write))]);
    let again = owned(reply.ok(OpNum4::Open));
    let OpenDelegation4::Write(again) = again.delegation else { panic!("{:?}", again.delegation) };
    assert_eq!((again.stateid, again.recall), (held.stateid, false));
    assert_eq!(read_with(&mut a, again.stateid), NfsStat4::Ok);
    give_back(&mut a, again.stateid);
    world.check();
}

/// The open alone would say that the client had returned the delegation; and DELAY, that it is to ask until the next restart.
#[test]
fn an_open_is_refused_whose_delegation_is_asked_back_too_late() {
    let world = in_grace(&[b"client of host 1"]);
    let mut a = Session::bare(&world, 1, 2);
    let mut claim = |held| {
        let claim = Open4Args { claim: OpenClaim4::Previous(held), ..open_existing(b"", b"o", BOTH) };
        let status = on(&mut a, &[b"f"], &[ArgOp::Open(claim)]).status;
        world.check();
        (status, world.nfs.census().1)
    };
    assert_eq!(claim(OpenDelegationType4::None), (NfsStat4::Ok, 1));
    world.nfs.set_grace(holdfast_state::Grace::Over);
    assert_eq!(claim(OpenDelegationType4::Write), (NfsStat4::NoGrace, 1));
    assert_eq!(claim(OpenDelegationType4::None), (NfsStat4::Ok, 1), "what it had it has");
}

/// RFC 8881 section 18.49: a client that is told of no error takes it that it was heard, and merely got nothing.
#[test]
fn a_delegation_wanted_back_without_an_open_is_given_or_the_error_says_why_not() {
    let world = in_grace(&[b"client of host 1", b"client of host 3"]);
    let with_back = |mut args: CreateSession4Args<'static>| {
        args.flags = CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
        args
    };
    let mut holder = Session::with(&world, 1, 2, with_back);
    let mut stranger = Session::with(&world, 2, 2, with_back);
    let mut other = Session::with(&world, 3, 2, with_back);
    let claim =
        |held| ArgOp::WantDelegation(WantDelegation4Args { want: 0, claim: DelegClaim4::Previous(held) });
    let refused = |client: &mut Session, status| {
        let ops = [claim(OpenDelegationType4::Write)];
        on(client, &[b"f"], &ops).fails::<()>(OpNum4::WantDelegation, status);
    };
    refused(&mut stranger, NfsStat4::ReclaimBad);
    let mut reply = on(&mut holder, &[b"f"], &[claim(OpenDelegationType4::Read)]);
    let given: OpenDelegation4<'_> = reply.ok(OpNum4::WantDelegation);
    assert!(matches!(given, OpenDelegation4::Read(held) if !held.recall), "{given:?}");
    let mut reply = on(&mut holder, &[b"f"], &[claim(OpenDelegationType4::Read)]);
    assert_eq!(reply.ok::<OpenDelegation4<'_>>(OpNum4::WantDelegation), given, "asked for once more");
    refused(&mut other, NfsStat4::ReclaimConflict);
    world.nfs.set_grace(holdfast_state::Grace::Over);
    refused(&mut other, NfsStat4::NoGrace);
    world.check();
}

#[test]
fn who_denies_something_to_others_recalls_what_they_may_do_by_themselves() {
    let (world, mut a, mut b) = two();
    let held = name(&open(&mut a, READ));
    let denying = Open4Args { share_deny: OPEN4_SHARE_DENY_READ, ..open_existing(b"f", b"o", READ) };
    assert_eq!(on(&mut b, &[], &[ArgOp::Open(denying)]).status, NfsStat4::Delay);
    assert!(is_recall_of(&a.peer.call(), held));
    give_back(&mut a, held);
    let mut reply = on(&mut b, &[], &[ArgOp::Open(denying)]);
    reply.fails::<()>(OpNum4::Open, NfsStat4::ShareDenied);
    world.check();
}

#[test]
fn under_pressure_clients_are_asked_for_delegations_and_slots_of_their_choice() {
    let (world, _, _) = two();
    let mut a = Session::with(&world, 3, 2, |mut args| {
        args.flags = CREATE_SESSION4_FLAG_CONN_BACK_CHAN;
        args.fore_chan_attrs.maxrequests = 64;
        args
    });
    a.run(&[ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })]);
    open(&mut a, READ);
    dir_delegation(&mut a, &[]).ok::<GetDirDelegation4Ok>(OpNum4::GetDirDelegation);
    let policy = holdfast_state::Policy { delegations_max: 1, slots_max: 40, ..Default::default() };
    world.manager.quiet(|engine, _| engine.set_policy(policy));
    world.pass(1_000);
    let kinds = Bitmap4::EMPTY
        .with(RCA4_TYPE_MASK_RDATA_DLG)
        .with(RCA4_TYPE_MASK_WDATA_DLG)
        .with(RCA4_TYPE_MASK_DIR_DLG);
    let calls = a.peer.calls();
    let any = CbRecallAny4Args { objects_to_keep: 1, type_mask: kinds };
    assert!(calls.iter().any(|call| call.op() == CbArgOp::RecallAny(any)), "{calls:?}");
    let asks_slots = |call: &&CalledBack| matches!(call.op(), CbArgOp::RecallSlot(_));
    let slots = calls.iter().find(asks_slots).unwrap();
    assert_eq!(slots.sequence().sessionid, a.id);
    world.check();
}
