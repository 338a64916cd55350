//! What applications do, a method each. All may be called from many threads at once, and all wait no longer than their
//! [`Waiting`] allows.

use bytes::Bytes;
use holdfast_cache::{
    AllocateMode, Attributes, Caller, Changes, Device, DirEntry, Entry, Errno, Fh, Forget, Kind, Lookup,
    Name, NodeId, OpenFlags, Opened, OpenedDir, ReadInto, RenameMode, Room, SeekKind, Step, Turn, WriteTo,
    XattrMode,
};

use crate::running::{Plain, Waiting};
use crate::volume::Volume;

type Result<T> = std::result::Result<T, Errno>;

/// A name in a directory.
pub type At<'a> = (NodeId, &'a [u8]);

/// Where something is written: at this place, or at the end, which whoever writes believes to be there.
pub(crate) type Place = (u64, WriteTo);

/// Where an application's `O_DIRECT` ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum There {
    /// With the server, which has it in its memory.
    #[default]
    Server,
    /// With its disk: the server's memory has none of it afterwards.
    Disk,
}

impl There {
    const fn tell(self, turn: &mut Turn) {
        if matches!(self, Self::Disk) {
            turn.go_to_disk();
        }
    }
}

/// What was read.
#[derive(Debug)]
pub struct Data {
    /// Pieces one after the other.
    pub pieces: Vec<Bytes>,
    /// Nothing covers it: once the kernel has it, [`Volume::taken_uncovered`] is to be called.
    pub is_uncovered: bool,
}

/// # Errors
/// All of these fail with what the application is to be told, `EINTR` when it has given up.
impl Volume {
    /// Finds a name.
    pub fn lookup(&self, who: &dyn Waiting, at: At<'_>) -> Result<Lookup> {
        self.run_for(who, |machine, turn, now| machine.lookup(turn, at.0, at.1, now))
    }

    /// The kernel has dropped so many of its references to a node.
    pub fn forget(&self, node: NodeId, count: u64) {
        let mut machine = self.0.machine.lock();
        machine.forget(node, count);
        self.0.look_for_work(machine);
    }

    /// Attributes.
    pub fn getattr(&self, who: &dyn Waiting, node: NodeId) -> Result<Attributes> {
        self.run_for(who, |machine, turn, now| machine.getattr(turn, node, now))
    }

    /// Changes attributes.
    pub fn setattr(&self, who: &dyn Waiting, node: NodeId, changes: &Changes) -> Result<Attributes> {
        if changes.size.is_some() {
            self.0.unless_lost(|| self.handle_of(node))?;
        }
        self.change_for(who, |machine, turn, now| machine.setattr(turn, node, changes, now))
    }

    /// Changes the size, through an open file.
    pub fn truncate(
        &self,
        who: &dyn Waiting,
        (node, fh): (NodeId, Fh),
        changes: &Changes,
    ) -> Result<Attributes> {
        if changes.size.is_some() {
            self.unless_lost(fh)?;
        }
        self.change_by(who, fh, |machine, turn, now| machine.setattr(turn, node, changes, now))
    }

    /// Takes set-id bits from a file that somebody without privilege changes, as its owner would: who changes it may be another. Where
    /// they are not known here the change itself goes to the server, which takes them.
    pub fn drop_set_ids(&self, who: &dyn Waiting, node: NodeId) -> Result<()> {
        let Some(attrs) = self.0.machine.lock().known_rights(node) else { return Ok(()) };
        let mut mode = attrs.mode_without_set_ids();
        // As Linux has it since 6.2: who is not of the file's group takes the bit, executable or not.
        if mode & 0o2000 != 0 && !who.whole_caller().is_of(attrs.gid) {
            mode &= !0o2000;
        }
        if mode == attrs.mode {
            return Ok(());
        }
        let (owner, cancel) = (Caller::new(attrs.uid, attrs.gid), who.cancel());
        let changes = Changes { mode: Some(mode), ..Changes::default() };
        match self.setattr(&Plain(owner, &cancel), node, &changes) {
            // Who squashes the owner judges by himself, when the data comes.
            Ok(_) | Err(Errno::EPERM | Errno::EACCES) => {}
            Err(errno) => return Err(errno),
        }
        // By a change that it has not asked for, so nothing it is answered tells; and before that answer, or whoever made the
        // change might still see them. This waits for nothing, and the queue for what may be of this same request.
        if let Some(believer) = self.0.believer.get() {
            believer.forget(&Forget::Attrs(node));
        }
        Ok(())
    }

