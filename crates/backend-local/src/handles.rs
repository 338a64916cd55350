//! The bytes of our handles: `docs/design/handles-and-change.md` has the table.

use std::ffi::CStr;
use std::hash::BuildHasher as _;
use std::os::fd::AsFd;

use holdfast_vfs::{FsError, FsResult, Handle};
use rustc_hash::FxBuildHasher;

use crate::filesystem::FileSystem;
use crate::sys::{self, KernelHandle};

const KERNEL: u8 = 1;
const ROW: u8 = 2;

/// What a handle of ours says, after the file system's key.
#[derive(Clone, Copy)]
pub(crate) enum Inner {
    /// The kernel's own.
    Kernel(KernelHandle),
    /// A row of the handle table.
    Row(RowId),
}

/// The name of a row: the object's number, and which of the objects that had this number it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RowId {
    pub(crate) ino: u64,
    pub(crate) generation: u64,
}

/// Takes a handle apart: the file system's key and the rest.
pub(crate) fn decode(handle: &Handle) -> FsResult<(u64, Inner)> {
    let bytes = handle.as_bytes();
    let (key, rest) = bytes.split_first_chunk::<8>().ok_or(FsError::BadHandle)?;
    let key = u64::from_le_bytes(*key);
    let inner = match rest {
        [KERNEL, low, high, kernel @ ..] => {
            let kind = i32::from(u16::from_le_bytes([*low, *high]));
            Inner::Kernel(KernelHandle::new(kind, kernel).ok_or(FsError::BadHandle)?)
        }
        [ROW, row @ ..] => {
            let row: [u8; 16] = row.try_into().map_err(|_| FsError::BadHandle)?;
            let (ino, generation) = row.split_at(8);
            let number = |half: &[u8]| half.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
            Inner::Row(RowId { ino: number(ino), generation: number(generation) })
        }
        _ => return Err(FsError::BadHandle),
    };
    Ok((key, inner))
}

/// Where the descriptor cache looks for an object. On file systems whose numbers are unique among living objects a
/// listing finds it by the number alone, which is what `more` being 0 is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Spot {
    fs: u64,
    ino: u64,
    more: u64,
}

/// `FILEID_INO32_GEN`: number and generation of 32 bits each, which ext4 and most others use.
const INO32_GEN: u16 = 1;
/// XFS's: a number of 64 bits, a generation of 32.
const XFS_INO64_GEN: u16 = 0x81;

impl Spot {
    /// Of an object with this number on a file system for which [`crate::filesystem::FsKind::numbers_are_unique`].
    pub(crate) const fn of_number(fs_key: u64, ino: u64) -> Self {
        Self { fs: fs_key, ino, more: 0 }
    }

    /// Of a handle. Two living objects may share one only by a collision of hashes.
    pub(crate) fn of(handle: &Handle) -> Self {
        let bytes = handle.as_bytes();
        let word =
            |from: usize| bytes.get(from..from + 8).and_then(|w| w.try_into().ok()).map(u64::from_le_bytes);
        let fs = word(0).unwrap_or(0);
        let kind = match bytes.get(8..11) {
            Some([KERNEL, low, high]) => u16::from_le_bytes([*low, *high]),
            _ => 0,
        };
        match (kind, bytes.len()) {
            (INO32_GEN, 19) => {
                let ino = bytes[11..15].iter().rev().fold(0, |n, b| n << 8 | u64::from(*b));
                Self { fs, ino, more: 0 }
            }
            (XFS_INO64_GEN, 23) => Self { fs, ino: word(11).unwrap_or(0), more: 0 },
            _ => Self { fs, ino: word(11).unwrap_or(0), more: FxBuildHasher.hash_one(bytes) },
        }
    }
}

/// The handle of an object of a file system with kernel handles.
pub(crate) fn of_kernel(fs: &FileSystem, kernel: &KernelHandle) -> FsResult<Handle> {
    let kind = u16::try_from(kernel.kind).map_err(|_| FsError::NotSupported)?;
    let mut bytes = [0; 11 + sys::KERNEL_HANDLE_BYTES_MAX];
    bytes[..8].copy_from_slice(&fs.key.to_le_bytes());
    bytes[8] = KERNEL;
    bytes[9..11].copy_from_slice(&kind.to_le_bytes());
    let len = 11 + kernel.as_bytes().len();
    bytes[11..len].copy_from_slice(kernel.as_bytes());
    Handle::new(&bytes[..len]).ok_or(FsError::NotSupported)
}

/// The handle of a row.
pub(crate) fn of_row(fs: &FileSystem, row: RowId) -> FsResult<Handle> {
    let mut bytes = [0; 25];
    bytes[..8].copy_from_slice(&fs.key.to_le_bytes());
    bytes[8] = ROW;
    bytes[9..17].copy_from_slice(&row.ino.to_le_bytes());
    bytes[17..].copy_from_slice(&row.generation.to_le_bytes());
    Handle::new(&bytes).ok_or(FsError::NotSupported)
}

/// The kernel's handle of an open object.
pub(crate) fn kernel_of(object: impl AsFd) -> rustix::io::Result<KernelHandle> {
    sys::name_to_handle(object, c"")
}

/// Calls `f` with a name as the kernel wants it.
pub(crate) fn with_c_name<R>(name: &[u8], f: impl FnOnce(&CStr) -> R) -> FsResult<R> {
    let mut bytes = [0; 256];
    bytes.get_mut(..name.len()).ok_or(FsError::NameTooLong)?.copy_from_slice(name);
    let ended = bytes.get(..=name.len()).ok_or(FsError::NameTooLong)?;
    let name = CStr::from_bytes_with_nul(ended).map_err(|_| FsError::BadName)?;
    Ok(f(name))
}
