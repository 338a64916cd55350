//! Delegations as plain data, and put into force again. What guards one against local processes does not come along:
//! it is made anew, and where that fails, or a local process changed the object meanwhile, the delegation is recalled.

use std::sync::{Arc, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use holdfast_base::{ClientId, FileKey, Seqid, SessionId, SlotId, Timestamp};
use holdfast_export::{Object, WireHandle};
use holdfast_manager::PledgeOn;
use holdfast_state::{Access, DelegationKind, DelegationToken};
use holdfast_vfs::handover::{FileNumber, Incoming, Outgoing};
use holdfast_vfs::{AttrMask, Caller, Cx, FileObject, Wait};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::{DelegatedFile, Delegations, Given, Held, Place};
use crate::callback::Referred;
use crate::service::Service;

/// All delegations, and those that clients wait for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct DelegationsImage {
    held: Vec<HeldImage>,
    wanted: Vec<(u64, u128, Vec<u8>)>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct HeldImage {
    client: u64,
    object: u128,
    fh: Vec<u8>,
    refers: Option<([u8; 16], u32, u32)>,
    token: u64,
    has_times: bool,
    file: Option<DelegatedImage>,
    /// What the object looked like; none when a further change might look the same.
    seen: Option<Look>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct DelegatedImage {
    file: FileNumber,
    access: Access,
    uid: u32,
}

/// What any change of an object by a local process changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Look {
    ctime: (i64, u32),
    size: u64,
}

/// Two changes within this time may have one ctime, where the file system's clock ticks slowly.
const TICK_MS: i128 = 20;

impl Look {
    /// The object as the holder of its delegation sees it, so that nobody is asked about it.
    fn take(service: &Service, fh: &WireHandle, holder: ClientId) -> Option<Self> {
        let Ok(Object::Export(export, handle)) = service.config.namespace.open(fh.as_bytes()) else {
            return None;
        };
        let caller = Caller::root();
        let cx = Cx::new(&caller, Wait::Yes).by(Some(holder));
        let attrs = export.backend.getattr(&cx, &handle, AttrMask::STAT).ok()?;
        Some(Self { ctime: (attrs.ctime.seconds, attrs.ctime.nanos), size: attrs.size })
    }

    /// Whether a change from now on will show.
    fn is_settled(&self) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let ctime = Timestamp { seconds: self.ctime.0, nanos: self.ctime.1 };
        let ctime_ms = i128::from(ctime.seconds) * 1000 + i128::from(ctime.nanos / 1_000_000);
        let now_ms = i128::try_from(now.as_millis()).unwrap_or(i128::MAX);
        now_ms - ctime_ms > TICK_MS
    }
}

/// What delegated objects looked like.
pub(crate) type Looks = FxHashMap<Place, Look>;

impl Service {
    /// Looks at all that is delegated, while nothing happens. `None` when a file system does not answer in time: the
    /// thread that waits for it holds nothing, but a process with such a thread cannot become another program.
    pub(crate) fn look_at_delegated(self: &Arc<Self>, patience: Duration) -> Option<Looks> {
        let places: Vec<_> = {
            let inner = self.delegations.inner.lock();
            let given = inner.held.iter().filter(|(_, held)| held.given.is_some());
            given.map(|(place, held)| (*place, held.fh)).collect()
        };
        if places.is_empty() {
            return Some(Looks::default());
        }
        let (told, looks) = mpsc::channel();
        let service = Arc::clone(self);
        let look = move || {
            let seen = |(place, fh): (Place, WireHandle)| {
                Some((place, Look::take(&service, &fh, place.0).filter(Look::is_settled)?))
            };
            // Nobody hears it who has given up.
            let _ = told.send(places.into_iter().filter_map(seen).collect());
        };
        std::thread::Builder::new().name("look".into()).spawn(look).ok()?;
        looks.recv_timeout(patience).ok()
    }

