//! The server's own user database, asked without making anybody wait: a directory service behind it may take
//! seconds.

mod groups;
mod names;
mod sys;

use std::hash::Hash;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

pub(crate) use groups::NssGroups;
pub(crate) use names::NssNames;

/// How long an answer counts: a change is seen within five minutes, as with other servers.
const FRESH: Duration = Duration::from_secs(300);

/// Answers remembered; beyond, those on users that do not exist are forgotten, and all when that is not enough.
const ANSWERS_MAX: usize = 16_384;

/// Questions that may wait; more are dropped, and asked again by the next call that has them.
const QUEUE_MAX: usize = 1024;

/// What is known of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known<A> {
    /// The database was asked: this is what it said, `None` for an unknown user.
    Answer(Option<A>),
    /// It is being asked.
    NotYet,
}

#[derive(Clone)]
struct Entry<A> {
    answer: Option<A>,
    asked_at: Instant,
}

type Table<Q, A> = Arc<RwLock<FxHashMap<Q, Entry<A>>>>;

/// Answers to questions of one kind, with the thread that asks them.
pub(crate) struct Directory<Q, A> {
    table: Table<Q, A>,
    ask: SyncSender<Q>,
}

impl<Q, A> Directory<Q, A>
where
    Q: Clone + Eq + Hash + Send + Sync + 'static,
    A: Clone + Send + Sync + 'static,
{
    /// Starts the thread. `find` may take as long as it likes.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(crate) fn start(name: &str, find: fn(&Q) -> Option<A>) -> io::Result<Self> {
        let table: Table<Q, A> = Arc::default();
        let (ask, questions) = sync_channel::<Q>(QUEUE_MAX);
        let answers = Arc::clone(&table);
        thread::Builder::new().name(name.into()).spawn(move || {
            for question in questions {
                let is_fresh = answers.read().get(&question).is_some_and(|e| e.asked_at.elapsed() <= FRESH);
                if is_fresh {
                    // Asked several times while it waited.
                    continue;
                }
                let answer = find(&question);
                let mut table = answers.write();
                make_room(&mut table, ANSWERS_MAX);
                table.insert(question, Entry { answer, asked_at: Instant::now() });
            }
        })?;
        Ok(Self { table, ask })
    }

    /// What is known now; an old answer counts until the new one is there.
    pub(crate) fn look(&self, question: &Q) -> Known<A> {
        let entry = self.table.read().get(question).cloned();
        if entry.as_ref().is_none_or(|e| e.asked_at.elapsed() > FRESH) {
            // A full queue drops the question: the next call asks again.
            let _ = self.ask.try_send(question.clone());
        }
        entry.map_or(Known::NotYet, |e| Known::Answer(e.answer))
    }
}

/// Makes room for one more. Who asks with numbers of nobody, one after the other, must not push out the answers that
/// others live on.
fn make_room<Q, A>(table: &mut FxHashMap<Q, Entry<A>>, answers_max: usize) {
    if table.len() >= answers_max {
        table.retain(|_, entry| entry.answer.is_some());
    }
    if table.len() >= answers_max {
        table.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn numbers_of_nobody_push_out_no_answer_on_somebody() {
        let entry = |answer| Entry { answer, asked_at: Instant::now() };
        let mut table: FxHashMap<u32, Entry<u32>> = (0..9).map(|n| (n, entry(None))).collect();
        table.insert(9, entry(Some(9)));
        make_room(&mut table, 10);
        assert_eq!(table.keys().copied().collect::<Vec<_>>(), [9]);
        make_room(&mut table, 1);
        assert!(table.is_empty());
    }

    /// Asks until there is an answer, as clients do.
    pub(super) fn wait<A>(mut look: impl FnMut() -> Known<A>) -> Option<A> {
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            if let Known::Answer(answer) = look() {
                return answer;
            }
            thread::sleep(Duration::from_millis(2));
        }
        panic!("no answer within ten seconds");
    }

    #[test]
    fn an_answer_comes_without_the_asker_waiting() {
        static GOES_ON: AtomicBool = AtomicBool::new(false);
        let slow = Directory::<u32, u32>::start("slow", |q| {
            let begun = Instant::now();
            while !GOES_ON.load(Ordering::SeqCst) && begun.elapsed() < Duration::from_secs(10) {
                thread::sleep(Duration::from_millis(1));
            }
            (*q != 7).then_some(q + 1)
        })
        .unwrap();
        let begun = Instant::now();
        assert_eq!(slow.look(&1), Known::NotYet);
        assert!(begun.elapsed() < Duration::from_secs(8));
        GOES_ON.store(true, Ordering::SeqCst);
        assert_eq!(wait(|| slow.look(&1)), Some(2));
        assert_eq!(wait(|| slow.look(&7)), None);
    }
}