    /// A link's text.
    pub fn readlink(&self, who: &dyn Waiting, node: NodeId) -> Result<Bytes> {
        self.run_for(who, |machine, turn, now| machine.readlink(turn, node, now))
    }

    /// Makes a file without a name, as if in a directory, and opens it.
    pub fn make_nameless(
        &self,
        who: &dyn Waiting,
        dir: NodeId,
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        self.change_for(who, |machine, turn, now| machine.make_nameless(turn, dir, mode, flags, now))
    }

    /// Makes a device, pipe, socket, or a regular file that is not opened.
    pub fn mknod(&self, who: &dyn Waiting, at: At<'_>, what: (Kind, Device), mode: u32) -> Result<Entry> {
        self.change_for(who, |machine, turn, now| machine.mknod(turn, at.0, at.1, what, mode, now))
    }

    /// Makes a directory.
    pub fn mkdir(&self, who: &dyn Waiting, at: At<'_>, mode: u32) -> Result<Entry> {
        self.change_for(who, |machine, turn, now| machine.mkdir(turn, at.0, at.1, mode, now))
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, who: &dyn Waiting, at: At<'_>, text: &Bytes) -> Result<Entry> {
        self.change_for(who, |machine, turn, now| machine.symlink(turn, at.0, at.1, text, now))
    }

    /// Gives an object one more name.
    pub fn link(&self, who: &dyn Waiting, node: NodeId, at: At<'_>) -> Result<Entry> {
        self.change_for(who, |machine, turn, now| machine.link(turn, node, at.0, at.1, now))
    }

    /// Removes a name of anything but a directory.
    pub fn unlink(&self, who: &dyn Waiting, at: At<'_>) -> Result<()> {
        self.change_for(who, |machine, turn, now| machine.unlink(turn, at.0, at.1, now))
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, who: &dyn Waiting, at: At<'_>) -> Result<()> {
        self.change_for(who, |machine, turn, now| machine.rmdir(turn, at.0, at.1, now))
    }

    /// Renames.
    pub fn rename(&self, who: &dyn Waiting, from: At<'_>, to: At<'_>, mode: RenameMode) -> Result<()> {
        self.change_for(who, |machine, turn, now| machine.rename(turn, from, to, mode, now))
    }

    /// Makes a file, or opens the one that is there.
    pub fn create(
        &self,
        who: &dyn Waiting,
        at: At<'_>,
        mode: u32,
        flags: OpenFlags,
    ) -> Result<(Entry, Opened)> {
        self.change_for(who, |machine, turn, now| machine.create(turn, at.0, at.1, mode, flags, now))
    }

    /// Opens a file.
    pub fn open(&self, who: &dyn Waiting, node: NodeId, flags: OpenFlags) -> Result<Opened> {
        let (believer, mut given) = (self.0.believer.get(), None);
        let opened = self.open_for(who, |machine, turn, now| {
            let step = machine.open(turn, node, flags, now);
            if let (Step::Done(opened), Some(_)) = (&step, believer) {
                given = machine.store_at_open(opened, now);
            }
            step
        })?;
        // Before the answer, after which the file may be read. This waits for nothing: nobody has had it open.
        if let (Some((node, whole)), Some(believer)) = (given, believer) {
            self.0.give(&**believer, node, whole);
        }
        Ok(opened)
    }

