//! Delegations as clients see them: what was given to whom under which filehandle, and the calls about it. Whether one
//! is given, what conflicts with it and when it is taken away is the state engine's to decide; that it holds before
//! every backend is the manager's.

use std::sync::Arc;

use holdfast_base::limits::DELEGATED_FILES_MAX;
use holdfast_base::{ClientId, FileKey};
use holdfast_export::WireHandle;
use holdfast_state::{Access, DelegationKind, DelegationToken, StateId};
use holdfast_vfs::FileObject;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::callback::Referred;

mod grant;
#[path = "../handover/delegations.rs"]
mod handover;
mod holder;
mod notify;
mod push;
mod recall;
pub(crate) mod times;
mod want;

pub(crate) use grant::{Asked, NotGiven, REPLY_BYTES, delegate};
pub(crate) use handover::{DelegationsImage, Unguarded};
pub(crate) use notify::Notifying;
pub(crate) use recall::Recall;
pub(crate) use want::{Wish, reclaimed, wish};

/// A client has at most one delegation of an object, so the two name it.
pub(crate) type Place = (ClientId, FileKey);

/// All delegations given out. The engine bounds their number.
#[derive(Default)]
pub(crate) struct Delegations {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    held: FxHashMap<Place, Held>,
    places: FxHashMap<DelegationToken, Place>,
    /// Objects of which a delegation is to be pushed once it can be had, as their clients know them. The engine bounds
    /// them.
    wanted: FxHashMap<Place, WireHandle>,
    /// Recalls that clients asked to be made later.
    put_off: FxHashMap<DelegationToken, Recall>,
    /// Open files kept.
    files: usize,
    /// Who is told of a directory's entries, or about to be.
    told: FxHashMap<FileKey, Vec<ClientId>>,
    /// What they have not been told.
    notices: FxHashMap<DelegationToken, notify::Notices>,
}

/// What is known of an object that a client has a delegation of, or is about to.
struct Held {
    /// As the client knows it.
    fh: WireHandle,
    /// The request that it came with, or is to.
    refers: Option<Referred>,
    given: Option<Given>,
    /// Requests about to be given one.
    expected: u32,
    /// What it is to tell of happened before it was given.
    is_overtaken: bool,
}

impl Held {
    const fn new(fh: WireHandle, refers: Option<Referred>) -> Self {
        Self { fh, refers, given: None, expected: 0, is_overtaken: false }
    }
}

/// A delegation given out.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) token: DelegationToken,
    pub(crate) stateid: StateId,
    pub(crate) kind: DelegationKind,
    /// The client tells the file's times (RFC 9754).
    pub(crate) has_times: bool,
    /// What its holder is told of a directory's entries.
    pub(crate) notifying: Option<Notifying>,
    /// An open file for I/O under it: of a write delegation, and of one that stands in an open's place.
    pub(crate) file: Option<DelegatedFile>,
}

/// An open file that a delegation keeps.
#[derive(Clone)]
pub(crate) struct DelegatedFile {
    pub(crate) file: Arc<dyn FileObject>,
    /// What it can do.
    pub(crate) access: Access,
    /// For whom it was opened.
    pub(crate) uid: u32,
}

/// A client about to be given a delegation: a recall that comes before the answer finds the filehandle.
pub(crate) struct Expecting<'d> {
    of: &'d Delegations,
    place: Place,
}

