//! Delegations as a client holds them: it serves reads from its cache, returns them on recall (some clients slowly, some
//! never), and does not rely on them once its connection is lost, for then it could not hear of a recall. How it has them
//! back after a restart is in `reclaim`, how it opens files by them in `claims`.

use std::collections::BTreeMap;
use std::rc::Rc;

use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Encode, Reader, Writer};

use super::app::FILES;
use super::v4::Client4;
use crate::life::Plant;
use crate::oracle::data::Mark;
use crate::oracle::grants::{GrantId, What};
use crate::oracle::listings::Told;

mod claims;
mod pressed;
mod reclaim;
mod returning;

pub(crate) use claims::Claim;
pub(crate) use reclaim::{look, seen_in};
pub(crate) use returning::GivenUp;

/// How often a client answers for one file's attributes before it gives its delegations back.
const PATIENCE: u64 = 5;

/// A delegation.
pub(crate) struct Delegation {
    pub(crate) stateid: Stateid4,
    handle: Vec<u8>,
    is_write: bool,
    grant: GrantId,
    /// The client's recovery after which the server gave it, or gave it back.
    epoch: u64,
    /// The server's life in which it was granted, or had back.
    life: u64,
    /// The connection was lost since: it is not relied on, and reclaimed if the server has restarted.
    is_doubtful: bool,
    /// As the server gave them with the delegation.
    change: u64,
    size: u64,
    /// Blocks as they were read or written under it.
    cache: BTreeMap<u64, Mark>,
    /// Rises with every write that begins or ends: what was read beside one is not kept.
    writes: u64,
    /// Writes under way.
    writing: u64,
    /// How often others asked for its attributes.
    asked: u64,
    /// Of a directory: what its holder is told.
    told: Bitmap4,
}

/// A delegation's name, whether it is one for writing, and whether it is to be returned at once.
const fn read_of(given: &OpenDelegation4<'_>) -> Option<(Stateid4, bool, bool)> {
    match given {
        OpenDelegation4::Read(read) | OpenDelegation4::ReadAttrsDeleg(read) => {
            Some((read.stateid, false, read.recall))
        }
        OpenDelegation4::Write(write) | OpenDelegation4::WriteAttrsDeleg(write) => {
            Some((write.stateid, true, write.recall))
        }
        OpenDelegation4::None | OpenDelegation4::NoneExt(_) => None,
    }
}

/// The changes of entries that a notification tells; `None` when it makes no sense, or is not what was granted.
fn told_by(notify: &CbNotify4Args<'_>, granted: Bitmap4) -> Option<Vec<Told>> {
    let name = |entry: &NotifyEntry4<'_>| String::from_utf8_lossy(entry.file).into_owned();
    let mut changes = Vec::new();
    for notice in &notify.changes {
        let is = |kind| granted.contains(kind) && notice.mask == Bitmap4::EMPTY.with(kind);
        let mut r = Reader::new(notice.values);
        if is(NOTIFY4_ADD_ENTRY) {
            changes.push(Told::Added(name(&NotifyAdd4::decode(&mut r).ok()?.new_entry)));
        } else if is(NOTIFY4_REMOVE_ENTRY) {
            changes.push(Told::Removed(name(&NotifyRemove4::decode(&mut r).ok()?.old_entry)));
        } else if is(NOTIFY4_RENAME_ENTRY) {
            let renamed = NotifyRename4::decode(&mut r).ok()?;
            changes.push(Told::Removed(name(&renamed.old_entry.old_entry)));
            changes.push(Told::Added(name(&renamed.new_entry.new_entry)));
        } else if is(NOTIFY4_CHANGE_DIR_ATTRS) {
            NotifyAttr4::decode(&mut r).ok()?;
        } else {
            return None;
        }
        if !r.rest().is_empty() {
            return None;
        }
    }
    Some(changes)
}

impl Client4 {
    /// Keeps a delegation that came with an OPEN; `seen` are the file's change and size.
    pub(crate) fn delegated(
        &self,
        file: usize,
        handle: &[u8],
        given: &OpenDelegation4<'_>,
        seen: (u64, u64),
    ) {
        let Some((stateid, is_write, is_recalled)) = read_of(given) else { return };
        if !self.kind.answers_callbacks {
            // Nobody can hold it to its promise, and so it is promised nothing.
            return self.world.tell(|| format!("{}: is deaf, and has file {file} delegated", self.name()));
        }
        let (now, mut grant) = (self.world.now(), 0);
        self.world.tell(|| format!("{}: has file {file} delegated, for writing: {is_write}", self.name()));
        self.world.oracles.grants(|grants| {
            grant = grants.delegated(now, self.host, (file, What::Delegation { is_write }), stateid.other)?;
            Ok(())
        });
        self.keep((file, handle.to_vec()), (stateid, is_write, grant), seen);
        // Granted and recalled in one: no callback follows.
        if is_recalled && let Some(this) = self.this.upgrade() {
            this.recalled(&stateid);
        }
    }