    /// Reads: pieces one after the other; fewer bytes than asked for where the file ends.
    pub fn read(
        &self,
        who: &dyn Waiting,
        fh: Fh,
        (offset, length): (u64, u32),
        into: ReadInto,
    ) -> Result<Data> {
        self.unless_lost(fh)?;
        if self.0.patience.was_in_vain(fh) {
            return Err(Errno::ETIMEDOUT);
        }
        let mut is_uncovered = false;
        let pieces = self.run_by(who, fh, |machine, turn, now| {
            turn.reads_into(into);
            let step = machine.read(turn, fh, offset, length, now);
            is_uncovered = turn.is_uncovered();
            step
        });
        let pieces = pieces.inspect_err(|&errno| {
            if errno == Errno::ETIMEDOUT {
                self.0.patience.read_in_vain(fh);
            }
        })?;
        Ok(Data { pieces, is_uncovered })
    }

    /// Reads what the server has, whatever is known here (`O_DIRECT`), or what its disk has.
    pub fn read_there(
        &self,
        who: &dyn Waiting,
        fh: Fh,
        (offset, length): (u64, u32),
        there: There,
    ) -> Result<Data> {
        self.unless_lost(fh)?;
        let pieces = self.run_by(who, fh, |machine, turn, now| {
            turn.pass_cache();
            there.tell(turn);
            machine.read(turn, fh, offset, length, now)
        })?;
        Ok(Data { pieces, is_uncovered: false })
    }

    /// The kernel has what a read gave that nothing covers.
    pub fn taken_uncovered(&self, node: NodeId) {
        let mut machine = self.0.machine.lock();
        machine.taken_uncovered(node, self.0.now());
        self.0.look_for_work(machine);
    }

    /// Writes; to the end where that is said, however it was opened.
    pub fn write(&self, who: &dyn Waiting, fh: Fh, place: Place, data: &Bytes) -> Result<u32> {
        self.write_towards(who, fh, place, (data, There::Server))
    }

    /// Writes, and waits until the server has it (`O_DIRECT`), or its disk.
    pub fn write_there(
        &self,
        who: &dyn Waiting,
        fh: Fh,
        place: Place,
        (data, there): (&Bytes, There),
    ) -> Result<u32> {
        let written = self.write_towards(who, fh, place, (data, there))?;
        self.run_by(who, fh, |machine, turn, now| {
            there.tell(turn);
            machine.written_by(turn, fh, now)
        })?;
        Ok(written)
    }

    fn write_towards(
        &self,
        who: &dyn Waiting,
        fh: Fh,
        (offset, to): Place,
        (data, there): (&Bytes, There),
    ) -> Result<u32> {
        self.unless_lost(fh)?;
        self.change_by(who, fh, |machine, turn, now| {
            turn.writes_to(to);
            there.tell(turn);
            machine.write(turn, fh, offset, data, now)
        })
    }

    /// Reserves, frees or zeroes.
    pub fn allocate(&self, who: &dyn Waiting, fh: Fh, mode: AllocateMode, place: (u64, u64)) -> Result<()> {
        self.change_by(who, fh, |machine, turn, now| machine.allocate(turn, fh, mode, place, now))
    }

    /// The next data or hole.
    pub fn seek(&self, who: &dyn Waiting, fh: Fh, offset: u64, kind: SeekKind) -> Result<u64> {
        self.run_by(who, fh, |machine, turn, now| machine.seek(turn, fh, offset, kind, now))
    }

    /// Copies: on the server, or what is small and kept here by a read and a write. Fewer bytes than asked for where the first file
    /// ends, or has been cut off meanwhile.
    pub fn copy(&self, who: &dyn Waiting, from: (Fh, u64), to: (Fh, u64), length: u64) -> Result<u64> {
        let here = self.0.machine.lock().copied_here(from, to.0, length);
        if let Some(length) = here {
            return self.copy_here(who, from, to, length);
        }
        self.change_by(who, to.0, |machine, turn, now| machine.copy(turn, from, to, length, now))
    }

