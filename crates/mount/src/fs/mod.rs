//! The kernel's requests, translated into operations of the volume.

mod call;
mod closes;
mod convert;
mod held;
mod listing;
mod locking;
mod passing;
mod unlocking;

use std::sync::Arc;

use bytes::Bytes;
use holdfast_fuse::{
    AttrReply, Connection, CopyRange, Create, DataSink, DirSink, Entry, Fallocate, FallocateFlags,
    FileHandle, Filesystem, Flush, Forget, InitFlags, LockAsk, LockSpan, Make, NameIn, NodeId, Open,
    OpenFlags, Opened, Read, Release, Rename, RenameFlags, Request, SeekFor, SetAttr, SetXattr, Statfs,
    StatxReply, SyncWhat, Write, XattrMode,
};
use holdfast_volume::cache::{self, AllocateMode, Caller, Lookup, ReadInto, RenameMode, SeekKind, WriteTo};
use holdfast_volume::{Cancel, There, Volume, Waiting};
use rustix::io::Errno;

use call::{Call, Ends};
use closes::Closes;
use convert::{
    attr, attributes, changes, entry, errno, fh, kind_of, node, open_flags, opened, opened_dir, validity,
};
use held::Held;
use passing::Passing;
use unlocking::Unlocking;

type Result<T> = std::result::Result<T, Errno>;

/// The file system that the kernel sees.
pub(crate) struct Translation {
    volume: Volume,
    passing: Passing,
    /// The kernel judges by access lists.
    has_lists: bool,
    /// Where `O_DIRECT` ends.
    direct_ends: There,
    held: Arc<Held>,
    unlocking: Arc<Unlocking>,
    closes: Closes,
}

/// Somebody who is not there to be asked any more.
struct Opener {
    caller: Caller,
    cancel: Cancel,
}

impl Waiting for Opener {
    fn caller(&self) -> Caller {
        self.caller.clone()
    }

    fn whole_caller(&self) -> Caller {
        self.caller.clone()
    }

    fn cancel(&self) -> Cancel {
        self.cancel.clone()
    }
}

fn at<'a>(name: NameIn<'a>) -> (cache::NodeId, &'a [u8]) {
    (node(name.dir), name.name)
}

impl Translation {
    pub(crate) fn new(volume: Volume, (passes_through, direct_ends): (bool, There), has_lists: bool) -> Self {
        Self {
            unlocking: Unlocking::new(volume.clone()),
            volume,
            passing: Passing::new(passes_through),
            has_lists,
            direct_ends,
            held: Arc::default(),
            closes: Closes::default(),
        }
    }

    /// Has the kernel read and write by itself what the server lends, from now on.
    pub(crate) fn pass_through(&self, kernel: holdfast_fuse::Passthrough) {
        self.passing.by(kernel);
    }

    /// A file that was made and opened.
    fn made(
        &self,
        call: &Call<'_>,
        made: &cache::Entry,
        (done, flags): (&cache::Opened, OpenFlags),
    ) -> Result<(Entry, Opened)> {
        let entry = entry(made);
        let passed = self.passing.made_or_opened(&self.volume, call, (entry.node, done.fh), flags);
        let passed = passed.inspect_err(|_| self.volume.release(done.fh)).map_err(errno)?;
        let done = opened(done, passed, !self.closes.is_told(entry.node));
        Ok((entry, done))
    }

    /// NFS carries the users' attributes alone; to ask a server for others would cost a round trip for each `ls -l`. Access lists
    /// are asked for only where the kernel judges by them.
    fn served_xattr(&self, name: &[u8]) -> Result<()> {
        let is_served = name.starts_with(b"user.") || (self.has_lists && cache::is_access_list(name));
        if is_served { Ok(()) } else { Err(Errno::OPNOTSUPP) }
    }

    /// Takes set-id bits from a file that is changed, if its caller may not keep them: with `HANDLE_KILLPRIV_V2` the kernel leaves
    /// it to us.
    fn drop_set_ids(&self, who: &dyn Waiting, at: NodeId, are_to_go: bool) -> Result<()> {
        if are_to_go { self.volume.drop_set_ids(who, node(at)).map_err(errno) } else { Ok(()) }
    }