    /// Keeps a delegation of a client's directory, with notifications of what is changed in it, or without. Gives its name,
    /// if the client may rely on it.
    pub(crate) fn directory_delegated(
        &self,
        host: usize,
        handle: Vec<u8>,
        (stateid, told): (Stateid4, Bitmap4),
    ) -> Option<GrantId> {
        let is_told = !told.is_empty();
        if !self.kind.answers_callbacks {
            self.world.tell(|| format!("{}: is deaf, and has directory {host} delegated", self.name()));
            return None;
        }
        self.world.tell(|| format!("{}: has directory {host} delegated, told: {is_told}", self.name()));
        let (now, mut grant) = (self.world.now(), 0);
        self.world.oracles.grants(|grants| {
            let what = if is_told { What::Notified { of: host } } else { What::Directory { of: host } };
            grant = grants.delegated(now, self.host, (FILES + host, what), stateid.other)?;
            Ok(())
        });
        if is_told {
            self.world.oracles.listings(|listings| {
                listings.begin(grant, host);
                Ok(())
            });
        }
        self.keep((FILES + host, handle), (stateid, false, grant), (0, 0));
        self.delegations.borrow_mut().entry(FILES + host).and_modify(|held| held.told = told);
        Some(grant)
    }

    /// CB_NOTIFY.
    pub(crate) fn notified(&self, notify: &CbNotify4Args<'_>) -> NfsStat4 {
        let held = self.delegations.borrow();
        let of = held.values().find(|held| held.stateid.other == notify.stateid.other);
        let Some((grant, granted)) = of.map(|held| (held.grant, held.told)) else {
            // It may be on its way.
            return if self.is_busy() { NfsStat4::Delay } else { NfsStat4::BadStateid };
        };
        if self.world.has(Plant::LoseNotices) {
            return NfsStat4::Ok;
        }
        let Some(changes) = told_by(notify, granted) else {
            self.world
                .oracles
                .violated(format!("{}: a notification is not what was granted, or none", self.name()));
            return NfsStat4::BadXdr;
        };
        self.world.tell(|| format!("{}: is told {changes:?}", self.name()));
        self.world.oracles.listings(|listings| {
            listings.told(grant, changes);
            Ok(())
        });
        NfsStat4::Ok
    }

    fn keep(
        &self,
        (file, handle): (usize, Vec<u8>),
        (stateid, is_write, grant): (Stateid4, bool, GrantId),
        (change, size): (u64, u64),
    ) {
        let delegation = Delegation {
            stateid,
            handle,
            is_write,
            grant,
            epoch: self.epoch.get(),
            life: self.world.lives(),
            is_doubtful: false,
            change,
            size,
            cache: BTreeMap::new(),
            writes: 0,
            writing: 0,
            asked: 0,
            told: Bitmap4::EMPTY,
        };
        // The server gives one file's delegation again under the stateid that it has: the new one counts.
        let old = self.delegations.borrow_mut().insert(file, delegation);
        if let Some(old) = old {
            self.disbelieve(old.grant);
        }
        if self.is_path_down.get() {
            self.give_up_delegations();
        }
    }

    fn disbelieve(&self, grant: GrantId) {
        self.world.oracles.grants(|grants| {
            grants.end(grant);
            Ok(())
        });
    }

    /// All delegations are gone, or in such doubt that nothing is served by them any more.
    pub(crate) fn drop_delegations(&self) -> Vec<(usize, Delegation)> {
        let all = std::mem::take(&mut *self.delegations.borrow_mut());
        self.world.oracles.grants(|grants| {
            grants.end_delegations(self.host, &[]);
            Ok(())
        });
        all.into_iter().collect()
    }

    /// The connection was lost. As long as it is not there again nothing is relied on; then all is given back, unless it was
    /// the server's death that ended it.
    pub(crate) fn doubt_delegations(&self) {
        if self.rng.borrow_mut().percent(20) {
            return self.give_up_delegations();
        }
        let now = self.world.now();
        for held in self.delegations.borrow_mut().values_mut() {
            held.is_doubtful = true;
            self.world.oracles.grants(|grants| {
                grants.doubted(now, held.grant);
                Ok(())
            });
        }
    }

    /// The server has lived on while the connection was away.
    pub(crate) fn settle_doubts(&self) {
        let Some(this) = self.this.upgrade() else { return };
        let all = std::mem::take(&mut *self.delegations.borrow_mut());
        let (doubtful, good) = all.into_iter().partition(|(_, held)| held.is_doubtful);
        *self.delegations.borrow_mut() = good;
        for held in BTreeMap::into_iter(doubtful) {
            this.give_back(held, 0);
        }
    }

