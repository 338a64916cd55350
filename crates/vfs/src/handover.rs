//! Open files on their way to another process of the same server: their descriptors, and what there is to know to go
//! on with them. A lock taken through an open file stays where it is, for it belongs to the kernel's open file
//! description, which the descriptor of the other process shares.

use std::collections::HashMap;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd, RawFd};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread;

use holdfast_base::limits::{HANDOVER_FILES_A_THREAD, HANDOVER_THREADS_MAX};
use serde::{Deserialize, Serialize};

use crate::backend::Backend;
use crate::error::{FsError, FsResult};
use crate::handle::Handle;
use crate::open::{FileObject, OpenMode};

/// What an open file is made of.
#[derive(Clone, Copy, Debug)]
pub struct HandedFile<'a> {
    /// The exported directory of the backend that opened it ([`Backend::root`]).
    pub root: Handle,
    /// The file.
    pub handle: Handle,
    /// What it was opened for.
    pub mode: OpenMode,
    /// Its descriptor.
    pub fd: BorrowedFd<'a>,
    /// Whether the descriptor is another open file's in the first place, and with it the locks that are on it.
    pub is_shared: bool,
}

/// What an open file is made of that came from another process.
#[derive(Clone, Debug)]
pub struct ArrivedFile {
    /// Its descriptor, one for all that had it together.
    pub fd: Arc<OwnedFd>,
    /// What it was opened for.
    pub mode: OpenMode,
    /// [`HandedFile::is_shared`].
    pub is_shared: bool,
}

/// An open file as plain data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileImage {
    /// Its descriptor's number in the order of [`Outgoing::descriptors`]. Files that share theirs have the same.
    pub descriptor: u32,
    /// [`HandedFile::root`], as bytes.
    pub root: Vec<u8>,
    /// [`HandedFile::handle`], as bytes.
    pub handle: Vec<u8>,
    /// Open for reading.
    pub read: bool,
    /// Open for writing.
    pub write: bool,
    /// [`OpenMode::nfs_exceptions`].
    pub nfs_exceptions: bool,
    /// [`HandedFile::is_shared`].
    #[serde(default)]
    pub is_shared: bool,
}

/// Names one of the open files handed over. Two that were one file object stay one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FileNumber(pub u32);

enum Descriptor {
    File(Arc<dyn FileObject>),
    Own(OwnedFd),
}

/// Descriptors and open files that leave.
#[derive(Default)]
pub struct Outgoing {
    descriptors: Vec<Descriptor>,
    /// Files whose descriptor is among those already. Every file is kept, so no other comes to lie at its address.
    sharing: Vec<Arc<dyn FileObject>>,
    files: Vec<FileImage>,
    by_object: HashMap<usize, FileNumber>,
    /// The descriptors of files, by what the system calls them. Each must arrive as one: two owners of one number
    /// would close it twice.
    by_fd: HashMap<RawFd, u32>,
}

impl Outgoing {
    /// Takes a descriptor along; gives its number.
    pub fn add(&mut self, fd: OwnedFd) -> u32 {
        self.descriptors.push(Descriptor::Own(fd));
        // Descriptors of one process are fewer than 2^31.
        self.descriptors.len() as u32 - 1
    }

    /// Takes an open file along; `None` when its backend's files cannot be handed over.
    pub fn add_file(&mut self, file: &Arc<dyn FileObject>) -> Option<FileNumber> {
        let address = Arc::as_ptr(file).cast::<()>() as usize;
        if let Some(known) = self.by_object.get(&address) {
            return Some(*known);
        }
        let handed = file.hand_over()?;
        let number = FileNumber(self.files.len() as u32);
        let next = self.descriptors.len() as u32;
        let descriptor = *self.by_fd.entry(handed.fd.as_raw_fd()).or_insert(next);
        if descriptor == next {
            self.descriptors.push(Descriptor::File(Arc::clone(file)));
        } else {
            self.sharing.push(Arc::clone(file));
        }
        self.files.push(FileImage {
            descriptor,
            root: handed.root.as_bytes().to_vec(),
            handle: handed.handle.as_bytes().to_vec(),
            read: handed.mode.read,
            write: handed.mode.write,
            nfs_exceptions: handed.mode.nfs_exceptions,
            is_shared: handed.is_shared,
        });
        self.by_object.insert(address, number);
        Some(number)
    }

    /// The open files, by their numbers.
    #[must_use]
    pub fn files(&self) -> &[FileImage] {
        &self.files
    }

    /// The descriptors, in the order of their numbers.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.descriptors.iter().filter_map(|descriptor| match descriptor {
            Descriptor::Own(fd) => Some(fd.as_fd()),
            Descriptor::File(file) => file.hand_over().map(|handed| handed.fd),
        })
    }
}

