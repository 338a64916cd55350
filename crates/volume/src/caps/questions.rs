//! Questions that capabilities come with the answers of. All others go by NFS alone.

use holdfast_base::Cookie;
use holdfast_base::limits::CAPS_ITEMS_MAX;
use holdfast_cache::{
    AllocateMode, Answer, Ask, Attrs, CapSet, Errno, Grant, Handle, Name, Question, Release, RenameMode,
    is_access_list,
};
use holdfast_client::{Cancel, Cred};
use holdfast_wire::caps::{
    AcquireArgs, AcquireItem, AcquireOk, CapsProc, CapsStat, Features, FindOk, ListArgs, ListOk, LookupArgs,
    LookupOk, ReleaseArgs, ReleaseItem, ReleaseOk, WhoAmIArgs, WhoAmIOk,
};

use super::calling::{DELAY_MAX, DELAY_MIN, decode, pause_for, put};
use super::{Failure, Inner, convert};
use crate::server::{Server as _, Undone};

/// What is asked for of each object, and what came of it.
type Acquired = Result<(Attrs, Grant), Errno>;

fn of_wire(handle: &Handle) -> holdfast_wire::caps::Handle<'_> {
    holdfast_wire::caps::Handle(handle.as_bytes())
}

impl Inner {
    pub(super) fn answer(&self, ask: &Ask, cancel: &Cancel) -> Result<Answer, Errno> {
        let cred = self.nfs.cred(&ask.caller);
        tracing::trace!(question = ?ask.question, "asked");
        let answer = self.answer_with(ask, &cred, cancel);
        tracing::trace!(?answer, "answered");
        answer
    }

    fn answer_with(&self, ask: &Ask, cred: &Cred, cancel: &Cancel) -> Result<Answer, Errno> {
        self.make_way(&ask.question);
        match &ask.question {
            Question::Lookup { dir, name, want, want_dir } => {
                self.look_up((dir, name), (*want, *want_dir), cred, cancel).map_err(Failure::errno)
            }
            Question::List { dir, cookie, bytes_max, want, want_dir, .. } => self
                .list((dir, *cookie), *bytes_max, (*want, *want_dir), cred, cancel)
                .map_err(Failure::errno),
            Question::Acquire { items } => {
                let items = self.acquire(items, cred, cancel).map_err(Failure::errno)?;
                Ok(Answer::Acquired { items })
            }
            Question::GetAttr { object, want, .. } if !want.is_empty() => {
                let (attrs, grant) = self.acquire_one(object, *want, cred, cancel)?;
                Ok(Answer::Attrs { attrs, grant: Some(grant) })
            }
            Question::WhoAmI => self.who_am_i(cred, cancel).map_err(Failure::errno),
            Question::Commit { .. } => self.commit_asked(ask, cancel),
            Question::GetXattr { object, name } if is_access_list(name.as_bytes()) => {
                self.access_list((object, name), cred, cancel).map_err(Failure::errno)
            }
            Question::SetXattr { object, name, value, mode } if is_access_list(name.as_bytes()) => {
                self.set_access_list((object, name), Some((value, *mode)), (ask, cred, cancel))
            }
            Question::RemoveXattr { object, name } if is_access_list(name.as_bytes()) => {
                self.set_access_list((object, name), None, (ask, cred, cancel))
            }
            Question::Nameless { dir, attrs, access, .. } => {
                let answer = self.nameless((dir, attrs), *access, (ask, cred, cancel))?;
                Ok(self.with_grants(&ask.question, answer, cred, cancel))
            }
            Question::Rename { from_dir, from, to_dir, to, mode, .. } if *mode != RenameMode::Replace => {
                let answer = self.rename_aside((from_dir, from), (to_dir, to), *mode, (ask, cred, cancel))?;
                Ok(self.with_grants(&ask.question, answer, cred, cancel))
            }
            Question::Allocate { object, open, mode: AllocateMode::KeepSize, offset, length } => {
                self.reserve(object, (*offset, *length), open.is_some(), (ask, cred, cancel))
            }
            Question::Allocate { mode: AllocateMode::ZeroRangeKeepSize, .. } => {
                self.zero_within_size((ask, cred, cancel))
            }
            Question::Append { object, open, data } => {
                let mut answer = self.append((object, data), open.is_some(), (ask, cred, cancel))?;
                self.answered_by_wire(&ask.question, &mut answer);
                Ok(answer)
            }
            _ => {
                if let Some(answer) = self.read_here(ask, cancel) {
                    return Ok(answer);
                }
                let mut answer = self.nfs.perform(ask, cancel)?;
                self.answered_by_wire(&ask.question, &mut answer);
                Ok(self.with_grants(&ask.question, answer, cred, cancel))
            }
        }
    }

