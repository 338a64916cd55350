//! What tests of file operations begin with: files with data, directories, links; and operations on a path.

use std::sync::Arc;

use holdfast_base::{ExportId, Offset};
use holdfast_export::{ClientRule, Export, ExportOptions, Squash};
use holdfast_vfs::FsId;
use holdfast_vfs::mem::{MemBackend, MemOptions};
use holdfast_wire::nfs4::*;

use crate::client::{Peer, Reply, Session, at, open_create};
use crate::world::{Making, World};

pub(crate) const NO_ATTRS: Fattr4<'static> = Fattr4 { mask: Bitmap4::EMPTY, values: b"" };

/// Runs operations on a path below the export; the reply stands before the first one's result.
pub(crate) fn on(client: &mut Session, path: &[&[u8]], ops: &[ArgOp<'_>]) -> Reply {
    let mut reply = client.run(&[at(path).as_slice(), ops].concat());
    reply.ok::<()>(OpNum4::PutRootFh);
    for _ in 0..=path.len() {
        reply.ok::<()>(OpNum4::Lookup);
    }
    reply
}

/// Runs operations on the root of all exports.
pub(crate) fn on_root(client: &mut Session, ops: &[ArgOp<'_>]) -> Reply {
    let mut reply = client.run(&[&[ArgOp::PutRootFh], ops].concat());
    reply.ok::<()>(OpNum4::PutRootFh);
    reply
}

/// Runs operations without any filehandle.
pub(crate) fn on_nothing(client: &mut Session, op: ArgOp<'_>) -> Reply {
    client.run(&[op])
}

/// The same for a client of 4.0 without state.
pub(crate) fn on_v40(world: &World, path: &[&[u8]], ops: &[ArgOp<'_>]) -> Reply {
    on_peer(&mut Peer::new(world, 99, 0), path, ops)
}

/// The same for any client of 4.0.
pub(crate) fn on_peer(peer: &mut Peer, path: &[&[u8]], ops: &[ArgOp<'_>]) -> Reply {
    let mut reply = peer.compound(&[at(path).as_slice(), ops].concat());
    reply.ok::<()>(OpNum4::PutRootFh);
    for _ in 0..=path.len() {
        reply.ok::<()>(OpNum4::Lookup);
    }
    reply
}

/// A file of the export's root, open for both, with this in it at this place.
pub(crate) fn file(client: &mut Session, name: &[u8], offset: u64, data: &[u8]) -> Stateid4 {
    let write =
        Write4Args { stateid: Stateid4::CURRENT, offset: Offset(offset), stable: StableHow4::Unstable, data };
    let open = open_create(name, b"maker", OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG);
    let mut reply = on(client, &[], &[ArgOp::Open(open), ArgOp::Write(write)]);
    let stateid = reply.ok::<Open4Ok<'_>>(OpNum4::Open).stateid;
    assert_eq!(reply.ok::<Write4Ok>(OpNum4::Write).count as usize, data.len());
    stateid
}

/// Makes something other than a file in the export's root.
pub(crate) fn make(client: &mut Session, name: &[u8], objtype: CreateType4<'_>) {
    let create = Create4Args { objtype, objname: name, createattrs: NO_ATTRS };
    on(client, &[], &[ArgOp::Create(create)]).ok::<Create4Ok>(OpNum4::Create);
}

/// A world with a second export, at `/other`, and a read-only one of an empty file system, at `/frozen`.
pub(crate) fn three_exports() -> World {
    let other = |id, name: &[u8], is_read_only| Export {
        id: ExportId(id),
        path: vec![name.to_vec()],
        backend: Arc::new(MemBackend::new(&MemOptions {
            root_mode: 0o777,
            fsid: FsId { major: u64::from(id), minor: 1 },
            ..MemOptions::deterministic()
        })),
        options: ExportOptions {
            squash: Squash::None,
            clients: vec![ClientRule::All],
            is_sync: false,
            is_read_only,
            ..ExportOptions::default()
        },
    };
    let others = vec![other(8, b"other", false), other(9, b"frozen", true)];
    World::made(Making { others, ..Making::default() })
}

/// The way to the root of another export.
pub(crate) fn to_export(name: &[u8]) -> [ArgOp<'_>; 2] {
    [ArgOp::PutRootFh, ArgOp::Lookup(Lookup4Args { objname: name })]
}
