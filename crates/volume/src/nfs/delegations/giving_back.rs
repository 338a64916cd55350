//! Giving back what was delegated: data is with the server by then; opens and times go with it.

use holdfast_cache::{Caller, CapSet, Handle, Release, Shown};
use holdfast_client::{Cancel, Cred, Cx, Error, SetAttributes};
use holdfast_wire::nfs4::{NfsTime4, SetTime4};

use super::super::{NfsServer, undone, wire};
use super::Delegations;
use crate::server::Undone;

impl NfsServer {
    /// The machine relies on these no more.
    pub(in crate::nfs) fn give_back(&self, releases: &[Release], cancel: &Cancel) -> Result<(), Undone> {
        let Some(delegations) = self.delegations.get() else { return Ok(()) };
        for release in releases.iter().filter(|release| !release.keep.contains(CapSet::FILE_S)) {
            let file = wire(&release.handle);
            match self.client.delegation_number(&file) {
                None => drop(delegations.written.lock().remove(&release.handle)),
                // An answer with a newer one is on its way to the machine, which would rely on it: it is asked to let
                // go of that, too.
                Some(number) if number > release.seq => {
                    delegations.take_back(&release.handle, self.client.next_number());
                }
                Some(_) => self.give_one_back(delegations, &release.handle, cancel)?,
            }
        }
        Ok(())
    }

    fn give_one_back(
        &self,
        delegations: &Delegations,
        object: &Handle,
        cancel: &Cancel,
    ) -> Result<(), Undone> {
        let file = wire(object);
        let mtime = self.pay_times(delegations, object, cancel);
        let cred = Cred::own();
        match self.client.return_delegation_with(Cx::new(&cred, cancel), &file, None, mtime) {
            Ok(()) => {
                delegations.written.lock().remove(object);
                Ok(())
            }
            // It would refuse again; it knows how to help itself.
            Err(error @ Error::Nfs(_)) => {
                tracing::warn!(%error, ?file, "a delegation could not be given back");
                Ok(())
            }
            Err(error) => Err(undone(&error)),
        }
    }

    /// Notes that a file's data was written while others could not see it.
    pub(in crate::nfs) fn note_written(&self, object: &Handle, caller: &Caller) {
        let Some(delegations) = self.delegations.get() else { return };
        if self.client.delegation_number(&wire(object)).is_some() {
            delegations.written.lock().insert(object.clone(), caller.clone());
        }
    }

    /// Modification times that were shown are to stay, though the server has set its own when data came. Tells the
    /// server, or gives the time that the return of the delegation can tell (RFC 9754).
    fn pay_times(&self, delegations: &Delegations, object: &Handle, cancel: &Cancel) -> Option<NfsTime4> {
        let writer = delegations.written.lock().get(object).cloned()?;
        let shown = delegations.holder()?.shown(object)?;
        if self.client.has_delegated_times(&wire(object)) {
            return Some(time_of(&shown));
        }
        self.set_time(object, &writer, &shown, cancel);
        None
    }

    fn set_time(&self, object: &Handle, writer: &Caller, shown: &Shown, cancel: &Cancel) {
        let modified = Some(SetTime4::ToClientTime(time_of(shown)));
        let set = SetAttributes { modified, ..SetAttributes::default() };
        let cred = self.creds.of(writer);
        let want = holdfast_client::Attributes::WRITTEN;
        // Who may write a file may not always set its times: the server's own are left, then.
        if let Err(error) = self.client.setattr(Cx::new(&cred, cancel), &wire(object), None, &set, want) {
            tracing::debug!(%error, "the server's time is left");
        }
    }

    /// Before the end: times that the return of everything would not tell.
    pub fn pay_all_times(&self, cancel: &Cancel) {
        let Some(delegations) = self.delegations.get() else { return };
        let written: Vec<_> = delegations.written.lock().drain().collect();
        for (object, writer) in written {
            if let Some(shown) = delegations.holder().and_then(|holder| holder.shown(&object)) {
                self.set_time(&object, &writer, &shown, cancel);
            }
            if cancel.is_cancelled() {
                return;
            }
        }
    }
}

fn time_of(shown: &Shown) -> NfsTime4 {
    NfsTime4 { seconds: shown.attrs.mtime.seconds, nseconds: shown.attrs.mtime.nanos }
}
