//! The bytes of records: numbers big-endian, everything of changing length with its length before it. A record of
//! another version is not understood: [`VERSION`] is in the head.

use std::sync::Arc;

use bytes::Bytes;
use holdfast_base::Timestamp;

use super::merge::Base;
use crate::ask::RenameMode;
use crate::attrs::{Attrs, Changes, Device, Kind, NewAttrs, SetTime};
use crate::ids::{Caller, Handle, Name, NodeId};
use crate::mutation::Target;
use holdfast_base::CapSet;

/// Of all records.
pub(crate) const VERSION: u8 = 6;
/// The oldest version whose records are understood; nothing in them says that something has an access list.
pub(crate) const VERSION_OLDEST: u8 = 4;
/// The first that says by which operation of a batch something was made. Before, it was by which mutation.
pub(crate) const VERSION_BY_OPERATION: u8 = 6;

/// A record in the making.
#[derive(Debug, Default)]
pub(crate) struct Put(pub(crate) Vec<u8>);

/// A record being read; `None` from any method: it is none of ours, or not whole.
#[derive(Debug)]
pub(crate) struct Get<'a>(pub(crate) &'a [u8]);

impl Put {
    pub(crate) fn u8(&mut self, n: u8) {
        self.0.push(n);
    }

    pub(crate) fn flag(&mut self, is: bool) {
        self.u8(u8::from(is));
    }

    pub(crate) fn u32(&mut self, n: u32) {
        self.0.extend_from_slice(&n.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_be_bytes());
    }

    pub(crate) fn node(&mut self, id: NodeId) {
        self.u64(id.0);
    }

    pub(crate) fn count(&mut self, n: usize) {
        self.u64(n as u64);
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.count(bytes.len());
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn option<T>(&mut self, value: Option<T>, put: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            put(self, value);
        }
    }

    pub(crate) fn time(&mut self, at: Timestamp) {
        self.u64(at.seconds.cast_unsigned());
        self.u32(at.nanos);
    }

    fn set_time(&mut self, set: SetTime) {
        self.option(if let SetTime::At(at) = set { Some(at) } else { None }, Self::time);
    }

    pub(crate) fn kind(&mut self, kind: Kind) {
        self.u8(match kind {
            Kind::File => 1,
            Kind::Dir => 2,
            Kind::Symlink => 3,
            Kind::Block => 4,
            Kind::Char => 5,
            Kind::Fifo => 6,
            Kind::Socket => 7,
        });
    }

    pub(crate) fn device(&mut self, device: Device) {
        self.u32(device.major);
        self.u32(device.minor);
    }

    pub(crate) fn caller(&mut self, caller: &Caller) {
        self.u32(caller.uid);
        self.u32(caller.gid);
        self.count(caller.groups.len());
        caller.groups.iter().for_each(|g| self.u32(*g));
    }

    pub(crate) fn attrs(&mut self, a: &Attrs) {
        self.kind(a.kind);
        [a.mode, a.nlink, a.uid, a.gid].into_iter().for_each(|n| self.u32(n));
        [a.size, a.allocated, a.change, a.fileid].into_iter().for_each(|n| self.u64(n));
        self.device(a.device);
        [a.atime, a.mtime, a.ctime].into_iter().for_each(|t| self.time(t));
        self.option(a.btime, Self::time);
    }

    pub(crate) fn new_attrs(&mut self, a: &NewAttrs) {
        self.u32(a.mode);
        self.option(a.uid, Self::u32);
        self.option(a.gid, Self::u32);
        self.option(a.atime, Self::time);
        self.option(a.mtime, Self::time);
    }

    pub(crate) fn target(&mut self, target: &Target) {
        match target {
            Target::Handle(handle) => {
                self.flag(true);
                self.bytes(handle.as_bytes());
            }
            Target::Made { txn, op } => {
                self.flag(false);
                self.u64(*txn);
                self.u32(*op);
            }
        }
    }

    pub(crate) fn base(&mut self, b: &Base) {
        [b.mode, b.uid, b.gid].into_iter().for_each(|n| self.option(n, Self::u32));
        self.option(b.size, Self::u64);
        self.option(b.mtime, Self::time);
    }

    pub(crate) fn changes(&mut self, c: &Changes) {
        self.option(c.mode, Self::u32);
        self.option(c.uid, Self::u32);
        self.option(c.gid, Self::u32);
        self.option(c.size, Self::u64);
        self.option(c.atime, Self::set_time);
        self.option(c.mtime, Self::set_time);
    }

    pub(crate) fn mode(&mut self, mode: RenameMode) {
        self.u8(match mode {
            RenameMode::Replace => 0,
            RenameMode::NoReplace => 1,
            RenameMode::Exchange => 2,
        });
    }
}

