//! Delegations across a restart of the server (RFC 8881 section 10.2.1): reclaimed with an open of their file, by an OPEN that
//! is closed again, or by WANT_DELEGATION; or forgotten, as Linux does with those of files that nobody has open. What is
//! cached under one that is had back stays, for it says that nobody has changed the file.

use holdfast_wire::nfs4::*;

use super::{Delegation, read_of};
use crate::client::app::FILES;
use crate::client::v4::{Client4, Open};
use crate::oracle::grants::GrantId;
use crate::oracle::reclaims::Claimed;
use crate::wire::{Ops, Reply};

/// By what right a delegation is asked for that was held before.
const fn claimed(held: &Delegation) -> OpenDelegationType4 {
    if held.is_write { OpenDelegationType4::Write } else { OpenDelegationType4::Read }
}

/// The attributes by which a client answers for a file, as a reply has them next.
pub(crate) fn seen_in(reply: &mut Reply) -> Option<(u64, u64)> {
    let ok = reply.next::<GetAttr4Ok<'_>>(OpNum4::GetAttr)?;
    let mut r = holdfast_xdr::Reader::new(ok.obj_attributes.values);
    Some((r.u64().ok()?, r.u64().ok()?))
}

impl Client4 {
    /// A recovery begins: delegations of directories are gone with the server that gave them (section 10.9.5), and so is what
    /// is about to be given back.
    pub(crate) fn keep_what_can_be_reclaimed(&self) {
        self.delegations.borrow_mut().retain(|file, _| *file < FILES);
        let kept: Vec<GrantId> = self.delegations.borrow().values().map(|held| held.grant).collect();
        self.world.tell(|| format!("{}: recovers, with {} delegations", self.name(), kept.len()));
        self.world.oracles.grants(|grants| {
            grants.end_delegations(self.host, &kept);
            Ok(())
        });
    }

    /// What delegation of its file an open is reclaimed with.
    pub(crate) fn to_be_reclaimed_with(&self, open: &Open) -> OpenDelegationType4 {
        let held = self.delegations.borrow();
        let held = held.get(&open.file).filter(|held| held.epoch != self.epoch.get());
        match held {
            // What an open does not bring is asked for by WANT_DELEGATION, or forgotten.
            Some(held) if self.kind.minor == 0 || self.rng.borrow_mut().percent(80) => claimed(held),
            _ => OpenDelegationType4::None,
        }
    }

    /// A delegation was asked for as one that was held before, and the answer has this.
    pub(crate) fn delegation_reclaimed(
        &self,
        file: usize,
        given: &OpenDelegation4<'_>,
        seen: Option<(u64, u64)>,
    ) {
        let Some((stateid, is_write, is_recalled)) = read_of(given) else {
            // RFC 8881 section 10.2.1: a client claiming what an earlier instance assigned to it must be granted it.
            let what = format!("{}: its delegation of file {file} is not given back: {given:?}", self.name());
            return self.world.oracles.violated(what);
        };
        let mut delegations = self.delegations.borrow_mut();
        let Some(held) = delegations.get_mut(&file) else { return };
        if is_write != held.is_write {
            self.world.oracles.violated(format!("{}: file {file} is delegated otherwise", self.name()));
        }
        held.stateid = stateid;
        (held.epoch, held.life) = (self.epoch.get(), self.world.lives());
        held.is_doubtful = false;
        (held.change, held.size) = seen.unwrap_or((held.change, held.size));
        let (now, grant) = (self.world.now(), held.grant);
        self.world.tell(|| format!("{}: has file {file} delegated as before: {is_write}", self.name()));
        self.world.oracles.grants(|grants| grants.delegation_reclaimed(now, grant, stateid.other));
        self.world.oracles.reclaims(|reclaims| {
            reclaims.delegation_reclaimed();
            Ok(())
        });
        drop(delegations);
        if is_recalled && let Some(this) = self.this.upgrade() {
            let held = self.delegations.borrow_mut().remove_entry(&file);
            held.into_iter().for_each(|held| this.give_back(held, 0));
        }
    }