    fn look_up(
        &self,
        (dir, name): (&Handle, &Name),
        (want, want_dir): (CapSet, CapSet),
        cred: &Cred,
        cancel: &Cancel,
    ) -> Result<Answer, Failure> {
        let args = |ticket| LookupArgs { ticket, dir: of_wire(dir), name: name.as_bytes(), want_dir, want };
        let knows_names = self.greeting.read().is_some_and(|told| told.features.contains(Features::NAMES));
        let procedure = if knows_names { CapsProc::Find } else { CapsProc::Lookup };
        let reply = self.call(procedure, cred, cancel, |ticket, w| put(&args(ticket), w))?;
        let told = if knows_names {
            decode::<FindOk<'_>>(&reply)?
        } else {
            FindOk { looked: decode::<LookupOk<'_>>(&reply)?, promise: None }
        };
        Ok(convert::looked(&told))
    }

    fn list(
        &self,
        (dir, cookie): (&Handle, u64),
        bytes_max: u32,
        (want, want_dir): (CapSet, CapSet),
        cred: &Cred,
        cancel: &Cancel,
    ) -> Result<Answer, Failure> {
        let args = |ticket| ListArgs {
            ticket,
            dir: of_wire(dir),
            cookie: Cookie(cookie),
            bytes_max,
            want_dir,
            want,
        };
        let reply = self.call(CapsProc::List, cred, cancel, |ticket, w| put(&args(ticket), w))?;
        let told: ListOk<'_> = decode(&reply)?;
        Ok(convert::listed(&told))
    }

    fn acquire(
        &self,
        items: &[(Handle, CapSet)],
        cred: &Cred,
        cancel: &Cancel,
    ) -> Result<Vec<Acquired>, Failure> {
        let mut all = Vec::with_capacity(items.len());
        for some in items.chunks(CAPS_ITEMS_MAX) {
            all.extend(self.acquire_some(some, cred, cancel)?);
        }
        Ok(all)
    }

    /// Asks again for those that others still have to give back.
    fn acquire_some(
        &self,
        items: &[(Handle, CapSet)],
        cred: &Cred,
        cancel: &Cancel,
    ) -> Result<Vec<Acquired>, Failure> {
        let mut results = vec![Err(Errno::EAGAIN); items.len()];
        let mut left: Vec<usize> = (0..items.len()).collect();
        let mut pause = DELAY_MIN;
        loop {
            let reply = self.call(CapsProc::Acquire, cred, cancel, |ticket, w| {
                let item = |at: &usize| {
                    let (handle, want) = &items[*at];
                    AcquireItem { handle: of_wire(handle), want: *want }
                };
                put(&AcquireArgs { ticket, items: left.iter().map(item).collect() }, w);
            })?;
            let told: AcquireOk = decode(&reply)?;
            let mut delayed = Vec::new();
            for (at, told) in left.into_iter().zip(told.items) {
                match told.into_result() {
                    Ok(got) => results[at] = Ok((convert::attrs(&got.attrs), convert::grant(got.grant))),
                    Err(CapsStat::Delay | CapsStat::Grace) => delayed.push(at),
                    Err(stat) => results[at] = Err(convert::errno_of(stat.as_u32())),
                }
            }
            if delayed.is_empty() {
                return Ok(results);
            }
            left = delayed;
            pause_for(pause, cancel)?;
            pause = (pause * 2).min(DELAY_MAX);
        }
    }

    fn acquire_one(&self, object: &Handle, want: CapSet, cred: &Cred, cancel: &Cancel) -> Acquired {
        let mut told = self.acquire(&[(object.clone(), want)], cred, cancel).map_err(Failure::errno)?;
        told.pop().unwrap_or(Err(Errno::EIO))
    }

    pub(super) fn who_am_i(&self, cred: &Cred, cancel: &Cancel) -> Result<Answer, Failure> {
        let reply = self.call(CapsProc::WhoAmI, cred, cancel, |ticket, w| {
            put(&WhoAmIArgs { ticket, handle: of_wire(&self.root) }, w);
        })?;
        let told: WhoAmIOk = decode(&reply)?;
        Ok(Answer::Acts(convert::acting(told)))
    }

    /// What was done by NFS brings no capabilities; what the question wished for is asked for behind it. Without them the
    /// answer is as good.
    fn with_grants(&self, question: &Question, mut answer: Answer, cred: &Cred, cancel: &Cancel) -> Answer {
        let (object_want, dir_want) = convert::wishes(question, &answer);
        let items: Vec<_> = [&object_want, &dir_want].into_iter().flatten().cloned().collect();
        if items.is_empty() {
            return answer;
        }
        let Ok(told) = self.acquire(&items, cred, cancel) else { return answer };
        let mut told = told.into_iter();
        let of_object = object_want.and_then(|_| told.next()?.ok());
        let of_dir = dir_want.and_then(|_| told.next()?.ok());
        convert::grant_wishes(&mut answer, of_object, of_dir);
        answer
    }

    pub(super) fn give_back(&self, releases: &[Release], cancel: &Cancel) -> Result<(), Undone> {
        for some in releases.chunks(CAPS_ITEMS_MAX) {
            let item = |release: &'_ Release| (release.handle.clone(), release.keep, release.seq);
            let given: Vec<_> = some.iter().map(item).collect();
            if let Some(neighbour) = self.neighbour.get() {
                some.iter().for_each(|release| neighbour.keep(&release.handle, release.keep));
            }
            // All of these came out together.
            let is_due =
                || self.promises().zip(some.first()).is_none_or(|(promises, one)| promises.is_due(one));
            let reply = self.call_while(&is_due, CapsProc::Release, &Cred::own(), cancel, |ticket, w| {
                let items = given.iter().map(|(handle, keep, seq)| ReleaseItem {
                    handle: of_wire(handle),
                    keep: *keep,
                    seq: *seq,
                });
                put(&ReleaseArgs { ticket, items: items.collect() }, w);
            });
            let reply = reply.map_err(Failure::undone)?;
            let told: ReleaseOk = decode(&reply).map_err(Failure::undone)?;
            for (release, told) in some.iter().zip(told.items) {
                if told.into_result() == Err(CapsStat::Crossed)
                    && let Some(promises) = self.promises()
                {
                    promises.crossed(&release.handle);
                }
            }
        }
        Ok(())
    }
}