impl Delegations {
    /// `is_told`: of a directory whose entries it is to be told of.
    pub(crate) fn expect(
        &self,
        place: Place,
        fh: WireHandle,
        refers: Option<Referred>,
        is_told: bool,
    ) -> Expecting<'_> {
        let mut inner = self.inner.lock();
        if is_told {
            inner.tell(place);
        }
        let held = inner.held.entry(place).or_insert_with(|| Held::new(fh, refers));
        held.expected += 1;
        held.refers = refers.or(held.refers);
        Expecting { of: self, place }
    }

    /// The delegation that a client has of an object.
    pub(crate) fn of(&self, place: Place) -> Option<Given> {
        self.inner.lock().held.get(&place)?.given.clone()
    }

    /// The open file that a delegation keeps, when it can do this.
    pub(crate) fn file(&self, token: DelegationToken, access: Access) -> Option<DelegatedFile> {
        let inner = self.inner.lock();
        let given = inner.held.get(inner.places.get(&token)?)?.given.as_ref()?;
        given.file.clone().filter(|file| given.token == token && file.access.contains(access))
    }

    /// The open file is kept by an open as well. A write delegation keeps it all the same, as long as there are not too
    /// many: what its holder writes back after the CLOSE was permitted by the OPEN.
    pub(crate) fn let_go(&self, token: DelegationToken) {
        let mut inner = self.inner.lock();
        let Some(place) = inner.places.get(&token).copied() else { return };
        let has_room = inner.files <= DELEGATED_FILES_MAX;
        let Some(given) = inner.held.get_mut(&place).and_then(|held| held.given.as_mut()) else { return };
        let file = if given.kind == DelegationKind::Write && has_room { None } else { given.file.take() };
        inner.files -= usize::from(file.is_some());
        drop(inner);
        drop(file);
    }

    /// Where a client's calls about an object point: filehandle and request.
    fn point(&self, place: Place) -> Option<(WireHandle, Option<Referred>)> {
        self.inner.lock().held.get(&place).map(|held| (held.fh, held.refers))
    }

    /// It is no more. What it kept is given back, to be dropped outside the lock.
    pub(crate) fn ended(&self, token: DelegationToken) -> Option<Given> {
        let mut inner = self.inner.lock();
        inner.put_off.remove(&token);
        inner.notices.remove(&token);
        let place = inner.places.remove(&token)?;
        let held = inner.held.get_mut(&place)?;
        let given = held.given.take_if(|given| given.token == token);
        inner.files -= usize::from(given.as_ref().is_some_and(|given| given.file.is_some()));
        inner.forget_if_idle(place);
        given
    }

    /// Whether it is noted: one that ended meanwhile would stay for ever.
    fn put_off(&self, recall: Recall) -> bool {
        let mut inner = self.inner.lock();
        let is_given = inner.places.contains_key(&recall.token);
        if is_given {
            inner.put_off.insert(recall.token, recall);
        }
        is_given
    }

    fn take_put_off(&self) -> Vec<Recall> {
        self.inner.lock().put_off.drain().map(|(_, recall)| recall).collect()
    }

    /// A client would like this object's delegation to be pushed.
    pub(crate) fn want(&self, place: Place, fh: WireHandle) {
        self.inner.lock().wanted.insert(place, fh);
    }

    /// It does no more.
    pub(crate) fn forget_want(&self, place: Place) {
        let _ = self.wanted(place);
    }

    /// It does no more, or is given it.
    fn wanted(&self, place: Place) -> Option<WireHandle> {
        self.inner.lock().wanted.remove(&place)
    }

    /// A client is gone, or all it wished for.
    pub(crate) fn client_gone(&self, client: ClientId) {
        self.inner.lock().wanted.retain(|(of, _), _| *of != client);
    }

    /// Every object of which something is delegated, as its client knows it.
    pub(crate) fn each(&self, fh: &mut dyn FnMut(FileKey, WireHandle)) {
        self.inner.lock().held.iter().for_each(|((_, file), held)| fh(*file, held.fh));
    }
}

impl Inner {
    /// Notes what was given, and gives back what was there.
    fn give(&mut self, place: Place, given: Given) -> Option<Given> {
        let held = self.held.get_mut(&place)?;
        self.files += usize::from(given.file.is_some());
        let before = held.given.replace(given);
        self.files -= usize::from(before.as_ref().is_some_and(|before| before.file.is_some()));
        before
    }

    /// Notes whom to tell of a directory's entries, until it is forgotten.
    fn tell(&mut self, (client, dir): Place) {
        let told = self.told.entry(dir).or_default();
        if !told.contains(&client) {
            told.push(client);
        }
    }

    fn forget_if_idle(&mut self, place: Place) {
        if self.held.get(&place).is_some_and(|held| held.given.is_none() && held.expected == 0) {
            self.held.remove(&place);
            if let Some(told) = self.told.get_mut(&place.1) {
                told.retain(|client| *client != place.0);
                if told.is_empty() {
                    self.told.remove(&place.1);
                }
            }
        }
    }
}

impl Expecting<'_> {
    /// It was given. An upgrade replaces what was there. False when it was not told of something by then.
    pub(crate) fn given(&self, given: Given) -> bool {
        let mut inner = self.of.inner.lock();
        let token = given.token;
        if given.notifying.is_some() {
            inner.notices.insert(token, notify::Notices::default());
        }
        let held = inner.held.get_mut(&self.place);
        let is_overtaken = held.is_some_and(|held| std::mem::take(&mut held.is_overtaken));
        // Dropped last, outside the lock.
        let before = inner.give(self.place, given);
        if let Some(before) = before.as_ref().filter(|before| before.token != token) {
            inner.places.remove(&before.token);
        }
        inner.places.insert(token, self.place);
        drop(inner);
        drop(before);
        !is_overtaken
    }
}

impl Drop for Expecting<'_> {
    fn drop(&mut self) {
        let mut inner = self.of.inner.lock();
        if let Some(held) = inner.held.get_mut(&self.place) {
            held.expected -= 1;
        }
        inner.forget_if_idle(self.place);
    }
}
