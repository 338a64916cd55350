//! Attributes of objects, as servers tell and applications see them.

use holdfast_base::Timestamp;

/// What an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Regular file.
    File,
    /// Directory.
    Dir,
    /// Symbolic link.
    Symlink,
    /// Block device.
    Block,
    /// Character device.
    Char,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
}

/// The number of a device special file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Device {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

/// All attributes of an object. Towards the kernel `fileid` is the number shown, which never changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attrs {
    /// What it is.
    pub kind: Kind,
    /// Permission bits with set-user-id, set-group-id and sticky (`0o7777`).
    pub mode: u32,
    /// Names it has.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes.
    pub size: u64,
    /// Bytes of storage used.
    pub allocated: u64,
    /// Device, of block and character devices.
    pub device: Device,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of data.
    pub mtime: Timestamp,
    /// Last change of anything.
    pub ctime: Timestamp,
    /// Making, where the server knows it.
    pub btime: Option<Timestamp>,
    /// The server's change attribute.
    pub change: u64,
    /// Inode number.
    pub fileid: u64,
}

impl Attrs {
    /// The permission bits as they are once somebody without privilege has changed what is no directory, or anybody its owner:
    /// without set-user-id, and set-group-id unless that is no such bit but marks mandatory locks.
    pub fn mode_without_set_ids(&self) -> u32 {
        let set_group_id = if self.mode & 0o010 == 0 { 0 } else { 0o2000 };
        self.mode & !(0o4000 | set_group_id)
    }
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The moment of the call.
    Now,
    /// This one.
    At(Timestamp),
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncates or extends with zeros.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<SetTime>,
    /// Modification time.
    pub mtime: Option<SetTime>,
}

impl Changes {
    /// Whether nothing is to change.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes over what `later` sets.
    pub fn merge(&mut self, later: &Self) {
        self.mode = later.mode.or(self.mode);
        self.uid = later.uid.or(self.uid);
        self.gid = later.gid.or(self.gid);
        self.size = later.size.or(self.size);
        self.atime = later.atime.or(self.atime);
        self.mtime = later.mtime.or(self.mtime);
    }
}

/// What an object is to be made with. Of asynchronous makings everything is set, so that the server shows what was
/// shown here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NewAttrs {
    /// Permission bits.
    pub mode: u32,
    /// What is taken from them where the directory hands on no access list. None where that is done already.
    pub umask: u32,
    /// Owner, when it is not the caller.
    pub uid: Option<u32>,
    /// Group, when it is not what the server would choose.
    pub gid: Option<u32>,
    /// Access time.
    pub atime: Option<Timestamp>,
    /// Modification time.
    pub mtime: Option<Timestamp>,
}
