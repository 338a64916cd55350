//! READ, WRITE, COMMIT (RFC 1813 sections 3.3.6, 3.3.7 and 3.3.21).

use holdfast_base::limits::{FILE_REPLY_BYTES_MIN, IO_BYTES_MAX};
use holdfast_rpc::FileBody;
use holdfast_state::Access;
use holdfast_vfs::{AttrMask, Change, File, FileKind, FsError, Stability, WriteAt};
use holdfast_wire::nfs3::{
    Commit3Args, Commit3Ok, NfsStat3, Proc3, Read3Args, StableHow, WccData, Write3Args, Write3Ok,
};
use holdfast_xdr::{Encode, Writer};

use crate::attr;
use crate::procedure::{Desc, FailBody, Failure, On, Op, Procedure, Site, put};

/// Reads from a file.
pub(crate) struct Read;

impl Procedure for Read {
    const DESC: Desc = Desc::looks(Proc3::Read, FailBody::PostOp);
    type Args<'a> = Read3Args<'a>;

    fn run(op: &mut Op<'_>, on: &On, args: &Read3Args<'_>, w: &mut Writer) -> Result<(), Failure> {
        let site = on.first.site_or(NfsStat3::Inval)?;
        op.check_shares(&site.handle, Access::READ)?;
        let bytes_max = (args.count as usize).min(IO_BYTES_MAX);
        if bytes_max >= FILE_REPLY_BYTES_MIN && read_span(op, site, args.offset.0, bytes_max, w)? {
            return Ok(());
        }
        NfsStat3::Ok.encode(w);
        // The data is read to its place in the reply, behind the attributes, which are known afterwards.
        let attrs_at = w.len();
        w.put(&[0; POST_OP_ATTR_BYTES]);
        let (count, eof) = (w.mark(), w.mark());
        let data_at = w.len();
        let (backend, cx, file) = (site.backend(), site.cx(op.wait), File::Stateless(&site.handle));
        let (mut is_eof, mut attrs) = (false, None);
        let read = w.opaque_with(bytes_max, |into| {
            let (read, seen) = backend.read_and_look(&cx, file, args.offset.0, into)?;
            (is_eof, attrs) = (read.is_eof, seen);
            Ok::<_, FsError>(read.bytes)
        })?;
        w.fill(count, read as u32);
        w.fill(eof, u32::from(is_eof));
        match attrs {
            Some(attrs) => w.overwrite(attrs_at, &Some(attr::fattr(&attrs))),
            None => without_attributes(attrs_at, data_at, w),
        }
        Ok(())
    }
}

/// Bytes of a `post_op_attr` that has attributes.
const POST_OP_ATTR_BYTES: usize = 4 + 84;

/// Moves a READ's results to where they begin when no attributes stand before them.
fn without_attributes(attrs_at: usize, data_at: usize, w: &mut Writer) {
    let rest = w.as_slice()[data_at - 8..].to_vec();
    w.truncate(attrs_at);
    false.encode(w);
    w.put(&rest);
}

/// Answers with a stretch of the file itself, when the backend can: true when it did.
fn read_span(
    op: &mut Op<'_>,
    site: &Site,
    offset: u64,
    bytes: usize,
    w: &mut Writer,
) -> Result<bool, FsError> {
    let cx = site.cx(op.wait);
    let Some(span) = site.backend().read_span(&cx, File::Stateless(&site.handle), offset, bytes)? else {
        return Ok(false);
    };
    if span.bytes < FILE_REPLY_BYTES_MIN {
        // Near the end of the file little is left: not worth a second system call.
        return Ok(false);
    }
    let attrs = site.backend().getattr(&cx, &site.handle, AttrMask::STAT)?;
    NfsStat3::Ok.encode(w);
    Some(attr::fattr(&attrs)).encode(w);
    w.length(span.bytes);
    span.is_eof.encode(w);
    w.length(span.bytes);
    // The padding follows the data: an XDR opaque is a multiple of 4 bytes.
    let trailer = vec![0; span.bytes.wrapping_neg() & 3];
    op.file = Some(FileBody { fd: span.fd, offset: span.offset, bytes: span.bytes, trailer });
    Ok(true)
}

/// Writes to a file. Runs on the connection's worker as long as nothing waits: what was to be stable waits for
/// the committer, not for a thread.
pub(crate) struct Write;

impl Procedure for Write {
    // Not recorded: done again after a crash, it gives the same.
    const DESC: Desc = Desc { waits: false, records: false, ..Desc::changes(Proc3::Write, FailBody::Wcc) };
    type Args<'a> = Write3Args<'a>;

    fn run(op: &mut Op<'_>, on: &On, args: &Write3Args<'_>, w: &mut Writer) -> Result<(), Failure> {
        let site = on.first.site()?;
        // A count below the data's length cuts it; one above it promises bytes that did not come.
        let data = args.data.get(..args.count as usize).ok_or(NfsStat3::Inval)?;
        let data = &data[..data.len().min(IO_BYTES_MAX)];
        let stability = match args.stable {
            StableHow::Unstable => Stability::Unstable,
            StableHow::DataSync => Stability::DataSync,
            StableHow::FileSync => Stability::FileSync,
        };
        // Of WRITEs to one file that came together the last tells what all have done to it. A look after each would make the
        // next one take a new time for the file, and with it a transaction, which costs more than the write itself.
        // Deviation: RFC 1813 section 2.6 would have attributes wherever they can be had, and lets clients do without.
        let is_told_next = stability == Stability::Unstable && op.goes_on(args.file);
        let at = WriteAt { offset: args.offset.0, stability, want_change: !is_told_next };
        op.check_shares(&site.handle, Access::WRITE)?;
        let backend = site.backend();
        // Taken before the write: were the verifier to change meanwhile, the client must not match this reply
        // with a later COMMIT (RFC 1813 section 3.3.7).
        let verf = backend.write_verifier();
        let written = op.mutate(site).write(File::Stateless(&site.handle), at, data)?;
        // A commit takes both the data and the attributes: nothing is left between the two kinds of stable.
        let committed =
            if args.stable == StableHow::Unstable { StableHow::Unstable } else { StableHow::FileSync };
        if committed != StableHow::Unstable {
            op.touch(site, site.handle, true);
        }
        let file_wcc = written.change.as_ref().map_or(WccData::NONE, attr::wcc);
        put(w, Write3Ok { file_wcc, count: written.bytes as u32, committed, verf });
        Ok(())
    }
}

/// Makes what was written durable. The range is not looked at: more than asked is durable then.
pub(crate) struct Commit;

impl Procedure for Commit {
    const DESC: Desc = Desc::looks(Proc3::Commit, FailBody::Wcc);
    type Args<'a> = Commit3Args<'a>;

    fn run(op: &mut Op<'_>, on: &On, _: &Commit3Args<'_>, w: &mut Writer) -> Result<(), Failure> {
        let site = on.first.site_or(NfsStat3::Inval)?;
        let attrs = site.backend().getattr(&site.cx(op.wait), &site.handle, AttrMask::STAT)?;
        if attrs.kind != FileKind::Regular {
            return Err(NfsStat3::Inval.into());
        }
        op.touch(site, site.handle, true);
        // A commit changes nothing that a client sees, so before and after are one look.
        let unchanged = Change { before: (&attrs).into(), after: attrs, is_atomic: true };
        op.ends_with_verifier = true;
        put(w, Commit3Ok { file_wcc: attr::wcc(&unchanged), verf: site.backend().write_verifier() });
        Ok(())
    }
}
