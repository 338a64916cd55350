//! LOCK, UNLOCK, TEST without waiting.

use holdfast_base::limits::{
    LOCK_RANGES_PER_FILE_MAX, LOCK_RANGES_PER_OWNER_FILE_MAX, NLM_RANGES_PER_SITE_MAX,
};
use holdfast_base::{ByteRange, Instant, Length, Offset};
use holdfast_rpc::OutgoingCall;
use holdfast_rpc::detached::Detached;
use holdfast_state::{Door, ForeignOwner, LockKind};
use holdfast_wire::nlm4::*;
use holdfast_xdr::{from_bytes, to_bytes};

use crate::world::{Client, Process, Wanted, World};

const P: Process = Process(7);
const Q: Process = Process(8);

#[test]
fn writers_exclude_and_readers_share() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!(a.lock(&fh, P, (0, 10, true)), NlmStat4::Granted);
    assert_eq!(b.lock(&fh, P, (5, 10, false)), NlmStat4::Denied, "the same process number on another host");
    assert_eq!(a.lock(&fh, Q, (5, 10, false)), NlmStat4::Denied, "another process of the same host");
    assert_eq!(b.lock(&fh, P, (10, 0, false)), NlmStat4::Granted, "beside it");
    assert_eq!(a.lock(&fh, P, (0, 10, false)), NlmStat4::Granted, "downgraded");
    assert_eq!(b.lock(&fh, P, (0, 0, false)), NlmStat4::Granted);
    assert_eq!(a.lock(&fh, P, (0, 10, true)), NlmStat4::Denied, "others read it by now");
}

#[test]
fn an_unlock_that_cuts_a_lock_in_two_needs_room_and_one_that_does_not_is_never_refused() {
    let world = World::new();
    let (file, mut a) = (world.file("f"), world.client(1));
    let fh = world.fh(&file);
    assert_eq!(a.lock(&fh, P, (0, 100, true)), NlmStat4::Granted);
    // Others have all the room that is left of the file's.
    let (key, now) = (file.key(), Instant(0));
    world
        .manager
        .step(|engine, _| {
            for id in 0..LOCK_RANGES_PER_FILE_MAX.div_ceil(LOCK_RANGES_PER_OWNER_FILE_MAX) as u64 + 1 {
                let other = ForeignOwner { door: Door::Caps, id };
                let mut at = (id + 1) << 32;
                let whole = ByteRange::from_bounds(at, at + (1 << 20)).unwrap();
                let mut is_full = engine.foreign_lock(other, key, whole, LockKind::Write, now).is_err();
                while !is_full {
                    at += 2;
                    let byte = ByteRange::from_bounds(at, at).unwrap();
                    is_full = engine.foreign_can_unlock(other, key, byte).is_err();
                    if !is_full {
                        engine.foreign_unlock(other, key, byte, now);
                    }
                }
            }
        })
        .unwrap();
    assert_eq!(a.unlock(&fh, P, (50, 1, true)), NlmStat4::DeniedNoLocks);
    assert_eq!(a.test(&fh, Q, (50, 1, true)), Err((7, 0, 100, true)), "it has it still");
    assert_eq!(a.unlock(&fh, P, (90, 20, true)), NlmStat4::Granted);
    assert_eq!(a.unlock(&fh, P, (0, 0, true)), NlmStat4::Granted);
    assert_eq!(a.test(&fh, Q, (50, 1, true)), Ok(()));
}

#[test]
fn an_owner_meets_no_lock_of_its_own_and_others_are_told_whose_it_is() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!(a.lock(&fh, P, (100, 50, true)), NlmStat4::Granted);
    assert_eq!(a.test(&fh, P, (0, 0, true)), Ok(()));
    assert_eq!(b.test(&fh, P, (0, 0, false)), Err((7, 100, 50, true)));
    assert_eq!(b.test(&fh, P, (0, 100, true)), Ok(()));
    assert_eq!(a.lock(&fh, P, (150, 0, false)), NlmStat4::Granted);
    assert_eq!(b.test(&fh, P, (1000, 1, true)), Err((7, 150, 0, false)), "to the end is a length of 0");
}

#[test]
fn unlocking_a_part_splits_and_unlocking_all_leaves_nothing_behind() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!(a.lock(&fh, P, (0, 100, true)), NlmStat4::Granted);
    assert_eq!(a.unlock(&fh, P, (40, 20, true)), NlmStat4::Granted);
    assert_eq!(b.lock(&fh, P, (40, 20, true)), NlmStat4::Granted);
    assert_eq!(b.test(&fh, P, (39, 1, false)), Err((7, 0, 40, true)));
    assert_eq!(b.test(&fh, P, (60, 1, false)), Err((7, 60, 40, true)));
    assert_eq!(a.unlock(&fh, P, (0, 0, true)), NlmStat4::Granted);
    assert_eq!(b.unlock(&fh, P, (0, 0, true)), NlmStat4::Granted);
    assert_eq!(b.unlock(&fh, P, (0, 0, true)), NlmStat4::Granted, "what is not held is unlocked");
    assert_eq!((world.lockd.counts(), world.machine.fs.open_files()), ((0, 0), 0));
}

