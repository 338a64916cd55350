//! The daemon's log: its standard error, in a file of the runtime directory, held below a bound.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use holdfast_base::limits::MOUNT_LOG_BYTES_MAX;

/// Bytes of a mount point's path that are kept in its log's name.
const NAME_BYTES_MAX: usize = 200;

/// The log of what is mounted at a path, which is without symbolic links: `/mnt/data` has `mnt-data.log`, and `/mnt-data`, as
/// `systemd-escape --path` has it, `mnt\x2ddata.log`.
pub(crate) fn path_for(dir: &Path, mountpoint: &Path) -> PathBuf {
    let name = mountpoint.to_string_lossy().trim_matches('/').replace('-', "\\x2d").replace('/', "-");
    let start = name.len().saturating_sub(NAME_BYTES_MAX);
    let start = (start..name.len()).find(|at| name.is_char_boundary(*at)).unwrap_or(name.len());
    dir.join(format!("{}.log", &name[start..]))
}

/// Opens it for one more daemon.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    shorten(path)?;
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Puts a log that has grown too long aside, in place of the last one that was. Who has it open for appending goes on in
/// the emptied file.
pub(crate) fn shorten(path: &Path) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(meta) if meta.len() > MOUNT_LOG_BYTES_MAX => {
            std::fs::copy(path, path.with_extension("log.1"))?;
            File::options().write(true).open(path)?.set_len(0)
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    #[test]
    fn no_two_mount_points_have_one_log() {
        let name = |path: &str| path_for(Path::new("/run"), Path::new(path)).display().to_string();
        assert_eq!(name("/mnt-data"), "/run/mnt\\x2ddata.log");
        assert_ne!(name("/mnt/a-b"), name("/mnt/a/b"));
    }

    #[test]
    fn a_log_that_grew_too_long_is_put_aside_and_goes_on_empty() {
        let dir = tempfile::tempdir().unwrap();
        let path = path_for(dir.path(), Path::new("/mnt/data"));
        assert_eq!(path, dir.path().join("mnt-data.log"));
        let mut log = open(&path).unwrap();
        log.write_all(&vec![b'x'; usize::try_from(MOUNT_LOG_BYTES_MAX).unwrap() + 1]).unwrap();
        shorten(&path).unwrap();
        log.write_all(b"next\n").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"next\n");
        assert!(std::fs::metadata(dir.path().join("mnt-data.log.1")).unwrap().len() > MOUNT_LOG_BYTES_MAX);
    }
}
