//! Access lists, which say more than the mode: whether there are any, and what they say. Who judges by them is not decided here:
//! that is the server's file system, and the client's kernel.

use std::sync::Arc;

use holdfast_base::{CapSet, ClientId};
use holdfast_vfs::{AccessLists, Caller, Cx, File, FileKind, FileObject, FsError, FsResult, Wait};
use holdfast_wire::caps::{AccessListArgs, AccessListOk, CapsStat, GrantFlags, Res, WhichList};
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

/// What a grant says of an object's lists to a client that holds this; `open` is the file, where it is open already.
pub(crate) fn flags_of(
    (client, site): (ClientId, &Site),
    (kind, held): (FileKind, CapSet),
    open: Option<&Arc<dyn FileObject>>,
) -> GrantFlags {
    // Without AUTH_S nobody goes by the lists. Others may have the extended attributes exclusively: nobody waits for them, nor asks
    // for them back. Then the object counts as listed, and is asked for.
    let is_judged = kind != FileKind::Symlink && held.contains(CapSet::AUTH_S);
    let is_covered = is_judged && held.contains(CapSet::XATTR_S);
    let is_dir = kind == FileKind::Directory;
    let is_held = is_dir && held.contains(CapSet::FILE_X);
    // What is held exclusively is waited for; there is nobody else.
    let lists = (is_covered || is_held).then(|| lists_of(client, site, open)).flatten();
    let hands_on_none = is_dir && lists.is_some_and(|lists| !lists.default);
    let has_none = is_covered && lists.is_some_and(|lists| !lists.access);
    let all = [
        (is_held && hands_on_none, GrantFlags::PLAIN),
        (is_judged && !has_none, GrantFlags::LISTED),
        (is_covered && hands_on_none, GrantFlags::HANDS_ON_NONE),
    ];
    let told = all.iter().filter(|(is_so, _)| *is_so);
    GrantFlags(told.fold(0, |flags, (_, flag)| flags | flag.0))
}

/// Which lists there are, with one call for both; `None` where that is not sure.
fn lists_of(client: ClientId, site: &Site, open: Option<&Arc<dyn FileObject>>) -> Option<AccessLists> {
    let root = Caller::root();
    // In the client's name: its own capabilities must not be recalled for being described.
    let cx = Cx::new(&root, Wait::Yes).by(Some(client));
    let file = open.map_or(File::Stateless(&site.handle), |open| File::Open(&site.handle, open));
    site.export.backend.access_lists(&cx, file).ok()
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