#[test]
fn nobody_unlocks_from_another_address() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    assert_eq!(a.lock(&fh, P, (0, 0, true)), NlmStat4::Granted);
    b.name.clone_from(&a.name);
    assert_eq!(b.unlock(&fh, P, (0, 0, true)), NlmStat4::Granted);
    assert_eq!(b.test(&fh, Q, (0, 0, true)), Err((7, 0, 0, true)), "still held");
}

#[test]
fn a_retransmission_gets_the_first_answer_and_does_nothing() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let mut a = world.client(1);
    let args = |a: &Client| {
        let lock = a.lock_of(&fh, P, (0, 0, true));
        to_bytes(&LockArgs4 { cookie: b"c", block: false, exclusive: true, lock, reclaim: false, state: 0 })
    };
    struct Raw(Vec<u8>);
    impl holdfast_xdr::Encode for Raw {
        fn encode(&self, w: &mut holdfast_xdr::Writer) {
            w.put(&self.0);
        }
    }
    let call = Raw(args(&a));
    let first = a.call(NLM_PROGRAM, NlmProc4::Lock.as_u32(), &call);
    let xid = a.xid;
    assert_eq!(a.unlock(&fh, P, (0, 0, true)), NlmStat4::Granted);
    // The network kept a copy of the LOCK.
    a.xid = xid;
    assert_eq!(a.call_again(NLM_PROGRAM, NlmProc4::Lock.as_u32(), &call), first);
    a.xid = 100;
    let mut b = world.client(2);
    assert_eq!(b.lock(&fh, P, (0, 0, true)), NlmStat4::Granted, "it was not locked again");
}

#[test]
fn versions_with_32_bit_offsets_are_answered_with_what_is_served() {
    let world = World::new();
    let mut a = world.client(1);
    for version in [1, 2, 3, 5] {
        let call =
            OutgoingCall { program: NLM_PROGRAM, version, procedure: 0, auth: &Detached::NOBODY, args: &[] };
        let replies = a.connection.call(9, &call);
        // xid, REPLY, accepted, no verifier, PROG_MISMATCH, 4 to 4.
        let words: Vec<u32> =
            replies[0].chunks(4).map(|w| u32::from_be_bytes(w.try_into().unwrap())).collect();
        assert_eq!(words, [9, 1, 0, 0, 0, 2, 4, 4]);
    }
}

#[test]
fn handles_that_are_none_and_files_that_are_gone_and_directories_are_refused() {
    let world = World::new();
    let mut a = world.client(1);
    assert_eq!(a.lock(b"nonsense", P, (0, 0, true)), NlmStat4::StaleFh);
    let root = holdfast_vfs::Backend::root(&world.machine.fs).unwrap();
    assert_eq!(a.lock(&world.fh(&root), P, (0, 0, true)), NlmStat4::Failed);
    let fh = world.fh(&world.file("f"));
    assert_eq!(a.lock(&fh, P, (1 << 63, 1, true)), NlmStat4::Fbig);
    assert_eq!(world.lockd.counts(), (0, 0));
}

#[test]
fn a_msg_call_is_answered_by_a_call_of_its_res() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b) = (world.client(1), world.client(2));
    let send = |a: &mut Client, procedure: NlmProc4, args: Vec<u8>| {
        let auth = Detached::NOBODY;
        let (program, version, procedure) = (NLM_PROGRAM, NLM_V4, procedure.as_u32());
        let replies =
            a.connection.call(3, &OutgoingCall { program, version, procedure, auth: &auth, args: &args });
        assert_eq!(Detached::results(&replies[0]), Some(&[][..]), "the reply is empty");
        let (back, _) = world.next_call().expect("a call back");
        assert_eq!(back.peer, a.ip);
        (back.procedure, back.args.clone())
    };
    let said = |(procedure, args): (u32, Vec<u8>), expected: NlmProc4| {
        assert_eq!(procedure, expected.as_u32());
        let res: NlmRes4<'_> = from_bytes(&args).unwrap();
        assert_eq!(res.cookie, b"k");
        res.stat
    };
    let (exclusive, block) = (true, false);
    const WANTED: Wanted = (0, 10, true);
    let args = LockArgs4 {
        cookie: b"k",
        block,
        exclusive,
        lock: a.lock_of(&fh, P, WANTED),
        reclaim: false,
        state: 0,
    };
    let args = to_bytes(&args);
    assert_eq!(said(send(&mut a, NlmProc4::LockMsg, args), NlmProc4::LockRes), NlmStat4::Granted);
    assert_eq!(b.test(&fh, P, (0, 1, true)), Err((7, 0, 10, true)));

    let args = to_bytes(&TestArgs4 { cookie: b"k", exclusive, lock: b.lock_of(&fh, P, WANTED) });
    let (procedure, answer) = send(&mut b, NlmProc4::TestMsg, args);
    let res: TestRes4<'_> = from_bytes(&answer).unwrap();
    assert_eq!((procedure, res.cookie), (NlmProc4::TestRes.as_u32(), &b"k"[..]));
    assert!(
        matches!(res.reply, TestReply4::Denied(holder) if (holder.offset, holder.length) == (Offset(0), Length(10)))
    );

    // One that waits, and then no more.
    let args = LockArgs4 {
        cookie: b"k",
        block: true,
        exclusive,
        lock: b.lock_of(&fh, P, WANTED),
        reclaim: false,
        state: 0,
    };
    let args = to_bytes(&args);
    assert_eq!(said(send(&mut b, NlmProc4::LockMsg, args), NlmProc4::LockRes), NlmStat4::Blocked);
    let args =
        to_bytes(&CancelArgs4 { cookie: b"k", block: true, exclusive, lock: b.lock_of(&fh, P, WANTED) });
    assert_eq!(said(send(&mut b, NlmProc4::CancelMsg, args), NlmProc4::CancelRes), NlmStat4::Granted);

    let args = to_bytes(&UnlockArgs4 { cookie: b"k", lock: a.lock_of(&fh, P, WANTED) });
    assert_eq!(said(send(&mut a, NlmProc4::UnlockMsg, args), NlmProc4::UnlockRes), NlmStat4::Granted);
    assert_eq!(b.test(&fh, P, (0, 1, true)), Ok(()));
    assert!(world.next_call().is_none(), "nobody waits for it any more");
    assert_eq!((world.lockd.counts(), world.machine.fs.open_files()), ((0, 0), 0));
}

