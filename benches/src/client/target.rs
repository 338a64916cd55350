//! What a load is aimed at: the handles of the objects on the volume, as NFSv3 gives them.

use super::call::{Caller, Procedure};
use crate::rival::Ports;
use crate::volume::{self, EXPORT_NAME, SMALL_FILES, small_name};
use anyhow::{Context, Result, bail};
use holdfast_wire::mount3::{DirPath, MOUNT_PROGRAM, MOUNT_V3, MOUNTPROC3_MNT, MountRes3};
use holdfast_wire::nfs3::{DirOpArgs3, Fh3, Lookup3Res, NFS_V3, NFS3_PROGRAM, Proc3, Res3};
use std::net::SocketAddrV4;

/// A file handle.
pub(crate) type Handle = Vec<u8>;

/// The handles that loads use.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The folder of small files.
    pub(crate) small: Handle,
    /// The files in it, by number.
    pub(crate) small_files: Vec<Handle>,
    /// The folder in which names are made and removed.
    pub(crate) changing: Handle,
    /// Its number.
    pub(crate) folder: String,
    /// The folder to be listed.
    pub(crate) listed: Handle,
    /// The file that is read.
    pub(crate) read_file: Handle,
    /// The file that is written.
    pub(crate) write_file: Handle,
    /// Bytes of either.
    pub(crate) data_bytes: u64,
}

/// The number of a procedure of NFSv3.
pub(crate) fn nfs3(procedure: Proc3) -> Procedure {
    Procedure { program: NFS3_PROGRAM, version: NFS_V3, number: procedure.as_u32() }
}

impl Target {
    /// Mounts and looks everything up; the folder of changing names is the one of number `folder`.
    ///
    /// Errors when the server refuses.
    pub(crate) fn find(ports: Ports, folder: usize) -> Result<Self> {
        let root = mount(ports.mount).context("mounting over MOUNT version 3")?;
        let mut caller = Caller::connect(ports.nfs)?;
        let mut find = |dir: &Handle, name: &str| {
            lookup(&mut caller, dir, name).with_context(|| format!("looking up {name}"))
        };
        let small = find(&root, volume::SMALL)?;
        let small_files = (0..SMALL_FILES).map(|n| find(&small, &small_name(n))).collect::<Result<_>>()?;
        let parent = find(&root, volume::CHANGING)?;
        let folder = folder.to_string();
        Ok(Self {
            small_files,
            changing: find(&parent, &folder)?,
            listed: find(&root, volume::LISTED)?,
            read_file: find(&root, volume::READ_FILE)?,
            write_file: find(&root, volume::WRITE_FILE)?,
            data_bytes: volume::DATA_BYTES,
            small,
            folder,
        })
    }
}

/// The handle at the end of a path below the export.
///
/// Errors when the server refuses.
pub(crate) fn find(ports: Ports, path: &[&str]) -> Result<Handle> {
    let mut caller = Caller::connect(ports.nfs)?;
    let root = mount(ports.mount)?;
    path.iter().try_fold(root, |dir, name| lookup(&mut caller, &dir, name))
}

fn mount(address: SocketAddrV4) -> Result<Handle> {
    let procedure = Procedure { program: MOUNT_PROGRAM, version: MOUNT_V3, number: MOUNTPROC3_MNT };
    let path = format!("/{EXPORT_NAME}");
    let results = Caller::connect(address)?.call(procedure, &DirPath(path.as_bytes()))?;
    match holdfast_xdr::from_bytes(&results)? {
        MountRes3::Ok(ok) => Ok(ok.fhandle.to_vec()),
        MountRes3::Fail(status) => bail!("{status}"),
    }
}

fn lookup(caller: &mut Caller, dir: &Handle, name: &str) -> Result<Handle> {
    let results = caller.call(nfs3(Proc3::Lookup), &DirOpArgs3 { dir: Fh3(dir), name: name.as_bytes() })?;
    let result: Lookup3Res<'_> = holdfast_xdr::from_bytes(&results)?;
    match result {
        Res3::Ok(ok) => Ok(ok.object.0.to_vec()),
        Res3::Fail(status, _) => bail!("{status}"),
    }
}
