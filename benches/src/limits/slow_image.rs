//! A disk whose writes take as long as is wanted, one after the other: an image that is served through FUSE, for a loop
//! device. (Control groups do not hold up what a journal writes: others would wait for the one who is held up.)

use anyhow::{Context, Result};
use holdfast_base::Timestamp;
use holdfast_fuse::{
    Attr, AttrReply, Config, DataSink, Device, DirSink, Entry, Errno, FOREVER, FileHandle, Filesystem,
    MountOptions, NameIn, NodeId, Read, Request, Session, SyncWhat, Unmount, Write,
};
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::volume::VOLUME_BYTES;

const NAME: &str = "image";
const IMAGE: NodeId = NodeId(2);

/// The image; gone when dropped, which its file system must be before.
pub(super) struct SlowImage {
    disk: Arc<Disk>,
    session: Session,
    at: PathBuf,
}

struct Disk {
    file: File,
    takes_us: AtomicU64,
    /// One write at a time.
    head: Mutex<()>,
}

impl SlowImage {
    /// Serves one below `scratch`. It is fast.
    ///
    /// Errors where the kernel has no FUSE.
    pub(super) fn serve(scratch: &Path) -> Result<Self> {
        let (at, behind) = (scratch.join("slow"), scratch.join("behind"));
        fs::create_dir(&at)?;
        let file = File::options().read(true).write(true).create_new(true).open(&behind)?;
        file.set_len(VOLUME_BYTES)?;
        fs::remove_file(&behind)?;
        let disk = Arc::new(Disk { file, takes_us: AtomicU64::new(0), head: Mutex::new(()) });
        let filesystem: Arc<dyn Filesystem> = Arc::clone(&disk) as _;
        let session = Session::mount(filesystem, &at, &MountOptions::new("slow-disk"), &Config::default())
            .context("mounting a disk through FUSE")?;
        Ok(Self { disk, session, at })
    }

    /// Where it is.
    pub(super) fn path(&self) -> PathBuf {
        self.at.join(NAME)
    }

    /// From now on each write takes so long, and each flush.
    pub(super) fn takes(&self, each: Duration) {
        self.disk.takes_us.store(u64::try_from(each.as_micros()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Drop for SlowImage {
    fn drop(&mut self) {
        self.takes(Duration::ZERO);
        // The loop device lets go of it a moment after its file system; it is served until then.
        let _ = self.session.unmount(Unmount::Lazy);
    }
}

impl Disk {
    fn turn(&self) {
        let _head = self.head.lock().unwrap_or_else(PoisonError::into_inner);
        std::thread::sleep(Duration::from_micros(self.takes_us.load(Ordering::SeqCst)));
    }

    fn attr(node: NodeId) -> Attr {
        let is_image = node == IMAGE;
        let epoch = Timestamp { seconds: 0, nanos: 0 };
        Attr {
            ino: node.0,
            size: if is_image { VOLUME_BYTES } else { 0 },
            blocks: 0,
            atime: epoch,
            mtime: epoch,
            ctime: epoch,
            mode: if is_image { libc::S_IFREG | 0o600 } else { libc::S_IFDIR | 0o700 },
            nlink: 1,
            uid: 0,
            gid: 0,
            rdev: Device::default(),
            blksize: 4096,
        }
    }
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

impl Filesystem for Disk {
    fn lookup(&self, _: &Request<'_>, at: NameIn<'_>) -> holdfast_fuse::Result<Entry> {
        if at.name != NAME.as_bytes() {
            return Err(Errno::NOENT);
        }
        let attr = Self::attr(IMAGE);
        Ok(Entry { node: IMAGE, generation: 0, attr, entry_valid: FOREVER, attr_valid: FOREVER })
    }

    fn getattr(
        &self,
        _: &Request<'_>,
        node: NodeId,
        _: Option<FileHandle>,
    ) -> holdfast_fuse::Result<AttrReply> {
        Ok(AttrReply { attr: Self::attr(node), valid: FOREVER })
    }

    fn read(&self, _: &Request<'_>, _: NodeId, read: &Read, out: &mut DataSink) -> holdfast_fuse::Result<()> {
        let mut failed = None;
        out.fill(read.bytes as usize, |into| {
            let read = self.file.read_at(into, read.offset);
            read.unwrap_or_else(|error| {
                failed = Some(errno(&error));
                0
            })
        });
        failed.map_or(Ok(()), Err)
    }

    fn write(&self, _: &Request<'_>, _: NodeId, write: &Write<'_>) -> holdfast_fuse::Result<u32> {
        self.turn();
        self.file.write_all_at(write.data, write.offset).map_err(|error| errno(&error))?;
        u32::try_from(write.data.len()).map_err(|_| Errno::INVAL)
    }

    fn fsync(&self, _: &Request<'_>, _: NodeId, _: FileHandle, _: SyncWhat) -> holdfast_fuse::Result<()> {
        self.turn();
        Ok(())
    }

    fn readdir(
        &self,
        _: &Request<'_>,
        _: NodeId,
        _: &Read,
        _: &mut DirSink<'_>,
    ) -> holdfast_fuse::Result<()> {
        Ok(())
    }
}
