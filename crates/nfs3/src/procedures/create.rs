//! CREATE, MKDIR, SYMLINK, MKNOD (RFC 1813 sections 3.3.8 to 3.3.11).

use holdfast_base::limits::PATH_BYTES_MAX;
use holdfast_state::Access;
use holdfast_vfs::{AttrMask, Change, CreateHow, CreateMode, Device, Exclusive, NewNode, Node, SetAttrs};
use holdfast_wire::nfs3::{
    Create3Args, Create3Ok, CreateHow3, DeviceData3, DirOpArgs3, Fh3, Mkdir3Args, Mknod3Args, MknodData3,
    NfsStat3, Proc3, Symlink3Args,
};
use holdfast_xdr::Writer;

use crate::attr;
use crate::procedure::{Desc, FailBody, Failure, On, Op, Procedure, Site, new_name, put};

/// The result that all four share.
fn put_new(op: &Op<'_>, site: &Site, node: &Node, dir: &Change, w: &mut Writer) {
    let fh = op.namespace.seal_in(&site.export, &node.handle);
    put(
        w,
        Create3Ok {
            obj: Some(Fh3(fh.as_bytes())),
            obj_attributes: Some(attr::fattr(&node.attrs)),
            dir_wcc: attr::wcc(dir),
        },
    );
}

/// Makes a regular file.
pub(crate) struct Create;

impl Procedure for Create {
    const DESC: Desc = Desc::changes(Proc3::Create, FailBody::Wcc);
    type Args<'a> = Create3Args<'a>;

    fn run(op: &mut Op<'_>, on: &On, args: &Create3Args<'_>, w: &mut Writer) -> Result<(), Failure> {
        let site = on.first.site()?;
        let name = new_name(args.place.name)?;
        let (mode, set) = match &args.how {
            CreateHow3::Unchecked(set) => (CreateMode::Unchecked, attr::set_attrs(set)?),
            CreateHow3::Guarded(set) => (CreateMode::Guarded, attr::set_attrs(set)?),
            // The client sets the attributes afterwards.
            CreateHow3::Exclusive(verifier) => {
                (CreateMode::Exclusive(Exclusive(*verifier)), SetAttrs::default())
            }
        };
        if mode == CreateMode::Unchecked && set.size.is_some() && op.manager.has_denials() {
            let there = site.backend().lookup(&site.cx(op.wait), &site.handle, name, AttrMask::NONE);
            there.map_or(Ok(()), |there| op.check_shares(&there.handle, Access::WRITE))?;
        }
        let how = CreateHow { mode, set: &set, open: None, want: AttrMask::STAT };
        let created = op.mutate(site).create(&site.handle, name, &how)?;
        op.touch(site, site.handle, false);
        // What was there already may have been cut, and a verifier lies in the file.
        op.touch(site, created.node.handle, false);
        put_new(op, site, &created.node, &created.dir, w);
        Ok(())
    }
}

/// Makes what is no regular file.
fn make(
    op: &mut Op<'_>,
    on: &On,
    place: &DirOpArgs3<'_>,
    (what, set): (NewNode<'_>, SetAttrs),
    w: &mut Writer,
) -> Result<(), Failure> {
    let site = on.first.site()?;
    let name = new_name(place.name)?;
    let (node, dir) = op.mutate(site).make(&site.handle, name, what, &set)?;
    op.touch(site, site.handle, false);
    op.touch(site, node.handle, false);
    put_new(op, site, &node, &dir, w);
    Ok(())
}

/// Makes a directory.
pub(crate) struct Mkdir;

impl Procedure for Mkdir {
    const DESC: Desc = Desc::changes(Proc3::Mkdir, FailBody::Wcc);
    type Args<'a> = Mkdir3Args<'a>;

    fn run(op: &mut Op<'_>, on: &On, args: &Mkdir3Args<'_>, w: &mut Writer) -> Result<(), Failure> {
        make(op, on, &args.place, (NewNode::Directory, without_size(&args.attributes)?), w)
    }
}

/// Makes a symbolic link.
pub(crate) struct Symlink;

impl Procedure for Symlink {
    const DESC: Desc = Desc::changes(Proc3::Symlink, FailBody::Wcc);
    type Args<'a> = Symlink3Args<'a>;

    fn run(op: &mut Op<'_>, on: &On, args: &Symlink3Args<'_>, w: &mut Writer) -> Result<(), Failure> {
        let text = args.data;
        if text.is_empty() || text.contains(&0) {
            return Err(NfsStat3::Inval.into());
        }
        // With the NUL that ends it the text must fit into a path.
        if text.len() >= PATH_BYTES_MAX {
            return Err(NfsStat3::NameTooLong.into());
        }
        make(op, on, &args.place, (NewNode::Symlink(text), without_size(&args.attributes)?), w)
    }
}

/// Makes a device, a socket or a pipe.
pub(crate) struct Mknod;

impl Procedure for Mknod {
    const DESC: Desc = Desc::changes(Proc3::Mknod, FailBody::Wcc);
    type Args<'a> = Mknod3Args<'a>;

    fn run(op: &mut Op<'_>, on: &On, args: &Mknod3Args<'_>, w: &mut Writer) -> Result<(), Failure> {
        let device = |data: &DeviceData3| Device { major: data.spec.major, minor: data.spec.minor };
        let (what, attributes) = match &args.what {
            MknodData3::Chr(data) => (NewNode::Char(device(data)), &data.attributes),
            MknodData3::Blk(data) => (NewNode::Block(device(data)), &data.attributes),
            MknodData3::Sock(attributes) => (NewNode::Socket, attributes),
            MknodData3::Fifo(attributes) => (NewNode::Fifo, attributes),
            MknodData3::Other(_) => return Err(NfsStat3::BadType.into()),
        };
        make(op, on, &args.place, (what, without_size(attributes)?), w)
    }
}

/// Attributes of what has no size to set: one that came along is no error (some clients send 0).
fn without_size(set: &holdfast_wire::nfs3::Sattr3) -> Result<SetAttrs, NfsStat3> {
    Ok(SetAttrs { size: None, ..attr::set_attrs(set)? })
}
