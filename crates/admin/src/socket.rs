//! The socket in the state directory: where it lies, how it is made so that nobody else can ask there, and how one
//! gets to it when its path is longer than a socket's address may be.

use std::fs::{self, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Its name in the state directory.
pub const NAME: &str = "admin.sock";

/// Bytes of a path in a socket's address, its closing zero left out (`sun_path`).
const PATH_BYTES_MAX: usize = 107;

/// The socket of a state directory.
#[must_use]
pub fn path_in(state_dir: &Path) -> PathBuf {
    state_dir.join(NAME)
}

/// A bound socket; its file goes when this is dropped, unless another server has put its own there.
#[derive(Debug)]
pub(crate) struct Bound {
    pub(crate) listener: UnixListener,
    path: PathBuf,
    inode: (u64, u64),
}

impl Bound {
    /// Binds the socket of a state directory, which no other running server uses: one that was left behind is
    /// replaced. It is never to be seen with wider permissions than 0600.
    ///
    /// # Errors
    /// Those of the system; [`io::ErrorKind::AddrInUse`] when somebody answers there, or when what lies there is no
    /// socket.
    pub(crate) fn new(state_dir: &Path) -> io::Result<Self> {
        let path = path_in(state_dir);
        match fs::symlink_metadata(&path) {
            Ok(there) if !there.file_type().is_socket() => {
                return Err(in_use(format!("{} is in the way and no socket", path.display())));
            }
            Ok(_) if connect(state_dir).is_ok() => {
                return Err(in_use(format!("another server answers at {}", path.display())));
            }
            _ => {}
        }
        // Made under another name and then moved, so that who finds it finds it ready and private.
        let name = format!("{NAME}.{}", std::process::id());
        let made = state_dir.join(&name);
        let _ = fs::remove_file(&made);
        let listener = at(state_dir, &name, |path| UnixListener::bind(path))?;
        let finish = || {
            fs::set_permissions(&made, Permissions::from_mode(0o600))?;
            let inode = inode_of(&made)?;
            fs::rename(&made, &path)?;
            Ok(inode)
        };
        let inode = finish().inspect_err(|_: &io::Error| {
            let _ = fs::remove_file(&made);
        })?;
        Ok(Self { listener, path, inode })
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if inode_of(&self.path).is_ok_and(|inode| inode == self.inode) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Connects to the server of a state directory.
///
/// # Errors
/// Those of the system: [`io::ErrorKind::NotFound`] and [`io::ErrorKind::ConnectionRefused`] when none runs.
pub(crate) fn connect(state_dir: &Path) -> io::Result<UnixStream> {
    at(state_dir, NAME, |path| UnixStream::connect(path))
}

/// Does something with the path of a file in a directory, however long that is.
fn at<T>(dir: &Path, name: &str, act: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let path = dir.join(name);
    if path.as_os_str().as_bytes().len() <= PATH_BYTES_MAX {
        return act(&path);
    }
    let dir = fs::File::open(dir)?;
    act(&PathBuf::from(format!("/proc/self/fd/{}/{name}", dir.as_raw_fd())))
}

fn inode_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()))
}

fn in_use(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::AddrInUse, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_socket_is_private_replaces_a_stale_one_and_goes_with_its_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = path_in(dir.path());
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "left behind");
        let bound = Bound::new(dir.path()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        connect(dir.path()).unwrap();
        drop(bound);
        assert_eq!(connect(dir.path()).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_socket_that_is_answered_is_not_taken_away() {
        let dir = tempfile::tempdir().unwrap();
        let _first = Bound::new(dir.path()).unwrap();
        assert_eq!(Bound::new(dir.path()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        connect(dir.path()).unwrap();
    }

    #[test]
    fn what_is_no_socket_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(path_in(dir.path()), "dear").unwrap();
        assert!(Bound::new(dir.path()).unwrap_err().to_string().contains("no socket"));
        assert_eq!(fs::read(path_in(dir.path())).unwrap(), b"dear");
    }

    #[test]
    fn a_server_that_ends_leaves_its_successors_socket() {
        let dir = tempfile::tempdir().unwrap();
        let first = Bound::new(dir.path()).unwrap();
        fs::remove_file(path_in(dir.path())).unwrap();
        let _second = Bound::new(dir.path()).unwrap();
        drop(first);
        connect(dir.path()).unwrap();
    }

    #[test]
    fn paths_longer_than_a_sockets_address_serve_too() {
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("a".repeat(100)).join("b".repeat(100));
        fs::create_dir_all(&deep).unwrap();
        let _bound = Bound::new(&deep).unwrap();
        connect(&deep).unwrap();
        assert_eq!(fs::metadata(path_in(&deep)).unwrap().permissions().mode() & 0o777, 0o600);
    }
}