    fn write_for(&self, who: &dyn Waiting, at: NodeId, write: &Write<'_>) -> Result<u32> {
        self.drop_set_ids(who, at, write.kill_set_ids)?;
        let data = Bytes::copy_from_slice(write.data);
        let file = fh(write.file);
        // As it is now, which `fcntl` may have changed. What comes back of a mapping goes where it was.
        let appends = write.flags.contains(OpenFlags::APPEND) && !write.is_write_back;
        let place = (write.offset, if appends { WriteTo::End } else { WriteTo::Place });
        let written = if write.flags.contains(OpenFlags::DIRECT) && self.volume.has_server() {
            self.volume.write_there(who, file, place, (&data, self.direct_ends))
        } else {
            self.volume.write(who, file, place, &data)
        };
        let written = written.map_err(errno)?;
        if write.flags.contains(OpenFlags::SYNC) {
            self.volume.fsync(who, node(at), file).map_err(errno)?;
        } else if write.flags.contains(OpenFlags::DSYNC) {
            self.volume.fdatasync(who, node(at), file).map_err(errno)?;
        }
        Ok(written)
    }
}

impl Filesystem for Translation {
    fn init(&self, connection: &Connection) {
        // Without it shared mappings of such files are refused.
        self.volume.may_go_past_pages(connection.flags.contains(InitFlags::DIRECT_IO_ALLOW_MMAP));
        self.volume.may_tell_names(connection.has_epochs());
    }

    fn lookup(&self, request: &Request<'_>, name: NameIn<'_>) -> Result<Entry> {
        match self.volume.lookup(&Call::new(request), at(name)).map_err(errno)? {
            Lookup::Found(found) => Ok(entry(&found)),
            Lookup::Absent { valid: true } => Ok(Entry::absent(validity(true))),
            Lookup::Absent { valid: false } => Err(Errno::NOENT),
        }
    }

    fn forget(&self, forgets: &[Forget]) {
        for forget in forgets {
            self.closes.forgotten(forget.node);
            self.volume.forget(node(forget.node), forget.lookups);
        }
    }

    fn getattr(&self, request: &Request<'_>, at: NodeId, _: Option<FileHandle>) -> Result<AttrReply> {
        let told = self.volume.getattr(&Call::new(request), node(at)).map_err(errno)?;
        Ok(attributes(&told))
    }

    fn statx(&self, request: &Request<'_>, at: NodeId, _: Option<FileHandle>) -> Result<StatxReply> {
        let told = self.volume.getattr(&Call::new(request), node(at)).map_err(errno)?;
        Ok(StatxReply {
            attr: attr(&told.attrs),
            btime: told.attrs.btime,
            attributes: 0,
            attributes_mask: 0,
            valid: validity(told.valid),
        })
    }

    fn setattr(&self, request: &Request<'_>, at: NodeId, set: &SetAttr) -> Result<AttrReply> {
        let call = Call::new(request);
        // A change of owner says so as well, and takes them by itself.
        self.drop_set_ids(&call, at, set.kill_set_ids && set.size.is_some())?;
        let (node, changes) = (node(at), changes(set));
        let told = match set.file.filter(|_| set.size.is_some()) {
            Some(file) => self.volume.truncate(&call, (node, fh(file)), &changes),
            None => self.volume.setattr(&call, node, &changes),
        };
        told.map(|told| attributes(&told)).map_err(errno)
    }

    fn readlink(&self, request: &Request<'_>, at: NodeId) -> Result<Vec<u8>> {
        let text = self.volume.readlink(&Call::new(request), node(at)).map_err(errno)?;
        Ok(text.to_vec())
    }

    fn mknod(&self, request: &Request<'_>, name: NameIn<'_>, make: &Make) -> Result<Entry> {
        let kind = kind_of(make.mode).ok_or(Errno::INVAL)?;
        let device = cache::Device { major: make.rdev.major, minor: make.rdev.minor };
        let made = self.volume.mknod(
            &Call::making(request, make.umask),
            at(name),
            (kind, device),
            make.mode & 0o7777,
        );
        made.map(|made| entry(&made)).map_err(errno)
    }

