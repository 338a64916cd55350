//! REMOVE, RMDIR, RENAME, LINK (RFC 1813 sections 3.3.12 to 3.3.15).

use holdfast_vfs::{RemoveKind, RenameFlags};
use holdfast_wire::nfs3::{DirOpArgs3, Link3Args, LinkWcc3, NfsStat3, Proc3, Rename3Args, RenameWcc3};
use holdfast_xdr::Writer;

use crate::attr;
use crate::procedure::{Desc, FailBody, Failure, On, Op, Procedure, is_dots, name, new_name, put};

fn remove(
    op: &mut Op<'_>,
    on: &On,
    args: &DirOpArgs3<'_>,
    kind: RemoveKind,
    w: &mut Writer,
) -> Result<(), Failure> {
    let site = on.first.site()?;
    let change = op.mutate(site).remove(&site.handle, name(args.name)?, kind)?;
    op.touch(site, site.handle, false);
    put(w, attr::wcc(&change));
    Ok(())
}

/// Removes a name of anything but a directory.
pub(crate) struct Remove;

impl Procedure for Remove {
    const DESC: Desc = Desc::changes(Proc3::Remove, FailBody::Wcc);
    type Args<'a> = DirOpArgs3<'a>;

    fn run(op: &mut Op<'_>, on: &On, args: &DirOpArgs3<'_>, w: &mut Writer) -> Result<(), Failure> {
        if is_dots(args.name) {
            return Err(NfsStat3::IsDir.into());
        }
        remove(op, on, args, RemoveKind::NonDirectory, w)
    }
}

/// Removes an empty directory.
pub(crate) struct Rmdir;

impl Procedure for Rmdir {
    const DESC: Desc = Desc::changes(Proc3::Rmdir, FailBody::Wcc);
    type Args<'a> = DirOpArgs3<'a>;

    fn run(op: &mut Op<'_>, on: &On, args: &DirOpArgs3<'_>, w: &mut Writer) -> Result<(), Failure> {
        match args.name {
            // RFC 1813 section 3.3.13 names both.
            b"." => Err(NfsStat3::Inval.into()),
            b".." => Err(NfsStat3::Exist.into()),
            _ => remove(op, on, args, RemoveKind::Directory, w),
        }
    }
}

/// Renames.
pub(crate) struct Rename;

impl Procedure for Rename {
    const DESC: Desc = Desc::changes(Proc3::Rename, FailBody::TwoWcc);
    type Args<'a> = Rename3Args<'a>;

    fn run(op: &mut Op<'_>, on: &On, args: &Rename3Args<'_>, w: &mut Writer) -> Result<(), Failure> {
        let (from, to) = on.pair()?;
        if is_dots(args.from.name) || is_dots(args.to.name) {
            return Err(NfsStat3::Inval.into());
        }
        let source = (&from.handle, name(args.from.name)?);
        let target = (&to.handle, name(args.to.name)?);
        let changes = op.mutate(from).rename(source, target, RenameFlags::Replace)?;
        op.touch(from, from.handle, false);
        if from.handle != to.handle {
            op.touch(to, to.handle, false);
        }
        put(w, RenameWcc3 { fromdir_wcc: attr::wcc(&changes.0), todir_wcc: attr::wcc(&changes.1) });
        Ok(())
    }
}

/// Gives an object another name.
pub(crate) struct Link;

impl Procedure for Link {
    const DESC: Desc = Desc::changes(Proc3::Link, FailBody::PostOpWcc);
    type Args<'a> = Link3Args<'a>;

    fn run(op: &mut Op<'_>, on: &On, args: &Link3Args<'_>, w: &mut Writer) -> Result<(), Failure> {
        let (object, dir) = on.pair()?;
        let name = new_name(args.link.name)?;
        let (change, attrs) = op.mutate(dir).link(&object.handle, &dir.handle, name)?;
        op.touch(object, object.handle, false);
        op.touch(dir, dir.handle, false);
        put(w, LinkWcc3 { file_attributes: Some(attr::fattr(&attrs)), linkdir_wcc: attr::wcc(&change) });
        Ok(())
    }
}
