//! PLACE: a create of a file that was made before, for it.
//!
//! It is written and has all its attributes before it has its name: what a crash leaves is the whole of it, or nothing. On
//! record is that the name is to stand for it; what is on record and not so was not done, and is done as a create, for the file
//! has gone with the process that kept it.

use holdfast_ledger::Standing;
use holdfast_vfs::{AttrMask, Attrs, Caller, File, FileKind, FsError, Name, SetAttrs, SetTime, Spare};
use holdfast_wire::caps::{CapsStat, Handle};

use crate::make::Making;
use crate::ops::{Doing, Stop};
use crate::outcome::Outcome;
use crate::pool::For;
use crate::site::Site;
use crate::{attrs, status};

impl Doing<'_> {
    /// The file that was made for this create, if it is there and is what the directory would give by now.
    pub(crate) fn spare(
        &mut self,
        (dir, caller): (&Site, &Caller),
        pooled: &Handle<'_>,
    ) -> Result<Option<Spare>, Stop> {
        // What a former life has done is told as of a create.
        if self.standing(dir)? != Standing::New {
            return Ok(None);
        }
        let Ok(site) = self.caps.site(self.actor, pooled.0) else { return Ok(None) };
        let heritage = match dir.export.backend.heritage(&self.actor.cx(caller), &dir.handle) {
            Err(error) if status::is_passing(error) => return Err(Stop::Later),
            Err(_) => return Ok(None),
            Ok(heritage) => heritage,
        };
        Ok(self.caps.pools.take(&site.handle, &For::new(self.actor.client, dir, caller, heritage)))
    }

    /// Writes the file and gives it its name. `None` where that cannot be, and a create may.
    pub(crate) fn place(
        &mut self,
        (dir, caller, is_own): (&Site, &Caller, bool),
        spare: &Spare,
        (making, data): (&Making<'_>, &[u8]),
    ) -> Result<Option<Outcome>, Stop> {
        let mut set = attrs::set_attrs(making.set);
        // As of a create now, whatever was written when.
        set.atime = set.atime.or(Some(SetTime::Now));
        set.mtime = set.mtime.or(Some(SetTime::Now));
        let site = dir.beside(spare.handle);
        self.write(&site, caller, (File::Open(&spare.handle, &spare.file), 0), data)?;
        let mut names = self.names(making);
        while let Some(name) = names.next(making.if_taken) {
            let at = (&dir.handle, Name::new(&name)?);
            match self.mutation(dir, caller).place(spare, at, &set, is_own) {
                Ok(_) => {}
                Err(FsError::Exists) => continue,
                Err(error) if status::is_passing(error) => return Err(Stop::Later),
                // Another project, another kind of owner, a directory that is gone: a create does it, or says why not.
                Err(_) => return Ok(None),
            }
            self.touch_dir(dir);
            self.touch(&dir.export, spare.handle, !data.is_empty());
            self.grant_first(&site, making, Some(&spare.file));
            let other_name = if name == making.name { Vec::new() } else { name };
            return Ok(Some(Outcome::Made { handle: self.caps.seal(&site), other_name }));
        }
        Err(Stop::Refused(CapsStat::Exist))
    }

    /// The file itself, where it has a name: a former life has placed it, or made it, and has lost its record of that with its power.
    /// The disk has it, where others may have moved it since; another is not made beside it. `None` where that is not so, where whoever
    /// makes it may not write to it any more, or where its contents may be others'.
    pub(crate) fn made_before(
        &mut self,
        (dir, caller): (&Site, &Caller),
        pooled: &Handle<'_>,
        (making, data): (&Making<'_>, &[u8]),
    ) -> Result<Option<Outcome>, Stop> {
        if !self.is_resent || self.standing(dir)? == Standing::Done {
            return Ok(None);
        }
        let site = self.caps.site(self.actor, pooled.0).ok().filter(|site| site.export.id == dir.export.id);
        let Some(site) = site else { return Ok(None) };
        let set = attrs::set_attrs(making.set);
        let seen = match dir.export.backend.getattr(&self.actor.cx(caller), &site.handle, AttrMask::STAT) {
            Ok(seen) if seen.kind == FileKind::Regular && seen.nlink > 0 && is_as_made(&seen, &set) => seen,
            Err(error) if status::is_passing(error) => return Err(Stop::Later),
            _ => return Ok(None),
        };
        // A set-id bit that writing takes off is put back, unless others have.
        let set = SetAttrs { mode: Some(seen.mode), umask: None, ..set };
        let at = (&dir.handle, Name::new(making.name)?);
        self.mutation(dir, caller).stands_for_make(&site.handle, at)?;
        match self.fill_again((dir, &site), caller, (&set, data)) {
            Ok(()) => Ok(Some(self.made(dir, &site, (making, making.name), true))),
            // It has been given to somebody else, or removed in this moment.
            Err(Stop::Refused(CapsStat::Perm | CapsStat::Access | CapsStat::Stale)) => Ok(None),
            Err(stop) => Err(stop),
        }
    }

    /// Gives such a file once more what may have been lost of it: its size and contents, and its times behind them.
    fn fill_again(
        &mut self,
        (dir, site): (&Site, &Site),
        caller: &Caller,
        (set, data): (&SetAttrs, &[u8]),
    ) -> Result<(), Stop> {
        let (atime, mtime) = if data.is_empty() { (set.atime, set.mtime) } else { (None, None) };
        let lost = SetAttrs { size: set.size, atime, mtime, ..SetAttrs::default() };
        let file = File::Stateless(&site.handle);
        if lost != SetAttrs::default() {
            dir.export.backend.setattr(&self.actor.cx(caller), file, &lost, None)?;
        }
        self.fill((dir, site), caller, (file, data), set)
    }
}

/// Whether a file's contents can be no others', though some of them may be lost: it has the time that it was given with them, or none was
/// ever written. It has that time before it has its name.
fn is_as_made(seen: &Attrs, set: &SetAttrs) -> bool {
    let is_untouched = seen.size == 0 && seen.btime == Some(seen.mtime);
    set.mtime == Some(SetTime::At(seen.mtime)) || is_untouched
}
