//! One request, one method, one reply.

use rustix::io::Errno;

use crate::abi::encode;
use crate::abi::fields::Put;
use crate::abi::operation::{Header, Operation};
use crate::filesystem::{Filesystem, Result};
use crate::ops::Read;
use crate::reply::{DataSink, DirSink};
use crate::request::Request;
use crate::types::{AttrReply, Entry, Opened};

/// What is to be sent.
pub(super) enum Answer {
    /// Success, and nothing else.
    Done,
    /// What was appended to the reply.
    Body,
    /// The same, followed by the sink's data.
    Data,
}

/// Performs a request that has a reply; appends to `out` after the header.
pub(super) fn perform(
    fs: &dyn Filesystem,
    rq: &Request<'_>,
    header: &Header,
    operation: &Operation<'_>,
    out: &mut Vec<u8>,
    data: &mut DataSink,
) -> Result<Answer> {
    let node = header.node;
    match operation {
        Operation::Lookup(at) => found(out, fs.lookup(rq, *at)),
        Operation::Getattr(file) => attributes(out, fs.getattr(rq, node, *file)),
        Operation::Setattr(set) => attributes(out, fs.setattr(rq, node, set)),
        Operation::Statx(file) => with(fs.statx(rq, node, *file), |x| encode::statx(out, &x)),
        Operation::Readlink => text(out, fs.readlink(rq, node)),
        Operation::Symlink { at, text } => found(out, fs.symlink(rq, *at, text)),
        Operation::Mknod { at, make } => found(out, fs.mknod(rq, *at, make)),
        Operation::Mkdir { at, make } => found(out, fs.mkdir(rq, *at, make)),
        Operation::Link { node, to } => found(out, fs.link(rq, *node, *to)),
        Operation::Unlink(at) => done(fs.unlink(rq, *at)),
        Operation::Rmdir(at) => done(fs.rmdir(rq, *at)),
        Operation::Rename(rename) => done(fs.rename(rq, rename)),
        Operation::Open(open) => opened(out, fs.open(rq, node, open)),
        Operation::Opendir(open) => opened(out, fs.opendir(rq, node, open)),
        Operation::Create { at, create } => created(out, fs.create(rq, *at, create)),
        Operation::Tmpfile(create) => created(out, fs.tmpfile(rq, node, create)),
        Operation::Read(read) => {
            data.reset(size(read.bytes));
            fs.read(rq, node, read, data).map(|()| Answer::Data)
        }
        Operation::Readdir(read) => listed(out, read, false, |sink| fs.readdir(rq, node, read, sink)),
        Operation::Readdirplus(read) => listed(out, read, true, |sink| fs.readdirplus(rq, node, read, sink)),
        Operation::Write(write) => with(fs.write(rq, node, write), |bytes| {
            out.put_u32(bytes);
            out.put_u32(0);
        }),
        Operation::Statfs => with(fs.statfs(rq, node), |s| encode::statfs(out, &s)),
        Operation::Syncfs => done(fs.syncfs(rq, node)),
        Operation::Release(release) => {
            fs.release(rq, node, release);
            Ok(Answer::Done)
        }
        Operation::Releasedir(release) => {
            fs.releasedir(rq, node, release);
            Ok(Answer::Done)
        }
        Operation::Fsync { file, what } => done(fs.fsync(rq, node, *file, *what)),
        Operation::Fsyncdir { file, what } => done(fs.fsyncdir(rq, node, *file, *what)),
        Operation::Flush(flush) => done(fs.flush(rq, node, flush)),
        Operation::Setxattr(set) => done(fs.setxattr(rq, node, set)),
        Operation::Getxattr { name, bytes_max } => sized(out, *bytes_max, fs.getxattr(rq, node, name)),
        Operation::Listxattr { bytes_max } => sized(out, *bytes_max, fs.listxattr(rq, node)),
        Operation::Removexattr(name) => done(fs.removexattr(rq, node, name)),
        Operation::Getlk(ask) => with(fs.getlk(rq, node, ask), |found| encode::lock(out, found.as_ref())),
        Operation::Setlk(ask) => done(fs.setlk(rq, node, ask)),
        Operation::Setlkw(ask) => done(fs.setlkw(rq, node, ask)),
        Operation::Access(mask) => done(fs.access(rq, node, *mask)),
        Operation::Ioctl(ioctl) => with(fs.ioctl(rq, node, ioctl), |(result, back)| {
            out.put_u32(result.cast_unsigned());
            out.put_zeros(12);
            out.extend_from_slice(back.get(..size(ioctl.out_bytes)).unwrap_or(&back));
        }),
        Operation::Fallocate(what) => done(fs.fallocate(rq, node, what)),
        Operation::Lseek { file, offset, what } => {
            with(fs.lseek(rq, node, *file, *offset, *what), |at| out.put_u64(at))
        }
        Operation::CopyFileRange { copy, has_wide_reply } => {
            with(fs.copy_file_range(rq, copy), |bytes| copied(out, bytes, *has_wide_reply))
        }
        // The session says when it is over.
        Operation::Destroy => Ok(Answer::Done),
        Operation::Unserved(_) => Err(Errno::NOSYS),
        // INIT comes once, before; the others have no reply and are seen to by the caller.
        Operation::Init(_)
        | Operation::Interrupt { .. }
        | Operation::Forget(_)
        | Operation::BatchForget(_) => Err(Errno::IO),
    }
}

