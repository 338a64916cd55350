//! What is claimed of a server that began anew, when it was greeted: all of it is, or refused, or it is begun again.

use std::time::{Duration, Instant};

use holdfast_base::limits::CAPS_ITEMS_MAX;
use holdfast_cache::{Reclaim, Reclaimed};
use holdfast_client::Cancel;
use holdfast_wire::caps::{AcquireOk, CapsProc, CapsStat, Handle, HelloOk, ReclaimArgs, ReclaimItem, Ticket};

use super::calling::{DELAY_MAX, DELAY_MIN, pause_for};
use super::hello::{Sender, checked, encoded};
use super::{Failure, convert};

/// How long a claim that the server puts off is made again. Others wait for it, and nothing but what is cached hangs on it.
const CLAIMS_PUT_OFF: Duration = Duration::from_secs(3);

/// Asks how that looks which is about to be done again, and claims what is held, in grace. What the server refuses is lost. What is not
/// known of that which is done again would be written over, whoever has written it since: so that is asked until it is known.
///
/// # Errors
/// What kept it from being asked or claimed: it may be had yet. `Delay` where somebody else is still waited for.
pub(super) fn claim_all(
    told: &HelloOk,
    (questions, held): (&[Reclaim], &[Reclaim]),
    (send, cancel): (Sender<'_>, &Cancel),
) -> Result<Vec<Reclaimed>, Failure> {
    let mut all = Vec::new();
    let put_off = claim(told.ticket, questions, &mut all, (send, cancel))?;
    if told.in_grace {
        // What is put off for longer is lost.
        claim(told.ticket, held, &mut all, (send, cancel))?;
    }
    if put_off > 0 { Err(Failure::Refused(CapsStat::Delay)) } else { Ok(all) }
}

/// What comes of these. What the server puts off is asked again, for a while; how many it has put off all that time.
///
/// # Errors
/// What broke under it.
fn claim(
    ticket: Ticket,
    held: &[Reclaim],
    all: &mut Vec<Reclaimed>,
    (send, cancel): (Sender<'_>, &Cancel),
) -> Result<usize, Failure> {
    let (mut pause, until) = (DELAY_MIN, Instant::now() + CLAIMS_PUT_OFF);
    let mut due: Vec<_> = held.iter().collect();
    loop {
        let mut put_off = Vec::new();
        for some in due.chunks(CAPS_ITEMS_MAX) {
            let items = some
                .iter()
                .map(|claim| ReclaimItem { handle: Handle(claim.handle.as_bytes()), held: claim.caps })
                .collect();
            let reply = send(CapsProc::Reclaim, encoded(&ReclaimArgs { ticket, items }))?;
            let told = match checked::<AcquireOk>(&reply) {
                Ok(told) => told,
                Err(Failure::Refused(CapsStat::Delay)) => {
                    put_off.extend_from_slice(some);
                    continue;
                }
                // As of another life: it is asked of that.
                Err(failure @ Failure::Refused(CapsStat::BadTicket)) => return Err(failure),
                Err(failure) => {
                    tracing::debug!(?failure, "promises were not claimed again");
                    continue;
                }
            };
            for (claim, told) in some.iter().zip(told.items) {
                match told.into_result() {
                    Err(CapsStat::Delay) => put_off.push(claim),
                    result => all.push(Reclaimed {
                        handle: claim.handle.clone(),
                        result: result
                            .map(|got| (convert::attrs(&got.attrs), convert::grant(got.grant)))
                            .map_err(|stat| convert::errno_of(stat.as_u32())),
                    }),
                }
            }
        }
        if put_off.is_empty() || Instant::now() >= until {
            return Ok(put_off.len());
        }
        pause_for(pause, cancel)?;
        pause = (pause * 2).min(DELAY_MAX);
        due = put_off;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use bytes::Bytes;
    use holdfast_base::CapSet;
    use holdfast_wire::caps::{Acquired, Features, Grant, Limits, Res, TxnId};
    use holdfast_xdr::from_bytes;

    use super::*;

    fn told(in_grace: bool) -> HelloOk {
        HelloOk {
            ticket: Ticket(1),
            epoch: 1,
            features: Features::default(),
            lease_seconds: 90,
            in_grace,
            is_known: true,
            limits: Limits::default(),
            executed_through: TxnId(7),
            stable_through: TxnId(5),
        }
    }

    fn held(count: usize) -> Vec<Reclaim> {
        let one = |n: usize| Reclaim {
            handle: holdfast_cache::Handle::new(&n.to_be_bytes()),
            caps: CapSet::FILE_S,
        };
        (0..count).map(one).collect()
    }

    fn acquired() -> Acquired {
        // A regular file.
        let mut attrs = vec![0; 256];
        attrs[3] = 1;
        let attrs = holdfast_xdr::Decode::decode(&mut holdfast_xdr::Reader::new(&attrs));
        Acquired { grant: Grant::default(), attrs: attrs.unwrap() }
    }

    /// Claims with a server that answers the calls so, in order, and the last one ever after: what came of it, and how many items each
    /// call had.
    fn claimed(
        (questions, held): (usize, usize),
        in_grace: bool,
        answer: impl Fn(usize, &[u8]) -> Result<Res<Acquired>, Failure>,
    ) -> (Result<Vec<Reclaimed>, Failure>, Vec<usize>) {
        let calls = RefCell::new(Vec::new());
        let send = |procedure: CapsProc, args: Vec<u8>| {
            assert_eq!(procedure, CapsProc::Reclaim);
            let args: ReclaimArgs<'_> = from_bytes(&args).unwrap();
            let call = calls.borrow().len();
            calls.borrow_mut().push(args.items.len());
            let items: Result<Vec<_>, _> =
                args.items.iter().map(|item| answer(call, item.handle.0)).collect();
            Ok(Bytes::from(encoded(&Res::Ok(AcquireOk { items: items? }))))
        };
        let (questions, held) = (self::held(questions), self::held(held));
        let came = claim_all(&told(in_grace), (&questions, &held), (&send, &Cancel::new()));
        (came, calls.into_inner())
    }

    #[test]
    fn what_breaks_under_a_claim_is_not_what_was_refused() {
        let breaks_at = |at| {
            move |call, _: &[u8]| {
                if call < at { Ok(Res::Ok(acquired())) } else { Err(Failure::Disconnected) }
            }
        };
        for at in 0..2 {
            let (came, _) = claimed((1, 1), true, breaks_at(at));
            assert_eq!(came.map(|all| all.len()), Err(Failure::Disconnected), "call {at}");
        }
        let (came, calls) = claimed((1, 1), true, breaks_at(2));
        assert_eq!((came.map(|all| all.len()), calls), (Ok(2), vec![1, 1]));
        let (came, _) = claimed((1, 1), false, breaks_at(0));
        assert_eq!(
            came.map(|all| all.len()),
            Err(Failure::Disconnected),
            "what others have written is asked for"
        );
        let (came, calls) = claimed((1, 1), false, breaks_at(1));
        assert_eq!((came.map(|all| all.len()), calls), (Ok(1), vec![1]), "and nothing can be claimed");
    }

    #[test]
    fn what_is_put_off_is_claimed_again_and_not_for_ever() {
        let put_off_until = |until| {
            move |call, handle: &[u8]| {
                let is_put_off = handle.last() == Some(&0) && call < until;
                Ok(if is_put_off { Res::Failed(CapsStat::Delay.as_u32()) } else { Res::Ok(acquired()) })
            }
        };
        let (came, calls) = claimed((0, 3), true, put_off_until(4));
        assert_eq!((came.map(|all| all.len()), calls), (Ok(3), vec![3, 1, 1, 1, 1]));
        let begun = Instant::now();
        let (came, _) = claimed((0, 3), true, put_off_until(usize::MAX));
        assert_eq!(came.map(|all| all.len()), Ok(2), "the others are not lost for it");
        assert!(begun.elapsed() < 2 * CLAIMS_PUT_OFF);
        for in_grace in [false, true] {
            let (came, _) = claimed((3, 1), in_grace, put_off_until(usize::MAX));
            let came = came.map(|all| all.len());
            assert_eq!(came, Err(Failure::Refused(CapsStat::Delay)), "somebody writes what is asked about");
        }
    }
}
