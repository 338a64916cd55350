//! FIND: a lookup that may promise the name by itself, where its directory cannot be or is taken again and again
//! (`docs/design/caps-protocol.md`, section 3.5).

use holdfast_base::{CapSet, ClientId, FileKey};
use holdfast_export::WireHandle;
use holdfast_manager::CapsOn;
use holdfast_vfs::{FileKind, Name};
use holdfast_wire::caps::{CapsStat, FindOk, Handle, LookupArgs, NamePromise, Res};
use holdfast_xdr::{Encode, Writer};

use crate::site::{Actor, Site};
use crate::{Caps, status};

/// What a lookup may promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Promising {
    /// What there is to be held of objects.
    Directories,
    /// And single names.
    Names,
}

/// With this a token begins, and no handle: those begin with their version, which is 1.
const TOKEN: u8 = b'n';
const TOKEN_BYTES: usize = 17;

/// What stands for a name on the wire.
fn token(name: FileKey) -> Option<WireHandle> {
    let mut bytes = [TOKEN; TOKEN_BYTES];
    bytes[1..].copy_from_slice(&name.0.to_be_bytes());
    WireHandle::new(&bytes)
}

/// The name that a token stands for; `None` of a handle.
pub(crate) fn name_of(token: &[u8]) -> Option<FileKey> {
    let key = token.strip_prefix(&[TOKEN])?.try_into().ok()?;
    Some(FileKey(u128::from_be_bytes(key)))
}

impl Caps {
    pub(crate) fn find(
        &self,
        actor: &Actor,
        args: &LookupArgs<'_>,
        reply: &mut Writer,
    ) -> Result<(), CapsStat> {
        let looked = self.look_up(actor, args, Promising::Names)?;
        let promise = looked.promise.as_ref();
        let promise = promise.map(|(token, seq)| NamePromise { token: Handle(token.as_bytes()), seq: *seq });
        Res::Ok(FindOk { looked: looked.told(), promise }).encode(reply);
        Ok(())
    }

    /// Whether what is promised of a directory's entries would soon be taken again.
    pub(crate) fn is_contested(&self, dir: &Site) -> bool {
        let manager = &self.parts.manager;
        let now = manager.clock().now();
        manager.look(|engine| engine.caps_is_contested(dir.key(), now))
    }

    /// Promises a name, if it can be. Before what it stands for is looked up.
    pub(crate) fn promise_name(
        &self,
        client: ClientId,
        dir: &Site,
        name: Name<'_>,
    ) -> Result<Option<(WireHandle, u64)>, CapsStat> {
        let key = self.parts.manager.name_key(&dir.handle, name);
        let Some(token) = token(key.name) else { return Ok(None) };
        self.will_hold(client)?;
        // Before it is promised: it may be recalled at once.
        let is_held = || self.is_held(client, key.name);
        let promising = self.members.may_know((client, key.name), token, is_held);
        self.members.is_name_in(client, key.name, dir.export.id);
        let on = CapsOn {
            backend: &dir.export.backend,
            handle: &dir.handle,
            kind: FileKind::Directory,
            file: None,
        };
        let granted = self.parts.manager.acquire_name(client, key, &on).map_err(status::of_state);
        drop(promising);
        let grant = granted?;
        Ok(grant.held.contains(CapSet::FILE_S).then_some((token, grant.seq)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_leads_back_to_its_name_and_no_handle_is_one() {
        let name = FileKey(u128::MAX - 5);
        assert_eq!(name_of(token(name).unwrap().as_bytes()), Some(name));
        assert_eq!(name_of(&[TOKEN; TOKEN_BYTES - 1]), None);
        assert_eq!(name_of(&[TOKEN; TOKEN_BYTES + 1]), None);
        assert_eq!(name_of(&[1; TOKEN_BYTES]), None);
    }
}
