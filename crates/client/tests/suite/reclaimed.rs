//! What a restarted server gives back, and what it does not, of a file that was delegated; against a server by script.

use std::time::Duration;

use holdfast_base::ByteRange;
use holdfast_client::{LockArgs, OpenFile, Options};
use holdfast_wire::nfs4::{NfsStat4, SEQ4_STATUS_RESTART_RECLAIM_NEEDED};

use super::answers::Locking;
use super::protocol::Guest;
use super::script::{Script, State};

/// A file that is delegated and open twice: once at the server, where it is locked through that open, and once without it.
struct Delegated {
    script: Script,
    guest: Guest,
    known: OpenFile,
    local: OpenFile,
}

impl Delegated {
    fn new() -> Self {
        Self::patient_for(Duration::from_secs(60))
    }

    fn patient_for(patience: Duration) -> Self {
        let script = Script::new();
        let guest = Guest::with(Options { patience, ..Options::new(vec![script.address.to_string()]) });
        let known = guest.open();
        let args = LockArgs { owner: b"me", range: ByteRange::ALL, exclusive: false };
        guest.client.lock(guest.cx(), &known, &args).unwrap();
        let local = guest.client.open_local(guest.cx(), known.handle(), 1).expect("it is delegated");
        assert!(local.is_local());
        Self { script, guest, known, local }
    }

    /// Has the server restart, which answers by `change` from then on; and waits for the end of recovery.
    fn restart(&self, change: impl FnOnce(&mut State)) {
        {
            let state = &mut *self.script.shared.state.lock();
            state.stateful.is_in_grace = true;
            state.reclaimed = 0;
            state.flags.push_back(SEQ4_STATUS_RESTART_RECLAIM_NEEDED);
            change(state);
        }
        self.guest.look();
        self.script.shared.wait("reclaiming", |state| !state.stateful.is_in_grace);
        self.guest.look();
    }

    /// That what was opened without the server is open there, not lost, nor asked for in its grace; and nothing that is locked there is
    /// taken for lost.
    fn assert_had_again(&self) {
        assert!(!self.local.is_lost() && !self.local.is_local(), "{:?}", self.local);
        assert!(!self.known.is_lost());
        let said = self.guest.heard.state.lock();
        assert_eq!((said.gone.len(), said.lost.len()), (1, 0), "{said:?}");
        assert!(self.guest.client.holds_locks(self.known.handle(), b"me"));
        assert_eq!(self.script.shared.state.lock().stateful.too_early, 0);
    }
}

#[test]
fn what_lived_on_a_delegation_that_is_not_given_back_is_opened_anew_once_all_is_reclaimed() {
    let file = Delegated::new();
    file.restart(|state| state.delegates_nothing = true);
    file.assert_had_again();
    let state = file.script.shared.state.lock();
    assert_eq!((state.reclaimed, state.opens), (1, 3));
    let first = Locking::First(b"me".to_vec(), 0);
    assert_eq!(state.stateful.locking, [first.clone(), first], "locked and reclaimed");
}

/// By then nothing tells that there was a delegation.
#[test]
fn what_lived_on_a_delegation_is_opened_anew_where_recovery_has_to_begin_again() {
    // It is sent back to the reclaims.
    let file = Delegated::new();
    file.restart(|state| {
        state.delegates_nothing = true;
        state.completes.push_back(NfsStat4::DeadSession);
    });
    file.assert_had_again();
    assert_eq!(file.script.shared.state.lock().reclaimed, 2);
    // The session is lost at the last step.
    let file = Delegated::new();
    file.restart(|state| {
        state.delegates_nothing = true;
        state.stateful.opens.extend([NfsStat4::Ok, NfsStat4::BadSession]);
    });
    file.assert_had_again();
    let state = file.script.shared.state.lock();
    assert_eq!((state.reclaimed, state.opens, state.sessions), (1, 4, 2));
}

/// Others, who have not come back yet, keep grace going for as long as a lease, and whom a file is recalled from may take as long.
#[test]
fn what_is_opened_anew_is_asked_for_as_long_as_the_server_says_grace_or_delay() {
    let patience = Duration::from_millis(400);
    let file = Delegated::patient_for(patience);
    let begun = std::time::Instant::now();
    file.restart(|state| {
        state.delegates_nothing = true;
        state.stateful.opens.extend([NfsStat4::Delay; 5]);
        state.stateful.opens.push_back(NfsStat4::Ok);
        state.stateful.opens.extend([NfsStat4::Grace; 7]);
    });
    file.assert_had_again();
    assert!(begun.elapsed() > 2 * patience, "{:?}", begun.elapsed());
    assert_eq!(file.script.shared.state.lock().opens, 2 + 5 + 1 + 7);
}

/// RFC 8881 section 10.2.1: granted and recalled by one answer, and no CB_RECALL follows.
#[test]
fn an_open_under_a_delegation_that_is_given_back_recalled_is_claimed() {
    let file = Delegated::new();
    file.restart(|state| state.stateful.recalls_at_once = true);
    let (client, handle) = (&file.guest.client, file.known.handle());
    file.guest.heard.wait("the recall", |said| said.recalls.len() == 1);
    assert!(
        client.is_recalled(handle) && client.delegated(handle).is_none(),
        "relied on while it is recalled"
    );
    let claimed = client.open_recalled(file.guest.cx(), handle, 1).unwrap().expect("nothing claimed");
    assert!(!claimed.is_local());
    assert_eq!(file.script.shared.state.lock().stateful.claimed, 1);
    client.return_delegation(file.guest.cx(), handle).unwrap();
    assert!(!file.local.is_local());
    let state = file.script.shared.state.lock();
    assert_eq!((state.stateful.claimed, state.returned), (2, 1));
    assert_eq!((state.reclaimed, state.opens), (1, 4), "none was opened anew");
}
