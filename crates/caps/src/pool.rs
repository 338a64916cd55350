//! POOL: files made for creates to come, kept until they are placed, given back, or old.

use holdfast_base::limits::{
    CAPS_POOL_CALL_MAX, CAPS_POOLED_MAX, CAPS_POOLED_MS, CAPS_POOLED_PART, CAPS_POOLED_PER_CLIENT_MAX,
    CAPS_POOLED_SHARE,
};
use holdfast_base::{ClientId, ExportId, Instant};
use holdfast_vfs::{Caller, Handle, Spare};
use holdfast_wire::caps::{CapsStat, Handle as WireHandle, PoolArgs, PoolOk, Pooled, Res};
use holdfast_xdr::{Encode, Writer};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::site::{Actor, Site};
use crate::{Caps, status};

/// For which creates a file was made.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct For {
    client: ClientId,
    export: ExportId,
    dir: Handle,
    uid: u32,
    gid: u32,
    /// What the directory gave it.
    heritage: u64,
}

/// One that is kept.
struct Kept {
    since: Instant,
    of: For,
    spare: Spare,
}

/// Those kept, by their handles, and room for those that are being made.
#[derive(Default)]
struct Table {
    kept: FxHashMap<Handle, Kept>,
    /// Of which clients they are.
    being_made: Vec<(ClientId, usize)>,
}

/// All of them.
pub(crate) struct Pools {
    table: Mutex<Table>,
    max: usize,
}

/// Room for so many, kept free until they are there.
struct Room<'p> {
    pools: &'p Pools,
    client: ClientId,
    count: usize,
}

impl Room<'_> {
    /// They are there.
    fn fill(self, of: For, since: Instant, made: Vec<Spare>) {
        let mut table = self.pools.table.lock();
        // The room ends when they are among those kept: never are there more than the bound says.
        table.kept.extend(made.into_iter().map(|spare| (spare.handle, Kept { since, of, spare })));
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        let being_made = &mut self.pools.table.lock().being_made;
        let own = being_made.iter().position(|of| *of == (self.client, self.count));
        own.map(|at| being_made.swap_remove(at));
    }
}

/// Descriptors that each takes: one by which it lives, one by which it is found.
const DESCRIPTORS_EACH: u64 = 2;

impl For {
    pub(crate) fn new(client: ClientId, site: &Site, caller: &Caller, heritage: u64) -> Self {
        let (export, dir) = (site.export.id, site.handle);
        Self { client, export, dir, uid: caller.uid, gid: caller.gid, heritage }
    }

    /// Whether this is of the same directory, of which it has what is not given there any more.
    fn is_outdated(&self, now: &Self) -> bool {
        (self.client, self.export, self.dir) == (now.client, now.export, now.dir)
            && self.heritage != now.heritage
    }
}

impl Pools {
    /// With as much room as this process has descriptors for.
    pub(crate) fn new() -> Self {
        let allowed = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let part = allowed.unwrap_or(u64::MAX) / (CAPS_POOLED_PART * DESCRIPTORS_EACH);
        let max = usize::try_from(part).unwrap_or(CAPS_POOLED_MAX).min(CAPS_POOLED_MAX);
        Self { table: Mutex::default(), max }
    }

    /// Room for so many more of a client's, or for as many as it may have.
    fn room(&self, client: ClientId, wanted: usize) -> Room<'_> {
        let mut table = self.table.lock();
        let being_made = |of: Option<ClientId>| -> usize {
            let these = table.being_made.iter().filter(|(client, _)| of.is_none_or(|of| of == *client));
            these.map(|(_, count)| count).sum()
        };
        let its = table.kept.values().filter(|one| one.of.client == client).count();
        let each = CAPS_POOLED_PER_CLIENT_MAX.min(self.max / CAPS_POOLED_SHARE);
        let left = self.max.saturating_sub(table.kept.len() + being_made(None));
        let count = wanted.min(left).min(each.saturating_sub(its + being_made(Some(client))));
        table.being_made.push((client, count));
        Room { pools: self, client, count }
    }

    /// Takes out one that was made for this very create. Where the directory has changed, all that was made in it goes.
    pub(crate) fn take(&self, handle: &Handle, of: &For) -> Option<Spare> {
        let mut table = self.table.lock();
        if table.kept.get(handle)?.of == *of {
            return table.kept.remove(handle).map(|one| one.spare);
        }
        drop(table);
        self.drop_where(|one| one.of.is_outdated(of));
        None
    }

    /// Lets go of what a client gives back.
    fn give_back(&self, client: ClientId, handle: &Handle) {
        let mut table = self.table.lock();
        let is_its = table.kept.get(handle).is_some_and(|one| one.of.client == client);
        let gone = is_its.then(|| table.kept.remove(handle));
        drop(table);
        drop(gone);
    }

    /// A client is gone.
    pub(crate) fn forget(&self, client: ClientId) {
        self.drop_where(|one| one.of.client == client);
    }

    /// Lets go of all.
    pub(crate) fn clear(&self) {
        self.drop_where(|_| true);
    }

    /// Lets go of those that were kept for long enough.
    pub(crate) fn tidy(&self, now: Instant) {
        self.drop_where(|one| now.ms_since(one.since) >= CAPS_POOLED_MS);
    }

    fn drop_where(&self, is_over: impl Fn(&Kept) -> bool) {
        let gone: Vec<Kept> =
            self.table.lock().kept.extract_if(|_, one| is_over(one)).map(|(_, one)| one).collect();
        // Closing each changes the file system: nobody else is to wait for that.
        drop(gone);
    }
}