    fn mkdir(&self, request: &Request<'_>, name: NameIn<'_>, make: &Make) -> Result<Entry> {
        let made = self.volume.mkdir(&Call::making(request, make.umask), at(name), make.mode & 0o7777);
        made.map(|made| entry(&made)).map_err(errno)
    }

    fn symlink(&self, request: &Request<'_>, name: NameIn<'_>, text: &[u8]) -> Result<Entry> {
        let text = Bytes::copy_from_slice(text);
        let made = self.volume.symlink(&Call::new(request), at(name), &text);
        made.map(|made| entry(&made)).map_err(errno)
    }

    fn link(&self, request: &Request<'_>, file: NodeId, to: NameIn<'_>) -> Result<Entry> {
        let made = self.volume.link(&Call::new(request), node(file), at(to));
        made.map(|made| entry(&made)).map_err(errno)
    }

    fn unlink(&self, request: &Request<'_>, name: NameIn<'_>) -> Result<()> {
        self.volume.unlink(&Call::new(request), at(name)).map_err(errno)
    }

    fn rmdir(&self, request: &Request<'_>, name: NameIn<'_>) -> Result<()> {
        self.volume.rmdir(&Call::new(request), at(name)).map_err(errno)
    }

    fn rename(&self, request: &Request<'_>, rename: &Rename<'_>) -> Result<()> {
        let mode = if rename.flags.is_empty() {
            RenameMode::Replace
        } else if rename.flags == RenameFlags::NO_REPLACE {
            RenameMode::NoReplace
        } else if rename.flags == RenameFlags::EXCHANGE {
            RenameMode::Exchange
        } else {
            return Err(Errno::INVAL);
        };
        self.volume.rename(&Call::new(request), at(rename.from), at(rename.to), mode).map_err(errno)
    }

    fn open(&self, request: &Request<'_>, at: NodeId, open: &Open) -> Result<Opened> {
        let call = Call::new(request);
        let done = self.volume.open(&call, node(at), open_flags(open.flags)).map_err(errno)?;
        let passed = self.passing.opened(&self.volume, &call, (at, done.fh), open.flags);
        let passed = passed.inspect_err(|_| self.volume.release(done.fh)).map_err(errno)?;
        let done = opened(&done, passed, !self.closes.is_told(at));
        // It is cut off already: a failure of this would be told of an open that is done.
        let _ = self.drop_set_ids(&call, at, open.kill_set_ids && open.flags.intersects(OpenFlags::TRUNCATE));
        Ok(done)
    }

    fn create(&self, request: &Request<'_>, name: NameIn<'_>, create: &Create) -> Result<(Entry, Opened)> {
        let call = Call::making(request, create.umask);
        let flags = open_flags(create.flags);
        let (made, done) = self.volume.create(&call, at(name), create.mode & 0o7777, flags).map_err(errno)?;
        self.made(&call, &made, (&done, create.flags))
    }

    fn tmpfile(&self, request: &Request<'_>, dir: NodeId, create: &Create) -> Result<(Entry, Opened)> {
        let (call, flags) = (Call::making(request, create.umask), open_flags(create.flags));
        let (made, done) =
            self.volume.make_nameless(&call, node(dir), create.mode & 0o7777, flags).map_err(errno)?;
        self.made(&call, &made, (&done, create.flags))
    }

    fn read(&self, request: &Request<'_>, _: NodeId, read: &Read, out: &mut DataSink) -> Result<()> {
        let call = Call::new(request);
        let (file, is_direct) = (fh(read.file), read.flags.contains(OpenFlags::DIRECT));
        // The kernel names the owner of what is read into an application's memory, and nobody for its own pages.
        let into = if read.lock_owner.is_some() { ReadInto::Memory } else { ReadInto::Pages };
        let data = if is_direct && self.volume.has_server() {
            self.volume.read_there(&call, file, (read.offset, read.bytes), self.direct_ends)
        } else {
            self.volume.read(&call, file, (read.offset, read.bytes), into)
        };
        let data = data.map_err(errno)?;
        if data.is_uncovered {
            out.tell_when_taken();
        }
        data.pieces.into_iter().for_each(|piece| out.push(piece));
        Ok(())
    }