impl<'a> Get<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(self.take(1)?[0])
    }

    pub(crate) fn flag(&mut self) -> Option<bool> {
        Some(self.u8()? != 0)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_be_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_be_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(crate) fn node(&mut self) -> Option<NodeId> {
        self.u64().map(NodeId)
    }

    /// A number of things of which each takes at least a byte.
    pub(crate) fn count(&mut self) -> Option<usize> {
        usize::try_from(self.u64()?).ok().filter(|n| *n <= self.0.len())
    }

    pub(crate) fn bytes(&mut self) -> Option<&'a [u8]> {
        let n = self.count()?;
        self.take(n)
    }

    pub(crate) fn name(&mut self) -> Option<Name> {
        self.bytes().map(Name::new)
    }

    pub(crate) fn handle(&mut self) -> Option<Handle> {
        self.bytes().map(Handle::new)
    }

    pub(crate) fn text(&mut self) -> Option<Bytes> {
        self.bytes().map(Bytes::copy_from_slice)
    }

    #[expect(clippy::option_option, reason = "the outer one is for what cannot be read")]
    pub(crate) fn option<T>(&mut self, get: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { get(self).map(Some) } else { Some(None) }
    }

    pub(crate) fn list<T>(&mut self, mut get: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let n = self.count()?;
        (0..n).map(|_| get(self)).collect()
    }

    pub(crate) fn time(&mut self) -> Option<Timestamp> {
        Some(Timestamp { seconds: self.u64()?.cast_signed(), nanos: self.u32()? })
    }

    fn set_time(&mut self) -> Option<SetTime> {
        Some(self.option(Self::time)?.map_or(SetTime::Now, SetTime::At))
    }

    pub(crate) fn kind(&mut self) -> Option<Kind> {
        Some(match self.u8()? {
            1 => Kind::File,
            2 => Kind::Dir,
            3 => Kind::Symlink,
            4 => Kind::Block,
            5 => Kind::Char,
            6 => Kind::Fifo,
            7 => Kind::Socket,
            _ => return None,
        })
    }

    pub(crate) fn device(&mut self) -> Option<Device> {
        Some(Device { major: self.u32()?, minor: self.u32()? })
    }

    pub(crate) fn caps(&mut self) -> Option<CapSet> {
        Some((CapSet(self.u32()?) & CapSet::ALL_X).sound())
    }

    pub(crate) fn caller(&mut self) -> Option<Caller> {
        let (uid, gid) = (self.u32()?, self.u32()?);
        Some(Caller { uid, gid, groups: Arc::from(self.list(Self::u32)?) })
    }

    pub(crate) fn attrs(&mut self) -> Option<Attrs> {
        let kind = self.kind()?;
        let (mode, nlink, uid, gid) = (self.u32()?, self.u32()?, self.u32()?, self.u32()?);
        let (size, allocated, change, fileid) = (self.u64()?, self.u64()?, self.u64()?, self.u64()?);
        let device = self.device()?;
        let (atime, mtime, ctime) = (self.time()?, self.time()?, self.time()?);
        let btime = self.option(Self::time)?;
        #[rustfmt::skip]
        let attrs = Attrs {
            kind, mode, nlink, uid, gid, size, allocated, device, atime, mtime, ctime, btime, change, fileid,
        };
        Some(attrs)
    }

    pub(crate) fn new_attrs(&mut self) -> Option<NewAttrs> {
        Some(NewAttrs {
            mode: self.u32()?,
            // Only what is made in plain directories is queued: it has been taken away.
            umask: 0,
            uid: self.option(Self::u32)?,
            gid: self.option(Self::u32)?,
            atime: self.option(Self::time)?,
            mtime: self.option(Self::time)?,
        })
    }

    pub(crate) fn target(&mut self) -> Option<Target> {
        Some(match self.flag()? {
            true => Target::Handle(self.handle()?),
            false => Target::Made { txn: self.u64()?, op: self.u32()? },
        })
    }

    pub(crate) fn base(&mut self) -> Option<Base> {
        Some(Base {
            mode: self.option(Self::u32)?,
            uid: self.option(Self::u32)?,
            gid: self.option(Self::u32)?,
            size: self.option(Self::u64)?,
            mtime: self.option(Self::time)?,
        })
    }

    pub(crate) fn changes(&mut self) -> Option<Changes> {
        Some(Changes {
            mode: self.option(Self::u32)?,
            uid: self.option(Self::u32)?,
            gid: self.option(Self::u32)?,
            size: self.option(Self::u64)?,
            atime: self.option(Self::set_time)?,
            mtime: self.option(Self::set_time)?,
        })
    }

    pub(crate) fn mode(&mut self) -> Option<RenameMode> {
        Some(match self.u8()? {
            0 => RenameMode::Replace,
            1 => RenameMode::NoReplace,
            2 => RenameMode::Exchange,
            _ => return None,
        })
    }
}
