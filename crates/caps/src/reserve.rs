//! RESERVE: room for a file, whose size stays. NFS has ALLOCATE alone, by which it grows (RFC 7862 section 15.1.3).

use holdfast_ledger::failpoint::{self, Point};
use holdfast_state::Access;
use holdfast_vfs::{File, Region};
use holdfast_wire::caps::{CapsStat, Ref};

use crate::ops::{Doing, Stop};
use crate::outcome::Outcome;

impl Doing<'_> {
    pub(crate) fn reserve(&mut self, object: &Ref<'_>, offset: u64, bytes: u64) -> Result<Outcome, Stop> {
        let site = self.site(object)?;
        if bytes == 0 || offset.checked_add(bytes).is_none() {
            return Err(Stop::Refused(CapsStat::Inval));
        }
        let caller = self.caller(&site)?;
        // It names no open; who has one that denies writing is to be asked first.
        self.caps.parts.manager.check_stateless(&site.handle, Access::WRITE)?;
        let (cx, file) = (self.actor.cx(&caller), File::Stateless(&site.handle));
        failpoint::pass(Point::BeforeMutation);
        site.export.backend.region(&cx, file, offset, bytes, Region::AllocateKeepSize)?;
        failpoint::pass(Point::AfterMutation);
        self.touch(&site.export, site.handle, true);
        Ok(self.changed(&site))
    }
}
