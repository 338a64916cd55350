//! Delegations as clients see them: what was given to whom under which filehandle, and the calls about it. Whether one
//! is given, what conflicts with it and when it is taken away is the state engine's to decide; that it holds before
//! every backend is the manager's.

use std::sync::Arc;

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
mod push;
mod recall;
pub(crate) mod times;
mod want;

pub(crate) use grant::{Asked, REPLY_BYTES, delegate};
pub(crate) use handover::{DelegationsImage, Unguarded};
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
}

/// A delegation given out.
#[derive(Clone)]
pub(crate) struct Given {
    pub(crate) token: DelegationToken,
    pub(crate) stateid: StateId,
    pub(crate) kind: DelegationKind,
    /// The client tells the file's times (RFC 9754).
    pub(crate) has_times: bool,
    /// An open file for I/O under it.
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
    pub(crate) fn expect(&self, place: Place, fh: WireHandle, refers: Option<Referred>) -> Expecting<'_> {
        let mut inner = self.inner.lock();
        let held = inner.held.entry(place).or_insert_with(|| Held { fh, refers, given: None, expected: 0 });
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

    /// The open file is kept by an open as well: the delegation needs none of its own.
    pub(crate) fn let_go(&self, token: DelegationToken) {
        let mut inner = self.inner.lock();
        let Some(place) = inner.places.get(&token).copied() else { return };
        let file = inner.held.get_mut(&place).and_then(|held| held.given.as_mut()?.file.take());
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
        let place = inner.places.remove(&token)?;
        let held = inner.held.get_mut(&place)?;
        let given = held.given.take_if(|given| given.token == token);
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

    /// A client is gone.
    pub(crate) fn client_gone(&self, client: ClientId) {
        self.inner.lock().wanted.retain(|(of, _), _| *of != client);
    }

    /// Whether a client has any.
    pub(crate) fn has_any(&self, client: ClientId) -> bool {
        self.inner.lock().places.values().any(|(of, _)| *of == client)
    }

    /// Every object of which something is delegated, as its client knows it.
    pub(crate) fn each(&self, fh: &mut dyn FnMut(FileKey, WireHandle)) {
        self.inner.lock().held.iter().for_each(|((_, file), held)| fh(*file, held.fh));
    }
}

impl Inner {
    fn forget_if_idle(&mut self, place: Place) {
        if self.held.get(&place).is_some_and(|held| held.given.is_none() && held.expected == 0) {
            self.held.remove(&place);
        }
    }
}

impl Expecting<'_> {
    /// It was given. An upgrade replaces what was there.
    pub(crate) fn given(&self, given: Given) {
        let mut inner = self.of.inner.lock();
        let token = given.token;
        let before = inner.held.get_mut(&self.place).and_then(|held| held.given.replace(given));
        if let Some(before) = before.filter(|before| before.token != token) {
            inner.places.remove(&before.token);
        }
        inner.places.insert(token, self.place);
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
