//! Rules of slots and of the back channel, against a server by script.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_base::{Seqid, SessionId, SlotId};
use holdfast_client::{
    Attributes, CallbackProgram, Cancel, Client, CreateKind, Cred, Cx, Error, Handle, Io, OpenArgs,
    OpenTarget, Options, SetAttributes, WantDelegation,
};
use holdfast_wire::nfs4::{
    CbArgOp, CbRecallSlot4Args, NfsStat4, ReferringCall4, ReferringCallList4, SEQ4_STATUS_BACKCHANNEL_FAULT,
    SEQ4_STATUS_LEASE_MOVED, SEQ4_STATUS_RESTART_RECLAIM_NEEDED, StableHow4,
};
use holdfast_wire::rpc::AcceptStat;
use holdfast_xdr::Writer;

use super::script::{Script, cb_sequence};
use super::world::Heard;

pub(crate) struct Guest {
    pub(crate) client: Client,
    pub(crate) heard: Arc<Heard>,
    pub(crate) cred: Cred,
    pub(crate) cancel: Cancel,
}

impl Guest {
    pub(crate) fn of(script: &Script) -> Self {
        Self::with(Options::new(vec![script.address.to_string()]))
    }

    pub(crate) fn with(options: Options) -> Self {
        let (heard, cancel) = (Arc::new(Heard::default()), Cancel::new());
        let client = Client::connect(options, Arc::clone(&heard) as _, &cancel).unwrap();
        Self { client, heard, cred: Cred::own(), cancel }
    }

    pub(crate) fn cx(&self) -> Cx<'_> {
        Cx::new(&self.cred, &self.cancel)
    }

    pub(crate) fn look(&self) {
        self.client.getattr(self.cx(), &Handle::new(b"file"), Attributes::STAT).unwrap();
    }

    pub(crate) fn open(&self) -> holdfast_client::OpenFile {
        let file = Handle::new(b"file");
        let args = OpenArgs {
            target: OpenTarget::File(&file),
            access: 1,
            deny: 0,
            create: None,
            delegation: WantDelegation::Read,
            want: Attributes::STAT,
        };
        self.client.open(self.cx(), &args).unwrap().file
    }
}

/// The status of a CB_COMPOUND.
fn status(results: &[u8]) -> NfsStat4 {
    NfsStat4::from_u32(u32::from_be_bytes(results[..4].try_into().unwrap())).unwrap()
}

#[test]
fn a_callback_is_carried_out_once_and_answered_the_same_again() {
    let script = Script::new();
    let guest = Guest::of(&script);
    let _file = guest.open();
    let first = script.compound_back(cb_sequence(0, 1), Script::recall());
    assert_eq!(status(&first), NfsStat4::Ok);
    let again = script.compound_back(cb_sequence(0, 1), Script::recall());
    assert_eq!(first, again);
    assert_eq!(guest.heard.state.lock().recalls.len(), 1);
    let wrong = |sequence| status(&script.compound_back(sequence, Script::recall()));
    assert_eq!(wrong(cb_sequence(0, 3)), NfsStat4::SeqMisordered);
    assert_eq!(wrong(cb_sequence(99, 1)), NfsStat4::BadSlot);
    let stranger =
        holdfast_wire::nfs4::CbSequence4Args { sessionid: SessionId([8; 16]), ..cb_sequence(0, 2) };
    assert_eq!(wrong(stranger), NfsStat4::BadSession);
    assert_eq!(guest.heard.state.lock().recalls.len(), 1);
    assert_eq!(wrong(cb_sequence(0, 2)), NfsStat4::Ok);
}

/// A server that keeps sessions over a restart need not keep the numbers of its own calls (RFC 8881 section 2.10.6.5).
#[test]
fn over_a_new_connection_calls_may_be_counted_anew() {
    let script = Script::new();
    let guest = Guest::of(&script);
    let _file = guest.open();
    let called = |seqid| status(&script.compound_back(cb_sequence(0, seqid), Script::recall()));
    assert_eq!((called(1), called(2)), (NfsStat4::Ok, NfsStat4::Ok));
    let bound = script.shared.state.lock().bound.len();
    script.cut();
    guest.look();
    script.shared.wait("a new connection", |state| state.bound.len() > bound);
    assert_eq!((called(1), called(2)), (NfsStat4::Ok, NfsStat4::Ok));
    assert_eq!(guest.heard.state.lock().recalls.len(), 4);
    assert_eq!(called(1), NfsStat4::SeqMisordered, "but once");
}

