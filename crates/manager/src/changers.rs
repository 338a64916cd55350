//! Who waits to change what, for something that was promised to others to be given back.
//!
//! A client whose kernel keeps data of a file beside its writers gives that back when its own writes to it are done, for their
//! pages are locked. Two that write to one file, or to two crosswise, would each wait for the other's write. So nobody waits
//! for a client that waits itself: what that keeps counts as given back (`Engine::caps_yield`). And who wants to keep something
//! beside a writer does not overtake one who waits.

use holdfast_base::{ClientId, FileKey};
use parking_lot::Mutex;

/// Those who wait, one entry a call: as many as may wait for recalls at once, which is few.
#[derive(Debug, Default)]
pub(crate) struct Changers(Mutex<Vec<(ClientId, FileKey)>>);

/// One who waits.
#[must_use]
pub(crate) struct Waiting<'c> {
    all: &'c Changers,
    who: (ClientId, FileKey),
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut all = self.all.0.lock();
        if let Some(at) = all.iter().position(|who| *who == self.who) {
            all.swap_remove(at);
        }
    }
}

impl Changers {
    pub(crate) fn enter(&self, client: ClientId, file: FileKey) -> Waiting<'_> {
        let who = (client, file);
        self.0.lock().push(who);
        Waiting { all: self, who }
    }

    /// Clients that wait, but this one.
    pub(crate) fn others(&self, than: ClientId) -> Vec<ClientId> {
        let all = self.0.lock();
        let mut others: Vec<_> = all.iter().map(|(client, _)| *client).filter(|c| *c != than).collect();
        others.sort_unstable();
        others.dedup();
        others
    }

    /// Whether anybody but this client waits to change a file.
    pub(crate) fn has_other(&self, than: ClientId, file: FileKey) -> bool {
        self.0.lock().iter().any(|(client, of)| *client != than && *of == file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_waits_is_there_until_he_has_gone_as_often_as_he_came() {
        let (changers, [a, b], [one, two]) =
            (Changers::default(), [ClientId(1), ClientId(2)], [FileKey(1), FileKey(2)]);
        let first = changers.enter(a, one);
        let again = changers.enter(a, one);
        let other = changers.enter(b, two);
        assert_eq!((changers.others(a), changers.others(b)), (vec![b], vec![a]));
        drop(first);
        assert!(changers.has_other(b, one) && !changers.has_other(a, one) && !changers.has_other(b, two));
        drop((again, other));
        assert!(changers.others(a).is_empty() && !changers.has_other(b, one));
    }
}
