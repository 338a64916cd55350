//! Operations that change names: CREATE (RFC 8881 section 18.4), LINK (18.9), REMOVE (18.25), RENAME (18.26).

use holdfast_vfs::{Change, Device, Name, NewNode, RemoveKind, RenameFlags};
use holdfast_wire::nfs4::{
    Create4Args, Create4Ok, CreateType4, Link4Args, Link4Ok, NfsStat4, OpNum4, Remove4Args, Remove4Ok,
    Rename4Args, Rename4Ok, SpecData4,
};

use super::Op;
use crate::attr::decode::{self, Occasion};
use crate::cx::{At, Cx, change_info};
use crate::desc::{BITMAP_BYTES, CHANGE_INFO_BYTES, Flags, OpDesc};
use crate::error::OpResult;

impl Op for Create4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::Create, Flags::MUTATION.with(Flags::CLEARS_STATEID))
        .reply(CHANGE_INFO_BYTES + BITMAP_BYTES);
    type Ok = Create4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Create4Ok> {
        let what = new_node(&self.objtype)?;
        let name = Name::new(self.objname)?;
        let at = cx.at(NfsStat4::Rofs)?;
        let limits = at.backend().limits(&at.handle)?;
        let ids = cx.config().ids.as_ref();
        let wanted = decode::wanted(&self.createattrs, cx.minor(), &limits, ids, Occasion::Create)?;
        if wanted.set.size.is_some() {
            // RFC 8881 section 18.4.3: only regular files have a size to set, and OPEN makes those.
            return Err(NfsStat4::Inval.into());
        }
        let (node, change) = cx.mutate(&at).make(&at.handle, name, what, &wanted.set)?;
        cx.touched(&at, at.handle);
        cx.set_current(at.with(node.handle).object())?;
        Ok(Create4Ok { cinfo: change_info(&change), attrset: wanted.mask })
    }
}

fn new_node<'a>(what: &CreateType4<'a>) -> OpResult<NewNode<'a>> {
    let device = |d: &SpecData4| Device { major: d.major, minor: d.minor };
    Ok(match what {
        CreateType4::Lnk([]) => return Err(NfsStat4::Inval.into()),
        CreateType4::Lnk(text) => NewNode::Symlink(text),
        CreateType4::Blk(d) => NewNode::Block(device(d)),
        CreateType4::Chr(d) => NewNode::Char(device(d)),
        CreateType4::Sock => NewNode::Socket,
        CreateType4::Fifo => NewNode::Fifo,
        CreateType4::Dir => NewNode::Directory,
        CreateType4::Other(_) => return Err(NfsStat4::BadType.into()),
    })
}

impl Op for Remove4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::Remove, Flags::MUTATION).reply(CHANGE_INFO_BYTES);
    type Ok = Remove4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Remove4Ok> {
        let name = Name::new(self.target)?;
        let at = cx.at(NfsStat4::Rofs)?;
        let change = cx.mutate(&at).remove(&at.handle, name, RemoveKind::Any)?;
        cx.touched(&at, at.handle);
        Ok(Remove4Ok { cinfo: change_info(&change) })
    }
}

impl Op for Rename4Args<'_> {
    const DESC: OpDesc =
        OpDesc::new(OpNum4::Rename, Flags::MUTATION.with(Flags::NEEDS_SAVED_FH)).reply(2 * CHANGE_INFO_BYTES);
    type Ok = Rename4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Rename4Ok> {
        let (old, new) = (Name::new(self.oldname)?, Name::new(self.newname)?);
        let (from, to) = same_export(cx)?;
        let (source, target) =
            cx.mutate(&to).rename((&from.handle, old), (&to.handle, new), RenameFlags::Replace)?;
        cx.touched(&to, from.handle);
        cx.touched(&to, to.handle);
        let info = |change: &Change| change_info(change);
        Ok(Rename4Ok { source_cinfo: info(&source), target_cinfo: info(&target) })
    }
}

impl Op for Link4Args<'_> {
    const DESC: OpDesc =
        OpDesc::new(OpNum4::Link, Flags::MUTATION.with(Flags::NEEDS_SAVED_FH)).reply(CHANGE_INFO_BYTES);
    type Ok = Link4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Link4Ok> {
        let name = Name::new(self.newname)?;
        let (object, dir) = same_export(cx)?;
        let (change, _) = cx.mutate(&dir).link(&object.handle, &dir.handle, name)?;
        cx.touched(&dir, dir.handle);
        cx.touched(&dir, object.handle);
        Ok(Link4Ok { cinfo: change_info(&change) })
    }
}

/// The saved and the current object, which must be of one export: handles of two have different rules.
pub(crate) fn same_export(cx: &mut Cx<'_>) -> OpResult<(At, At)> {
    let saved = cx.saved_at(NfsStat4::Xdev)?;
    let current = cx.at(NfsStat4::Xdev)?;
    if saved.export.id == current.export.id { Ok((saved, current)) } else { Err(NfsStat4::Xdev.into()) }
}
