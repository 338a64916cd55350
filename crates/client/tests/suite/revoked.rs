//! What the server has taken, against a server by script: one state, or the whole lease.

use holdfast_client::{Error, Handle, Io};
use holdfast_wire::nfs4::{
    NfsStat4, SEQ4_STATUS_RECALLABLE_STATE_REVOKED, SEQ4_STATUS_RESTART_RECLAIM_NEEDED, Stateid4,
};

use super::answers::OPEN;
use super::protocol::Guest;
use super::script::{Script, State};

/// Leases that were had so far.
fn leases(script: &Script) -> u32 {
    script.shared.state.lock().introduced
}

/// And the server is told that its loss is known, else each of its answers would speak of it (RFC 8881 section 18.46.3).
#[test]
fn of_an_open_that_was_revoked_before_it_is_closed_no_more_is_lost() {
    for revoked in [NfsStat4::Expired, NfsStat4::AdminRevoked, NfsStat4::DelegRevoked] {
        let script = Script::new();
        let guest = Guest::of(&script);
        let file = guest.open();
        script.shared.state.lock().stateful.closes.push_back(revoked);
        script.shared.state.lock().stateful.frees.push_back(NfsStat4::Expired);
        guest.client.close(guest.cx(), &file).unwrap();
        script.shared.wait("its end", |state| !state.stateful.freed.is_empty());
        guest.look();
        let state = script.shared.state.lock();
        assert_eq!((state.introduced, state.sessions), (1, 1), "{revoked:?}");
        let freed: Vec<_> = state.stateful.freed.iter().map(|Stateid4 { other, .. }| *other).collect();
        assert_eq!(freed, [OPEN.other]);
    }
}

#[test]
fn what_lived_on_a_revoked_delegation_is_opened_anew_though_the_session_is_lost_meanwhile() {
    let script = Script::new();
    let guest = Guest::of(&script);
    let file = guest.open();
    let local = guest.client.open_local(guest.cx(), file.handle(), 1).unwrap();
    {
        let state = &mut *script.shared.state.lock();
        state.delegates_nothing = true;
        state.tests.extend([NfsStat4::Ok, NfsStat4::DelegRevoked]);
        state.stateful.opens.push_back(NfsStat4::BadSession);
        state.flags.push_back(SEQ4_STATUS_RECALLABLE_STATE_REVOKED);
    }
    guest.look();
    script.shared.wait("the look at it", |state| state.tests.is_empty());
    guest.look();
    assert!(!local.is_local() && !local.is_lost());
    let state = script.shared.state.lock();
    assert_eq!((state.opens, state.sessions), (3, 2));
    assert_eq!(guest.heard.state.lock().gone.len(), 1);
}

#[test]
fn a_copy_that_has_expired_takes_no_lease_with_it() {
    let script = Script::new();
    let guest = Guest::of(&script);
    script.shared.state.lock().stateful.offloads.push_back(NfsStat4::Expired);
    // CB_OFFLOAD does not come, and the server is asked.
    let file = Handle::new(b"file");
    let (from, to) = ((Io::anonymous(&file), 0), (Io::anonymous(&file), 1));
    let copied = guest.client.copy(guest.cx(), from, to, 1);
    assert!(matches!(copied, Err(Error::Nfs(NfsStat4::Expired))), "{copied:?}");
    assert_eq!(leases(&script), 1);
}

/// NFS-Ganesha may find that the lease is over at the OPEN behind a SEQUENCE that it has answered.
#[test]
fn a_lease_that_ends_while_recovery_is_at_work_is_had_anew_and_nothing_given_up() {
    let opens = |times| {
        let script = Script::new();
        let guest = Guest::of(&script);
        script.shared.state.lock().delegates_nothing = true;
        let file = guest.open();
        {
            let State { stateful, flags, .. } = &mut *script.shared.state.lock();
            stateful.opens.extend(std::iter::repeat_n(NfsStat4::Expired, times));
            flags.push_back(SEQ4_STATUS_RESTART_RECLAIM_NEEDED);
        }
        guest.look();
        script.shared.wait("the end of it", |state| state.stateful.opens.is_empty());
        guest.look();
        (file.is_lost(), leases(&script))
    };
    assert_eq!(opens(2), (false, 3));
    // Three more leases, in each of which it is reclaimed; in the last one it is opened anew, too.
    assert_eq!(opens(5), (true, 4), "a server that goes on saying so means it");
}