fn size(bytes: u32) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn done(result: Result<()>) -> Result<Answer> {
    result.map(|()| Answer::Done)
}

fn with<T>(result: Result<T>, encode: impl FnOnce(T)) -> Result<Answer> {
    result.map(|value| {
        encode(value);
        Answer::Body
    })
}

fn found(out: &mut Vec<u8>, result: Result<Entry>) -> Result<Answer> {
    with(result, |entry| encode::entry(out, &entry))
}

fn attributes(out: &mut Vec<u8>, result: Result<AttrReply>) -> Result<Answer> {
    with(result, |reply| encode::attr_reply(out, &reply))
}

fn opened(out: &mut Vec<u8>, result: Result<Opened>) -> Result<Answer> {
    with(result, |opened| encode::opened(out, &opened))
}

fn created(out: &mut Vec<u8>, result: Result<(Entry, Opened)>) -> Result<Answer> {
    with(result, |(entry, opened)| {
        encode::entry(out, &entry);
        encode::opened(out, &opened);
    })
}

fn text(out: &mut Vec<u8>, result: Result<Vec<u8>>) -> Result<Answer> {
    with(result, |text| out.extend_from_slice(&text))
}

/// The reply to GETXATTR and LISTXATTR: the size alone when that was asked for (0 bytes), else the value, which must
/// fit.
fn sized(out: &mut Vec<u8>, bytes_max: u32, result: Result<Vec<u8>>) -> Result<Answer> {
    let value = result?;
    if bytes_max == 0 {
        out.put_u32(u32::try_from(value.len()).map_err(|_| Errno::TOOBIG)?);
        out.put_u32(0);
    } else if value.len() > size(bytes_max) {
        return Err(Errno::RANGE);
    } else {
        out.extend_from_slice(&value);
    }
    Ok(Answer::Body)
}

fn listed(
    out: &mut Vec<u8>,
    read: &Read,
    has_nodes: bool,
    list: impl FnOnce(&mut DirSink<'_>) -> Result<()>,
) -> Result<Answer> {
    let mut sink = DirSink::new(out, size(read.bytes), has_nodes);
    let result = list(&mut sink);
    // What was taken is told before the error: lookups were counted for it. The error comes again when the listing
    // goes on.
    if sink.is_empty() { result.map(|()| Answer::Body) } else { Ok(Answer::Body) }
}

fn copied(out: &mut Vec<u8>, bytes: u64, has_wide_reply: bool) {
    if has_wide_reply {
        out.put_u64(bytes);
    } else {
        // The older reply holds 32 bits; to have copied less is no error.
        out.put_u32(u32::try_from(bytes).unwrap_or(!0xfff));
        out.put_u32(0);
    }
}
