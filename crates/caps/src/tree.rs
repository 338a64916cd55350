//! REMOVETREE: a whole tree in one operation, where its remover has it all to himself and has seen all of it.

use holdfast_base::Cookie;
use holdfast_ledger::failpoint::{self, Point};
use holdfast_state::{CapSet, Engine};
use holdfast_vfs::{AttrMask, Caller, DirListing, Flow, FsError, Name, RemoveKind};
use holdfast_wire::caps::{CapsStat, DirSeen, Ref};

use crate::ops::{Doing, Stop};
use crate::outcome::Outcome;
use crate::site::Site;
use crate::status;

impl Doing<'_> {
    pub(crate) fn remove_tree(
        &mut self,
        dir: &Ref<'_>,
        name: &[u8],
        dirs: &[DirSeen<'_>],
    ) -> Result<Outcome, Stop> {
        let (above, name) = (self.site(dir)?, Name::new(name)?);
        let caller = self.caller(&above)?;
        let Some(first) = dirs.first() else { return Err(Stop::Refused(CapsStat::Inval)) };
        let mut sites = Vec::with_capacity(dirs.len());
        if self.was_begun(&above)? {
            for seen in dirs {
                sites.extend(self.left_of(&above, seen)?);
            }
        } else {
            let found =
                above.export.backend.lookup(&self.actor.cx(&caller), &above.handle, name, AttrMask::NONE)?;
            let root = self.site(&Ref::Handle(first.dir))?;
            if root.handle != found.handle {
                return Err(Stop::Refused(CapsStat::Changed));
            }
            for seen in dirs {
                sites.push(self.seen(&above, seen)?);
            }
            self.begin(&above)?;
        }
        failpoint::pass(Point::BeforeMutation);
        let mut removed = 0;
        let mut left = None;
        // Those below stand behind those above.
        for site in sites.iter().rev() {
            self.empty(site, &caller, (&mut removed, &mut left))?;
        }
        let end =
            above.export.backend.remove(&self.actor.cx(&caller), &above.handle, name, RemoveKind::Directory);
        count(end.map(drop), (&mut removed, &mut left))?;
        self.touch_dir(&above);
        if left.is_none() {
            let client = self.actor.client;
            let gone = |engine: &mut Engine, now| {
                sites.iter().for_each(|site| engine.caps_removed(client, site.key(), now));
            };
            let _ = self.caps.parts.manager.step(gone);
        }
        let left = left.map_or(0, |error| status::of_fs(error).as_u32());
        Ok(Outcome::Tree { removed, left })
    }

    /// A directory of a tree whose removal goes on: `None` for one that is gone. What it looks like now is the remover's own
    /// work, but only while it is his alone: who had to say HELLO anew since must have got it back, or somebody else may
    /// have put something in.
    fn left_of(&mut self, above: &Site, seen: &DirSeen<'_>) -> Result<Option<Site>, Stop> {
        let site = self.site(&Ref::Handle(seen.dir))?;
        if site.export.id != above.export.id {
            return Err(Stop::Refused(CapsStat::Xdev));
        }
        let caller = self.caller(&site)?;
        match site.export.backend.getattr(&self.actor.cx(&caller), &site.handle, AttrMask::NONE) {
            Err(FsError::Stale | FsError::NotFound) => Ok(None),
            Err(error) => Err(error.into()),
            Ok(_) => self.is_own(&site).map(|()| Some(site)),
        }
    }

    fn is_own(&self, site: &Site) -> Result<(), Stop> {
        let (client, key) = (self.actor.client, site.key());
        let held = self.caps.parts.manager.look(|engine| engine.caps_of(client, key).held);
        if held.contains(CapSet::FILE_X) { Ok(()) } else { Err(Stop::Refused(CapsStat::NotHeld)) }
    }

    /// A directory that is as its remover saw it, and his alone.
    fn seen(&mut self, above: &Site, seen: &DirSeen<'_>) -> Result<Site, Stop> {
        let site = self.site(&Ref::Handle(seen.dir))?;
        if site.export.id != above.export.id {
            return Err(Stop::Refused(CapsStat::Xdev));
        }
        self.is_own(&site)?;
        let caller = self.caller(&site)?;
        let cx = self.actor.cx(&caller);
        let now = site.export.backend.getattr(&cx, &site.handle, AttrMask::STAT | AttrMask::CHANGE)?;
        if now.change == seen.change { Ok(site) } else { Err(Stop::Refused(CapsStat::Changed)) }
    }

    /// Removes all there is in a directory; its own directories are empty by now.
    fn empty(
        &mut self,
        dir: &Site,
        caller: &Caller,
        counts: (&mut u64, &mut Option<FsError>),
    ) -> Result<(), Stop> {
        let backend = dir.export.backend.as_ref();
        let cx = self.actor.cx(caller);
        let mut names: Vec<Vec<u8>> = Vec::new();
        let listing = DirListing { dir: &dir.handle, from: Cookie(0), want: None };
        let listed = backend.readdir(&cx, listing, &mut |entry| {
            names.push(entry.name.to_vec());
            Flow::Continue
        });
        let (removed, left) = counts;
        match listed {
            Err(FsError::Stale) => return Ok(()),
            other => count(other.map(drop), (&mut 0, left))?,
        }
        for name in names {
            let end = backend.remove(&cx, &dir.handle, Name::new(&name)?, RemoveKind::Any);
            failpoint::pass(Point::AfterMutation);
            count(end.map(drop), (removed, left))?;
        }
        self.touch_dir(dir);
        Ok(())
    }
}

/// Counts a removal; the first that failed says why something is left. What is gone already is no failure.
fn count(end: Result<(), FsError>, (removed, left): (&mut u64, &mut Option<FsError>)) -> Result<(), Stop> {
    match end {
        Ok(()) => *removed += 1,
        Err(FsError::NotFound | FsError::Stale) => {}
        Err(error) if status::is_passing(error) => return Err(Stop::Later),
        Err(error) => *left = left.or(Some(error)),
    }
    Ok(())
}
