//! What the daemon tells the kernel unasked: what it must not believe any longer, or may.
//!
//! **Never call these from a method of [`crate::Filesystem`]**, and not while holding a lock that such a method waits
//! for: several of them wait for requests that are under way, perhaps for the very one that calls. Send them from a
//! thread of their own; but for `store`, of a file that nobody has had open. They may be called from many threads at once.

use std::io::IoSlice;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use holdfast_base::limits::FUSE_PRUNE_MAX;
use rustix::io::Errno;

use crate::abi::fields::Put;
use crate::abi::{MINOR_WITH_EPOCHS, encode};
use crate::flags::InitFlags;
use crate::types::NodeId;

const INVAL_INODE: i32 = 2;
const INVAL_ENTRY: i32 = 3;
const STORE: i32 = 4;
const DELETE: i32 = 6;
const INC_EPOCH: i32 = 8;
const PRUNE: i32 = 9;

/// What became of a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The kernel acted.
    Done,
    /// It did not know the object or name: nothing was to be done.
    Unknown,
    /// It does not know this notification: do it another way.
    Unserved,
    /// The connection is gone.
    Gone,
}

/// Sends notifications. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Arc<OwnedFd>,
    minor: u32,
    flags: InitFlags,
    is_gone: Arc<AtomicBool>,
}

impl Notifier {
    pub(crate) const fn new(
        device: Arc<OwnedFd>,
        minor: u32,
        flags: InitFlags,
        is_gone: Arc<AtomicBool>,
    ) -> Self {
        Self { device, minor, flags, is_gone }
    }

    /// A node's attributes are not to be believed. Its pages and names stay. Never waits (1-12 us).
    #[must_use]
    pub fn inval_attributes(&self, node: NodeId) -> Told {
        self.inval(node, -1, 0)
    }

    /// A node's attributes, and its pages from `offset` on (`length` 0: to the end), are not to be believed; of a
    /// symbolic link its text, of a directory its listing. Waits for READs and WRITEs of those pages under way.
    #[must_use]
    pub fn inval_data(&self, node: NodeId, offset: u64, length: u64) -> Told {
        let (offset, length) =
            (i64::try_from(offset).unwrap_or(i64::MAX), i64::try_from(length).unwrap_or(0));
        self.inval(node, offset, length)
    }

    fn inval(&self, node: NodeId, offset: i64, length: i64) -> Told {
        self.send(INVAL_INODE, &[], |out| {
            out.put_u64(node.0);
            out.put_u64(offset.cast_unsigned());
            out.put_u64(length.cast_unsigned());
        })
    }

    /// A name is not to be believed, present or absent; what is mounted below it is unmounted. Waits for LOOKUP,
    /// CREATE, UNLINK, READDIR of that directory under way (1-4 us otherwise).
    #[must_use]
    pub fn inval_entry(&self, dir: NodeId, name: &[u8]) -> Told {
        self.entry(dir, name, 0)
    }

    /// A name is to be asked for again before it is used; unlike [`Notifier::inval_entry`] it stays until then, with
    /// what is mounted below it, and keeps its place for those who use it now. Waits likewise. Does the same as
    /// `inval_entry` on kernels before 6.2.
    #[must_use]
    pub fn expire_entry(&self, dir: NodeId, name: &[u8]) -> Told {
        const EXPIRE_ONLY: u32 = 1;
        let is_served = self.flags.contains(InitFlags::HAS_EXPIRE_ONLY);
        self.entry(dir, name, if is_served { EXPIRE_ONLY } else { 0 })
    }

    fn entry(&self, dir: NodeId, name: &[u8], flags: u32) -> Told {
        self.send(INVAL_ENTRY, &[name, b"\0"], |out| {
            out.put_u64(dir.0);
            out.put_u32(name_bytes(name));
            out.put_u32(flags);
        })
    }