#[test]
fn a_session_whose_back_channel_is_out_of_step_is_replaced() {
    let script = Script::new();
    let guest = Guest::of(&script);
    let file = guest.open();
    script.shared.state.lock().flags.push_back(SEQ4_STATUS_BACKCHANNEL_FAULT);
    guest.look();
    script.shared.wait("another session", |state| state.sessions == 2);
    guest.look();
    assert_eq!(script.shared.state.lock().destroyed, [SessionId([1; 16])]);
    let recall = holdfast_wire::nfs4::CbSequence4Args { sessionid: SessionId([2; 16]), ..cb_sequence(0, 1) };
    assert_eq!(status(&script.compound_back(recall, Script::recall())), NfsStat4::Ok);
    assert_eq!(guest.heard.state.lock().recalls.len(), 1, "what was held is held on");
    drop(file);
}

#[test]
fn a_recall_that_overtakes_the_open_waits_for_it() {
    let script = Script::new();
    let guest = Guest::of(&script);
    script.shared.state.lock().holds_opens = true;
    std::thread::scope(|scope| {
        let opener = scope.spawn(|| guest.open());
        script.shared.wait("the open", |state| state.opens == 1);
        let (session, slot, seqid) = *script.shared.state.lock().seen.last().unwrap();
        let calls = vec![ReferringCall4 { sequenceid: seqid, slotid: slot }];
        let mut sequence = cb_sequence(1, 1);
        sequence.referring_call_lists = vec![ReferringCallList4 { sessionid: session, calls }];
        let recall = scope.spawn(|| script.compound_back(sequence, Script::recall()));
        std::thread::sleep(Duration::from_millis(100));
        assert!(!recall.is_finished(), "it was answered before the open");
        script.release_opens();
        assert_eq!(status(&recall.join().unwrap()), NfsStat4::Ok);
        drop(opener.join().unwrap());
    });
    assert_eq!(guest.heard.state.lock().recalls.len(), 1);
}

#[test]
fn a_recall_of_what_is_not_held_is_refused() {
    let script = Script::new();
    let guest = Guest::of(&script);
    let answer = script.compound_back(cb_sequence(0, 1), Script::recall());
    assert_eq!(status(&answer), NfsStat4::BadStateid);
    assert!(guest.heard.state.lock().recalls.is_empty());
}

#[test]
fn slots_above_the_servers_target_are_not_used() {
    let script = Script::new();
    let guest = Guest::of(&script);
    let crowd = || {
        script.shared.state.lock().seen.clear();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..20).for_each(|_| guest.look()));
            }
        });
        let seen = script.shared.state.lock().seen.clone();
        assert_eq!(seen.len(), 160);
        seen.iter().map(|(_, slot, _)| slot.0).max().unwrap()
    };
    assert!(crowd() > 2);
    script.shared.state.lock().target = Some(2);
    guest.look();
    assert_eq!(crowd(), 2);
    script.shared.state.lock().target = None;
    guest.look();
    assert!(crowd() > 2);
    let fewer = CbArgOp::RecallSlot(CbRecallSlot4Args { target_highest_slotid: SlotId(1) });
    script.shared.state.lock().target = Some(1);
    assert_eq!(status(&script.compound_back(cb_sequence(0, 1), fewer)), NfsStat4::Ok);
    assert_eq!(crowd(), 1);
}

#[test]
fn what_sequence_says_is_heeded() {
    let script = Script::new();
    let guest = Guest::of(&script);
    guest.look();
    let last = || *script.shared.state.lock().seen.last().unwrap();
    let (session, slot, seqid) = last();
    // Not counted: the same number again.
    script.shared.state.lock().sequence.push_back(NfsStat4::Delay);
    guest.look();
    assert_eq!(last(), (session, slot, seqid.next()));
    // Counted, by whatever it was: the next number.
    script.shared.state.lock().sequence.push_back(NfsStat4::SeqFalseRetry);
    guest.look();
    assert_eq!(last(), (session, slot, Seqid(seqid.0 + 3)));
    // The slot is gone: another one.
    script.shared.state.lock().sequence.push_back(NfsStat4::BadSlot);
    guest.look();
    assert!(last().1 < slot);
    // We disagree about the count: a new session.
    script.shared.state.lock().sequence.push_back(NfsStat4::SeqMisordered);
    guest.look();
    assert_eq!(last().0, SessionId([2; 16]));
}

