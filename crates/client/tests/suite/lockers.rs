//! Owners of locks, against a server by script: answers that come late, or are odd.

use std::time::Duration;

use holdfast_base::ByteRange;
use holdfast_client::{
    Attributes, Cancel, Cred, Cx, Error, Handle, LockArgs, OpenArgs, OpenFile, OpenTarget, Result,
    WantDelegation,
};
use holdfast_wire::nfs4::{NfsStat4, SEQ4_STATUS_RESTART_RECLAIM_NEEDED};

use super::answers::Locking;
use super::protocol::Guest;
use super::script::{Script, State};

fn args(owner: &[u8], first: u64) -> LockArgs<'_> {
    LockArgs { owner, range: ByteRange::from_bounds(first, first + 9).unwrap(), exclusive: true }
}

fn lock(guest: &Guest, file: &OpenFile, (owner, first): (&[u8], u64)) -> Result<()> {
    guest.client.lock(guest.cx(), file, &args(owner, first))
}

fn unlock(guest: &Guest, file: &OpenFile) -> Result<()> {
    guest.client.unlock(&guest.cancel, file.handle(), b"me", args(b"me", 0).range)
}

fn open(guest: &Guest, cred: &Cred, access: u32) -> OpenFile {
    let file = Handle::new(b"file");
    let args = OpenArgs {
        target: OpenTarget::File(&file),
        access,
        deny: 0,
        create: None,
        delegation: WantDelegation::No,
        want: Attributes::STAT,
    };
    guest.client.open(Cx::new(cred, &guest.cancel), &args).unwrap().file
}

