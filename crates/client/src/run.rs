//! An operation, from the caller's point of view: asked until there is an answer that means something.

use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_wire::nfs4::NfsStat4;

use crate::client::Inner;
use crate::compound::{Answer, Compound};
use crate::exchange::{Late, Missed, Sending};
use crate::moved::Missing;
use crate::session::{Lane, Session};
use crate::{Cx, Error, Result};

/// Pauses when the server says "later": the first one, and the longest.
const LATER_MIN: Duration = Duration::from_millis(10);
const LATER_MAX: Duration = Duration::from_secs(1);

/// How often state that the server refuses is looked after before its refusal is the answer.
pub(crate) const REFUSALS_MAX: u32 = 3;

/// How an operation is to be asked.
#[derive(Default)]
pub(crate) struct Manner<'a> {
    /// It must not happen twice: the server shall keep its reply. So many operations make it up; when they are done,
    /// those after them are not worth asking again.
    pub(crate) essential: Option<u32>,
    /// It may be asked as often as one likes all the same: its reply need not be kept.
    pub(crate) is_idle: bool,
    /// What undoes it, or takes it in, when its answer comes after it was given up.
    pub(crate) late: Option<&'a dyn Fn() -> Late>,
}

impl Manner<'_> {
    /// Something that may be asked as often as one likes.
    pub(crate) const IDLE: Self = Manner { essential: None, is_idle: true, late: None };

    /// Several of these, none of which is worth asking again: those up to the first that fails.
    pub(crate) const SOME: Self = Manner { essential: Some(1), is_idle: true, late: None };

    /// Something that must happen once, made up of so many operations.
    pub(crate) const fn once(essential: u32) -> Self {
        Manner { essential: Some(essential), is_idle: false, late: None }
    }
}

enum Next {
    /// The status is the answer.
    Answer,
    /// Ask again after a pause.
    Later(Duration),
    /// Ask again after recovery.
    Recover,
}

/// What an operation has been through.
#[derive(Default)]
struct Past {
    puts_off: u32,
    refusals: u32,
    odd: u32,
}

impl Inner {
    /// Asks until there is an answer. `build` is asked anew every time, for what it names may be another after
    /// recovery; `read` reads the answer, also a failing one.
    pub(crate) fn run<T>(
        &self,
        cx: Cx<'_>,
        manner: &Manner<'_>,
        mut build: impl FnMut(&mut Compound) -> Result<()>,
        mut read: impl FnMut(&mut Answer) -> Result<T>,
    ) -> Result<T> {
        let deadline = self.deadline();
        let mut past = Past::default();
        loop {
            let (session, _) = self.gate.ready(cx.cancel, deadline)?;
            let moves = self.servers.lock().moves();
            let mut compound = Compound::new();
            build(&mut compound)?;
            let how = Sending {
                auth: cx.cred.encoded(),
                lane: Lane::Ordinary,
                is_cached: !manner.is_idle,
                cancel: cx.cancel,
                deadline,
                late: manner.late.map(|late| late()),
            };
            let mut answer = match self.exchange(&session, &compound, how) {
                Ok(answer) => answer,
                Err(Missed::Failed(e)) => return Err(e),
                Err(Missed::Session | Missed::Again | Missed::Link) => continue,
            };
            // SEQUENCE is the first of those answered, and the last one is the one that failed.
            let done = answer.count.saturating_sub(2);
            let is_done = manner.essential.is_some_and(|essential| done >= essential);
            if answer.status == NfsStat4::Ok || is_done {
                return read(&mut answer);
            }
            if answer.status == NfsStat4::Moved && past.odd < REFUSALS_MAX {
                past.odd += 1;
                // Its slot is awaited before we leave.
                answer.release();
                if let Some(file) = &compound.about
                    && self.follow(cx, Missing::Of(file.clone()), moves)?
                {
                    continue;
                }
                return read(&mut answer);
            }
            match self.consider(answer.status, (&session, &compound), &mut past) {
                Next::Answer => return read(&mut answer),
                Next::Later(pause) => {
                    drop(answer);
                    let until = Instant::now() + pause;
                    if deadline.is_some_and(|deadline| deadline < until) {
                        return Err(Error::TimedOut);
                    }
                    cx.cancel.sleep_until(until)?;
                }
                Next::Recover => {}
            }
        }
    }

    /// What a failing status calls for.
    fn consider(
        &self,
        status: NfsStat4,
        (session, asked): (&Arc<Session>, &Compound),
        past: &mut Past,
    ) -> Next {
        use NfsStat4 as S;
        let used = &asked.used;
        match status {
            S::Delay | S::Grace => {
                past.puts_off += 1;
                let pause = LATER_MIN * 2u32.pow(past.puts_off.min(8) - 1);
                Next::Later(pause.min(LATER_MAX))
            }
            S::BadSession | S::DeadSession | S::StaleClientId => {
                past.odd += 1;
                if past.odd > REFUSALS_MAX {
                    return Next::Answer;
                }
                self.lose_session(session);
                Next::Recover
            }
            // It is not about a state (RFC 8881 section 15.1.5.4): the lease is over.
            S::Expired if !asked.names_state && past.odd < REFUSALS_MAX => {
                past.odd += 1;
                self.lose_lease(session);
                Next::Recover
            }
            S::OldStateid if past.refusals < REFUSALS_MAX => {
                past.refusals += 1;
                Next::Later(Duration::from_millis(1))
            }
            S::BadStateid | S::StaleStateid | S::Expired | S::AdminRevoked | S::DelegRevoked
                if past.refusals < REFUSALS_MAX && !used.is_empty() =>
            {
                past.refusals += 1;
                self.suspect(used);
                Next::Recover
            }
            _ => Next::Answer,
        }
    }
}
