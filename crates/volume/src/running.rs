//! One operation of an application, from its call to its end.

use std::sync::atomic::Ordering;
use std::time::Instant;

use holdfast_cache::{Ask, Caller, Errno, Fh, Machine, Now, Question, Step, Turn, Wait};
use holdfast_client::Cancel;
use parking_lot::MutexGuard;

use crate::volume::{Shared, Volume};

/// Under whom an operation waits: who asks is known at once, what else has to be asked for only when a server has to be
/// asked.
pub trait Waiting {
    /// The caller as far as it is known without asking.
    fn caller(&self) -> Caller;
    /// The caller with all groups.
    fn whole_caller(&self) -> Caller;
    /// Permission bits that what it makes does not get, unless an access list is handed on to that.
    fn umask(&self) -> u32 {
        0
    }
    /// A token that is given when the application gives up. Called before the first waiting.
    fn cancel(&self) -> Cancel;
}

/// A caller and a token that are there already.
pub(crate) struct Plain<'a>(pub(crate) Caller, pub(crate) &'a Cancel);

impl Waiting for Plain<'_> {
    fn caller(&self) -> Caller {
        self.0.clone()
    }

    fn whole_caller(&self) -> Caller {
        self.0.clone()
    }

    fn cancel(&self) -> Cancel {
        self.1.clone()
    }
}

/// What is done through an open file is done in the name of who opened it: POSIX judges when a file is opened, and whoever has the
/// descriptor by then may be another. For what is done by more than one operation of the machine's; others find out who it was while
/// they have it anyway (`run_by`).
pub(crate) struct AsOpener<'a> {
    opener: Caller,
    who: &'a dyn Waiting,
}

impl Waiting for AsOpener<'_> {
    fn caller(&self) -> Caller {
        self.opener.clone()
    }

    fn whole_caller(&self) -> Caller {
        self.opener.clone()
    }

    fn umask(&self) -> u32 {
        self.who.umask()
    }

    fn cancel(&self) -> Cancel {
        self.who.cancel()
    }
}

impl Volume {
    /// Whose name what is done through an open file is done in.
    pub(crate) fn as_opener<'a>(&self, who: &'a dyn Waiting, fh: Fh) -> AsOpener<'a> {
        let opener = self.0.machine.lock().opener(fh).cloned();
        AsOpener { opener: opener.unwrap_or_else(|| who.whole_caller()), who }
    }

    /// Runs an operation for a caller.
    pub(crate) fn run<T>(
        &self,
        caller: Caller,
        cancel: &Cancel,
        operation: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
    ) -> Result<T, Errno> {
        self.run_for(&Plain(caller, cancel), operation)
    }

    /// Runs an operation that looks; groups are asked for once the server has to be.
    pub(crate) fn run_for<T>(
        &self,
        waiting: &dyn Waiting,
        operation: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
    ) -> Result<T, Errno> {
        self.turn(Turn::new(waiting.caller()), (waiting, None), operation)
    }

    /// Runs an operation that looks through an open file, in the name of who opened it. EBADF where nobody did.
    pub(crate) fn run_by<T>(
        &self,
        waiting: &dyn Waiting,
        fh: Fh,
        operation: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
    ) -> Result<T, Errno> {
        self.turn(Turn::new(Caller::new(0, 0)), (waiting, Some(fh)), operation)
    }

    /// The same of one that changes something.
    pub(crate) fn change_by<T>(
        &self,
        waiting: &dyn Waiting,
        fh: Fh,
        operation: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
    ) -> Result<T, Errno> {
        self.0.room.changed();
        self.run_by(waiting, fh, operation)
    }

    /// Runs an operation that may be of consequence long after, though it changes nothing.
    pub(crate) fn open_for<T>(
        &self,
        waiting: &dyn Waiting,
        operation: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
    ) -> Result<T, Errno> {
        self.turn(Turn::new(waiting.whole_caller()), (waiting, None), operation)
    }

    /// Runs an operation that changes something: it may be sent long after, so that the whole caller is kept with it.
    pub(crate) fn change_for<T>(
        &self,
        waiting: &dyn Waiting,
        operation: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
    ) -> Result<T, Errno> {
        self.0.room.changed();
        self.open_for(waiting, operation)
    }

    fn turn<T>(
        &self,
        mut turn: Turn,
        (waiting, by): (&dyn Waiting, Option<Fh>),
        operation: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
    ) -> Result<T, Errno> {
        turn.umask = waiting.umask();
        let done = self.go_on(&mut turn, (waiting, by), operation);
        if turn.has_opened() {
            // It was given up, and nobody else would close that.
            let mut machine = self.0.machine.lock();
            machine.abandoned(&mut turn, self.0.now());
            self.0.look_for_work(machine);
        }
        done
    }

    fn go_on<T>(
        &self,
        turn: &mut Turn,
        (waiting, by): (&dyn Waiting, Option<Fh>),
        mut operation: impl FnMut(&mut Machine, &mut Turn, Now) -> Step<T>,
    ) -> Result<T, Errno> {
        let shared = &*self.0;
        let mut waits_since = None;
        let mut machine = shared.machine.lock();
        if let Some(fh) = by {
            // Once: while it is being done the file may be closed.
            turn.caller = machine.opener(fh).cloned().ok_or(Errno::EBADF)?;
        }
        loop {
            let (seen, now) = (machine.progress(), shared.now());
            match operation(&mut machine, turn, now) {
                Step::Done(value) => {
                    shared.look_for_work_at(machine, now);
                    return Ok(value);
                }
                Step::Failed(errno) => {
                    shared.look_for_work_at(machine, now);
                    return Err(errno);
                }
                Step::Ask(ask) if ask.question.is_of_disk() => {
                    drop(machine);
                    machine = shared.asked_disk(*ask, turn);
                }
                Step::Ask(ask) if shared.is_away() => return shared.unanswered(machine, *ask),
                Step::Ask(ask) => {
                    drop(machine);
                    let mut ask = *ask;
                    if by.is_none() {
                        ask.caller = waiting.whole_caller();
                    }
                    machine = self.asked(ask, turn, &waiting.cancel())?;
                }
                Step::Wait(wait) => {
                    // What is waited for was made urgent.
                    let is_away = shared.is_away();
                    shared.look_for_work(machine);
                    // The kernel is no server: it takes what it is given in any case.
                    if is_away && wait != Wait::Stored {
                        return Err(crate::offline::AWAY);
                    }
                    let is_kernels = matches!(wait, Wait::Forgotten | Wait::Stored);
                    let since = (!is_kernels).then(|| *waits_since.get_or_insert_with(Instant::now));
                    machine = self.waited(seen, since, &waiting.cancel())?;
                }
            }
        }
    }

    fn asked(&self, ask: Ask, turn: &mut Turn, cancel: &Cancel) -> Result<MutexGuard<'_, Machine>, Errno> {
        let shared = &*self.0;
        let started = Instant::now();
        let answer = shared.while_living(cancel, |cancel| shared.server.perform(&ask, cancel));
        shared.counters.answered(started.elapsed());
        if !matches!(answer, Err(Errno::EINTR | Errno::ETIMEDOUT)) {
            shared.patience.heard();
        }
        let may_yet_be_done = answer.is_err() && shared.server.may_yet_be_done(&ask);
        let mut machine = shared.machine.lock();
        match answer {
            Err(errno) if may_yet_be_done || errno == Errno::EINTR => {
                shared.gave_up(machine, ask, may_yet_be_done);
                Err(if errno == Errno::EINTR { shared.stopped() } else { errno })
            }
            answer => {
                machine.absorb(turn, ask, answer, shared.now());
                Ok(machine)
            }
        }
    }

    /// Waits until the machine has moved; not for ever, where the mount is to give up and this was begun `since`.
    fn waited(
        &self,
        seen: u64,
        since: Option<Instant>,
        cancel: &Cancel,
    ) -> Result<MutexGuard<'_, Machine>, Errno> {
        let shared = &*self.0;
        let over = || since.and_then(|since| shared.patience.over(since));
        let is_over = || over().is_some_and(|over| over <= Instant::now());
        let has_moved = || {
            if shared.given_up.is_cancelled() {
                return Some(Err(Errno::EIO));
            }
            (shared.machine.lock().progress() != seen).then_some(Ok(()))
        };
        // Looked at each time: what is lost and sent again moves the machine, too.
        while !is_over() {
            match shared.progressed.wait(cancel, over(), has_moved) {
                Some(Ok(())) => return Ok(shared.machine.lock()),
                Some(Err(errno)) => return Err(errno),
                None if cancel.is_cancelled() => return Err(Errno::EINTR),
                // It was heard of meanwhile, or not.
                None => {}
            }
        }
        Err(Errno::ETIMEDOUT)
    }
}