    /// A name was removed, and led to this node: as [`Notifier::inval_entry`], and watchers (inotify) are told that it
    /// was deleted. Waits likewise. [`Told::Unknown`] also when the name leads elsewhere (it is not believed any more
    /// all the same), or a directory is not empty in the kernel's eyes.
    #[must_use]
    pub fn delete(&self, dir: NodeId, name: &[u8], node: NodeId) -> Told {
        self.send(DELETE, &[name, b"\0"], |out| {
            out.put_u64(dir.0);
            out.put_u64(node.0);
            out.put_u32(name_bytes(name));
            out.put_u32(0);
        })
    }

    /// Puts data into the kernel's page cache, as if it had been read. Data that lies there is overwritten, and the
    /// size grows where the stretch ends beyond it. Waits for pages that are being read or written.
    #[must_use]
    pub fn store(&self, node: NodeId, offset: u64, data: &[u8]) -> Told {
        self.send(STORE, &[data], |out| {
            out.put_u64(node.0);
            out.put_u64(offset);
            out.put_u32(u32::try_from(data.len()).unwrap_or(u32::MAX));
            out.put_u32(0);
        })
    }

    /// No name in the whole mount is to be believed without asking again: the remedy when everything that was held is
    /// lost. Never waits. ABI 7.44 (Linux 6.17).
    #[must_use]
    pub fn inc_epoch(&self) -> Told {
        self.lacks(MINOR_WITH_EPOCHS).unwrap_or_else(|| self.send(INC_EPOCH, &[], |_| ()))
    }

    /// The kernel is to forget these nodes where nobody uses them: how the daemon gets room. FORGETs follow. Never
    /// waits for requests. ABI 7.45 (Linux 6.18).
    #[must_use]
    pub fn prune(&self, nodes: &[NodeId]) -> Told {
        if let Some(told) = self.lacks(45) {
            return told;
        }
        let mut told = Told::Done;
        for some in nodes.chunks(FUSE_PRUNE_MAX) {
            told = self.send(PRUNE, &[], |out| {
                out.put_u32(u32::try_from(some.len()).unwrap_or(0));
                out.put_zeros(12);
                for node in some {
                    out.put_u64(node.0);
                }
            });
            if told != Told::Done {
                break;
            }
        }
        told
    }

    /// What to answer when the kernel is older than this minor version.
    fn lacks(&self, minor: u32) -> Option<Told> {
        let is_gone = self.is_gone.load(Ordering::Acquire);
        (self.minor < minor).then_some(if is_gone { Told::Gone } else { Told::Unserved })
    }

    fn send(&self, code: i32, more: &[&[u8]], body: impl FnOnce(&mut Vec<u8>)) -> Told {
        // What the kernel says then depends on its version and on the notification.
        if self.is_gone.load(Ordering::Acquire) {
            return Told::Gone;
        }
        let mut message = Vec::with_capacity(64);
        // A message without a request's number is a notification, and its "error" says which.
        encode::header(&mut message, 0, code);
        body(&mut message);
        encode::finish(&mut message, more.iter().map(|part| part.len()).sum());
        let mut parts = vec![IoSlice::new(&message)];
        parts.extend(more.iter().map(|part| IoSlice::new(part)));
        loop {
            match rustix::io::writev(&*self.device, &parts) {
                Ok(_) => return Told::Done,
                Err(Errno::INTR) => {}
                Err(_) if self.is_gone.load(Ordering::Acquire) => return Told::Gone,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::NOTEMPTY | Errno::BUSY) => return Told::Unknown,
                Err(Errno::NODEV | Errno::NOTCONN | Errno::CONNABORTED | Errno::PERM) => return Told::Gone,
                Err(errno) => {
                    tracing::debug!(code, %errno, "a notification was refused");
                    return Told::Unserved;
                }
            }
        }
    }
}

fn name_bytes(name: &[u8]) -> u32 {
    u32::try_from(name.len()).unwrap_or(u32::MAX)
}
