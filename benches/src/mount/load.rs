//! The loads.

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How much each does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Small files in one directory.
    pub(super) files: usize,
    /// Files of the tree.
    pub(super) tree_files: usize,
    /// Bytes in order.
    pub(super) data_bytes: u64,
}

/// One load, in the order of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Load {
    /// Open, write 10 bytes, close, of each small file; then fsync of the directory.
    Create,
    /// Their removal; then fsync of the directory.
    Unlink,
    /// A tree of directories and files of up to 16 KiB; then everything on disk.
    Unpack,
    /// Names and attributes of all of it.
    Find,
    /// The same once more.
    FindAgain,
    /// All its data.
    ReadAll,
    /// The same once more.
    ReadAgain,
    /// Its removal, entry by entry; then everything on disk.
    Remove,
    /// One large file written in order; then fsync.
    Write,
    /// And read.
    Read,
}

const FILES_PER_DIRECTORY: usize = 40;
const PIECE_BYTES: usize = 1 << 20;

impl Load {
    /// In the order of a turn.
    pub(super) const ALL: [Self; 10] = [
        Self::Create,
        Self::Unlink,
        Self::Unpack,
        Self::Find,
        Self::FindAgain,
        Self::ReadAll,
        Self::ReadAgain,
        Self::Remove,
        Self::Write,
        Self::Read,
    ];

    /// As people write it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Unlink => "unlink",
            Self::Unpack => "unpack",
            Self::Find => "find",
            Self::FindAgain => "find again",
            Self::ReadAll => "read all",
            Self::ReadAgain => "read again",
            Self::Remove => "rm -rf",
            Self::Write => "write",
            Self::Read => "read",
        }
    }

    /// Whether `other`, or what it needs, is this one.
    pub(super) fn is_needed_by(self, other: Self) -> bool {
        let needs = match other {
            Self::Unlink => &[Self::Create][..],
            Self::Find | Self::ReadAll | Self::Remove => &[Self::Unpack],
            Self::FindAgain => &[Self::Unpack, Self::Find],
            Self::ReadAgain => &[Self::Unpack, Self::ReadAll],
            Self::Read => &[Self::Write],
            _ => &[],
        };
        self == other || needs.contains(&self)
    }

    /// Does it below `at`, and says how long it took.
    ///
    /// Errors of the system, and when what is found is not what was left.
    pub(super) fn run(self, at: &Path, scale: &Scale, sync: &dyn Fn() -> Result<()>) -> Result<Duration> {
        let (flat, tree, large) = (at.join("flat"), at.join("tree"), at.join("large"));
        if self == Self::Create {
            fs::create_dir(&flat)?;
        }
        let started = Instant::now();
        match self {
            Self::Create => {
                for name in names(&flat, scale.files) {
                    File::create_new(name)?.write_all(b"0123456789")?;
                }
                File::open(&flat)?.sync_all()?;
            }
            Self::Unlink => {
                names(&flat, scale.files).try_for_each(fs::remove_file)?;
                File::open(&flat)?.sync_all()?;
            }
            Self::Unpack => {
                unpack(&tree, scale.tree_files)?;
                sync()?;
            }
            Self::Find | Self::FindAgain => {
                let found = walk(&tree, &mut |_| Ok(()))?;
                ensure!(found == scale.tree_files, "{found} files found");
            }
            Self::ReadAll | Self::ReadAgain => {
                let found = walk(&tree, &mut |path| fs::read(path).map(drop))?;
                ensure!(found == scale.tree_files, "{found} files read");
            }
            Self::Remove => {
                fs::remove_dir_all(&tree)?;
                sync()?;
            }
            Self::Write => write(&large, scale.data_bytes)?,
            Self::Read => read(&large, scale.data_bytes)?,
        }
        let took = started.elapsed();
        if self == Self::Unlink {
            ensure!(fs::read_dir(&flat)?.next().is_none(), "files are left");
        }
        Ok(took)
    }
}

fn names(flat: &Path, count: usize) -> impl Iterator<Item = PathBuf> {
    (0..count).map(|number| flat.join(format!("file-{number}")))
}

/// A tree as sources are: many directories, most files small.
fn unpack(tree: &Path, files: usize) -> Result<()> {
    let text = vec![b'#'; 16 << 10];
    fs::create_dir(tree)?;
    for number in 0..files {
        let directory = tree.join(format!("part-{}", number / (FILES_PER_DIRECTORY * 16)));
        let directory = directory.join(format!("module-{}", number / FILES_PER_DIRECTORY));
        if number % FILES_PER_DIRECTORY == 0 {
            fs::create_dir_all(&directory)?;
        }
        let bytes = 200 + (number * 7919) % (16 << 10);
        let path = directory.join(format!("source-{number}.c"));
        File::create_new(path)?.write_all(&text[..bytes.min(text.len())])?;
    }
    Ok(())
}

fn walk(directory: &Path, visit: &mut dyn FnMut(&Path) -> std::io::Result<()>) -> Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if fs::symlink_metadata(&path)?.is_dir() {
            files += walk(&path, visit)?;
        } else {
            visit(&path).with_context(|| path.display().to_string())?;
            files += 1;
        }
    }
    Ok(files)
}

fn write(path: &Path, bytes: u64) -> Result<()> {
    let piece = vec![0x5a; PIECE_BYTES];
    let mut file = File::create(path)?;
    for _ in 0..bytes / PIECE_BYTES as u64 {
        file.write_all(&piece)?;
    }
    file.sync_all()?;
    Ok(())
}

/// Past the kernel's pages, which hold what was just written.
fn read(path: &Path, bytes: u64) -> Result<()> {
    let file = File::open(path)?;
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed)?;
    let mut file = file;
    let (mut piece, mut total) = (vec![0; PIECE_BYTES], 0);
    loop {
        match file.read(&mut piece)? {
            0 => break,
            count => total += count as u64,
        }
    }
    ensure!(total == bytes, "{total} bytes read");
    Ok(())
}
