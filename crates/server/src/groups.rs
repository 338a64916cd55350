//! Groups of users as the server's own user database knows them, looked up by a thread of its own: a directory
//! service behind NSS may take seconds, and no call waits for it. A user's first call goes by the groups it
//! carries itself; those after the answer came go by the server's.

use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_export::GroupSource;
use parking_lot::RwLock;
use rustc_hash::FxHashMap;

/// How long an answer counts: a change of groups is seen within five minutes, as with other servers.
const FRESH: Duration = Duration::from_secs(300);

/// Users remembered; beyond, all are forgotten at once and asked for again.
const USERS_MAX: usize = 16_384;

/// Questions that may wait; more are dropped and asked again by the user's next call.
const QUEUE_MAX: usize = 1024;

#[derive(Clone)]
struct Known {
    groups: Option<Arc<[u32]>>,
    asked_at: Instant,
}

type Table = Arc<RwLock<FxHashMap<u32, Known>>>;

/// A [`GroupSource`] over the name service switch.
#[derive(Debug)]
pub(crate) struct NssGroups {
    table: Table,
    ask: SyncSender<u32>,
}

impl std::fmt::Debug for Known {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.groups)
    }
}

impl NssGroups {
    /// Starts the thread that asks.
    ///
    /// # Errors
    /// When no thread can be had.
    pub(crate) fn start() -> std::io::Result<Self> {
        let table: Table = Arc::default();
        let (ask, questions) = sync_channel::<u32>(QUEUE_MAX);
        let answers = table.clone();
        thread::Builder::new().name("groups".into()).spawn(move || {
            for uid in questions {
                let groups = crate::nss::groups_of(uid);
                let mut table = answers.write();
                if table.len() >= USERS_MAX {
                    table.clear();
                }
                table.insert(uid, Known { groups, asked_at: Instant::now() });
            }
        })?;
        Ok(Self { table, ask })
    }
}

impl GroupSource for NssGroups {
    fn groups_of(&self, uid: u32) -> Option<Arc<[u32]>> {
        let known = self.table.read().get(&uid).cloned();
        if known.as_ref().is_none_or(|k| k.asked_at.elapsed() > FRESH) {
            match self.ask.try_send(uid) {
                Ok(()) | Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {}
            }
        }
        known.and_then(|k| k.groups)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_comes_without_the_asker_waiting() {
        let source = NssGroups::start().unwrap();
        let end = Instant::now() + Duration::from_secs(10);
        while source.groups_of(0).is_none() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        assert!(source.groups_of(0).unwrap().contains(&0));
    }

    #[test]
    fn an_unknown_user_has_no_groups() {
        assert_eq!(crate::nss::groups_of(4_000_000_123), None);
    }
}
