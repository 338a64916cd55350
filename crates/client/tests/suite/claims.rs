//! What other programs claim of a server that began anew, before it is told that this was all.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_client::{
    Attributes, Cancel, Client, Cred, Handle, Hook, Hooked, Options, SessionEvent, SessionHandle, Target,
};
use holdfast_wire::nfs4::{NfsStat4, SEQ4_STATUS_RESTART_RECLAIM_NEEDED};
use parking_lot::Mutex;

use super::protocol::Guest;
use super::script::{Asked, Ping, Script};

/// A client that has a program of its own claim by a null call, over so many connections.
struct Claiming {
    script: Script,
    guest: Guest,
    given_up: Arc<Mutex<u32>>,
}

impl Claiming {
    fn new(connections: usize, patience: Duration) -> Self {
        let script = Script::new();
        let other: Option<SocketAddr> = (connections > 1).then(|| script.also_at(0));
        let servers = std::iter::once(script.address).chain(other).map(|at| at.to_string()).collect();
        let guest = Guest::with(Options { connections, patience, ..Options::new(servers) });
        guest.look();
        if connections > 1 {
            script.shared.wait("a second connection", |state| !state.bound.is_empty());
        }
        let given_up = Arc::new(Mutex::new(0));
        let noted = Arc::clone(&given_up);
        let hook: Hook = Arc::new(move |session: &SessionHandle<'_>, event: SessionEvent| {
            if event.is_given_up {
                *noted.lock() += 1;
                return Hooked::Done;
            }
            let target = Target { program: 100_003, version: 4, procedure: 0 };
            let called = session.call_program(target, &Cred::own(), &[]);
            if called.is_ok() { Hooked::Done } else { Hooked::NotYet }
        });
        guest.client.on_new_session(hook);
        script.shared.state.lock().asked.clear();
        Self { script, guest, given_up }
    }

    /// The server says that it began anew, for as long as it was not told that this was all; what was claimed, and said, by the end.
    fn restart(&self, pings: &[Ping]) -> Vec<Asked> {
        {
            let mut state = self.script.shared.state.lock();
            state.pings.extend(pings);
            state.flags.push_back(SEQ4_STATUS_RESTART_RECLAIM_NEEDED);
        }
        self.guest.look();
        let is_said = |asked: &[Asked]| asked.contains(&Asked::Complete);
        self.script.shared.wait("that this was all", |state| is_said(&state.asked));
        self.guest.look();
        std::mem::take(&mut self.script.shared.state.lock().asked)
    }
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn the_server_is_not_told_that_this_was_all_over_another_connection_than_that_which_broke_under_a_claim() {
    for connections in [1, 2] {
        let claiming = Claiming::new(connections, LONG);
        let asked = claiming.restart(&[Ping::Breaks, Ping::Breaks]);
        let broke = Asked::Ping(Ping::Breaks);
        let claimed = [broke, broke, Asked::Ping(Ping::Answered), Asked::Complete];
        assert_eq!(asked[..4], claimed, "{connections} connections");
        assert_eq!(*claiming.given_up.lock(), 0);
    }
}

#[test]
fn what_cannot_be_claimed_keeps_nobody_for_ever() {
    for (ping, patience) in [(Ping::Breaks, 2), (Ping::Hangs, 1)] {
        let claiming = Claiming::new(2, Duration::from_secs(patience));
        let begun = Instant::now();
        let asked = claiming.restart(&[ping; 1000]);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        let before = asked.iter().position(|asked| *asked == Asked::Complete).unwrap();
        assert!((1..=3).contains(&before), "{asked:?}");
        assert!(asked[..before].iter().all(|asked| *asked == Asked::Ping(ping)));
        assert_eq!(*claiming.given_up.lock(), 1, "what was promised is not relied on");
    }
}

/// It says so to no program but NFS.
#[test]
fn a_session_that_is_lost_under_a_claim_is_found_lost() {
    let claiming = Claiming::new(1, LONG);
    {
        let mut state = claiming.script.shared.state.lock();
        state.sequence.extend([NfsStat4::Ok, NfsStat4::BadSession]);
    }
    let begun = Instant::now();
    let asked = claiming.restart(&[Ping::Breaks]);
    assert!(begun.elapsed() < LONG / 4);
    assert_eq!(asked.last(), Some(&Asked::Complete));
}

#[test]
fn who_waits_for_a_claim_may_give_up_and_a_client_may_end() {
    let claiming = Claiming::new(2, LONG);
    {
        let mut state = claiming.script.shared.state.lock();
        state.pings.extend([Ping::Hangs; 10]);
        state.flags.push_back(SEQ4_STATUS_RESTART_RECLAIM_NEEDED);
    }
    claiming.guest.look();
    claiming.script.shared.wait("a claim", |state| state.asked.contains(&Asked::Ping(Ping::Hangs)));
    let (cancel, cred) = (Cancel::new(), Cred::own());
    let looked = std::thread::scope(|scope| {
        let client: &Client = &claiming.guest.client;
        let looking = scope.spawn(|| {
            let cx = holdfast_client::Cx::new(&cred, &cancel);
            client.getattr(cx, &Handle::new(b"file"), Attributes::STAT).map(drop)
        });
        std::thread::sleep(Duration::from_millis(50));
        cancel.cancel();
        looking.join().unwrap()
    });
    assert_eq!(looked, Err(holdfast_client::Error::Cancelled));
    let begun = Instant::now();
    claiming.guest.client.shutdown();
    assert!(begun.elapsed() < LONG / 4, "{:?}", begun.elapsed());
    assert!(!claiming.script.shared.state.lock().asked.contains(&Asked::Complete));
}
