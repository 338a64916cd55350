//! The loads.

use super::project;
use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How much of which is done.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Scale {
    /// Small files made and removed in one directory
    #[arg(long, default_value_t = 10_000)]
    pub(super) files: usize,
    /// Files of the source tree that is unpacked and removed
    #[arg(long, default_value_t = 20_000)]
    pub(super) tree_files: usize,
    /// MiB written and read in order
    #[arg(long, default_value_t = 1024)]
    pub(super) data_mib: u64,
    /// Only these loads
    #[arg(long, value_delimiter = ',')]
    loads: Vec<Load>,
}

impl Scale {
    /// As words of a command line that says the same, for a guest: without what is slow there for its processor's sake.
    /// `None` when nothing is left.
    pub(super) fn for_guest(&self) -> Option<Vec<String>> {
        let mut words = vec![
            format!("--files={}", self.files),
            format!("--tree-files={}", self.tree_files),
            format!("--data-mib={}", self.data_mib),
        ];
        let wanted = Load::ALL.into_iter().filter(|load| self.is_wanted(*load) && !load.is_computing());
        let names: Vec<_> = wanted.map(Load::argument).collect();
        words.push(format!("--loads={}", names.join(",")));
        (!names.is_empty()).then_some(words)
    }

    /// For tests: one of each.
    #[cfg(test)]
    pub(super) fn tiny() -> Self {
        Self { files: 1, tree_files: 1, data_mib: 1, loads: Vec::new() }
    }

    pub(super) fn data_bytes(&self) -> u64 {
        self.data_mib << 20
    }

    pub(super) fn is_wanted(&self, load: Load) -> bool {
        self.loads.is_empty() || self.loads.iter().any(|wanted| load.is_needed_by(*wanted))
    }
}

/// Does all that is wanted below `at`, in the order in which loads need each other, and tells of each.
///
/// Errors of the loads.
pub(super) fn play(
    at: &Path,
    sync: &dyn Fn() -> Result<()>,
    scale: &Scale,
    round_trips: &dyn Fn() -> Result<Option<u64>>,
    told: &mut Told<'_>,
) -> Result<()> {
    for load in Load::ALL.into_iter().filter(|load| scale.is_wanted(*load)) {
        load.prepare(at).with_context(|| load.name())?;
        let before = round_trips()?;
        let took = load.run(at, scale, sync).with_context(|| load.name())?;
        let asked = before.zip(round_trips()?).map(|(before, after)| after - before);
        told(load, took, asked);
    }
    Ok(())
}

/// Told of a load, the time it took, and the round trips that it cost, where these are known.
pub(super) type Told<'a> = dyn FnMut(Load, Duration, Option<u64>) + 'a;

/// One load, in the order of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, ValueEnum)]
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
    /// All its data, by `grep -r`.
    Grep,
    /// The same once more.
    GrepAgain,
    /// Its removal, entry by entry; then everything on disk.
    Remove,
    /// One large file written in order; then fsync.
    Write,
    /// And read.
    Read,
    /// `make -j2` of a project of 200 small C files; then everything on disk.
    Build,
    /// `make clean` of it; then everything on disk.
    Clean,
    /// `git status` of it, and of 2,000 files beside, the second time.
    GitStatus,
}

const FILES_PER_DIRECTORY: usize = 40;
const PIECE_BYTES: usize = 1 << 20;

impl Load {
    /// In the order of a turn.
    pub(super) const ALL: [Self; 13] = [
        Self::Create,
        Self::Unlink,
        Self::Unpack,
        Self::Find,
        Self::FindAgain,
        Self::Grep,
        Self::GrepAgain,
        Self::Remove,
        Self::Write,
        Self::Read,
        Self::Build,
        Self::Clean,
        Self::GitStatus,
    ];

    /// Whether it is programs' work more than a file system's.
    const fn is_computing(self) -> bool {
        matches!(self, Self::Build | Self::Clean | Self::GitStatus)
    }

    /// As people write it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Unlink => "unlink",
            Self::Unpack => "unpack",
            Self::Find => "find",
            Self::FindAgain => "find again",
            Self::Grep => "grep -r",
            Self::GrepAgain => "grep -r again",
            Self::Remove => "rm -rf",
            Self::Write => "write",
            Self::Read => "read",
            Self::Build => "build",
            Self::Clean => "clean",
            Self::GitStatus => "git status",
        }
    }

    /// As the command line takes it.
    pub(super) fn argument(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Whether `other`, or what it needs, is this one.
    fn is_needed_by(self, other: Self) -> bool {
        let needs = match other {
            Self::Unlink => &[Self::Create][..],
            Self::Find | Self::Grep | Self::Remove => &[Self::Unpack],
            Self::FindAgain => &[Self::Unpack, Self::Find],
            Self::GrepAgain => &[Self::Unpack, Self::Grep],
            Self::Read => &[Self::Write],
            Self::Clean => &[Self::Build],
            _ => &[],
        };
        self == other || needs.contains(&self)
    }

    /// What has to be there, and is not measured.
    ///
    /// Errors of the system and of git.
    fn prepare(self, at: &Path) -> Result<()> {
        let project = at.join("project");
        match self {
            Self::Create => fs::create_dir(at.join("flat"))?,
            Self::Build => project::lay_out(&project)?,
            Self::GitStatus => {
                project::lay_out(&project)?;
                project::commit(&project)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Does it below `at`, and says how long it took.
    ///
    /// Errors of the system, and when what is found is not what was left.
    fn run(self, at: &Path, scale: &Scale, sync: &dyn Fn() -> Result<()>) -> Result<Duration> {
        let (flat, tree, large, project) =
            (at.join("flat"), at.join("tree"), at.join("large"), at.join("project"));
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
                let found = walk(&tree)?;
                ensure!(found == scale.tree_files, "{found} files found");
            }
            Self::Grep | Self::GrepAgain => {
                let found = project::grep(&tree, "#")?;
                ensure!(found == scale.tree_files, "{found} files read");
            }
            Self::Remove => {
                fs::remove_dir_all(&tree)?;
                sync()?;
            }
            Self::Write => write(&large, scale.data_bytes())?,
            Self::Read => read(&large, scale.data_bytes())?,
            Self::Build => {
                project::build(&project)?;
                sync()?;
            }
            Self::Clean => {
                project::clean(&project)?;
                sync()?;
            }
            Self::GitStatus => project::status(&project)?,
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

fn walk(directory: &Path) -> Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        files += if fs::symlink_metadata(&path)?.is_dir() { walk(&path)? } else { 1 };
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
