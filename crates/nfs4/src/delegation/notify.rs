//! Telling holders of directory delegations what others changed in the directory (CB_NOTIFY, RFC 8881 section 20.4 and
//! rfc8881bis sections 16.2.11 to 16.2.13), where they asked for that: one call after the other for each of them, so that
//! they hear in the order in which it happened. Whatever keeps a holder from hearing has its delegation recalled.

use std::collections::VecDeque;
use std::sync::Arc;

use holdfast_base::limits::{BACK_CHANNEL_BYTES_MAX, NOTICES_MAX};
use holdfast_base::{Cookie, FileKey};
use holdfast_export::Object;
use holdfast_manager::{Entry, EntryChange};
use holdfast_rpc::CallError;
use holdfast_state::{DelegationKind, DelegationToken, EntryKinds, StateId};
use holdfast_vfs::{Name, Node};
use holdfast_wire::nfs4::{
    Attr, Bitmap4, CbArgOp, CbNotify4Args, Fattr4, GetDirDelegation4Args, NOTIFY4_ADD_ENTRY,
    NOTIFY4_CFLAG_ORDER, NOTIFY4_CHANGE_DIR_ATTRS, NOTIFY4_GFLAG_EXTEND, NOTIFY4_REMOVE_ENTRY,
    NOTIFY4_RENAME_ENTRY, NfsStat4, Notify4, NotifyEntry4, NotifyRemove4, Stateid4,
};
use holdfast_xdr::{Encode, Writer};

use super::{Delegations, Place};
use crate::attr::look;
use crate::callback::{Answer, CallbackError};
use crate::cx::At;
use crate::desc::Minor;
use crate::service::Service;

/// What can be told of entries: a change of a kind that is not granted recalls the delegation.
const OF_KINDS: [(u32, EntryKinds); 3] = [
    (NOTIFY4_REMOVE_ENTRY, EntryKinds::REMOVE),
    (NOTIFY4_ADD_ENTRY, EntryKinds::ADD),
    (NOTIFY4_RENAME_ENTRY, EntryKinds::RENAME),
];

/// What else is granted with it.
const BESIDE: Bitmap4 = Bitmap4::EMPTY.with(NOTIFY4_CHANGE_DIR_ATTRS).with(NOTIFY4_GFLAG_EXTEND);

/// What can be told of a new entry.
const OF_ENTRIES: Bitmap4 = Bitmap4::of(&[
    Attr::Type,
    Attr::Change,
    Attr::Size,
    Attr::Fsid,
    Attr::FileHandle,
    Attr::FileId,
    Attr::Mode,
    Attr::NumLinks,
    Attr::Owner,
    Attr::OwnerGroup,
    Attr::SpaceUsed,
    Attr::TimeAccess,
    Attr::TimeMetadata,
    Attr::TimeModify,
]);

/// What a change of entries changes of the directory.
const OF_DIRECTORIES: Bitmap4 = Bitmap4::of(&[
    Attr::Change,
    Attr::Size,
    Attr::NumLinks,
    Attr::SpaceUsed,
    Attr::TimeMetadata,
    Attr::TimeModify,
]);

/// Bytes of a call that are not notifications, with the longest filehandle.
const OVERHEAD_BYTES: usize = 512;

/// What a holder is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notifying {
    /// `NOTIFY4_*`, as they were granted; of entries at least one.
    pub(crate) kinds: Bitmap4,
    /// Of new entries.
    pub(crate) of_entries: Bitmap4,
    /// Of the directory.
    pub(crate) of_directory: Bitmap4,
}

impl Notifying {
    /// What is told to who asks for this; nothing where it asks for no change of entries. Nor where it goes by their order:
    /// cookies are hashes or kernel cookies here, and nobody knows what stands before an entry. Such a client is told
    /// nothing at all, and its delegation recalled (rfc8881bis sections 16.2.11.3 and 16.2.13).
    pub(crate) fn wanted(asked: &GetDirDelegation4Args) -> Option<Self> {
        let kinds = asked.notification_types;
        if !kinds.contains(NOTIFY4_GFLAG_EXTEND) || kinds.contains(NOTIFY4_CFLAG_ORDER) {
            return None;
        }
        let offered = OF_KINDS.iter().fold(BESIDE, |all, (kind, _)| all.with(*kind));
        let kinds = kinds.and(offered);
        let if_told = |is_told, attrs: Bitmap4| if is_told { attrs } else { Bitmap4::EMPTY };
        let tells_new = kinds.contains(NOTIFY4_ADD_ENTRY) || kinds.contains(NOTIFY4_RENAME_ENTRY);
        let told = Self {
            kinds,
            of_entries: if_told(tells_new, asked.child_attributes.and(OF_ENTRIES)),
            of_directory: if_told(
                kinds.contains(NOTIFY4_CHANGE_DIR_ATTRS),
                asked.dir_attributes.and(OF_DIRECTORIES),
            ),
        };
        (told.entries() != EntryKinds::NONE).then_some(told)
    }

