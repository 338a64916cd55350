//! HELLO, ACQUIRE, RELEASE, RECLAIM, WHOAMI, BYE: who holds what.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdfast_base::limits::{
    CAPS_BATCH_OPS_MAX, CAPS_BATCHES_MAX, CAPS_ITEMS_MAX, CAPS_OBJECTS_PER_CLIENT_MAX, CAPS_TXNS_KEPT_MAX,
    RECORD_BYTES_MAX,
};
use holdfast_base::{CapSet, ClientId, FileKey, Instant, Timestamp};
use holdfast_manager::CapsOn;
use holdfast_rpc::Connection;
use holdfast_state::{CapGrant, CapRelease, CapRequest, Recorded, StateError};
use holdfast_vfs::{Attrs, Caller, Cx, FileKind, FileObject, FsError, Wait};
use holdfast_wire::caps::{
    AcquireItem, AcquireOk, Acquired, CapsStat, Features, Grant, GrantFlags, HelloArgs, HelloOk, Limits,
    ReclaimItem, ReleaseItem, ReleaseOk, Res, Ticket, Time, WhoAmIOk,
};

use crate::find::name_of;
use crate::lists::flags_of;
use crate::members::Member;
use crate::site::{Actor, Site};
use crate::{Caps, attrs, status};

impl Caps {
    /// A client's epoch as it is told: another after a loss, after a restart that was not planned, and for a mount that comes
    /// back as another client, whose losses are counted from the beginning.
    pub(crate) fn epoch(&self, client: ClientId, losses: u64) -> u64 {
        epoch(self.run.load(Ordering::Relaxed), client, losses)
    }

    pub(crate) fn hello(
        &self,
        args: &HelloArgs,
        connection: &Arc<Connection>,
    ) -> Result<(HelloOk, ClientId), CapsStat> {
        let manager = &self.parts.manager;
        let said = manager.step(|engine, now| {
            let client = engine.sessions().get(args.session).map(holdfast_state::Session::client);
            let client = client.ok_or(StateError::BadSession)?;
            let epoch = engine.caps_hello(client)?;
            // Before it is told: what it asks for with its next call is to be had.
            engine.caps_reachable(client);
            Ok((client, epoch, engine.grace().is_on(now), engine.caps_recall_ms()))
        });
        let (client, epoch, in_grace, recall_ms) =
            said.map_err(|_| CapsStat::ServerFault)?.map_err(status::of_state)?;
        let member = Member { client, incarnation: args.incarnation, epoch };
        let ticket = self.members.ticket(member).ok_or(CapsStat::Delay)?;
        self.members.bind(client, connection);
        let lane = self.open_lane(args.incarnation, client, args.done_through);
        let features = Features(args.features.0 & self.features().0);
        self.told.fetch_or(features.0, Ordering::Relaxed);
        let ok = HelloOk {
            ticket,
            epoch: self.epoch(client, epoch),
            features,
            lease_seconds: u32::try_from(recall_ms / 1000).unwrap_or(u32::MAX),
            in_grace,
            is_known: lane.is_known,
            limits: limits(),
            executed_through: lane.executed_through,
            stable_through: lane.stable_through,
        };
        Ok((ok, client))
    }

    /// What this server can do beyond the first version.
    pub(crate) fn features(&self) -> Features {
        let same_host = self.neighbours.get().map_or(0, |_| Features::SAME_HOST.0);
        let always = [
            Features::APPEND,
            Features::NAMES,
            Features::POOL,
            Features::LISTS,
            Features::RESERVE,
            Features::FORCE,
        ];
        let always = always.iter().fold(0, |all, feature| all | feature.0);
        Features(always | same_host)
    }

    /// The answer to HELLO is on its way: what could not be recalled is recalled now.
    pub(crate) fn can_be_called(&self, client: ClientId) {
        let _ = self.parts.manager.step(|engine, _| engine.caps_path(client, true));
    }

    /// Whose a ticket is; the client shows by it that it lives.
    pub(crate) fn member(&self, ticket: Ticket) -> Result<Member, CapsStat> {
        let member = self.members.of(ticket).ok_or(CapsStat::BadTicket)?;
        let manager = &self.parts.manager;
        if self.members.is_news(member.client, manager.clock().now()) {
            manager.quiet(|engine, now| engine.caps_alive(member.client, now));
        }
        Ok(member)
    }

    pub(crate) fn acquire(&self, actor: &Actor, items: &[AcquireItem<'_>]) -> AcquireOk {
        let until = self.parts.manager.caps_patience();
        let one = |item: &AcquireItem<'_>| {
            let site = self.site(actor, item.handle.0)?;
            self.acquire_one(actor, &site, (item.want, None), Some(until))
        };
        AcquireOk { items: items.iter().map(|item| one(item).into()).collect() }
    }

