//! GETATTR, SETATTR, LOOKUP, ACCESS, READLINK (RFC 1813 sections 3.3.1 to 3.3.5).

use holdfast_export::Object;
use holdfast_state::Access as Share;
use holdfast_vfs::{AccessMask, AttrMask, File, FsError};
use holdfast_wire::nfs3::{
    Access3Args, Access3Ok, DirOpArgs3, Fh3, Lookup3Ok, NfsStat3, PostOpAttr, Proc3, ReadLink3Ok,
    SetAttr3Args,
};
use holdfast_xdr::Writer;

use crate::attr;
use crate::procedure::{Desc, FailBody, Failure, On, Op, Procedure, Site, Target, name, put};

/// Attributes of an object.
pub(crate) struct GetAttr;

impl Procedure for GetAttr {
    const DESC: Desc = Desc::looks(Proc3::GetAttr, FailBody::Empty);
    type Args<'a> = Fh3<'a>;

    fn run(op: &mut Op<'_>, on: &On, _: &Fh3<'_>, w: &mut Writer) -> Result<(), Failure> {
        put(w, attr::fattr(&op.attributes(&on.first)?));
        Ok(())
    }
}

/// Changes attributes.
pub(crate) struct SetAttr;

impl Procedure for SetAttr {
    const DESC: Desc = Desc::changes(Proc3::SetAttr, FailBody::Wcc);
    type Args<'a> = SetAttr3Args<'a>;

    fn run(op: &mut Op<'_>, on: &On, args: &SetAttr3Args<'_>, w: &mut Writer) -> Result<(), Failure> {
        let site = on.first.site()?;
        let set = attr::set_attrs(&args.new_attributes)?;
        let guard = args.guard.map(attr::timestamp).transpose()?;
        if set.size.is_some() {
            op.check_shares(&site.handle, Share::WRITE)?;
        }
        let change = op.mutate(site).setattr(File::Stateless(&site.handle), &set, guard)?;
        op.touch(site, site.handle, false);
        put(w, attr::wcc(&change));
        Ok(())
    }
}

/// Finds a name.
pub(crate) struct Lookup;

impl Procedure for Lookup {
    const DESC: Desc = Desc::looks(Proc3::Lookup, FailBody::PostOp);
    type Args<'a> = DirOpArgs3<'a>;

    fn run(op: &mut Op<'_>, on: &On, args: &DirOpArgs3<'_>, w: &mut Writer) -> Result<(), Failure> {
        let (object, attributes) = match &on.first {
            Target::Pseudo(dir) => in_pseudo(op, *dir, args.name)?,
            Target::Site(site) => in_site(op, site, &on.first, args.name)?,
        };
        let dir_attributes = op.post_op(&on.first)?;
        let fh = op.namespace.seal(&object);
        put(w, Lookup3Ok { object: Fh3(fh.as_bytes()), obj_attributes: attributes, dir_attributes });
        Ok(())
    }
}

fn in_pseudo(op: &Op<'_>, dir: u64, name: &[u8]) -> Result<(Object, PostOpAttr), Failure> {
    let object = match name {
        b"." => Object::Pseudo(dir),
        // Above the root is the root.
        b".." => op.namespace.parent(dir).or_else(|e| root_above(e, Object::Pseudo(dir)))?,
        _ => op.namespace.lookup(dir, crate::procedure::name(name)?.as_bytes(), op.peer)?,
    };
    // The attributes of an export's root are left out: whether the caller may have them is judged with the
    // next call, which names the export itself.
    let attributes = match &object {
        Object::Pseudo(dir) => Some(attr::fattr(&op.namespace.attrs(*dir)?)),
        Object::Export(..) => None,
    };
    Ok((object, attributes))
}

fn root_above(error: FsError, root: Object) -> Result<Object, FsError> {
    if error == FsError::NotFound { Ok(root) } else { Err(error) }
}

fn in_site(op: &Op<'_>, site: &Site, target: &Target, bytes: &[u8]) -> Result<(Object, PostOpAttr), Failure> {
    let (backend, cx) = (site.backend(), site.cx(op.wait));
    let here = |handle| Object::Export(site.export.clone(), handle);
    let node = match bytes {
        b"." => return Ok((here(site.handle), op.post_op(target)?)),
        b".." => match backend.parent(&cx, &site.handle, AttrMask::STAT) {
            Err(FsError::NotFound) if backend.root()? == site.handle => {
                return above_export(op, site, target);
            }
            node => node?,
        },
        _ => backend.lookup(&cx, &site.handle, name(bytes)?, AttrMask::STAT)?,
    };
    Ok((here(node.handle), Some(attr::fattr(&node.attrs))))
}

/// Above an export's root lies the pseudo directory that it hangs in, or nothing but itself.
fn above_export(op: &Op<'_>, site: &Site, target: &Target) -> Result<(Object, PostOpAttr), Failure> {
    match op.namespace.parent_of_export(&site.export) {
        Ok(Object::Pseudo(dir)) => Ok((Object::Pseudo(dir), Some(attr::fattr(&op.namespace.attrs(dir)?)))),
        _ => Ok((Object::Export(site.export.clone(), site.handle), op.post_op(target)?)),
    }
}

/// Which rights the caller has.
pub(crate) struct Access;

/// Rights that a read-only export never gives.
const CHANGING: AccessMask = AccessMask::MODIFY.union(AccessMask::EXTEND).union(AccessMask::DELETE);
/// Rights that a pseudo directory gives everybody.
const PSEUDO: AccessMask = AccessMask::READ.union(AccessMask::LOOKUP);
/// Rights that this protocol knows.
const KNOWN: AccessMask = CHANGING.union(PSEUDO).union(AccessMask::EXECUTE);

impl Procedure for Access {
    const DESC: Desc = Desc::looks(Proc3::Access, FailBody::PostOp);
    type Args<'a> = Access3Args<'a>;

    fn run(op: &mut Op<'_>, on: &On, args: &Access3Args<'_>, w: &mut Writer) -> Result<(), Failure> {
        let asked = AccessMask::from_wire(args.access) & KNOWN;
        let rights = match &on.first {
            Target::Pseudo(_) => asked & PSEUDO,
            Target::Site(site) => {
                let is_read_only = site.export.options.is_read_only;
                let asked = if is_read_only { asked & PSEUDO.union(AccessMask::EXECUTE) } else { asked };
                site.backend().access(&site.cx(op.wait), &site.handle, asked)?.granted
            }
        };
        put(w, Access3Ok { obj_attributes: op.post_op(&on.first)?, access: rights.to_wire() });
        Ok(())
    }
}

/// A symbolic link's text.
pub(crate) struct ReadLink;

impl Procedure for ReadLink {
    const DESC: Desc = Desc::looks(Proc3::ReadLink, FailBody::PostOp);
    type Args<'a> = Fh3<'a>;

    fn run(op: &mut Op<'_>, on: &On, _: &Fh3<'_>, w: &mut Writer) -> Result<(), Failure> {
        let site = on.first.site_or(NfsStat3::Inval)?;
        let text = site.backend().readlink(&site.cx(op.wait), &site.handle)?;
        put(w, ReadLink3Ok { symlink_attributes: op.post_op(&on.first)?, data: &text });
        Ok(())
    }
}