    fn taken(&self, at: NodeId) {
        self.volume.taken_uncovered(node(at));
    }

    fn write(&self, request: &Request<'_>, at: NodeId, write: &Write<'_>) -> Result<u32> {
        if !write.is_write_back {
            return self.write_for(&Call::new(request), at, write);
        }
        // Pages of a mapping come back in nobody's name, and nobody waits for them.
        request.will_wait();
        let caller = Caller::new(request.uid(), request.gid());
        self.write_for(&Opener { caller, cancel: self.volume.given_up().clone() }, at, write)
    }

    fn flush(&self, request: &Request<'_>, at: NodeId, flush: &Flush) -> Result<()> {
        let call = Call::ended_by(request, Ends::MayBeOver);
        self.drop_locks_of_process(&call, request, at, flush);
        self.volume.flush(&call, fh(flush.file)).map_err(errno)
    }

    fn release(&self, request: &Request<'_>, at: NodeId, release: &Release) {
        self.drop_locks_of_open(request, at, release);
        self.volume.release(fh(release.file));
        self.passing.closed(at);
    }

    fn fsync(&self, request: &Request<'_>, at: NodeId, file: FileHandle, what: SyncWhat) -> Result<()> {
        self.passing.synced(at)?;
        let done = match what {
            SyncWhat::Data => self.volume.fdatasync(&Call::new(request), node(at), fh(file)),
            SyncWhat::All => self.volume.fsync(&Call::new(request), node(at), fh(file)),
        };
        done.map_err(errno)
    }

    fn opendir(&self, request: &Request<'_>, at: NodeId, _: &Open) -> Result<Opened> {
        let done = self.volume.opendir(&Call::new(request), node(at)).map_err(errno)?;
        Ok(opened_dir(&done))
    }

    fn readdir(&self, request: &Request<'_>, at: NodeId, read: &Read, out: &mut DirSink<'_>) -> Result<()> {
        self.list(request, at, read, out, false)
    }

    fn readdirplus(
        &self,
        request: &Request<'_>,
        at: NodeId,
        read: &Read,
        out: &mut DirSink<'_>,
    ) -> Result<()> {
        self.list(request, at, read, out, true)
    }

    fn releasedir(&self, _: &Request<'_>, _: NodeId, release: &Release) {
        self.volume.releasedir(fh(release.file));
    }

    fn fsyncdir(&self, request: &Request<'_>, at: NodeId, file: FileHandle, _: SyncWhat) -> Result<()> {
        self.volume.fsync(&Call::new(request), node(at), fh(file)).map_err(errno)
    }

    fn statfs(&self, request: &Request<'_>, _: NodeId) -> Result<Statfs> {
        const UNIT: u32 = 4096;
        let room = self.volume.statfs(&Call::new(request)).map_err(errno)?;
        let units = |bytes: u64| bytes / u64::from(UNIT);
        Ok(Statfs {
            blocks: units(room.bytes_total),
            blocks_free: units(room.bytes_free),
            blocks_available: units(room.bytes_available),
            files: room.files_total,
            files_free: room.files_free,
            block_bytes: UNIT,
            fragment_bytes: UNIT,
            name_bytes_max: room.name_bytes_max,
        })
    }

    fn getxattr(&self, request: &Request<'_>, at: NodeId, name: &[u8]) -> Result<Vec<u8>> {
        self.served_xattr(name)?;
        let value = self.volume.getxattr(&Call::new(request), node(at), name);
        Ok(value.map_err(errno)?.to_vec())
    }

