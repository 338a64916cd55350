//! Sending what the machine has to send: each job is a task of its own, as if there were as many threads.

use std::rc::Rc;

use holdfast_cache::{
    self as cache, Answer, Batch, Errno, Handle, Job, MutationResult, PoolOut, Question, Spare,
};
use holdfast_volume::convert;
use holdfast_volume::sheets::{Sheet, results};
use holdfast_wire::caps::{
    self as wire, BatchArgs, BatchHow, CapsProc, ForcedOk, PoolArgs, PoolOk, StableArgs, StableOk, TxnId,
    Until,
};

use super::Mount;
use super::calling::{Failure, checked, encoded};

/// How long is waited after what was lost, in milliseconds.
const LOST_PAUSE: u64 = 50;

impl Mount {
    pub(super) async fn perform(self: Rc<Self>, job: Job) {
        match job {
            Job::Releases(releases) => match self.give_back(&releases).await {
                Ok(()) => self.touched(|machine, _| machine.released(&releases)),
                Err(failure) => {
                    self.tell(|| format!("RELEASE: {failure:?}"));
                    self.world.exec.sleep(LOST_PAUSE).await;
                    self.touched(|machine, _| machine.releases_lost(releases));
                }
            },
            Job::Open(fh, object, access, _) => {
                let open = self.open_file(&object, access, false).await;
                let token = match open {
                    Ok(Answer::Opened { open, .. }) => open,
                    _ => None,
                };
                self.touched(|machine, _| machine.opened(fh, &object, token));
            }
            Job::Batch(batch) => self.send_batch(&batch).await,
            Job::Write(out) => {
                let written = self.write_out(&out).await;
                self.tell(|| format!("WRITE of {} bytes at {}: {written:?}", out.data.len(), out.offset));
                self.touched(|machine, now| machine.write_done(out.id, written, now));
            }
            Job::Commit(out) => {
                let committed = self.commit(&out.object).await;
                self.tell(|| format!("COMMIT: {committed:?}"));
                self.touched(|machine, now| machine.commit_done(out.id, committed, now));
            }
            Job::Stable(through) => self.settle(through).await,
            Job::Closes(closes) => {
                for (open, _) in closes {
                    let _ = self.close_file(open).await;
                }
            }
            Job::Removals(removals) => {
                for (dir, name, _) in removals {
                    let want_dir = holdfast_cache::CapSet::NONE;
                    let remove = Question::Remove { dir, name, is_dir: false, victim: None, want_dir };
                    let _ = self.answer_to(&remove).await;
                }
            }
            Job::Pool(out) => {
                let told = match self.pool(&out).await {
                    Ok(spare) => Some(Ok(spare)),
                    Err(Failure::Refused(stat)) => Some(Err(convert::errno_of(stat.as_u32()))),
                    Err(Failure::Unawaited) => None,
                };
                self.touched(|machine, now| machine.pool_done(&out, told, now));
            }
        }
    }