    /// A recall could not be heard of: the connection was lost, or the server says that its calls do not arrive.
    pub(crate) fn give_up_delegations(&self) {
        let Some(this) = self.this.upgrade() else { return };
        for held in self.drop_delegations() {
            this.give_back(held, 0);
        }
    }

    /// CB_RECALL.
    pub(crate) fn recalled(self: &Rc<Self>, stateid: &Stateid4) -> NfsStat4 {
        let held = self.delegations.borrow();
        let file = held.iter().find(|(_, held)| held.stateid.other == stateid.other).map(|(file, _)| *file);
        drop(held);
        let Some(held) = file.and_then(|file| self.delegations.borrow_mut().remove_entry(&file)) else {
            // As Linux, which knows it until DELEGRETURN is under way: after a planned restart a recall is sent once more.
            if self.returning.borrow().contains(&stateid.other) {
                return NfsStat4::Ok;
            }
            // It may be on its way.
            return if self.is_busy() { NfsStat4::Delay } else { NfsStat4::BadStateid };
        };
        let pace = self.rng.borrow_mut().below(10);
        let ms = match pace {
            0..7 => 1,
            7..9 => self.rng.borrow_mut().below(3_000),
            // So slow that it is revoked.
            _ => 40_000,
        };
        self.world.tell(|| format!("{}: recalled, gives back in {ms} ms", self.name()));
        self.give_back(held, ms);
        NfsStat4::Ok
    }

    /// CB_GETATTR: writes go through to the server, so its own size counts, and nothing is changed that it does not
    /// know of.
    pub(crate) fn attributes(&self, fh: &[u8], asked: Bitmap4, results: &mut Writer) -> NfsStat4 {
        let mut held = self.delegations.borrow_mut();
        let Some(delegation) = held.values_mut().find(|held| held.handle == fh) else {
            return NfsStat4::BadHandle;
        };
        delegation.asked += 1;
        if delegation.asked > PATIENCE {
            // It is better off without: the server, which has one thread here, cannot wait for the answer.
            drop(held);
            self.give_up_delegations();
            return NfsStat4::BadHandle;
        }
        let wanted = asked.and(Bitmap4::of(&[Attr::Change, Attr::Size]));
        let mut values = Writer::new();
        if wanted.has(Attr::Change) {
            values.u64(delegation.change);
        }
        if wanted.has(Attr::Size) {
            values.u64(delegation.size);
        }
        results.u32(CbOpNum4::GetAttr as u32);
        results.u32(NfsStat4::Ok.as_u32());
        Fattr4 { mask: wanted, values: values.as_slice() }.encode(results);
        NfsStat4::Ok
    }

    /// A block that need not be asked for.
    pub(crate) fn cached(&self, file: usize, block: u64) -> Option<Mark> {
        let held = self.delegations.borrow();
        let delegation = held.get(&file)?;
        let (now, mut is_believed) = (self.world.now(), false);
        self.world.oracles.grants(|grants| {
            is_believed = grants.is_believed(now, delegation.grant);
            Ok(())
        });
        delegation.cache.get(&block).copied().filter(|_| is_believed)
    }

    /// A read is sent: what tells whether its answer may be kept.
    pub(crate) fn read_begins(&self, file: usize) -> Option<(GrantId, u64)> {
        let held = self.delegations.borrow();
        held.get(&file).filter(|held| held.writing == 0).map(|held| (held.grant, held.writes))
    }

    /// It was answered.
    pub(crate) fn read_ends(&self, file: usize, block: u64, mark: Mark, begun: Option<(GrantId, u64)>) {
        if let Some(held) = self.delegations.borrow_mut().get_mut(&file)
            && begun == Some((held.grant, held.writes))
        {
            held.cache.insert(block, mark);
        }
    }

    /// A write is sent.
    pub(crate) fn write_begins(&self, file: usize, block: u64) -> Option<GrantId> {
        let mut held = self.delegations.borrow_mut();
        let held = held.get_mut(&file)?;
        held.writes += 1;
        held.writing += 1;
        held.cache.remove(&block);
        Some(held.grant)
    }

    /// It was answered, well or not, and the file reaches at least to `end`.
    pub(crate) fn write_ends(&self, file: usize, begun: Option<GrantId>, end: u64) {
        if let Some(held) = self.delegations.borrow_mut().get_mut(&file) {
            held.writes += 1;
            held.size = held.size.max(end);
            if begun == Some(held.grant) {
                held.writing -= 1;
            }
        }
    }
}
