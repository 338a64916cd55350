//! Access lists, which say more than the mode: whether there are any, and what they say. Who judges by them is not decided here:
//! that is the server's file system, and the client's kernel.

use holdfast_base::{CapSet, ClientId};
use holdfast_vfs::{Caller, Cx, FsError, FsResult, Wait};
use holdfast_wire::caps::{AccessListArgs, AccessListOk, CapsStat, Res, WhichList};
use holdfast_xdr::{Encode as _, Writer};

use crate::site::{Actor, Site};
use crate::{Caps, status};

/// The list, empty where there is none.
fn list_of(site: &Site, cx: &Cx<'_>, which: WhichList) -> FsResult<Vec<u8>> {
    match site.export.backend.getxattr(cx, &site.handle, which.xattr()) {
        Err(FsError::NoXattr | FsError::NotSupported) => Ok(Vec::new()),
        list => list,
    }
}

/// Whether there surely is none.
fn has_none(client: ClientId, site: &Site, (which, wait): (WhichList, Wait)) -> bool {
    let root = Caller::root();
    // In the client's name: its own capabilities must not be recalled for being described.
    let cx = Cx::new(&root, wait).by(Some(client));
    list_of(site, &cx, which).is_ok_and(|list| list.is_empty())
}

/// Whether what is made in a directory is as its maker asks.
pub(crate) fn is_plain(client: ClientId, site: &Site) -> bool {
    // It is held exclusively: there is nobody to wait for.
    has_none(client, site, (WhichList::Default, Wait::Yes))
}

/// Whether more than the mode says who may do what, to a client that holds this.
pub(crate) fn is_listed(client: ClientId, site: &Site, held: CapSet) -> bool {
    // Others may have its extended attributes exclusively: nobody waits for them, nor asks for them back. Then it counts as
    // listed, and is asked for.
    !held.contains(CapSet::XATTR_S) || !has_none(client, site, (WhichList::Access, Wait::Yes))
}

impl Caps {
    pub(crate) fn access_list(
        &self,
        actor: &Actor,
        args: &AccessListArgs<'_>,
        reply: &mut Writer,
    ) -> Result<(), CapsStat> {
        let site = self.site(actor, args.handle.0)?;
        let caller = self.caller(actor, &site.export)?;
        let list = list_of(&site, &actor.cx(&caller), args.which).map_err(status::of_fs)?;
        Res::Ok(AccessListOk { list: &list }).encode(reply);
        Ok(())
    }
}