/// As NFS-Ganesha says it, where others end the session.
#[test]
fn who_is_told_that_his_lease_is_over_introduces_himself_anew() {
    let script = Script::new();
    let guest = Guest::of(&script);
    let file = guest.open();
    let expired = NfsStat4::Expired;
    script.shared.state.lock().sequence.push_back(expired);
    guest.look();
    let sessions = |script: &Script| {
        let state = script.shared.state.lock();
        (state.introduced, state.sessions)
    };
    assert_eq!(sessions(&script), (2, 2));
    {
        let mut state = script.shared.state.lock();
        state.sequence.push_back(NfsStat4::BadSession);
        state.creates.push_back(expired);
    }
    guest.look();
    assert_eq!(sessions(&script), (3, 3));
    // By an operation that names no state.
    script.shared.state.lock().looks.push_back(expired);
    guest.look();
    assert_eq!(sessions(&script), (4, 4));
    assert!(!file.is_lost(), "it was opened anew");
}

/// Another may remove what was made, or has got a name, before it is looked at.
#[test]
fn what_is_gone_before_it_is_looked_at_was_made_nevertheless() {
    let script = Script::new();
    let guest = Guest::of(&script);
    let (client, cx, root) = (&guest.client, guest.cx(), &Handle::new(b"root"));
    let (set, want) = (SetAttributes::default(), Attributes::STAT);
    let gone = |times| script.shared.state.lock().looks.extend(std::iter::repeat_n(NfsStat4::Stale, times));
    gone(2);
    let made = client.create(cx, (root, b"made"), CreateKind::Directory, &set, want).unwrap();
    assert_eq!(made.attributes.map(|seen| seen.fileid), None);
    gone(2);
    let (_, linked) = client.link(cx, &made.handle, (root, b"linked"), want).unwrap();
    assert_eq!(linked.map(|seen| seen.fileid), None);
    // Of a name it is found out what it stands for now.
    gone(1);
    client.lookup(cx, root, b"another", want).unwrap();
    assert_eq!(script.shared.state.lock().looked_up, 2);
}

/// The server may give the same client id again: it does not tell the old lease from the new one.
#[test]
fn a_late_answer_on_a_session_that_is_gone_takes_nothing_from_the_one_after_it() {
    for late in [NfsStat4::Expired, NfsStat4::DeadSession] {
        let script = Script::new();
        let guest = Guest::of(&script);
        let lose = || script.shared.state.lock().sequence.push_back(NfsStat4::BadSession);
        {
            let mut state = script.shared.state.lock();
            state.looks.push_back(late);
            state.holds_looks = true;
        }
        std::thread::scope(|scope| {
            let looking = scope.spawn(|| guest.look());
            script.shared.wait("the question", |state| state.looks.is_empty());
            lose();
            guest.look();
            script.release_looks();
            looking.join().unwrap();
        });
        guest.look();
        lose();
        guest.look();
        let state = script.shared.state.lock();
        assert_eq!((state.introduced, state.sessions), (1, 3), "{late:?}");
    }
}

/// Linux's server delegates with every open that is reclaimed, in its grace, when nobody has to be asked.
#[test]
fn a_delegation_that_comes_unasked_with_a_reclaim_is_given_back() {
    let script = Script::new();
    let guest = Guest::of(&script);
    script.shared.state.lock().delegates_nothing = true;
    let file = guest.open();
    assert!(guest.client.delegated(file.handle()).is_none());
    {
        let mut state = script.shared.state.lock();
        state.delegates_nothing = false;
        state.flags.push_back(SEQ4_STATUS_RESTART_RECLAIM_NEEDED);
    }
    guest.look();
    script.shared.wait("the return", |state| state.returned == 1);
    assert!(guest.client.delegated(file.handle()).is_none());
    assert!(guest.heard.state.lock().recalls.is_empty(), "whose user need not know of it");
    assert_eq!(script.shared.state.lock().opens, 2);
}