    async fn send_batch(self: &Rc<Self>, batch: &Batch) {
        let sheet = Sheet::of(batch);
        let is_resent = self.ledger.borrow_mut().sends(batch, &sheet.starts);
        let until = match batch.until {
            cache::Until::Executed => Until::Executed,
            cache::Until::Stable => Until::Stable,
        };
        self.tell(|| {
            let again = if is_resent { " again" } else { "" };
            format!("batch {}{again}, until {until:?}: {}", batch.txn, words(batch))
        });
        // As a thread waits for the end of a greeting before it looks whether it is waited for.
        let awaits = |machine: &cache::Machine| machine.awaits(batch) && !machine.is_superseded(batch);
        let is_awaited = || self.touch(|machine, _| awaits(machine)).unwrap_or(false);
        let args = |ticket| {
            let done_through = self.ledger.borrow().done_through();
            let ops = sheet.ops.clone();
            let how = BatchHow { is_resent, until };
            encoded(&BatchArgs { ticket, txn: TxnId(batch.txn), how, done_through, ops })
        };
        let reply = self.call_while(is_awaited, CapsProc::Batch, args).await;
        let done: Result<Done, _> = reply.and_then(|reply| {
            let told = match until {
                Until::Executed => checked(&reply).map(|batch| ForcedOk { batch, failed: Vec::new() }),
                Until::Stable => checked::<ForcedOk<'_>>(&reply),
            };
            let ForcedOk { batch: told, failed } = told.map_err(Failure::Refused)?;
            let failed = self.ledger.borrow().failed(&failed);
            let failed = failed.iter().map(|of| (of.txn, of.place, of.errno)).collect();
            Ok((results(&sheet.starts, &told), told.stable_through.0, failed))
        });
        if done == Err(Failure::Unawaited) {
            self.world.exec.sleep(LOST_PAUSE).await;
        }
        self.tell(|| format!("batch {} is answered: {}", batch.txn, outcome(&done)));
        self.touched(|machine, now| match done {
            Ok((results, stable, failed)) => {
                machine.batch_answered(batch, results, (stable, &failed), now);
            }
            Err(_) if !machine.awaits(batch) || machine.is_superseded(batch) => {}
            Err(Failure::Unawaited) => machine.batch_lost(batch.txn),
            Err(Failure::Refused(stat)) => {
                let errno = Failure::Refused(stat).errno();
                let failed = batch.ops.iter().map(|_| MutationResult::Failed(errno)).collect();
                machine.batch_done(batch.txn, failed, 0, now);
            }
        });
    }

    async fn settle(self: &Rc<Self>, through: u64) {
        let args = |ticket| {
            let done_through = self.ledger.borrow().done_through();
            encoded(&StableArgs { ticket, through: TxnId(through), done_through })
        };
        let reply = self.call(CapsProc::Stable, args).await;
        let told = reply.and_then(|reply| checked::<StableOk>(&reply).map_err(Failure::Refused));
        self.tell(|| format!("STABLE {through}: {told:?}"));
        let is_short = !matches!(&told, Ok(told) if told.stable_through.0 >= through);
        if is_short {
            self.world.exec.sleep(LOST_PAUSE).await;
        }
        match told {
            Ok(told) => {
                let failed = self.ledger.borrow().failed(&told.failed);
                let failed: Vec<_> = failed.iter().map(|of| (of.txn, of.place, of.errno)).collect();
                self.touched(|machine, now| machine.stable_done(told.stable_through.0, &failed, now));
            }
            Err(_) => self.touched(|machine, _| machine.stable_lost()),
        }
    }

    async fn pool(self: &Rc<Self>, out: &PoolOut) -> Result<Vec<Spare>, Failure> {
        let args = |ticket| {
            let back: Vec<_> = out.back.iter().map(|handle| wire::Handle(handle.as_bytes())).collect();
            encoded(&PoolArgs { ticket, dir: wire::Handle(out.dir.as_bytes()), count: out.count, back })
        };
        let reply = self.call(CapsProc::Pool, args).await?;
        let told: PoolOk<'_> = checked(&reply).map_err(Failure::Refused)?;
        let spare =
            |file: &wire::Pooled<'_>| Spare { handle: Handle::new(file.handle.0), fileid: file.fileid };
        Ok(told.files.iter().map(spare).collect())
    }
}

/// What was told of a batch: what came of it, through which all is on the disk, and what is not all the same.
type Done = (Vec<MutationResult>, u64, Vec<(u64, u32, Errno)>);

/// What was told of a batch, for people.
fn outcome(done: &Result<Done, Failure>) -> String {
    match done {
        Ok((results, stable, failed)) => {
            let word = |result: &MutationResult| match result {
                MutationResult::Done { other_name: Some(name), .. } => {
                    format!("kept as {}", String::from_utf8_lossy(name.as_bytes()))
                }
                MutationResult::Done { .. } => "done".into(),
                other => format!("{other:?}"),
            };
            let words: Vec<_> = results.iter().map(word).collect();
            format!("{} (stable through {stable}, failed {failed:?})", words.join(", "))
        }
        Err(failure) => format!("{failure:?}"),
    }
}

fn words(batch: &Batch) -> String {
    let word = |op: &holdfast_cache::Mutation| {
        let mut words = format!("{op:?}");
        words.truncate(120);
        words
    };
    batch.ops.iter().map(word).collect::<Vec<_>>().join("; ")
}
