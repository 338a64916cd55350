//! FUSE itself: a file system in the memory of one daemon, by the same layer that the mount stands on, with nothing
//! behind it. What it takes no mount through FUSE can be below.

mod table;

use super::rivals::{Scratch, Server};
use anyhow::{Context, Result};
use holdfast_fuse::{
    AttrReply, Config, Create, DataSink, DirItem, DirSink, Entry, EntryKind, Errno, FOREVER, FileHandle,
    Filesystem, Forget, Make, MountOptions, NameIn, NodeId, Open, OpenFlags, Opened, OpenedFlags, Read,
    Rename, RenameFlags, Request, Session, SetAttr, SyncWhat, Write,
};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use table::{Table, is_dir};

type Done<T> = holdfast_fuse::Result<T>;

/// One that is mounted, with its daemon. Dropped, both are gone.
pub(super) struct Bare {
    scratch: Scratch,
    _daemon: Server,
}

impl Bare {
    /// Starts and mounts it, as a process of its own: it is one for every mount.
    ///
    /// Errors when it cannot be mounted.
    pub(super) fn mount() -> Result<Self> {
        let scratch = Scratch::new()?;
        let mut daemon = Command::new(std::env::current_exe()?);
        let daemon = Server::start(daemon.arg("bare-mount").arg(scratch.mount_point()))?;
        scratch.wait_until_mounted()?;
        Ok(Self { scratch, _daemon: daemon })
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> PathBuf {
        self.scratch.mount_point()
    }
}

/// Its daemon: serves until it is unmounted.
///
/// Errors when it cannot be mounted.
pub(crate) fn serve(at: &Path) -> Result<()> {
    let memory: Arc<dyn Filesystem> = Arc::new(Memory(Mutex::new(Table::new())));
    let session = Session::mount(memory, at, &MountOptions::new("bare"), &Config::default())
        .context("mounting a file system in memory through FUSE")?;
    let _ = session.wait();
    Ok(())
}

struct Memory(Mutex<Table>);

impl Memory {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn made(&self, request: &Request<'_>, at: NameIn<'_>, mode: u32) -> Done<Entry> {
        self.table().make(at, mode, (request.uid(), request.gid())).map(entry)
    }
}

const fn entry(attr: holdfast_fuse::Attr) -> Entry {
    Entry { node: NodeId(attr.ino), generation: 0, attr, entry_valid: FOREVER, attr_valid: FOREVER }
}

/// As the mount answers what it has promises for: pages stay, and closes of what only reads are not told.
fn opened(flags: OpenFlags) -> Opened {
    let quiet = if flags.may_write() { OpenedFlags::NONE } else { OpenedFlags::NOFLUSH };
    Opened { flags: OpenedFlags::KEEP_CACHE | quiet, ..Opened::default() }
}

impl Filesystem for Memory {
    fn lookup(&self, _: &Request<'_>, at: NameIn<'_>) -> Done<Entry> {
        let mut table = self.table();
        match table.find(at)? {
            Some(node) => table.object(node).map(|object| entry(object.attr)),
            None => Ok(Entry::absent(FOREVER)),
        }
    }

    fn forget(&self, forgets: &[Forget]) {
        let mut table = self.table();
        forgets.iter().for_each(|forget| table.forget(forget.node));
    }

    fn getattr(&self, _: &Request<'_>, node: NodeId, _: Option<FileHandle>) -> Done<AttrReply> {
        self.table().object(node).map(|object| AttrReply { attr: object.attr, valid: FOREVER })
    }

    fn setattr(&self, _: &Request<'_>, node: NodeId, set: &SetAttr) -> Done<AttrReply> {
        let mut table = self.table();
        let object = table.object(node)?;
        object.set(set)?;
        Ok(AttrReply { attr: object.attr, valid: FOREVER })
    }

    fn mknod(&self, request: &Request<'_>, at: NameIn<'_>, make: &Make) -> Done<Entry> {
        self.made(request, at, make.mode)
    }

