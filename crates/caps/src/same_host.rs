//! SAMEHOST and DESCRIPTOR: clients on the server's own host read and write files by descriptors of the server's.
//! `docs/design/same-host.md` has the rules.

use std::os::fd::OwnedFd;

use holdfast_base::{CapSet, ClientId};
use holdfast_vfs::{FileKind, FsError, Lend};
use holdfast_wire::caps::{CapsStat, DescriptorArgs, DescriptorOk, LendHow, SameHostOk};

use crate::site::Actor;
use crate::{Caps, status};

/// The place where mounts of this host come for their descriptors. What it is told by a mount's connection to it proves
/// that the mount is on this host.
pub trait Neighbours: Send + Sync {
    /// Its path.
    fn path(&self) -> &[u8];

    /// What the client is to say there; `None` when too many are expected.
    fn invite(&self, client: ClientId) -> Option<[u8; 16]>;

    /// Whether the client has come.
    fn is_here(&self, client: ClientId) -> bool;

    /// Keeps a descriptor for a moment, until the client asks for it by what this gives; `None` when too many wait.
    fn keep(&self, client: ClientId, descriptor: OwnedFd) -> Option<[u8; 16]>;

    /// What the client was promised is lost: it gets nothing more before it comes anew.
    fn forget(&self, client: ClientId);

    /// Closes what nobody came for. Called about once a second.
    fn tidy(&self);
}

impl Caps {
    fn neighbours(&self) -> Result<&dyn Neighbours, CapsStat> {
        self.neighbours.get().map(|n| &**n).ok_or(CapsStat::NotSupp)
    }

    pub(crate) fn same_host(&self, actor: &Actor) -> Result<SameHostOk<'_>, CapsStat> {
        let neighbours = self.neighbours()?;
        // Who is protected from others on the way by more than that is not to lose it here.
        if actor.auth.sys().is_none() {
            return Err(CapsStat::WrongSec);
        }
        let nonce = neighbours.invite(actor.client).ok_or(CapsStat::NotSupp)?;
        Ok(SameHostOk { path: neighbours.path(), nonce })
    }

    /// A descriptor, while what makes it safe to use is held. Nothing is waited for: what cannot be had now goes over the
    /// network.
    pub(crate) fn descriptor(
        &self,
        actor: &Actor,
        args: &DescriptorArgs<'_>,
    ) -> Result<DescriptorOk, CapsStat> {
        let neighbours = self.neighbours()?;
        if actor.auth.sys().is_none() || !neighbours.is_here(actor.client) {
            return Err(CapsStat::WrongSec);
        }
        let site = self.site(actor, args.handle.0)?;
        let is_read_only = site.export.options.is_read_only;
        let (needed, what) = match args.how {
            LendHow::Read => (CapSet::FILE_S, Lend::Read),
            LendHow::Write if is_read_only => return Err(CapsStat::Rofs),
            LendHow::Write => (CapSet::FILE_X, Lend::Write),
            // Who opens it is in nobody's way but as a local process is, and hears of nothing.
            LendHow::Path if is_read_only => (CapSet::NONE, Lend::PathToRead),
            LendHow::Path => (CapSet::NONE, Lend::Path),
        };
        let is_held = || {
            let held = self.parts.manager.look(|engine| engine.caps_of(actor.client, site.key()).held);
            if held.contains(needed) { Ok(()) } else { Err(CapsStat::NotHeld) }
        };
        is_held()?;
        if self.kind_of(actor.client, &site)? != FileKind::Regular {
            return Err(CapsStat::BadType);
        }
        let caller = self.caller(actor, &site.export)?;
        let lent = site.export.backend.lend(&actor.cx(&caller), &site.handle, what);
        let lent = lent.map_err(|error| match error {
            FsError::Delay | FsError::WouldBlock => CapsStat::NotHeld,
            other => status::of_fs(other),
        })?;
        // To open it may have cost what was held.
        is_held()?;
        let token = neighbours.keep(actor.client, lent.ok_or(CapsStat::NotSupp)?);
        Ok(DescriptorOk { token: token.ok_or(CapsStat::NotSupp)? })
    }
}