    pub(crate) fn reclaim(&self, actor: &Actor, items: &[ReclaimItem<'_>]) -> AcquireOk {
        let manager = &self.parts.manager;
        let image = manager.look(|engine| engine.client_image(actor.client));
        let recorded = image.map_or(Recorded::No, |image| self.parts.holders.recorded(&image));
        let until = manager.caps_patience();
        let one = |item: &ReclaimItem<'_>| {
            let site = self.site(actor, item.handle.0)?;
            let in_grace = manager.quiet(|engine, now| engine.grace().is_on(now));
            // Without grace (a planned restart) there is nothing to protect it by: it is given what can be given.
            let reclaim = in_grace.then_some(recorded);
            let claim = (item.held, reclaim);
            let mut acquired = self.acquire_one(actor, &site, claim, (!in_grace).then_some(until))?;
            // Later on what has become other may be this life's doing.
            if in_grace && self.was_dead_at(acquired.attrs.ctime) {
                acquired.grant.flags.0 |= GrantFlags::CHANGED_SINCE.0;
            }
            Ok::<_, CapsStat>(acquired)
        };
        AcquireOk { items: items.iter().map(|item| one(item).into()).collect() }
    }

    /// Whether something was changed when the life before this one was over: by a local process.
    fn was_dead_at(&self, changed: Time) -> bool {
        let changed = Timestamp { seconds: changed.seconds, nanos: changed.nanos };
        self.parts.ledger.as_ref().is_some_and(|ledger| ledger.was_dead_at(changed))
    }

    /// Something is about to be changed: should this life be cut short in the middle of it, the next is to know that it had lasted until then.
    pub(crate) fn lives(&self) {
        if let Some(ledger) = &self.parts.ledger {
            ledger.lives();
        }
    }

    /// Gives what can be given of one object, then looks at it.
    fn acquire_one(
        &self,
        actor: &Actor,
        site: &Site,
        (want, reclaim): (CapSet, Option<Recorded>),
        until: Option<Instant>,
    ) -> Result<Acquired, CapsStat> {
        let caller = self.caller(actor, &site.export)?;
        let look = || site.export.backend.getattr(&actor.cx(&caller), &site.handle, attrs::ALL);
        // What it is never changes; who may want what depends on it.
        let kind = self.kind_of(actor.client, site)?;
        let grant = self.grant(actor.client, site, (kind, want, reclaim), until)?;
        let attrs = look().map_err(status::of_fs)?;
        if kind == FileKind::Regular && grant.held.contains(CapSet::FILE_X) {
            // Before it is told: nothing is written under it yet, if it is new.
            self.members.writes_since(actor.client, site.key(), attrs.mtime);
        }
        Ok(Acquired { grant, attrs: attrs::attrs(&attrs) })
    }

    /// An object's kind, whatever anybody holds of it.
    pub(crate) fn kind_of(&self, client: ClientId, site: &Site) -> Result<FileKind, CapsStat> {
        let root = Caller::root();
        let cx = Cx::new(&root, Wait::Yes).by(Some(client));
        let seen: Result<Attrs, FsError> =
            site.export.backend.getattr(&cx, &site.handle, holdfast_vfs::AttrMask::NONE);
        seen.map(|attrs| attrs.kind).map_err(status::of_fs)
    }

    /// Gives what can be given of one object.
    pub(crate) fn grant(
        &self,
        client: ClientId,
        site: &Site,
        wish: (FileKind, CapSet, Option<Recorded>),
        until: Option<Instant>,
    ) -> Result<Grant, CapsStat> {
        self.grant_on((client, site), wish, until, None)
    }

    /// The same of a file that the client has made a moment ago, and that is still open for it.
    pub(crate) fn grant_made(
        &self,
        (client, site): (ClientId, &Site),
        want: CapSet,
        file: Option<&Arc<dyn FileObject>>,
    ) -> Result<Grant, CapsStat> {
        self.grant_on((client, site), (FileKind::Regular, want, None), None, file)
    }

    fn grant_on(
        &self,
        (client, site): (ClientId, &Site),
        (kind, want, reclaim): (FileKind, CapSet, Option<Recorded>),
        until: Option<Instant>,
        open: Option<&Arc<dyn FileObject>>,
    ) -> Result<Grant, CapsStat> {
        let file = site.key();
        let manager = &self.parts.manager;
        let is_beside_writers = want.contains(CapSet::BESIDE_WRITERS);
        let mut want = want.sound();
        if !matches!(kind, FileKind::Regular | FileKind::Directory) {
            // What a link says, or a device stands for, never changes: there is nothing to be changed unseen.
            want = want.without(CapSet::FILE_X_ALONE);
        }
        if site.export.options.is_read_only {
            want = want.shared();
        }
        let had = manager.look(|engine| engine.caps_of(client, file));
        if want.is_empty() || (reclaim.is_none() && had.held.contains(want)) {
            return Ok(told((client, site), (kind, had), open));
        }
        self.will_hold(client)?;
        // Before it is granted: it may be recalled at once.
        let is_held = || self.is_held(client, file);
        let granting = self.members.may_know((client, file), self.seal(site), is_held);
        let on = CapsOn { backend: &site.export.backend, handle: &site.handle, kind, file: open };
        let request = CapRequest { client, file, want, is_beside_writers, reclaim };
        let granted = manager.acquire_caps(&request, &on, until);
        drop(granting);
        Ok(told((client, site), (kind, granted.map_err(status::of_state)?), open))
    }