/// What is on its way in a session has its reply there alone: in another one it would be done twice.
#[test]
fn who_has_reclaimed_and_hears_deadsession_reclaims_again_and_keeps_the_session() {
    let script = Script::new();
    let guest = Guest::of(&script);
    let _file = guest.open();
    let restarts = |answers: &[NfsStat4]| {
        let mut state = script.shared.state.lock();
        state.completes.extend(answers);
        state.flags.push_back(SEQ4_STATUS_RESTART_RECLAIM_NEEDED);
        state.reclaimed = 0;
    };
    let dead = NfsStat4::DeadSession;
    restarts(&[dead]);
    guest.look();
    let reclaimed = |script: &Script| {
        let state = script.shared.state.lock();
        (state.reclaimed, state.sessions)
    };
    script.shared.wait("reclaiming", |state| state.completes.is_empty());
    guest.look();
    assert_eq!(reclaimed(&script), (2, 1));
    // A server that goes on saying so means it.
    restarts(&[dead, dead]);
    guest.look();
    script.shared.wait("another session", |state| state.sessions == 2);
    guest.look();
    assert_eq!(reclaimed(&script), (3, 2));
}

/// An operation that was begun before another restart does not tell of this one, and what it says of its state has recovery look.
#[test]
fn of_a_restart_recovery_hears_too_while_it_looks_at_what_was_refused() {
    let script = Script::new();
    let guest = Guest::of(&script);
    script.shared.state.lock().delegates_nothing = true;
    let file = guest.open();
    {
        let mut state = script.shared.state.lock();
        state.writes.push_back(NfsStat4::BadStateid);
        state.tests.push_back(NfsStat4::BadStateid);
        state.flags.extend([0, SEQ4_STATUS_RESTART_RECLAIM_NEEDED]);
    }
    let data = Bytes::from_static(b"data");
    guest.client.write(guest.cx(), Io::open(&file), 0, data, StableHow4::FileSync).unwrap();
    let state = script.shared.state.lock();
    assert_eq!((state.reclaimed, state.opens), (1, 2), "it is had again as it was, not opened anew");
}

#[test]
fn a_file_system_that_moved_is_followed() {
    let (from, to) = (Script::new(), Script::new());
    let guest = Guest::of(&from);
    guest.look();
    from.shared.state.lock().moved_to = Some(to.address.to_string());
    guest.look();
    assert_eq!(guest.client.servers().1, Some(to.address.to_string()));
    assert!(to.shared.state.lock().sessions > 0);
    assert_eq!(from.shared.state.lock().destroyed, [SessionId([1; 16])], "nothing is left there");
    assert_eq!(guest.client.told_servers(), [to.address.to_string()]);
    assert!(guest.client.servers().0.contains(&from.address.to_string()), "what was named stays");
}

#[test]
fn a_lease_that_moved_is_followed_by_who_asks_for_nothing() {
    let (from, to) = (Script::new(), Script::new());
    let guest = Guest::of(&from);
    guest.client.adopt_root(guest.cx(), &Handle::new(b"root")).unwrap();
    let bytes = to.address.port().to_be_bytes();
    let universal = format!("{}.{}.{}", to.address.ip(), bytes[0], bytes[1]);
    {
        let mut state = from.shared.state.lock();
        state.moved_to = Some(universal);
        state.flags.push_back(SEQ4_STATUS_LEASE_MOVED);
    }
    guest.client.check_session(guest.cx()).unwrap();
    let until = Instant::now() + Duration::from_secs(60);
    while guest.client.servers().1 != Some(to.address.to_string()) {
        assert!(Instant::now() < until, "{:?}", guest.client.servers());
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_server_that_says_that_files_are_elsewhere_and_not_where_is_stayed_with() {
    let from = Script::new();
    let guest = Guest::of(&from);
    // To itself.
    from.shared.state.lock().moved_to = Some(from.address.to_string());
    let looked = guest.client.getattr(guest.cx(), &Handle::new(b"file"), Attributes::STAT);
    assert!(matches!(looked, Err(Error::Nfs(NfsStat4::Moved))), "{looked:?}");
    assert_eq!(guest.client.moves(), 0);
    from.shared.state.lock().moved_to = None;
    guest.look();
}

struct Echo;

impl CallbackProgram for Echo {
    fn call(&self, _: u32, procedure: u32, args: &[u8], reply: &mut Writer) -> Result<(), AcceptStat> {
        if procedure != 1 {
            return Err(AcceptStat::ProcUnavail);
        }
        reply.put(args);
        Ok(())
    }
}

#[test]
fn a_registered_program_answers_the_server() {
    let script = Script::new();
    let guest = Guest::of(&script);
    guest.client.register_program(0x2048_4644, Arc::new(Echo));
    assert_eq!(script.call_back(0x2048_4644, 1, b"ping"), b"ping");
    guest.look();
}