    fn copy_here(&self, who: &dyn Waiting, from: (Fh, u64), to: (Fh, u64), length: u32) -> Result<u64> {
        if length == 0 {
            return Ok(0);
        }
        let data = self.read(who, from.0, (from.1, length), ReadInto::Memory)?.pieces.concat();
        if data.is_empty() {
            return Ok(0);
        }
        self.write(who, to.0, (to.1, WriteTo::Place), &data.into()).map(u64::from)
    }

    /// A `close`: tells who may write what was lost since the open.
    pub fn flush(&self, who: &dyn Waiting, fh: Fh) -> Result<()> {
        let done = self.run_by(who, fh, |machine, turn, now| machine.flush(turn, fh, now));
        self.or_kept(done, |machine| machine.losses_at_close(fh))
    }

    /// The last close.
    pub fn release(&self, fh: Fh) {
        let mut machine = self.0.machine.lock();
        machine.release(fh, self.0.now());
        self.0.look_for_work(machine);
    }

    /// Waits until an object (of a directory its names) is on the server's disk, and tells what was lost of it that this
    /// open has not heard of.
    pub fn fsync(&self, who: &dyn Waiting, node: NodeId, fh: Fh) -> Result<()> {
        let done = self.run_by(who, fh, |machine, turn, now| machine.fsync(turn, node, Some(fh), now));
        self.settled_or_kept(done, |machine| machine.losses(node, fh))
    }

    /// The same without the modification time.
    pub fn fdatasync(&self, who: &dyn Waiting, node: NodeId, fh: Fh) -> Result<()> {
        let done = self.run_by(who, fh, |machine, turn, now| machine.fdatasync(turn, node, Some(fh), now));
        self.settled_or_kept(done, |machine| machine.losses(node, fh))
    }

    /// Opens a directory.
    pub fn opendir(&self, who: &dyn Waiting, node: NodeId) -> Result<OpenedDir> {
        self.run_for(who, |machine, turn, now| machine.opendir(turn, node, now))
    }

    /// Lists from an offset on, until `take` has had enough. With `plus` each entry taken counts as a lookup. `.` and
    /// `..` are not among them.
    pub fn readdir(
        &self,
        who: &dyn Waiting,
        (fh, offset): (Fh, u64),
        plus: bool,
        take: &mut dyn FnMut(&DirEntry) -> bool,
    ) -> Result<()> {
        self.run_for(who, |machine, turn, now| machine.readdir(turn, fh, offset, plus, take, now))
    }

    /// The last close of a directory.
    pub fn releasedir(&self, fh: Fh) {
        let mut machine = self.0.machine.lock();
        machine.releasedir(fh);
        self.0.look_for_work(machine);
    }

    /// Room on the file system.
    pub fn statfs(&self, who: &dyn Waiting) -> Result<Room> {
        if let Some(room) = self.0.room.fresh(self.0.now().mono) {
            return Ok(room);
        }
        let before = self.0.room.mark();
        let room = self.run_for(who, |machine, turn, now| machine.statfs(turn, now))?;
        self.0.room.keep(room, before, self.0.now().mono);
        Ok(room)
    }

    /// An extended attribute.
    pub fn getxattr(&self, who: &dyn Waiting, node: NodeId, name: &[u8]) -> Result<Bytes> {
        self.run_for(who, |machine, turn, now| machine.getxattr(turn, node, name, now))
    }

    /// The names of all.
    pub fn listxattr(&self, who: &dyn Waiting, node: NodeId) -> Result<Vec<Name>> {
        self.run_for(who, |machine, turn, now| machine.listxattr(turn, node, now))
    }

    /// Sets one.
    pub fn setxattr(
        &self,
        who: &dyn Waiting,
        node: NodeId,
        (name, value): (&[u8], &Bytes),
        mode: XattrMode,
    ) -> Result<()> {
        self.change_for(who, |machine, turn, now| machine.setxattr(turn, node, name, (value, mode), now))
    }

    /// Removes one.
    pub fn removexattr(&self, who: &dyn Waiting, node: NodeId, name: &[u8]) -> Result<()> {
        self.change_for(who, |machine, turn, now| machine.removexattr(turn, node, name, now))
    }
}