    /// Whether a client holds something of an object, or is offered it.
    pub(crate) fn is_held(&self, client: ClientId, file: FileKey) -> bool {
        !self.parts.manager.look(|engine| engine.caps_in_force(client, file)).is_empty()
    }

    /// Sees to it that a client's record says that it may hold state, before it holds any.
    pub(crate) fn will_hold(&self, client: ClientId) -> Result<(), CapsStat> {
        let holders = &self.parts.holders;
        if holders.may_hold(client) {
            return Ok(());
        }
        let image = self.parts.manager.look(|engine| engine.client_image(client));
        holders.will_hold(&image.ok_or(CapsStat::BadTicket)?).map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => CapsStat::Delay,
            _ => CapsStat::ServerFault,
        })
    }

    pub(crate) fn release(&self, actor: &Actor, items: &[ReleaseItem<'_>]) -> ReleaseOk {
        let one = |item: &ReleaseItem<'_>| {
            let file = match name_of(item.handle.0) {
                Some(name) => name,
                None => self.site_here_or_not(actor, item.handle.0)?.key(),
            };
            let given = (item.keep.sound(), item.seq);
            let step = |engine: &mut holdfast_state::Engine, now| {
                engine.caps_release(actor.client, file, given, now)
            };
            let released = self.parts.manager.step(step).map_err(|_| CapsStat::ServerFault)?;
            match released {
                CapRelease::Released(CapGrant { held, seq }) => {
                    Ok(Grant { held, seq, flags: GrantFlags::default() })
                }
                CapRelease::Crossed(_) => Err(CapsStat::Crossed),
            }
        };
        ReleaseOk { items: items.iter().map(|item| one(item).into()).collect::<Vec<Res<Grant>>>() }
    }

    pub(crate) fn who_am_i(&self, actor: &Actor, handle: &[u8]) -> Result<WhoAmIOk, CapsStat> {
        let site = self.site(actor, handle)?;
        let Caller { uid, gid, groups } = self.caller(actor, &site.export)?;
        let named = actor.auth.sys().map(|sys| (sys.uid, sys.gid));
        // A server that is an ordinary user makes everything as itself.
        let own = rustix::process::geteuid();
        let is_own = !own.is_root() && own.as_raw() != uid;
        Ok(WhoAmIOk {
            uid: if is_own { own.as_raw() } else { uid },
            gid: if is_own { rustix::process::getegid().as_raw() } else { gid },
            groups: if is_own { Vec::new() } else { groups.to_vec() },
            is_mapped: is_own || named != Some((uid, gid)),
            is_read_only: site.export.options.is_read_only,
        })
    }

    pub(crate) fn bye(&self, ticket: Ticket, member: Member) {
        // Other mounts of the client have capabilities of their own, which nothing tells apart: it says HELLO for each.
        self.members.drop_ticket(ticket);
        let _ = self.parts.manager.step(|engine, now| engine.caps_bye(member.client, now));
        self.forget_lane(&member.incarnation);
        self.pools.forget(member.client);
    }
}

/// What is held of an object, as its client is told; `open` is the file, where it is open already.
fn told(
    of: (ClientId, &Site),
    (kind, CapGrant { held, seq }): (FileKind, CapGrant),
    open: Option<&Arc<dyn FileObject>>,
) -> Grant {
    Grant { held, seq, flags: flags_of(of, (kind, held), open) }
}

/// The low half tells clients and their losses apart, but for one chance in four thousand million.
fn epoch(run: u64, client: ClientId, losses: u64) -> u64 {
    let mixed = (client.0 ^ losses.rotate_left(40)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    run << 32 | mixed >> 32
}

const fn limits() -> Limits {
    Limits {
        call_bytes: RECORD_BYTES_MAX as u32,
        batch_ops: CAPS_BATCH_OPS_MAX as u32,
        batches: CAPS_BATCHES_MAX as u32,
        txns_kept: CAPS_TXNS_KEPT_MAX as u32,
        items: CAPS_ITEMS_MAX as u32,
        objects: CAPS_OBJECTS_PER_CLIENT_MAX as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_that_comes_back_as_another_client_is_in_another_epoch() {
        let epochs = [(1, 1, 0), (1, 2, 0), (1, 1 << 32 | 1, 0), (1, 1, 1), (2, 1, 0)];
        let told: std::collections::BTreeSet<_> =
            epochs.map(|(run, client, losses)| epoch(run, ClientId(client), losses)).into();
        assert_eq!(told.len(), epochs.len());
    }
}