#[test]
fn free_all_frees_the_callers_locks_and_nobody_elses() {
    let world = World::new();
    let fh = world.fh(&world.file("f"));
    let (mut a, mut b, mut c) = (world.client(1), world.client(2), world.client(3));
    assert_eq!(a.lock(&fh, P, (0, 10, true)), NlmStat4::Granted);
    assert_eq!(b.lock(&fh, P, (10, 10, true)), NlmStat4::Granted);
    // From B, in A's name.
    let name = a.name.clone();
    b.call(NLM_PROGRAM, NlmProc4::FreeAll.as_u32(), &Notify4 { name: &name, state: 0 });
    assert_eq!(c.test(&fh, P, (0, 10, true)), Err((7, 0, 10, true)));
    assert_eq!(c.test(&fh, P, (10, 10, true)), Ok(()), "alone at its address, B meant itself");
    a.call(NLM_PROGRAM, NlmProc4::FreeAll.as_u32(), &Notify4 { name: &name, state: 0 });
    assert_eq!(c.test(&fh, P, (0, 0, true)), Ok(()));
    assert_eq!((world.lockd.counts(), world.machine.fs.open_files()), ((0, 0), 0));
}

#[test]
fn a_host_that_no_export_admits_has_us_call_nobody() {
    let world = World::new();
    let a = world.client(1);
    let args = TestArgs4 { cookie: b"k", exclusive: true, lock: a.lock_of(b"nonsense", P, (0, 0, true)) };
    let args = to_bytes(&args);
    let called = |peer: [u8; 4]| {
        let mut connection = a.connection.another((peer, 700).into());
        let procedure = NlmProc4::TestMsg.as_u32();
        let auth = Detached::NOBODY;
        let call =
            OutgoingCall { program: NLM_PROGRAM, version: NLM_V4, procedure, auth: &auth, args: &args };
        let replies = connection.call(1, &call);
        assert_eq!(Detached::results(&replies[0]), Some(&[][..]), "the reply is empty");
        world.next_call().is_some()
    };
    assert!(called([192, 0, 2, 1]));
    assert!(!called([198, 51, 100, 1]));
}

/// The door's room is bounded, and one host's programs may lock every second byte.
#[test]
fn one_site_leaves_room_for_the_ranges_of_others() {
    const EACH: usize = 16_000;
    let world = World::without_outsiders();
    let files = ["f", "g"].map(|name| world.fh(&world.file(name)));
    let (mut a, mut b) = (world.client(1), world.client(2));
    let places = (0..).flat_map(|process| (0..EACH).map(move |n| (Process(process), n as u64 * 2)));
    let had = places.take_while(|(process, byte)| {
        a.lock(&files[process.0 as usize % 2], *process, (*byte, 1, false)) == NlmStat4::Granted
    });
    let count = had.count();
    assert!(count <= NLM_RANGES_PER_SITE_MAX && count + 3 > NLM_RANGES_PER_SITE_MAX, "{count}");
    let other = world.fh(&world.file("h"));
    assert_eq!(a.lock(&other, Process(0), (0, 1, true)), NlmStat4::DeniedNoLocks);
    assert_eq!(b.lock(&other, Process(0), (0, 1, true)), NlmStat4::Granted);
    assert_eq!(b.unlock(&other, Process(0), (0, 0, true)), NlmStat4::Granted);
    assert_eq!(a.unlock(&files[0], Process(0), (0, 0, true)), NlmStat4::Granted);
    assert_eq!(a.lock(&other, Process(0), (0, 1, true)), NlmStat4::Granted);
    a.notify(b"client1", 9);
    assert_eq!(world.lockd.counts(), (0, 0));
    assert_eq!(a.lock(&files[0], Process(0), (0, 1, true)), NlmStat4::Granted, "all is counted back");
}
