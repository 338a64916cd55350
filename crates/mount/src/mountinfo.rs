//! What `/proc/self/mountinfo` says of mounts. Looking there, rather than at the mount point itself, asks no server: a
//! `stat` of a mount whose server is gone would wait for it.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// The type under which Holdfast's mounts are known.
pub const FS_TYPE: &str = "fuse.holdfast";

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountInfo {
    /// The device number, `MAJOR:MINOR`: different for every mount at a time, the same in every mount namespace.
    pub device: String,
    /// Where.
    pub mountpoint: PathBuf,
    /// The file system's type.
    pub fs_type: String,
    /// What is mounted.
    pub source: String,
}

/// The topmost mount at a path, of whatever type.
///
/// # Errors
/// When the table cannot be read.
pub fn topmost(mountpoint: &Path) -> io::Result<Option<MountInfo>> {
    Ok(parse(&std::fs::read(TABLE)?).into_iter().rev().find(|mount| mount.mountpoint == mountpoint))
}

/// Whether a mount of ours with this device number is anywhere in this mount namespace.
///
/// # Errors
/// When the table cannot be read.
pub fn is_mounted(device: &str) -> io::Result<bool> {
    let mounts = parse(&std::fs::read(TABLE)?);
    Ok(mounts.iter().any(|mount| mount.device == device && mount.fs_type == FS_TYPE))
}

/// A process in whose mount namespace a mount of ours with this device number is, if there is any that can be looked at.
#[must_use]
pub fn in_other_namespace(device: &str) -> Option<u32> {
    let has_it = |pid: &u32| {
        let table = std::fs::read(format!("/proc/{pid}/mountinfo")).unwrap_or_default();
        parse(&table).iter().any(|mount| mount.device == device && mount.fs_type == FS_TYPE)
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).find(has_it)
}

const TABLE: &str = "/proc/self/mountinfo";

/// A path without symbolic links, found without looking at the last component itself.
///
/// # Errors
/// When the directory above it cannot be found.
pub fn resolve(path: &Path) -> io::Result<PathBuf> {
    let whole = std::path::absolute(path)?;
    match (whole.parent(), whole.file_name()) {
        (Some(above), Some(name)) => {
            let resolved = above.canonicalize()?.join(name);
            // A symbolic link to a mount point is looked through; the link itself lies on the file system above.
            match std::fs::read_link(&resolved) {
                Ok(target) if !is_mountpoint(&resolved) => resolve(&above.join(target)),
                _ => Ok(resolved),
            }
        }
        _ => whole.canonicalize(),
    }
}

fn is_mountpoint(path: &Path) -> bool {
    topmost(path).is_ok_and(|mount| mount.is_some())
}

fn parse(table: &[u8]) -> Vec<MountInfo> {
    table.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// `36 35 98:0 /root /mountpoint options optional... - type source super-options` (proc_pid_mountinfo(5)).
fn parse_line(line: &[u8]) -> Option<MountInfo> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = text(fields.nth(2)?);
    let mountpoint = PathBuf::from(OsString::from_vec(unescaped(fields.nth(1)?)));
    let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
    let fs_type = text(rest.next()?);
    let source = text(rest.next()?);
    Some(MountInfo { device, mountpoint, fs_type, source })
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(&unescaped(field)).into_owned()
}

/// Space, tab, newline and backslash stand there as `\` and three octal digits.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal =
            |digits: &[u8]| std::str::from_utf8(digits).ok().and_then(|d| u8::from_str_radix(d, 8).ok());
        match (byte, after.get(..3).and_then(octal)) {
            (b'\\', Some(escaped)) => {
                plain.push(escaped);
                rest = &after[3..];
            }
            _ => {
                plain.push(byte);
                rest = after;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_table_is_read_with_its_escapes() {
        let table = b"22 1 0:20 / /proc rw,nosuid - proc proc rw\n\
                      61 22 0:53 / /mnt/my\\040files rw,nosuid shared:3 - fuse.holdfast files:/data rw,user_id=0\n";
        let mounts = parse(table);
        assert_eq!(mounts.len(), 2);
        let expected = MountInfo {
            device: "0:53".into(),
            mountpoint: "/mnt/my files".into(),
            fs_type: FS_TYPE.into(),
            source: "files:/data".into(),
        };
        assert_eq!(mounts[1], expected);
    }

    #[test]
    fn a_link_to_a_directory_is_looked_through() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        std::fs::create_dir(base.join("real")).unwrap();
        std::os::unix::fs::symlink("real", base.join("link")).unwrap();
        assert_eq!(resolve(&base.join("link")).unwrap(), base.join("real"));
        assert_eq!(resolve(&base.join("link/../real")).unwrap(), base.join("real"));
    }
}
