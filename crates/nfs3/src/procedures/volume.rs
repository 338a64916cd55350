//! FSSTAT, FSINFO, PATHCONF (RFC 1813 sections 3.3.18 to 3.3.20).

use holdfast_base::limits::{IO_BYTES_MAX, NAME_BYTES_MAX};
use holdfast_vfs::{FsLimits, FsUsage};
use holdfast_wire::nfs3::{
    FSF3_CANSETTIME, FSF3_HOMOGENEOUS, FSF3_LINK, FSF3_SYMLINK, Fh3, FsInfo3Ok, FsStat3Ok, NfsTime3,
    PathConf3Ok, Proc3,
};
use holdfast_xdr::Writer;

use crate::procedure::{Desc, FailBody, Failure, On, Op, Procedure, Target, put};

/// Sizes of READ, WRITE and READDIR.
const IO_BYTES: u32 = IO_BYTES_MAX as u32;
/// What they should be a multiple of: a page.
const IO_MULTIPLE: u32 = 4096;

/// Of the directories above the exports.
const PSEUDO_LIMITS: FsLimits = FsLimits {
    name_bytes_max: NAME_BYTES_MAX as u32,
    links_max: u32::MAX,
    file_bytes_max: i64::MAX as u64,
    time_delta_nanos: 1,
    has_xattrs: false,
    has_birth_time: false,
    has_clone: false,
    has_sparse: false,
    change_is_version_counter: false,
    is_read_only: true,
    clone_block_bytes: 0,
};

fn limits(target: &Target) -> Result<FsLimits, Failure> {
    match target {
        Target::Pseudo(_) => Ok(PSEUDO_LIMITS),
        Target::Site(site) => Ok(site.backend().limits(&site.handle)?),
    }
}

/// Space and objects.
pub(crate) struct FsStat;

impl Procedure for FsStat {
    const DESC: Desc = Desc::looks(Proc3::FsStat, FailBody::PostOp);
    type Args<'a> = Fh3<'a>;

    fn run(op: &mut Op<'_>, on: &On, _: &Fh3<'_>, w: &mut Writer) -> Result<(), Failure> {
        let usage = match &on.first {
            Target::Pseudo(_) => FsUsage::default(),
            Target::Site(site) => site.backend().usage(&site.cx(op.wait), &site.handle)?,
        };
        let ok = FsStat3Ok {
            obj_attributes: op.post_op(&on.first)?,
            tbytes: usage.bytes_total,
            fbytes: usage.bytes_free,
            abytes: usage.bytes_available,
            tfiles: usage.files_total,
            ffiles: usage.files_free,
            afiles: usage.files_available,
            // Others may write at any moment.
            invarsec: 0,
        };
        put(w, ok);
        Ok(())
    }
}

/// What the server can do.
pub(crate) struct FsInfo;

impl Procedure for FsInfo {
    const DESC: Desc = Desc::looks(Proc3::FsInfo, FailBody::PostOp);
    type Args<'a> = Fh3<'a>;

    fn run(op: &mut Op<'_>, on: &On, _: &Fh3<'_>, w: &mut Writer) -> Result<(), Failure> {
        let limits = limits(&on.first)?;
        let ok = FsInfo3Ok {
            obj_attributes: op.post_op(&on.first)?,
            rtmax: IO_BYTES,
            rtpref: IO_BYTES,
            rtmult: IO_MULTIPLE,
            wtmax: IO_BYTES,
            wtpref: IO_BYTES,
            wtmult: IO_MULTIPLE,
            dtpref: IO_BYTES,
            maxfilesize: limits.file_bytes_max,
            time_delta: NfsTime3 { seconds: 0, nseconds: limits.time_delta_nanos },
            properties: FSF3_LINK | FSF3_SYMLINK | FSF3_HOMOGENEOUS | FSF3_CANSETTIME,
        };
        put(w, ok);
        Ok(())
    }
}

/// What POSIX's `pathconf` asks.
pub(crate) struct PathConf;

impl Procedure for PathConf {
    const DESC: Desc = Desc::looks(Proc3::PathConf, FailBody::PostOp);
    type Args<'a> = Fh3<'a>;

    fn run(op: &mut Op<'_>, on: &On, _: &Fh3<'_>, w: &mut Writer) -> Result<(), Failure> {
        let limits = limits(&on.first)?;
        let ok = PathConf3Ok {
            obj_attributes: op.post_op(&on.first)?,
            linkmax: limits.links_max,
            name_max: limits.name_bytes_max,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        };
        put(w, ok);
        Ok(())
    }
}