    fn mkdir(&self, request: &Request<'_>, at: NameIn<'_>, make: &Make) -> Done<Entry> {
        self.made(request, at, libc::S_IFDIR | make.mode)
    }

    fn unlink(&self, _: &Request<'_>, at: NameIn<'_>) -> Done<()> {
        self.table().remove(at, false)
    }

    fn rmdir(&self, _: &Request<'_>, at: NameIn<'_>) -> Done<()> {
        self.table().remove(at, true)
    }

    fn rename(&self, _: &Request<'_>, rename: &Rename<'_>) -> Done<()> {
        match rename.flags {
            RenameFlags::NONE => self.table().rename(rename.from, rename.to),
            _ => Err(Errno::INVAL),
        }
    }

    fn open(&self, _: &Request<'_>, node: NodeId, open: &Open) -> Done<Opened> {
        if open.flags.contains(OpenFlags::TRUNCATE) {
            self.table().object(node)?.resize(0);
        }
        Ok(opened(open.flags))
    }

    fn create(&self, request: &Request<'_>, at: NameIn<'_>, create: &Create) -> Done<(Entry, Opened)> {
        let made = self.made(request, at, libc::S_IFREG | create.mode)?;
        Ok((made, opened(create.flags)))
    }

    fn read(&self, _: &Request<'_>, node: NodeId, read: &Read, out: &mut DataSink) -> Done<()> {
        let mut table = self.table();
        let data = &table.object(node)?.data;
        let start = usize::try_from(read.offset).unwrap_or(usize::MAX).min(data.len());
        out.copy(&data[start..data.len().min(start.saturating_add(read.bytes as usize))]);
        Ok(())
    }

    fn write(&self, _: &Request<'_>, node: NodeId, write: &Write<'_>) -> Done<u32> {
        self.table().object(node)?.write(write.offset, write.data)
    }

    fn fsync(&self, _: &Request<'_>, _: NodeId, _: FileHandle, _: SyncWhat) -> Done<()> {
        Ok(())
    }

    fn fsyncdir(&self, _: &Request<'_>, _: NodeId, _: FileHandle, _: SyncWhat) -> Done<()> {
        Ok(())
    }

    fn opendir(&self, _: &Request<'_>, _: NodeId, _: &Open) -> Done<Opened> {
        Ok(Opened { flags: OpenedFlags::CACHE_DIR | OpenedFlags::KEEP_CACHE, ..Opened::default() })
    }

    fn readdir(&self, _: &Request<'_>, node: NodeId, read: &Read, out: &mut DirSink<'_>) -> Done<()> {
        list(&mut self.table(), node, read, out, false)
    }

    fn readdirplus(&self, _: &Request<'_>, node: NodeId, read: &Read, out: &mut DirSink<'_>) -> Done<()> {
        list(&mut self.table(), node, read, out, true)
    }

    fn getxattr(&self, _: &Request<'_>, _: NodeId, _: &[u8]) -> Done<Vec<u8>> {
        Err(Errno::NODATA)
    }
}

/// Names looked at for one answer: more than it has room for is told with the next.
const LISTED_MAX: usize = 1024;

fn list(table: &mut Table, dir: NodeId, read: &Read, out: &mut DirSink<'_>, has_nodes: bool) -> Done<()> {
    let behind = table.object(dir)?.names.range(read.offset + 1..).take(LISTED_MAX);
    let names: Vec<_> = behind.map(|(place, (name, node))| (*place, name.clone(), *node)).collect();
    for (next, name, node) in names {
        if !out.has_room(&name) {
            break;
        }
        let attr = table.object(node)?.attr;
        let kind = EntryKind::of_mode(if is_dir(&attr) { libc::S_IFDIR } else { libc::S_IFREG });
        let known = has_nodes.then(|| entry(attr));
        out.push(&DirItem { name: &name, ino: attr.ino, kind, next }, known.as_ref());
    }
    Ok(())
}
