//! Questions that capabilities come with the answers of; all others go by NFS, and what they wish for is asked for behind them.

use std::rc::Rc;

use holdfast_base::Cookie;
use holdfast_base::limits::CAPS_ITEMS_MAX;
use holdfast_cache::{Answer, Ask, Attrs, CapSet, Errno, Grant, Handle, Name, Question, Release};
use holdfast_volume::convert;
use holdfast_wire::caps::{
    self as wire, AcquireArgs, AcquireItem, AcquireOk, CapsProc, CapsStat, Features, FindOk, ListArgs,
    ListOk, LookupArgs, LookupOk, ReleaseArgs, ReleaseItem, ReleaseOk, WhoAmIArgs, WhoAmIOk,
};

use super::Mount;
use super::calling::{DELAY_MAX, DELAY_MIN, Failure, checked, encoded, short};

/// What is asked for of each object, and what came of it.
type Acquired = Result<(Attrs, Grant), Errno>;

fn of_wire(handle: &Handle) -> wire::Handle<'_> {
    wire::Handle(handle.as_bytes())
}

impl Mount {
    /// Answers a question of the machine.
    pub(super) async fn answer(self: &Rc<Self>, ask: &Ask) -> Result<Answer, Errno> {
        let answer = self.answer_to(&ask.question).await;
        self.tell(|| format!("asked {}: {}", told_of(&ask.question), of_answer(&answer)));
        answer
    }

    pub(super) async fn answer_to(self: &Rc<Self>, question: &Question) -> Result<Answer, Errno> {
        match question {
            Question::Lookup { dir, name, want, want_dir } => {
                self.look_up((dir, name), (*want, *want_dir)).await.map_err(Failure::errno)
            }
            Question::List { dir, cookie, bytes_max, want, want_dir, .. } => {
                self.list((dir, *cookie, *bytes_max), (*want, *want_dir)).await.map_err(Failure::errno)
            }
            Question::Acquire { items } => Ok(Answer::Acquired { items: self.acquire(items).await? }),
            Question::GetAttr { object, want, .. } => {
                let (attrs, grant) = self.acquire_one(object, *want).await?;
                Ok(Answer::Attrs { attrs, grant: Some(grant) })
            }
            Question::WhoAmI => self.who_am_i().await.map_err(Failure::errno),
            other => {
                let answer = self.ask_by_nfs(other).await?;
                Ok(self.with_grants(other, answer).await)
            }
        }
    }

