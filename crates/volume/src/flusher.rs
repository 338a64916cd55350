//! Sending what the machine has to send: several threads do the same, each takes the next thing there is.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use holdfast_cache::{
    Access, Answer, Batch, Caller, CommitOut, Errno, Fh, Handle, Job, Question, Release, WriteOut, Written,
};

use crate::alarm::Woken;
use crate::server::{FailedLater, Undone};
use crate::volume::Shared;

/// How long a flusher waits after a call that was lost, before the same is sent again: the connection is made anew in the
/// meantime.
const LOST_PAUSE: Duration = Duration::from_millis(50);

/// Works until the volume is closed or given up.
pub(crate) fn run(shared: &Shared) {
    loop {
        match shared.alarm.sleep(|| shared.now().mono) {
            Woken::Job(job) => {
                shared.counters.sent.fetch_add(1, Ordering::Relaxed);
                perform(shared, job);
            }
            Woken::Look => shared.look_for_work(shared.machine.lock()),
            Woken::Over => return,
        }
        if shared.given_up.is_cancelled() {
            return;
        }
    }
}

fn perform(shared: &Shared, job: Job) {
    // What goes out must come out again as it was, if this process dies; and what was given back must not.
    if matches!(job, Job::Batch(_) | Job::Write(_) | Job::Releases(_)) && !shared.may_send() {
        pause(shared);
        return withhold(shared, job);
    }
    match job {
        Job::Releases(releases) => release(shared, releases),
        Job::Open(fh, object, access, caller) => open(shared, (fh, object, access, caller)),
        Job::Batch(batch) => send_batch(shared, &batch),
        Job::Write(write) => send_write(shared, &write),
        Job::Commit(commit) => send_commit(shared, &commit),
        Job::Stable(through) => settle(shared, through),
        Job::Closes(closes) => closes.iter().for_each(|(open, caller)| {
            let _ = quietly(shared, caller, Question::Close { open: *open });
        }),
        Job::Removals(removals) => removals.into_iter().for_each(|(dir, name, caller)| {
            let want_dir = holdfast_cache::CapSet::NONE;
            let remove = Question::Remove { dir, name, is_dir: false, victim: None, want_dir };
            let _ = quietly(shared, &caller, remove);
        }),
        Job::Pool(out) => {
            let done = shared.server.pool(&out, &shared.given_up);
            let told = match done {
                Ok(files) => Some(Ok(files)),
                Err(Undone::Failed(errno)) => Some(Err(errno)),
                Err(Undone::Lost) => None,
            };
            let mut machine = shared.machine.lock();
            machine.pool_done(&out, told, shared.now());
            shared.look_for_work(machine);
        }
    }
}

/// What must not go out now comes out again.
fn withhold(shared: &Shared, job: Job) {
    let mut machine = shared.machine.lock();
    match job {
        Job::Releases(releases) => machine.releases_lost(releases),
        Job::Batch(batch) if machine.awaits(&batch) => machine.batch_lost(batch.txn),
        Job::Write(write) => machine.write_withheld(write.id, shared.now()),
        _ => {}
    }
    shared.look_for_work(machine);
}

/// Tells the server of an open. As long as it is not heard of its promises are not given back: the file might be gone before it
/// knows that somebody has it open.
fn open(shared: &Shared, (fh, object, access, caller): (Fh, Handle, Access, Caller)) {
    let want = holdfast_cache::CapSet::NONE;
    let question = Question::Open { object: object.clone(), access, truncate: false, want };
    let opened = quietly(shared, &caller, question);
    let is_lost = matches!(opened, Err(Errno::ETIMEDOUT | Errno::EHOSTUNREACH | Errno::EINTR));
    if is_lost {
        pause(shared);
    }
    let mut machine = shared.machine.lock();
    match opened {
        Ok(Answer::Opened { open, .. }) => machine.opened(fh, &object, open),
        _ if is_lost => machine.open_lost(fh),
        _ => machine.opened(fh, &object, None),
    }
    shared.look_for_work(machine);
}

/// Asks something that no application waits for.
fn quietly(shared: &Shared, caller: &Caller, question: Question) -> Result<Answer, Errno> {
    let at = holdfast_cache::Generation::default();
    let ask = holdfast_cache::Ask { at, caller: caller.clone(), question };
    let answer = shared.server.perform(&ask, &shared.given_up);
    answer.inspect_err(|errno| tracing::debug!(%errno, question = ?ask.question, "in the background"))
}