impl Shared {
    fn asked_disk(&self, ask: Ask, turn: &mut Turn) -> MutexGuard<'_, Machine> {
        let answer = match &ask.question {
            Question::Blocks { blocks, .. } => self.ask_disk(blocks),
            _ => Err(Errno::EIO),
        };
        let mut machine = self.machine.lock();
        machine.absorb(turn, ask, answer, self.now());
        machine
    }

    /// Waits for the server under a token that is given also when the volume is abandoned.
    pub(crate) fn while_living<T>(
        &self,
        cancel: &Cancel,
        ask: impl FnOnce(&Cancel) -> Result<T, Errno>,
    ) -> Result<T, Errno> {
        let number = {
            let mut asking = self.asking.lock();
            asking.0 += 1;
            let number = asking.0;
            asking.1.insert(number, cancel.clone());
            number
        };
        // Noted first: whoever abandons the volume from now on finds it.
        if self.given_up.is_cancelled() {
            cancel.cancel();
        }
        let answer = ask(cancel);
        self.asking.lock().1.remove(&number);
        answer
    }

    /// What is told to those who stopped waiting: they gave up, or the volume was.
    pub(crate) fn stopped(&self) -> Errno {
        if self.given_up.is_cancelled() { Errno::EIO } else { Errno::EINTR }
    }

    /// After the machine was touched: hands on what others are to forget, and has those who wait for it and those who
    /// work for it look again, where there is something to see.
    pub(crate) fn look_for_work(&self, machine: MutexGuard<'_, Machine>) {
        self.look_for_work_at(machine, self.now());
    }

    /// The same a moment after `now`, which was asked for under this lock.
    fn look_for_work_at(&self, mut machine: MutexGuard<'_, Machine>, now: Now) {
        let jobs = machine.take_jobs(now);
        // Under the machine's lock, so that they stay in order; behind the jobs, for looking for those may bring some.
        self.forgets.add(machine.take_invalidations());
        if let Some(blocks) = self.offline.as_ref().and_then(|offline| offline.blocks.as_ref()) {
            blocks.add(machine.take_blocks());
        }
        let ahead: Vec<_> = std::iter::from_fn(|| machine.take_ahead(now)).collect();
        let (due, progress) = (machine.next_wake(now), machine.progress());
        drop(machine);
        self.alarm.add(jobs, due);
        self.ahead.add(ahead, None);
        if self.last_progress.swap(progress, Ordering::SeqCst) != progress {
            self.progressed.wake_all();
        }
    }
}

#[cfg(test)]
mod tests;