    /// Reclaims what no open has brought back, each in one of the ways that there are, or gives it up; `None` when recovery
    /// must begin again.
    pub(crate) async fn reclaim_delegations(&self) -> Option<()> {
        let epoch = self.epoch.get();
        let left = |client: &Self| {
            let held = client.delegations.borrow();
            held.iter()
                .find(|(_, held)| held.epoch != epoch)
                .map(|(file, held)| (*file, held.handle.clone(), claimed(held)))
        };
        while let Some((file, handle, held)) = left(self) {
            let (way, has_sessions) = (self.rng.borrow_mut().below(4), self.kind.minor > 0);
            // Another owner's open of the file would be in the way of a delegation for writing: to the server the two may be
            // mounts that know nothing of each other.
            let is_open = self.opens.borrow().values().any(|open| open.file == file && !open.is_lost.get());
            match way {
                0 => {}
                1 if has_sessions => self.reclaim_by_wanting(file, &handle, held).await?,
                _ if is_open && has_sessions => self.reclaim_by_wanting(file, &handle, held).await?,
                _ if is_open => {}
                _ => self.reclaim_by_opening(file, &handle, held).await?,
            }
            let mut delegations = self.delegations.borrow_mut();
            if delegations.get(&file).is_some_and(|held| held.epoch != epoch) {
                let given_up = delegations.remove(&file);
                drop(delegations);
                given_up.iter().for_each(|given_up| self.disbelieve(given_up.grant));
            }
        }
        Some(())
    }

    async fn reclaim_by_wanting(&self, file: usize, handle: &[u8], held: OpenDelegationType4) -> Option<()> {
        let deaths = self.deaths();
        let put = ArgOp::PutFh(PutFh4Args { object: handle });
        let want = ArgOp::WantDelegation(WantDelegation4Args { want: 0, claim: DelegClaim4::Previous(held) });
        let ops = Ops::new(&[put, want, look()]);
        self.tries_to_reclaim((None, file));
        let (mut reply, sent) = self.step(|| Some(ops.clone()), (&[], Vec::new)).await?;
        reply.skip(&[OpNum4::PutFh]);
        let mut given = reply.clone();
        if let Some(given) = given.next::<OpenDelegation4<'_>>(OpNum4::WantDelegation) {
            self.was_entitled((None, file), (sent, deaths));
            reply.next::<OpenDelegation4<'_>>(OpNum4::WantDelegation);
            self.delegation_reclaimed(file, &given, seen_in(&mut reply));
        }
        Some(())
    }

    async fn reclaim_by_opening(&self, file: usize, handle: &[u8], held: OpenDelegationType4) -> Option<()> {
        let (deaths, owner) = (self.deaths(), format!("holder of {file}").into_bytes());
        let access = if held == OpenDelegationType4::Write { 3 } else { 1 };
        let make = || self.reclaiming_ops((handle, &owner), (access, 0), held);
        self.tries_to_reclaim((None, file));
        let (mut reply, sent) = self.step(make, (&[OpNum4::PutFh], || vec![owner.clone()])).await?;
        reply.skip(&[OpNum4::PutFh]);
        let mut opened = reply.clone();
        let Some(Open4Ok { stateid, delegation, .. }) = opened.next(OpNum4::Open) else { return Some(()) };
        reply.next::<Open4Ok<'_>>(OpNum4::Open);
        self.was_entitled((None, file), (sent, deaths));
        self.delegation_reclaimed(file, &delegation, seen_in(&mut reply));
        self.close_in_recovery(handle, &owner, stateid).await
    }

    /// Something is going to be asked for as reclaimed. In 4.0, which says no RECLAIM_COMPLETE, that gives no right to do so again.
    pub(crate) fn tries_to_reclaim(&self, what: Claimed) {
        self.tried_to_reclaim(what, self.world.now());
    }

    fn tried_to_reclaim(&self, what: Claimed, at: u64) {
        if self.kind.minor == 0 {
            return;
        }
        let who = (self.host, self.starts);
        self.world.oracles.reclaims(|reclaims| {
            reclaims.tries(who, what, at);
            Ok(())
        });
    }

    /// Something was reclaimed.
    pub(crate) fn was_entitled(&self, what: Claimed, (sent, deaths): (u64, u64)) {
        let who = (self.host, self.starts);
        self.world.oracles.reclaims(|reclaims| reclaims.reclaimed(who, what.clone(), (sent, deaths)));
        // What was asked of an earlier life may have been sent again to this one.
        self.tried_to_reclaim(what, sent);
        if self.kind.minor == 0 {
            self.renewed(sent);
        }
    }
}

/// Asks for the attributes by which a client answers for a file.
pub(crate) const fn look() -> ArgOp<'static> {
    ArgOp::GetAttr(GetAttr4Args { attr_request: Bitmap4::of(&[Attr::Change, Attr::Size]) })
}