    async fn look_up(
        self: &Rc<Self>,
        (dir, name): (&Handle, &Name),
        (want, want_dir): (CapSet, CapSet),
    ) -> Result<Answer, Failure> {
        let knows_names = self.greeting.get().is_some_and(|told| told.features.0 & Features::NAMES.0 != 0);
        let procedure = if knows_names { CapsProc::Find } else { CapsProc::Lookup };
        let args = |ticket| {
            encoded(&LookupArgs { ticket, dir: of_wire(dir), name: name.as_bytes(), want_dir, want })
        };
        let reply = self.call(procedure, args).await?;
        let told = if knows_names {
            checked::<FindOk<'_>>(&reply).map_err(Failure::Refused)?
        } else {
            FindOk { looked: checked::<LookupOk<'_>>(&reply).map_err(Failure::Refused)?, promise: None }
        };
        Ok(convert::looked(&told))
    }

    async fn list(
        self: &Rc<Self>,
        (dir, cookie, bytes_max): (&Handle, u64, u32),
        (want, want_dir): (CapSet, CapSet),
    ) -> Result<Answer, Failure> {
        let args = |ticket| {
            let (dir, cookie) = (of_wire(dir), Cookie(cookie));
            encoded(&ListArgs { ticket, dir, cookie, bytes_max, want_dir, want })
        };
        let reply = self.call(CapsProc::List, args).await?;
        let told: ListOk<'_> = checked(&reply).map_err(Failure::Refused)?;
        Ok(convert::listed(&told))
    }

    pub(super) async fn acquire(self: &Rc<Self>, items: &[(Handle, CapSet)]) -> Result<Vec<Acquired>, Errno> {
        let mut all = Vec::with_capacity(items.len());
        for some in items.chunks(CAPS_ITEMS_MAX) {
            all.extend(self.acquire_some(some).await.map_err(Failure::errno)?);
        }
        Ok(all)
    }

    /// Asks again for those that others still have to give back.
    async fn acquire_some(self: &Rc<Self>, items: &[(Handle, CapSet)]) -> Result<Vec<Acquired>, Failure> {
        let mut results = vec![Err(Errno::EAGAIN); items.len()];
        let mut left: Vec<usize> = (0..items.len()).collect();
        let mut pause = DELAY_MIN;
        loop {
            let item = |at: &usize| AcquireItem { handle: of_wire(&items[*at].0), want: items[*at].1 };
            let args = |ticket| encoded(&AcquireArgs { ticket, items: left.iter().map(item).collect() });
            let reply = self.call(CapsProc::Acquire, args).await?;
            let told: AcquireOk = checked(&reply).map_err(Failure::Refused)?;
            let mut delayed = Vec::new();
            for (at, told) in left.iter().copied().zip(told.items) {
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
            self.world.exec.sleep(pause).await;
            pause = (pause * 2).min(DELAY_MAX);
        }
    }

    pub(super) async fn acquire_one(self: &Rc<Self>, object: &Handle, want: CapSet) -> Acquired {
        let mut told = self.acquire(&[(object.clone(), want)]).await?;
        told.pop().unwrap_or(Err(Errno::EIO))
    }

    async fn who_am_i(self: &Rc<Self>) -> Result<Answer, Failure> {
        let root = self.root.borrow().clone().ok_or(Failure::Refused(CapsStat::ServerFault))?;
        let args = |ticket| encoded(&WhoAmIArgs { ticket, handle: of_wire(&root) });
        let reply = self.call(CapsProc::WhoAmI, args).await?;
        let told: WhoAmIOk = checked(&reply).map_err(Failure::Refused)?;
        Ok(Answer::Acts(convert::acting(told)))
    }

    async fn with_grants(self: &Rc<Self>, question: &Question, mut answer: Answer) -> Answer {
        let (object_want, dir_want) = convert::wishes(question, &answer);
        let items: Vec<_> = [&object_want, &dir_want].into_iter().flatten().cloned().collect();
        if items.is_empty() {
            return answer;
        }
        let Ok(told) = self.acquire(&items).await else { return answer };
        let mut told = told.into_iter();
        let of_object = object_want.and_then(|_| told.next()?.ok());
        let of_dir = dir_want.and_then(|_| told.next()?.ok());
        convert::grant_wishes(&mut answer, of_object, of_dir);
        answer
    }

    /// Gives capabilities back. What the server did not take, as a grant had come before it, is told to the machine.
    pub(super) async fn give_back(self: &Rc<Self>, releases: &[Release]) -> Result<(), Failure> {
        for some in releases.chunks(CAPS_ITEMS_MAX) {
            let item = |of: &'_ Release| (of.handle.clone(), of.keep, of.seq);
            let given: Vec<_> = some.iter().map(item).collect();
            self.tell(|| {
                let each =
                    given.iter().map(|(of, keep, seq)| format!("{} keeps {keep:?} ({seq})", short(of)));
                format!("gives back: {}", each.collect::<Vec<_>>().join(", "))
            });
            let args = |ticket| {
                let one = |(handle, keep, seq): &'_ (Handle, CapSet, u64)| (handle.clone(), *keep, *seq);
                let owned: Vec<_> = given.iter().map(one).collect();
                let items = owned.iter().map(|(handle, keep, seq)| ReleaseItem {
                    handle: of_wire(handle),
                    keep: *keep,
                    seq: *seq,
                });
                encoded(&ReleaseArgs { ticket, items: items.collect() })
            };
            let is_of_this_life =
                |one| self.touch(|machine, _| machine.is_of_this_life(one)).unwrap_or_default();
            let is_due = || some.first().is_none_or(is_of_this_life);
            let reply = self.call_while(is_due, CapsProc::Release, args).await?;
            let told: ReleaseOk = checked(&reply).map_err(Failure::Refused)?;
            for (release, told) in some.iter().zip(told.items) {
                if told.into_result() == Err(CapsStat::Crossed) {
                    self.touched(|machine, _| machine.release_crossed(&release.handle));
                }
            }
        }
        Ok(())
    }
}

/// A question, for people.
fn told_of(question: &Question) -> String {
    let mut words = format!("{question:?}");
    words.truncate(160);
    words
}

fn of_answer(answer: &Result<Answer, Errno>) -> String {
    let mut words = format!("{answer:?}");
    words.truncate(200);
    words
}