    /// `None` when a delegation's open file cannot be handed over.
    pub(crate) fn freeze_delegations(
        &self,
        outgoing: &mut Outgoing,
        looks: &Looks,
    ) -> Option<DelegationsImage> {
        let inner = self.delegations.inner.lock();
        let mut image = DelegationsImage::default();
        for ((client, object), held) in &inner.held {
            let Some(given) = &held.given else { continue };
            let file = match &given.file {
                Some(DelegatedFile { file, access, uid }) => {
                    let file = outgoing.add_file(file)?;
                    Some(DelegatedImage { file, access: *access, uid: *uid })
                }
                None => None,
            };
            image.held.push(HeldImage {
                client: client.0,
                object: object.0,
                fh: held.fh.as_bytes().to_vec(),
                refers: held.refers.map(|r| (r.session.0, r.slot.0, r.seqid.0)),
                token: given.token.0,
                has_times: given.has_times,
                file,
                // What is told of entries is of this process: it is recalled.
                seen: looks.get(&(*client, *object)).copied().filter(|_| given.notifying.is_none()),
            });
        }
        let wanted = inner.wanted.iter();
        image.wanted =
            wanted.map(|((client, object), fh)| (client.0, object.0, fh.as_bytes().to_vec())).collect();
        Some(image)
    }

    /// In force against clients from now on; what is left to be done once they can be called is given back.
    pub(crate) fn thaw_delegations(&self, image: DelegationsImage, incoming: &Incoming) -> Vec<Unguarded> {
        for (client, object, fh) in &image.wanted {
            if let Some(fh) = WireHandle::new(fh) {
                self.delegations.want((ClientId(*client), FileKey(*object)), fh);
            }
        }
        image.held.into_iter().filter_map(|held| self.thaw_delegation(held, incoming)).collect()
    }

    /// `None` when nothing is known of it any more.
    fn thaw_delegation(&self, image: HeldImage, incoming: &Incoming) -> Option<Unguarded> {
        let token = DelegationToken(image.token);
        let (client, object, kind, stateid) = self.look(|engine| engine.delegation_of(token))?;
        let fh = WireHandle::new(&image.fh)?;
        let file = image.file.and_then(|DelegatedImage { file, access, uid }| {
            Some(DelegatedFile { file: incoming.file(file)?, access, uid })
        });
        let given =
            Given { token, stateid, kind, has_times: image.has_times, notifying: None, file: file.clone() };
        self.delegations.thaw((client, object), (fh, image.refers), given);
        let is_in_force = self.config.manager.adopt(token);
        let is_write = kind == DelegationKind::Write;
        let open = match self.config.namespace.open(fh.as_bytes()) {
            Ok(Object::Export(_, handle)) => {
                file.map(|file| file.file).or_else(|| incoming.file_of(&handle, is_write))
            }
            _ => None,
        };
        Some(Unguarded { token, client, object, fh, open, seen: image.seen.filter(|_| is_in_force) })
    }

    /// Guards what came along against local processes, and recalls what cannot be guarded, or was changed by one
    /// meanwhile.
    pub(crate) fn guard(&self, unguarded: Vec<Unguarded>) {
        let manager = &self.config.manager;
        manager.quiet(holdfast_state::Engine::recall_unanswered);
        for one in unguarded {
            if !self.is_guarded(&one) {
                manager.recall(one.object);
            }
        }
    }

    fn is_guarded(&self, one: &Unguarded) -> bool {
        let Ok(Object::Export(export, handle)) = self.config.namespace.open(one.fh.as_bytes()) else {
            return false;
        };
        let (backend, open) = (export.backend.as_ref(), one.open.as_ref());
        let on = PledgeOn { backend, handle: &handle, open, change: None };
        // The look comes after: what changes once the guard is there is told.
        self.config.manager.guard_adopted(one.token, &on)
            && one.seen.is_some()
            && Look::take(self, &one.fh, one.client) == one.seen
    }
}

/// A delegation that came along and is not guarded against local processes yet.
pub(crate) struct Unguarded {
    token: DelegationToken,
    client: ClientId,
    object: FileKey,
    fh: WireHandle,
    /// The client's open file.
    open: Option<Arc<dyn FileObject>>,
    /// What the object looked like; none when it is to be recalled whatever it looks like.
    seen: Option<Look>,
}

impl Delegations {
    fn thaw(&self, place: Place, (fh, refers): (WireHandle, Option<([u8; 16], u32, u32)>), given: Given) {
        let refers = refers.map(|(session, slot, seqid)| Referred {
            session: SessionId(session),
            slot: SlotId(slot),
            seqid: Seqid(seqid),
        });
        let mut inner = self.inner.lock();
        inner.places.insert(given.token, place);
        inner.held.insert(place, Held::new(fh, refers));
        drop(inner.give(place, given));
    }
}