impl Caps {
    pub(crate) fn pool(
        &self,
        actor: &Actor,
        args: &PoolArgs<'_>,
        reply: &mut Writer,
    ) -> Result<(), CapsStat> {
        for handle in &args.back {
            if let Ok(site) = self.site(actor, handle.0) {
                self.pools.give_back(actor.client, &site.handle);
            }
        }
        let made = if args.count == 0 { Vec::new() } else { self.fill(actor, args)? };
        let files = made
            .iter()
            .map(|(handle, fileid)| Pooled { handle: WireHandle(handle.as_bytes()), fileid: *fileid });
        Res::Ok(PoolOk { files: files.collect() }).encode(reply);
        Ok(())
    }

    /// Makes as many as are wanted and there is room for.
    fn fill(
        &self,
        actor: &Actor,
        args: &PoolArgs<'_>,
    ) -> Result<Vec<(holdfast_export::WireHandle, u64)>, CapsStat> {
        let dir = self.site(actor, args.dir.0)?;
        if dir.export.options.is_read_only {
            return Err(CapsStat::Rofs);
        }
        let caller = self.caller(actor, &dir.export)?;
        let (cx, backend) = (actor.cx(&caller), &dir.export.backend);
        // Nobody needs them so much that he should wait: where something stands in the way there are none now.
        let none_now =
            |error| if status::is_passing(error) { Ok(Vec::new()) } else { Err(status::of_fs(error)) };
        let heritage = match backend.heritage(&cx, &dir.handle) {
            Ok(heritage) => heritage,
            Err(error) => return none_now(error),
        };
        let of = For::new(actor.client, &dir, &caller, heritage);
        self.pools.drop_where(|one| one.of.is_outdated(&of));
        let room = self.pools.room(actor.client, (args.count as usize).min(CAPS_POOL_CALL_MAX));
        let mut made = Vec::with_capacity(room.count);
        while made.len() < room.count {
            match backend.make_spare(&cx, &dir.handle) {
                Ok(spare) => made.push(spare),
                Err(error) if made.is_empty() => return none_now(error),
                // What there is will do.
                Err(_) => break,
            }
        }
        // Of those made while it was being changed nobody knows which have what.
        if backend.heritage(&cx, &dir.handle) != Ok(heritage) {
            return Ok(Vec::new());
        }
        let told = made.iter().map(|spare| (self.seal(&dir.beside(spare.handle)), spare.fileid)).collect();
        room.fill(of, self.parts.manager.clock().now(), made);
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_somebody_makes_files_for_is_nobody_elses() {
        let pools = Pools { table: Mutex::default(), max: 4 * CAPS_POOLED_SHARE };
        let (one, other) = (ClientId(1), ClientId(2));
        let first = pools.room(one, 3);
        let second = pools.room(one, 3);
        assert_eq!((first.count, second.count), (3, 1), "what one client may have, at the same moment");
        let rooms: Vec<_> = (2..100).map(|n| pools.room(ClientId(n), 100)).collect();
        assert_eq!(rooms.iter().map(|room| room.count).sum::<usize>(), pools.max - 4, "and all");
        drop(rooms);
        drop(first);
        assert_eq!(pools.room(one, 9).count, 3);
        assert_eq!(pools.room(other, 9).count, 4);
        drop(second);
        assert!(pools.table.lock().being_made.is_empty());
    }
}