/// Has a lock given up that the server is asked for as the `n`th, whose answer waits.
fn give_up(script: &Script, guest: &Guest, file: &OpenFile, (args, n): (LockArgs<'_>, usize)) {
    script.shared.hold_lock(Some(n));
    let cancel = Cancel::new();
    std::thread::scope(|scope| {
        let cx = Cx::new(&guest.cred, &cancel);
        let locking = scope.spawn(move || guest.client.lock(cx, file, &args));
        script.shared.wait("the lock", came(n + 1));
        cancel.cancel();
        assert_eq!(locking.join().unwrap(), Err(Error::Cancelled));
    });
}

/// Whether so many LOCKs and LOCKUs came.
fn came(count: usize) -> impl Fn(&State) -> bool {
    move |state| state.stateful.locking.len() >= count
}

/// His open was closed meanwhile, and he has locked through another one.
#[test]
fn an_unlock_that_is_answered_late_takes_no_lock_that_its_owner_has_got_since() {
    let script = Script::new();
    let guest = Guest::of(&script);
    let first = guest.open();
    lock(&guest, &first, (b"me", 0)).unwrap();
    script.shared.hold_lock(Some(1));
    std::thread::scope(|scope| {
        let unlocking = scope.spawn(|| unlock(&guest, &first));
        script.shared.wait("the unlock", came(2));
        guest.client.close(guest.cx(), &first).unwrap();
        let second = guest.open();
        lock(&guest, &second, (b"me", 0)).unwrap();
        script.shared.hold_lock(None);
        unlocking.join().unwrap().unwrap();
        assert!(guest.client.holds_locks(second.handle(), b"me"));
    });
}

/// NFS-Ganesha says so of an owner that it ties to another open owner; any server, when it has run out of something.
#[test]
fn who_is_told_that_resources_are_short_is_tied_to_his_open_where_that_helps() {
    let script = Script::new();
    let guest = Guest::of(&script);
    let file = guest.open();
    let short = NfsStat4::Resource;
    let locked = |owner: &[u8], first, answers: &[NfsStat4]| {
        script.shared.state.lock().stateful.locks.extend(answers);
        let locked = lock(&guest, &file, (owner, first)).map_err(|error| error.status());
        let names = std::mem::take(&mut script.shared.state.lock().stateful.locking);
        let is_tied = |asked: &Locking| match asked {
            Locking::First(name, _) => Some(name != owner),
            Locking::More(_) | Locking::Undone(_) => None,
        };
        (locked, names.iter().map(is_tied).collect::<Vec<_>>())
    };
    assert_eq!(locked(b"one", 0, &[short, short]), (Err(Some(short)), vec![Some(false), Some(true)]));
    assert_eq!(locked(b"two", 20, &[]), (Ok(()), vec![Some(false)]), "it did not help");
    assert_eq!(locked(b"two", 40, &[short]), (Err(Some(short)), vec![None]), "he is known already");
    assert_eq!(locked(b"one", 0, &[short]), (Ok(()), vec![Some(false), Some(true)]));
    assert_eq!(locked(b"three", 60, &[]), (Ok(()), vec![Some(true)]));
}

/// A lock has added to the one's open what only the other may do.
#[test]
fn what_a_lock_has_added_to_an_open_is_reclaimed_as_whom_it_was_added_for() {
    let script = Script::new();
    let guest = Guest::of(&script);
    script.shared.state.lock().delegates_nothing = true;
    let (one, other) = (Cred::sys(1001, 1001, &[]), Cred::sys(1002, 1002, &[]));
    let (first, second) = (open(&guest, &one, 1), open(&guest, &other, 3));
    let shared = LockArgs { exclusive: false, ..args(b"me", 0) };
    guest.client.lock(guest.cx(), &first, &shared).unwrap();
    lock(&guest, &second, (b"me", 20)).unwrap();
    let reclaimed = |answers: &[NfsStat4]| {
        {
            let State { stateful, flags, .. } = &mut *script.shared.state.lock();
            stateful.opened.clear();
            stateful.opens.extend(answers);
            flags.push_back(SEQ4_STATUS_RESTART_RECLAIM_NEEDED);
        }
        guest.look();
        guest.look();
        script.shared.state.lock().stateful.opened.clone()
    };
    let [as_opened, added] = [(1, 1001), (3, 1002)];
    assert_eq!(reclaimed(&[]), [as_opened, added, (3, 1002)]);
    assert_eq!(reclaimed(&[NfsStat4::Ok, NfsStat4::Access]), [as_opened, added, (3, 1002)]);
    assert_eq!(reclaimed(&[]), [as_opened, (3, 1002)], "it was refused");
    assert!(!first.is_lost());
}

/// The open was reclaimed in a life of the server that ended before the lock was: both are, in the session that outlived that.
#[test]
fn a_lock_whose_reclaim_is_sent_back_to_the_open_is_reclaimed_with_it_once_more() {
    let script = Script::new();
    let guest = Guest::of(&script);
    let file = guest.open();
    lock(&guest, &file, (b"me", 20)).unwrap();
    {
        let State { stateful, flags, reclaimed, .. } = &mut *script.shared.state.lock();
        stateful.locks.push_back(NfsStat4::StaleClientId);
        flags.push_back(SEQ4_STATUS_RESTART_RECLAIM_NEEDED);
        *reclaimed = 0;
    }
    guest.look();
    script.shared.wait("the lock, once more", came(3));
    guest.look();
    let state = script.shared.state.lock();
    let first = Locking::First(b"me".to_vec(), 20);
    assert_eq!(state.stateful.locking, [first.clone(), first.clone(), first]);
    assert_eq!((state.reclaimed, state.sessions), (2, 1));
    drop(state);
    assert!(!file.is_lost());
}

/// He may have asked again, or have held it before and asked for more.
#[test]
fn a_lock_that_comes_too_late_is_undone_where_its_owner_does_not_hold_it() {
    let script = Script::new();
    let guest = Guest::of(&script);
    let file = guest.open();
    lock(&guest, &file, (b"me", 20)).unwrap();
    give_up(&script, &guest, &file, (args(b"me", 40), 1));
    lock(&guest, &file, (b"me", 40)).unwrap();
    let more = LockArgs { range: ByteRange::from_bounds(20, 69).unwrap(), ..args(b"me", 20) };
    // Which waits for the end of what came before.
    script.shared.hold_lock(None);
    give_up(&script, &guest, &file, (more, 3));
    script.shared.hold_lock(None);
    guest.client.close(guest.cx(), &file).unwrap();
    let asked = &script.shared.state.lock().stateful.locking;
    let [first, again] = [Locking::First(b"me".to_vec(), 20), Locking::More(40)];
    let undone = [Locking::Undone(30), Locking::Undone(50), Locking::Undone(0)];
    assert_eq!(asked[..3], [first, again.clone(), again]);
    assert_eq!(asked[3], Locking::More(20));
    assert_eq!(asked[4..], undone, "what lies between and behind, and all when the file is closed");
}

#[test]
fn who_asks_again_for_what_came_too_late_waits_until_it_is_undone() {
    let script = Script::new();
    let guest = Guest::of(&script);
    let file = guest.open();
    give_up(&script, &guest, &file, (args(b"me", 0), 0));
    script.shared.hold_lock(Some(1));
    script.shared.wait("the unlock", came(2));
    std::thread::scope(|scope| {
        let locking = scope.spawn(|| lock(&guest, &file, (b"me", 0)));
        std::thread::sleep(Duration::from_millis(200));
        assert!(!locking.is_finished(), "it was granted what is being undone");
        script.shared.hold_lock(None);
        locking.join().unwrap().unwrap();
    });
    assert!(guest.client.holds_locks(file.handle(), b"me"));
    let asked = &script.shared.state.lock().stateful.locking;
    let first = Locking::First(b"me".to_vec(), 0);
    assert_eq!(*asked, [first, Locking::Undone(0), Locking::More(0)]);
}
