//! Hosts, lock-owners and what they hold, as plain data for another process that goes on with it. The locks of the
//! engine go with the engine; those on the backend with their files' descriptors.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::limits::NLM_GRANTED_PATIENCE_MS;
use holdfast_base::{ByteRange, FileKey, Instant, Length, Offset};
use holdfast_export::Object;
use holdfast_state::{Door, ForeignOwner, LockKind, RangeMap};
use holdfast_vfs::handover::{FileNumber, Incoming, Outgoing};
use holdfast_wire::nlm4::NlmStat4;
use serde::{Deserialize, Serialize};

use crate::claim::{Granted, Standing};
use crate::held::{Blocked, Held, OwnerFile, Stage};
use crate::lockd::{Answer, Lockd, Work};
use crate::monitor::Watched;
use crate::names::{HostName, OwnerName};
use crate::notice::Notices;
use crate::outside::{Outside, Site};
use crate::records::HostRecord;

/// The lock manager's own state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Image {
    last_owner: u64,
    last_blocked: u64,
    hosts: Vec<HostImage>,
    files: Vec<OwnerFileImage>,
    watched: Vec<Watched>,
    /// What clients have said to GRANTED and nobody has looked at yet: numbers and statuses.
    answers: Vec<(u64, u32)>,
    /// Hosts that have not heard of the last ordinary restart: address, name, our address that they know.
    untold: Vec<(IpAddr, Vec<u8>, IpAddr)>,
    /// Grace is over but here, where its end could not be stored: the next process sees to that, and until then gives nobody
    /// what others may still reclaim.
    #[serde(default)]
    is_in_grace: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct HostImage {
    ip: IpAddr,
    caller: Vec<u8>,
    local: IpAddr,
    is_recorded: bool,
    #[serde(default)]
    is_in_doubt: bool,
    #[serde(default)]
    has_lost: bool,
    #[serde(default)]
    may_reclaim: bool,
    #[serde(default)]
    is_barred: bool,
    #[serde(default)]
    has_reclaimed: bool,
    state: Option<i32>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct OwnerFileImage {
    owner: u64,
    ip: IpAddr,
    caller: Vec<u8>,
    oh: Vec<u8>,
    svid: Option<i32>,
    file: [u8; 16],
    /// The handle as clients have it: it names the export too.
    fh: Vec<u8>,
    ranges: Vec<LockImage>,
    /// Missing, all of `ranges`.
    #[serde(default)]
    sure: Option<Vec<LockImage>>,
    has_share: bool,
    state: i32,
    carrier: Option<(FileNumber, bool)>,
    blocked: Vec<BlockedImage>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct LockImage {
    first: u64,
    last: u64,
    is_write: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct BlockedImage {
    number: u64,
    lock: LockImage,
    offset: u64,
    length: u64,
    fh: Vec<u8>,
    local: IpAddr,
    is_outside: bool,
    granted: Option<GrantedImage>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct GrantedImage {
    since: u64,
    tries: u32,
    /// Missing, the worse is believed.
    #[serde(default = "always")]
    may_be_known: bool,
    #[serde(default)]
    is_refused: bool,
    #[serde(default)]
    is_torn: bool,
    #[serde(default)]
    is_cancelled: bool,
    /// Missing, all of it.
    #[serde(default)]
    claim: Option<Vec<LockImage>>,
}

const fn always() -> bool {
    true
}

/// A lock file that cannot be handed over: its backend keeps it in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotPortable;

impl std::fmt::Display for NotPortable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(
            "a file with locks of NFSv3 clients is open on a backend whose files cannot be handed over",
        )
    }
}

impl std::error::Error for NotPortable {}

impl LockImage {
    fn of((range, kind): (ByteRange, LockKind)) -> Self {
        Self { first: range.first(), last: range.last(), is_write: kind == LockKind::Write }
    }

    fn lock(self) -> Option<(ByteRange, LockKind)> {
        let range = ByteRange::from_bounds(self.first, self.last)?;
        Some((range, crate::names::kind_of(self.is_write)))
    }
}

fn images_of(map: &RangeMap<LockKind>) -> Vec<LockImage> {
    map.iter().map(LockImage::of).collect()
}

fn map_of(images: Vec<LockImage>) -> RangeMap<LockKind> {
    let mut map = RangeMap::default();
    images.into_iter().filter_map(LockImage::lock).for_each(|(range, kind)| map.set(range, kind));
    map
}

impl GrantedImage {
    fn granted(self, lock: (ByteRange, LockKind), now: Instant) -> Granted {
        let standing = match self {
            Self { is_cancelled: true, .. } => Standing::Cancelled,
            Self { is_refused: true, .. } => Standing::Doubted,
            Self { is_torn: true, .. } => Standing::Torn,
            _ => Standing::Wanted,
        };
        let fresh = Granted::new(now, lock);
        Granted {
            since: Instant(self.since),
            // Asked again at once, where no answer came over as well.
            next_at: if standing == Standing::Wanted { now } else { now.after_ms(NLM_GRANTED_PATIENCE_MS) },
            tries: self.tries,
            may_be_known: self.may_be_known,
            standing,
            claim: self.claim.map_or_else(|| fresh.claim.clone(), map_of),
            ..fresh
        }
    }
}

impl BlockedImage {
    fn of(blocked: &Blocked, answer: Option<Answer>) -> Self {
        let granted = match &blocked.stage {
            Stage::Granted(granted) => Some(GrantedImage {
                since: granted.since.0,
                tries: granted.tries,
                may_be_known: granted.may_be_known
                    || granted.calls > 0
                        && answer.is_none_or(|answer| answer.is_err_and(|no| no.may_have_run)),
                is_refused: granted.standing == Standing::Doubted,
                is_torn: granted.standing == Standing::Torn,
                is_cancelled: granted.standing == Standing::Cancelled,
                claim: Some(images_of(&granted.claim)),
            }),
            Stage::InLine | Stage::Tried => None,
        };
        Self {
            number: blocked.number,
            lock: LockImage::of((blocked.range, blocked.kind)),
            offset: blocked.offset.0,
            length: blocked.length.0,
            fh: blocked.fh.clone(),
            local: blocked.local,
            is_outside: blocked.stage == Stage::Tried,
            granted,
        }
    }

    fn blocked(self, now: Instant) -> Option<Blocked> {
        let (range, kind) = self.lock.lock()?;
        let stage = match self.granted {
            Some(granted) => Stage::Granted(granted.granted((range, kind), now)),
            None if self.is_outside => Stage::Tried,
            None => Stage::InLine,
        };
        Some(Blocked {
            number: self.number,
            range,
            kind,
            offset: Offset(self.offset),
            length: Length(self.length),
            fh: self.fh,
            local: self.local,
            stage,
        })
    }
}

impl Lockd {
    /// Everything as plain data, between [`Lockd::hold`] and the end of this process. Open files go to `outgoing`.
    ///
    /// # Errors
    /// [`NotPortable`].
    pub fn freeze(&self, outgoing: &mut Outgoing) -> Result<Image, NotPortable> {
        let watched = self.monitors.lock().watched.clone();
        let table = self.table.lock();
        let (last_owner, last_blocked) = table.numbers();
        let host = |(name, host): (&HostName, &crate::table::Host)| HostImage {
            ip: name.ip,
            caller: name.caller.clone(),
            local: host.local,
            is_recorded: host.is_recorded,
            is_in_doubt: host.is_in_doubt,
            has_lost: host.has_lost,
            may_reclaim: host.may_reclaim,
            is_barred: host.is_barred,
            has_reclaimed: host.has_reclaimed,
            state: host.state,
        };
        let hosts = table.hosts.iter().map(host).collect();
        let files: Vec<_> = table.hosts.keys().flat_map(|name| table.files_of(name)).collect();
        drop(table);
        let files: Vec<_> =
            files.iter().map(|of| self.freeze_file(of, outgoing)).collect::<Result<_, _>>()?;
        let due = self.due();
        let numbers = files.iter().flat_map(|of| of.blocked.iter().map(|b| b.number));
        let answers = numbers.filter_map(|n| Some((n, due.answer_to(n)?.ok()?.as_u32()))).collect();
        let untold =
            self.notices.lock().untold().map(|to| (to.host.ip, to.host.caller.clone(), to.local)).collect();
        let is_in_grace = self.is_in_grace();
        Ok(Image { last_owner, last_blocked, hosts, files, watched, answers, untold, is_in_grace })
    }

    fn freeze_file(
        &self,
        of: &Arc<OwnerFile>,
        outgoing: &mut Outgoing,
    ) -> Result<OwnerFileImage, NotPortable> {
        let held = of.held.lock();
        let carrier = match held.outside.carrier() {
            None => None,
            Some((file, can_write)) => Some((outgoing.add_file(file).ok_or(NotPortable)?, can_write)),
        };
        Ok(OwnerFileImage {
            owner: of.owner.id,
            ip: of.host.ip,
            caller: of.host.caller.clone(),
            oh: of.name.oh.clone(),
            svid: of.name.svid,
            file: of.file.0.to_be_bytes(),
            fh: self.parts.namespace.seal_in(&of.site.export, &of.site.handle).as_bytes().to_vec(),
            ranges: images_of(&held.locked),
            sure: Some(images_of(&held.sure)),
            has_share: held.has_share,
            state: held.state,
            carrier,
            blocked: held
                .blocked
                .iter()
                .map(|b| BlockedImage::of(b, self.due().answer_to(b.number)))
                .collect(),
        })
    }

    /// Goes on with it. Before the first request and the start of the worker, and after the engine was thawed.
    /// Returns how many owners' locks on a file were lost: the file's export is not served any more.
    pub fn thaw(&self, image: Image, incoming: &Incoming) -> usize {
        let now = self.now();
        self.monitors.lock().watched = image.watched;
        let untold = image.untold.into_iter();
        let untold = untold.map(|(ip, caller, local)| HostRecord {
            host: HostName { ip, caller },
            local,
            // It is told all the same.
            has_lost: false,
        });
        *self.notices.lock() = Notices::of(untold.collect(), now);
        let mut table = self.table.lock();
        table.set_numbers(image.last_owner, image.last_blocked);
        for host in image.hosts {
            let name = HostName { ip: host.ip, caller: host.caller };
            if let Ok(known) = table.host(&name, host.local, now) {
                known.is_recorded = host.is_recorded;
                known.is_in_doubt = host.is_in_doubt;
                known.has_lost = host.has_lost;
                (known.may_reclaim, known.is_barred) = (host.may_reclaim, host.is_barred);
                known.has_reclaimed = host.has_reclaimed;
                known.state = host.state;
            }
        }
        drop(table);
        self.is_in_grace.store(image.is_in_grace, Ordering::Release);
        let lost = image.files.into_iter().map(|file| usize::from(!self.thaw_file(file, incoming))).sum();
        for (number, stat) in image.answers {
            if let Some(stat) = NlmStat4::from_u32(stat) {
                self.due().push(Work::Answered { number, answer: Ok(stat) });
            }
        }
        lost
    }

    /// Whether an owner-file could be gone on with.
    fn thaw_file(&self, image: OwnerFileImage, incoming: &Incoming) -> bool {
        let owner = ForeignOwner { door: Door::Nlm, id: image.owner };
        let carrier =
            image.carrier.map(|(number, can_write)| incoming.file(number).map(|file| (file, can_write)));
        let Ok(Object::Export(export, handle)) = self.parts.namespace.open(&image.fh) else {
            self.leave_in_engine(owner, FileKey(u128::from_be_bytes(image.file)));
            return false;
        };
        let (file, site) = (handle.key(), Site { export, handle });
        let locked = map_of(image.ranges);
        let is_lost = carrier.as_ref().is_some_and(Option::is_none);
        let mut outside = carrier.flatten().map_or_else(Outside::default, Outside::of);
        if is_lost {
            // It holds among clients all the same, and against the host's processes as far as it can be had again.
            let mut taken = RangeMap::default();
            for (range, kind) in locked.iter() {
                if outside.take(&site, &taken, (range, kind)).is_ok() {
                    taken.set(range, kind);
                }
            }
        }
        let now = self.now();
        let held = Held {
            outside,
            counted: locked.len(),
            sure: image.sure.map_or_else(|| locked.clone(), map_of),
            locked,
            has_share: image.has_share,
            state: image.state,
            blocked: image.blocked.into_iter().filter_map(|b| b.blocked(now)).collect(),
            is_gone: false,
        };
        let host = HostName { ip: image.ip, caller: image.caller };
        let name = OwnerName { oh: image.oh, svid: image.svid };
        for waits in held.blocked.iter().filter(|b| b.stage == Stage::InLine) {
            // Perhaps granted, and the worker had not come to it: it asks.
            let (range, kind) = (waits.range, waits.kind);
            self.due().push(Work::Granted { owner, file, range, kind });
        }
        let of = OwnerFile { owner, host, name, file, site, held: held.into() };
        self.table.lock().restore_file(of) && !is_lost
    }

    fn leave_in_engine(&self, owner: ForeignOwner, file: FileKey) {
        let _ = self.step(|engine, now| engine.foreign_leave(owner, file, now));
    }
}