    fn setxattr(&self, request: &Request<'_>, at: NodeId, set: &SetXattr<'_>) -> Result<()> {
        self.served_xattr(set.name)?;
        let mode = match set.mode {
            XattrMode::Either => cache::XattrMode::Either,
            XattrMode::Create => cache::XattrMode::Create,
            XattrMode::Replace => cache::XattrMode::Replace,
        };
        let value = Bytes::copy_from_slice(set.value);
        self.volume.setxattr(&Call::new(request), node(at), (set.name, &value), mode).map_err(errno)
    }

    fn listxattr(&self, request: &Request<'_>, at: NodeId) -> Result<Vec<u8>> {
        let who = Call::new(request);
        let mut list = Vec::new();
        let mut add = |name: &[u8]| {
            list.extend_from_slice(name);
            list.push(0);
        };
        let names = self.volume.listxattr(&who, node(at)).map_err(errno)?;
        names.iter().for_each(|name| add(name.as_bytes()));
        for name in cache::ACCESS_LISTS.into_iter().filter(|_| self.has_lists) {
            match self.volume.getxattr(&who, node(at), name).map_err(errno) {
                Ok(_) => add(name),
                Err(Errno::INTR) => return Err(Errno::INTR),
                // There is none, or nobody can tell now.
                Err(_) => {}
            }
        }
        Ok(list)
    }

    fn removexattr(&self, request: &Request<'_>, at: NodeId, name: &[u8]) -> Result<()> {
        self.served_xattr(name)?;
        self.volume.removexattr(&Call::new(request), node(at), name).map_err(errno)
    }

    fn getlk(&self, request: &Request<'_>, at: NodeId, ask: &LockAsk) -> Result<Option<LockSpan>> {
        self.test_lock(request, at, ask)
    }

    fn setlk(&self, request: &Request<'_>, at: NodeId, ask: &LockAsk) -> Result<()> {
        self.set_lock(request, at, ask, false)
    }

    fn setlkw(&self, request: &Request<'_>, at: NodeId, ask: &LockAsk) -> Result<()> {
        self.set_lock(request, at, ask, true)
    }

    fn fallocate(&self, request: &Request<'_>, at: NodeId, what: &Fallocate) -> Result<()> {
        let punch = FallocateFlags::PUNCH_HOLE.union(FallocateFlags::KEEP_SIZE);
        let zero_keep = FallocateFlags::ZERO_RANGE.union(FallocateFlags::KEEP_SIZE);
        let mode = match what.mode {
            FallocateFlags::NONE => AllocateMode::Extend,
            FallocateFlags::KEEP_SIZE => AllocateMode::KeepSize,
            FallocateFlags::ZERO_RANGE => AllocateMode::ZeroRange,
            mode if mode == punch => AllocateMode::PunchHole,
            mode if mode == zero_keep => AllocateMode::ZeroRangeKeepSize,
            _ => return Err(Errno::OPNOTSUPP),
        };
        let (call, place) = (Call::new(request), (what.offset, what.length));
        // Here the kernel does not say it; root alone is sure to have the capability to keep them.
        self.drop_set_ids(&call, at, request.uid() != 0)?;
        self.volume.allocate(&call, fh(what.file), mode, place).map_err(errno)
    }

    fn lseek(
        &self,
        request: &Request<'_>,
        _: NodeId,
        file: FileHandle,
        offset: u64,
        what: SeekFor,
    ) -> Result<u64> {
        let kind = match what {
            SeekFor::Data => SeekKind::Data,
            SeekFor::Hole => SeekKind::Hole,
        };
        self.volume.seek(&Call::new(request), fh(file), offset, kind).map_err(errno)
    }

    fn copy_file_range(&self, request: &Request<'_>, copy: &CopyRange) -> Result<u64> {
        let (from, to) = ((fh(copy.from_file), copy.from_offset), (fh(copy.to_file), copy.to_offset));
        let call = Call::new(request);
        // As for `fallocate`.
        self.drop_set_ids(&call, copy.to, request.uid() != 0)?;
        self.volume.copy(&call, from, to, copy.length).map_err(errno)
    }
}

#[cfg(test)]
mod tests;
