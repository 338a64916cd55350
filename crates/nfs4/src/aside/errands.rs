//! Errands to other hosts, which may be away: each client's one after the other, different clients' side by side, on threads that
//! end when there is nothing left to do.

use std::collections::VecDeque;

use holdfast_base::ClientId;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashSet;

/// So many are under way at once. What hangs beyond that holds up other clients' errands, and nothing else.
const THREADS_MAX: usize = 16;

/// What is to be done for a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Errand {
    /// Its lease has run out.
    LetGo(ClientId),
    /// It is back.
    TakeBack(ClientId),
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Errand>,
    threads: usize,
}

/// Who is at which client's locks, and what is to be done elsewhere.
#[derive(Default)]
pub(crate) struct Errands {
    busy: Mutex<FxHashSet<ClientId>>,
    is_free: Condvar,
    line: Mutex<Line>,
}

/// The right to let go of a client's locks, or to take them again.
pub(crate) struct Turn<'a> {
    client: ClientId,
    errands: &'a Errands,
}

impl Errands {
    /// The turn at a client's locks, unless somebody has it.
    pub(crate) fn try_turn(&self, client: ClientId) -> Option<Turn<'_>> {
        let is_free = self.busy.lock().insert(client);
        is_free.then(|| Turn { client, errands: self })
    }

    /// The turn at a client's locks, once nobody has it.
    pub(crate) fn turn(&self, client: ClientId) -> Turn<'_> {
        let mut busy = self.busy.lock();
        while !busy.insert(client) {
            self.is_free.wait(&mut busy);
        }
        Turn { client, errands: self }
    }

    /// Puts it in line, unless it is there already. Whether one thread more is to come for what is in line
    /// ([`Errands::next`]).
    pub(crate) fn put(&self, errand: Errand) -> bool {
        let mut line = self.line.lock();
        let is_in_line = line.waiting.contains(&errand);
        if !is_in_line {
            line.waiting.push_back(errand);
        }
        // Of those that were to come before, some may not have.
        let is_wanted = if is_in_line { line.threads == 0 } else { line.threads < THREADS_MAX };
        line.threads += usize::from(is_wanted);
        is_wanted
    }

    /// What a thread that has come is to do next; with `None` it has left.
    pub(crate) fn next(&self) -> Option<Errand> {
        let mut line = self.line.lock();
        let next = line.waiting.pop_front();
        line.threads -= usize::from(next.is_none());
        next
    }

    /// Held by a thread that does errands: one that panics leaves, too.
    pub(crate) const fn leaves_if_it_panics(&self) -> Leaving<'_> {
        Leaving(self)
    }

    /// A thread that was to come does not: what is in line is done when somebody asks for it once more, or for anything else.
    pub(crate) fn does_not_come(&self) {
        self.line.lock().threads -= 1;
    }
}

/// See [`Errands::leaves_if_it_panics`].
pub(crate) struct Leaving<'a>(&'a Errands);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.does_not_come();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.errands.busy.lock().remove(&self.client);
        self.errands.is_free.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_errand_is_done_once_by_whoever_comes() {
        let errands = Errands::default();
        assert!(errands.put(Errand::LetGo(ClientId(1))));
        assert!(!errands.put(Errand::LetGo(ClientId(1))), "in line already");
        assert!(errands.put(Errand::TakeBack(ClientId(1))));
        assert_eq!(errands.next(), Some(Errand::LetGo(ClientId(1))));
        assert_eq!(errands.next(), Some(Errand::TakeBack(ClientId(1))));
        assert_eq!([errands.next(), errands.next()], [None; 2], "both have left");
        assert!(errands.put(Errand::LetGo(ClientId(1))));
        errands.does_not_come();
        assert!(errands.put(Errand::LetGo(ClientId(1))), "asked for once more");
        errands.does_not_come();
        assert!(errands.put(Errand::LetGo(ClientId(2))));
        assert_eq!(errands.next(), Some(Errand::LetGo(ClientId(1))), "by the next that comes");
    }

    #[test]
    fn what_hangs_takes_no_more_threads_than_there_may_be() {
        let errands = Errands::default();
        let wanted = (0..100).filter(|n| errands.put(Errand::LetGo(ClientId(*n)))).count();
        assert_eq!(wanted, THREADS_MAX);
        assert_eq!((0..100).filter_map(|_| errands.next()).count(), 100);
    }

    #[test]
    fn one_is_at_a_clients_locks_at_a_time_and_others_at_other_clients() {
        let errands = Errands::default();
        let turn = errands.try_turn(ClientId(1)).unwrap();
        assert!(errands.try_turn(ClientId(1)).is_none());
        assert!(errands.try_turn(ClientId(2)).is_some());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| drop(errands.turn(ClientId(1))));
            drop(turn);
            waits.join().unwrap();
        });
        assert!(errands.try_turn(ClientId(1)).is_some());
    }
}