/// Waits a moment, so that what was lost is not lost again at once, a thousand times a second.
fn pause(shared: &Shared) {
    // Given up or not, it goes on.
    let _ = shared.given_up.sleep_until(Instant::now() + LOST_PAUSE);
}

/// What was not lost was answered.
fn heard<T>(shared: &Shared, done: &Result<T, Undone>) {
    if !matches!(done, Err(Undone::Lost)) {
        shared.patience.heard();
    }
}

fn release(shared: &Shared, releases: Vec<Release>) {
    let done = shared.server.release(&releases, &shared.given_up);
    if done.is_err() {
        pause(shared);
    }
    let mut machine = shared.machine.lock();
    match done {
        Ok(()) => machine.released(&releases),
        Err(_) => machine.releases_lost(releases),
    }
    shared.look_for_work(machine);
}

/// What could not be put on the disk, as the machine is told of it.
fn places(failed: &[FailedLater]) -> Vec<(u64, u32, Errno)> {
    failed.iter().map(|of| (of.txn, of.place, of.errno)).collect()
}

fn send_batch(shared: &Shared, batch: &Batch) {
    let started = Instant::now();
    let done = shared.sending().map_or(Err(Undone::Lost), |sending| shared.server.batch(batch, &sending));
    shared.counters.batch(started.elapsed(), batch.ops.len());
    heard(shared, &done);
    if matches!(done, Err(Undone::Lost)) {
        pause(shared);
    }
    let now = shared.now();
    let mut machine = shared.machine.lock();
    match done {
        Ok(done) => {
            let told = (done.stable_through, &places(&done.failed)[..]);
            machine.batch_answered(batch, done.results, told, now);
        }
        // Who sends it again hears what has become of it.
        Err(_) if !machine.awaits(batch) || machine.is_superseded(batch) => {}
        Err(Undone::Failed(errno)) => {
            // The server refuses the call as a whole, and would again: every operation of it has failed.
            let failed = batch.ops.iter().map(|_| holdfast_cache::MutationResult::Failed(errno)).collect();
            machine.batch_done(batch.txn, failed, 0, now);
        }
        Err(Undone::Lost) => machine.batch_lost(batch.txn),
    }
    shared.look_for_work(machine);
}

fn send_write(shared: &Shared, write: &WriteOut) {
    let Some(sending) = shared.sending() else {
        pause(shared);
        let mut machine = shared.machine.lock();
        machine.write_withheld(write.id, shared.now());
        return shared.look_for_work(machine);
    };
    let started = Instant::now();
    let done = shared.server.write(write, &sending);
    shared.counters.write(started.elapsed(), write.data.len());
    heard(shared, &done);
    let done = match done {
        Ok(done) => Ok(Written { count: done.count, stable: done.stable, verifier: done.verifier }),
        Err(Undone::Failed(errno)) => Err(errno),
        Err(Undone::Lost) => {
            pause(shared);
            let mut machine = shared.machine.lock();
            machine.write_lost(write.id, shared.now());
            return shared.look_for_work(machine);
        }
    };
    let mut machine = shared.machine.lock();
    machine.write_done(write.id, done, shared.now());
    shared.look_for_work(machine);
}

fn send_commit(shared: &Shared, commit: &CommitOut) {
    let done = shared.server.commit(commit, &shared.given_up);
    heard(shared, &done);
    let done = match done {
        Ok(verifier) => Ok(verifier),
        Err(Undone::Failed(errno)) => Err(errno),
        Err(Undone::Lost) => {
            pause(shared);
            let mut machine = shared.machine.lock();
            machine.commit_lost(commit.id);
            return shared.look_for_work(machine);
        }
    };
    let mut machine = shared.machine.lock();
    machine.commit_done(commit.id, done, shared.now());
    shared.look_for_work(machine);
}

fn settle(shared: &Shared, through: u64) {
    let done = shared.server.stable(through, &shared.given_up);
    heard(shared, &done);
    if !matches!(&done, Ok(settled) if settled.through >= through) {
        pause(shared);
    }
    let mut machine = shared.machine.lock();
    match done {
        Ok(settled) => {
            machine.stable_done(settled.through, &places(&settled.failed), shared.now());
        }
        Err(Undone::Lost) => machine.stable_lost(),
        Err(Undone::Failed(errno)) => {
            tracing::warn!(%errno, through, "the server cannot put transactions on its disk; trying again");
            machine.stable_lost();
        }
    }
    shared.look_for_work(machine);
}

#[cfg(test)]
mod tests;
