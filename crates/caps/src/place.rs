//! PLACE: a create of a file that was made before, for it.
//!
//! It is written and has all its attributes before it has its name: what a crash leaves is the whole of it, or nothing. On
//! record is that the name is to stand for it; what is on record and not so was not done, and is done as a create, for the file
//! has gone with the process that kept it.

use holdfast_ledger::Standing;
use holdfast_vfs::{Caller, File, FsError, Name, SetTime, Spare};
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
}