/// Descriptors and open files that came.
#[derive(Default)]
pub struct Incoming {
    descriptors: Vec<Option<OwnedFd>>,
    /// The descriptors of files that were taken out of those.
    of_files: HashMap<u32, Arc<OwnedFd>>,
    files: Vec<Option<Arc<dyn FileObject>>>,
    by_handle: HashMap<Handle, Vec<Arc<dyn FileObject>>>,
}

impl Incoming {
    /// What came, in the order of [`Outgoing::descriptors`]; `None` for what did not arrive.
    #[must_use]
    pub fn new(descriptors: Vec<Option<OwnedFd>>) -> Self {
        Self { descriptors, ..Self::default() }
    }

    /// Takes a descriptor out.
    pub fn take(&mut self, number: u32) -> Option<OwnedFd> {
        self.descriptors.get_mut(number as usize)?.take()
    }

    /// Goes on with open files on the backend of the same exported directory. Returns how many could not be gone on
    /// with: their export is not served any more, or their file system cannot be reached.
    pub fn open_files(&mut self, images: &[FileImage], backends: &[Arc<dyn Backend>]) -> usize {
        let roots: Vec<_> = backends.iter().map(|backend| backend.root().ok()).collect();
        let arriving: Vec<_> = images.iter().map(|image| self.arriving(image, &roots)).collect();
        let opened = beside_one_another(&arriving, |of| {
            let (at, handle, arrived) = of.clone()?;
            backends[at].import_file(&handle, arrived)
        });
        let mut lost = 0;
        for (image, file) in images.iter().zip(opened) {
            lost += usize::from(file.is_err());
            if let (Ok(file), Some(handle)) = (&file, Handle::new(&image.handle)) {
                self.by_handle.entry(handle).or_default().push(Arc::clone(file));
            }
            self.files.push(file.ok());
        }
        lost
    }

    /// What a file is made of: the place of its backend, its handle and its descriptor.
    fn arriving(
        &mut self,
        image: &FileImage,
        roots: &[Option<Handle>],
    ) -> FsResult<(usize, Handle, ArrivedFile)> {
        let handle = Handle::new(&image.handle).ok_or(FsError::BadHandle)?;
        let is_its = |root: &Option<Handle>| root.is_some_and(|root| root.as_bytes() == image.root);
        let at = roots.iter().position(is_its).ok_or(FsError::Stale)?;
        let fd = self.take_of_file(image.descriptor).ok_or(FsError::Stale)?;
        let mode = OpenMode { read: image.read, write: image.write, nfs_exceptions: image.nfs_exceptions };
        Ok((at, handle, ArrivedFile { fd, mode, is_shared: image.is_shared }))
    }

    fn take_of_file(&mut self, number: u32) -> Option<Arc<OwnedFd>> {
        if let Some(known) = self.of_files.get(&number) {
            return Some(Arc::clone(known));
        }
        let fd = Arc::new(self.take(number)?);
        self.of_files.insert(number, Arc::clone(&fd));
        Some(fd)
    }

    /// Any open file of an object, open for writing where that is wanted.
    #[must_use]
    pub fn file_of(&self, handle: &Handle, for_writing: bool) -> Option<Arc<dyn FileObject>> {
        let can = |file: &&Arc<dyn FileObject>| {
            !for_writing || file.hand_over().is_some_and(|handed| handed.mode.write)
        };
        self.by_handle.get(handle)?.iter().find(can).cloned()
    }

    /// An open file by its number.
    #[must_use]
    pub fn file(&self, number: FileNumber) -> Option<Arc<dyn FileObject>> {
        self.files.get(number.0 as usize)?.clone()
    }
}

/// The results of `each`, in order. Clients wait meanwhile, so many are taken by several threads.
fn beside_one_another<T: Sync, R: Send>(all: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(HANDOVER_THREADS_MAX);
    let part = all.len().div_ceil(threads).max(HANDOVER_FILES_A_THREAD);
    let (of_this_thread, others) = all.split_at(part.min(all.len()));
    let take = |part: &[T]| part.iter().map(&each).collect::<Vec<R>>();
    thread::scope(|scope| {
        let named = || thread::Builder::new().name("arrive".into());
        let parts: Vec<_> =
            others.chunks(part).map(|part| (part, named().spawn_scoped(scope, || take(part)))).collect();
        let mut results = take(of_this_thread);
        for (part, thread) in parts {
            results.extend(match thread {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // There are no threads to be had: then by this one.
                Err(_) => take(part),
            });
        }
        results
    })
}