    /// The delegation that lets others change what is told.
    pub(crate) fn delegation(&self) -> DelegationKind {
        DelegationKind::NotifiedDirectory(self.entries())
    }

    fn entries(&self) -> EntryKinds {
        let granted = OF_KINDS.iter().filter(|(kind, _)| self.kinds.contains(*kind));
        granted.fold(EntryKinds::NONE, |all, (_, kind)| all.union(*kind))
    }
}

/// What one holder is still to be told.
#[derive(Default)]
pub(super) struct Notices {
    waiting: VecDeque<Notice>,
    /// A call is under way.
    is_telling: bool,
}

#[derive(Clone)]
pub(super) struct Notice {
    kind: u32,
    values: Vec<u8>,
}

impl Notices {
    /// As many as one call takes.
    fn take(&mut self) -> Vec<Notice> {
        let mut bytes = OVERHEAD_BYTES;
        let mut taken = Vec::new();
        while let Some(next) = self.waiting.front() {
            bytes += next.values.len() + 24;
            if bytes > BACK_CHANNEL_BYTES_MAX as usize && !taken.is_empty() {
                break;
            }
            taken.extend(self.waiting.pop_front());
        }
        self.is_telling = !taken.is_empty();
        taken
    }
}

impl Service {
    /// A directory's entries have changed. Who did it knows from its reply.
    pub(crate) fn note_entries(self: &Arc<Self>, change: &EntryChange<'_>) {
        for place in self.delegations.told_of(change.dir) {
            if change.by == Some(place.0) {
                continue;
            }
            let Some((fh, _)) = self.delegations.point(place) else { continue };
            let Some(given) = self.delegations.of(place) else {
                // Being given just now: it would have missed this.
                self.delegations.overtake(place);
                continue;
            };
            let notices = given.notifying.and_then(|told| {
                let Ok(Object::Export(export, handle)) = self.config.namespace.open(fh.as_bytes()) else {
                    return None;
                };
                self.notices(&At::of_server(export, handle, place.0), told, change)
            });
            let is_queued = notices.is_some_and(|notices| self.delegations.queue(given.token, notices));
            if is_queued { self.tell_notices(given.token) } else { self.recall_told(given.token) }
        }
    }

    /// What a holder is told of a change; `None` where it cannot be, though it should have been asked first.
    fn notices(&self, dir: &At, told: Notifying, change: &EntryChange<'_>) -> Option<Vec<Notice>> {
        let entry = |name: Name<'_>, node: Option<&Node>| {
            let mut w = Writer::new();
            w.opaque(name.as_bytes());
            self.attrs(dir, node, told.of_entries, &mut w);
            w.into_vec()
        };
        let (kind, values) = match change.what {
            Entry::Added { name, node, replaces } => {
                (NOTIFY4_ADD_ENTRY, added(&entry(name, node), replaces.then_some(name)))
            }
            Entry::Removed { name } => (NOTIFY4_REMOVE_ENTRY, encoded(&gone(name))),
            Entry::Renamed { from, to, node, replaces } => {
                let mut values = encoded(&gone(from));
                values.extend(added(&entry(to, node), replaces.then_some(to)));
                (NOTIFY4_RENAME_ENTRY, values)
            }
        };
        if !told.kinds.contains(kind) {
            return None;
        }
        let mut notices = vec![Notice { kind, values }];
        if told.kinds.contains(NOTIFY4_CHANGE_DIR_ATTRS) {
            let mut w = Writer::new();
            w.opaque(b"");
            let node = Node { handle: dir.handle, attrs: *change.attrs };
            self.attrs(dir, Some(&node), told.of_directory, &mut w);
            notices.push(Notice { kind: NOTIFY4_CHANGE_DIR_ATTRS, values: w.into_vec() });
        }
        Some(notices)
    }

    fn attrs(&self, at: &At, node: Option<&Node>, want: Bitmap4, to: &mut Writer) {
        match node.and_then(|node| look::node(self, at, node, want).ok()) {
            Some(looked) => looked.write(self, Minor::V2, want, to),
            None => Fattr4 { mask: Bitmap4::EMPTY, values: b"" }.encode(to),
        }
    }

    /// Tells a holder the next few, unless it is being told some.
    fn tell_notices(self: &Arc<Self>, token: DelegationToken) {
        let Some((place, stateid, notices)) = self.delegations.take_notices(token) else { return };
        let Some((fh, refers)) = self.delegations.point(place) else { return };
        let notices = Arc::new(notices);
        let (service, again) = (Arc::clone(self), Arc::clone(&notices));
        let told =
            notices.iter().map(|of| Notify4 { mask: Bitmap4::EMPTY.with(of.kind), values: &of.values });
        let changes = told.collect();
        let call = CbArgOp::Notify(CbNotify4Args { stateid, fh: fh.as_bytes(), changes });
        let done = move |answer: Result<Answer<'_>, CallbackError>| match answer.map(|answer| answer.status) {
            Ok(NfsStat4::Ok) => {
                service.delegations.told(token, &[]);
                service.tell_notices(token);
            }
            Ok(NfsStat4::Delay)
            | Err(
                CallbackError::Refused(NfsStat4::Delay)
                | CallbackError::Busy
                | CallbackError::Lost(CallError::Busy),
            ) => service.delegations.told(token, &again),
            _ => service.recall_told(token),
        };
        self.call_back_about(place.0, call, refers, Box::new(done));
    }

    /// It has missed something, and is to know.
    fn recall_told(&self, token: DelegationToken) {
        self.delegations.tell_no_more(token);
        self.tell(|engine, now| engine.recall(token, now));
    }

    /// Tells once more what could not be told. About once a second.
    pub(crate) fn tell_again(self: &Arc<Self>) {
        for token in self.delegations.untold() {
            self.tell_notices(token);
        }
    }
}

/// An entry that went. Its cookie is none that READDIR gave: entries are looked for by their names here.
const fn gone(name: Name<'_>) -> NotifyRemove4<'_> {
    let attrs = Fattr4 { mask: Bitmap4::EMPTY, values: b"" };
    NotifyRemove4 { old_entry: NotifyEntry4 { file: name.as_bytes(), attrs }, old_entry_cookie: Cookie(0) }
}

/// `notify_add4` of an encoded entry, in the place of one of this name.
fn added(entry: &[u8], replaces: Option<Name<'_>>) -> Vec<u8> {
    let mut w = Writer::new();
    replaces.map(gone).encode(&mut w);
    w.put(entry);
    let no_cookie: Option<Cookie> = None;
    no_cookie.encode(&mut w);
    // Neither what stands before it is known, nor whether it is the last.
    w.u32(0);
    false.encode(&mut w);
    w.into_vec()
}

fn encoded(value: &impl Encode) -> Vec<u8> {
    let mut w = Writer::new();
    value.encode(&mut w);
    w.into_vec()
}

impl Delegations {
    /// Whose delegations of a directory are told of its entries, or are about to be.
    fn told_of(&self, dir: FileKey) -> Vec<Place> {
        let inner = self.inner.lock();
        inner.told.get(&dir).map(|of| of.iter().map(|client| (*client, dir)).collect()).unwrap_or_default()
    }

    /// Something happened before a delegation was given that it should have told of.
    fn overtake(&self, place: Place) {
        if let Some(held) = self.inner.lock().held.get_mut(&place) {
            held.is_overtaken = true;
        }
    }

    /// False when there is too much that it has not heard, or it is not to hear more.
    fn queue(&self, token: DelegationToken, notices: Vec<Notice>) -> bool {
        let mut inner = self.inner.lock();
        let Some(queue) = inner.notices.get_mut(&token) else { return false };
        queue.waiting.extend(notices);
        queue.waiting.len() <= NOTICES_MAX
    }

    fn take_notices(&self, token: DelegationToken) -> Option<(Place, Stateid4, Vec<Notice>)> {
        let mut inner = self.inner.lock();
        let place = *inner.places.get(&token)?;
        let StateId { seqid, other } = inner.held.get(&place)?.given.as_ref()?.stateid;
        let queue = inner.notices.get_mut(&token).filter(|queue| !queue.is_telling)?;
        let notices = queue.take();
        (!notices.is_empty()).then_some((place, Stateid4 { seqid, other }, notices))
    }

    /// It has been told, but for these.
    fn told(&self, token: DelegationToken, but: &[Notice]) {
        if let Some(queue) = self.inner.lock().notices.get_mut(&token) {
            queue.is_telling = false;
            but.iter().rev().for_each(|notice| queue.waiting.push_front(notice.clone()));
        }
    }

    fn tell_no_more(&self, token: DelegationToken) {
        self.inner.lock().notices.remove(&token);
    }

    fn untold(&self) -> Vec<DelegationToken> {
        let inner = self.inner.lock();
        let waits = |queue: &Notices| !queue.is_telling && !queue.waiting.is_empty();
        inner.notices.iter().filter(|(_, queue)| waits(queue)).map(|(token, _)| *token).collect()
    }
}
