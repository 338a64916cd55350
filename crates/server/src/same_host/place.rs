//! Where the socket lies: in a directory that can be shown to containers as a whole, under a name that is the server's
//! own and the same after a restart.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use holdfast_base::limits::SAME_HOST_PATH_BYTES_MAX;

/// The socket's path, and once it is bound which file it is.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    inode: u64,
}

/// `/run/holdfast-local` for root, else below `XDG_RUNTIME_DIR`, else in `/tmp` under the user's number.
fn directory() -> PathBuf {
    let user = rustix::process::geteuid();
    if let Some(dir) = std::env::var_os("HOLDFAST_LOCAL_DIR") {
        return PathBuf::from(dir);
    }
    if user.is_root() {
        return "/run/holdfast-local".into();
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(dir) => PathBuf::from(dir).join("holdfast-local"),
        None => format!("/tmp/holdfast-local-{}", user.as_raw()).into(),
    }
}

impl Place {
    /// Of the server that keeps its state there.
    pub(super) fn of_state(state_dir: &Path) -> io::Result<Self> {
        Self::below(&directory(), state_dir)
    }

    fn below(dir: &Path, state_dir: &Path) -> io::Result<Self> {
        // Mounts of other users come here as well: who they are is not told by reaching the socket.
        std::fs::DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
        let found = std::fs::symlink_metadata(dir)?;
        if !found.is_dir() || found.uid() != rustix::process::geteuid().as_raw() {
            let message = format!("{} belongs to somebody else", dir.display());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, message));
        }
        forget_dead(dir);
        let mut hasher = DefaultHasher::new();
        state_dir.canonicalize()?.hash(&mut hasher);
        let path = dir.canonicalize()?.join(format!("{:016x}.sock", hasher.finish()));
        if path.as_os_str().len() > SAME_HOST_PATH_BYTES_MAX - TEMPORARY.len() {
            let message = format!("{} is too long for a socket", path.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(Self { path, inode: 0 })
    }

    /// Binds it, in the place of a server's that was there before.
    pub(super) fn bind(mut self) -> io::Result<(Self, UnixListener)> {
        let mut fresh = self.path.clone().into_os_string();
        fresh.push(TEMPORARY);
        let fresh = PathBuf::from(fresh);
        match std::fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let listener = UnixListener::bind(&fresh)?;
        std::fs::set_permissions(&fresh, std::fs::Permissions::from_mode(0o666))?;
        self.inode = std::fs::symlink_metadata(&fresh)?.ino();
        std::fs::rename(&fresh, &self.path)?;
        Ok((self, listener))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Takes it away, unless it is a successor's by now.
    pub(super) fn leave(&self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| found.ino() == self.inode) {
            // One that stays does no harm.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

const TEMPORARY: &str = ".new";

/// Takes the sockets of servers away that were killed, and never came back.
fn forget_dead(dir: &Path) {
    let Ok(entries) = std::fs::read_dir(dir) else { return };
    for path in
        entries.flatten().map(|entry| entry.path()).filter(|p| p.extension().is_some_and(|e| e == "sock"))
    {
        // A server's own begins to listen under another name.
        let is_dead = UnixStream::connect(&path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
        if is_dead {
            // Somebody else may have taken it away.
            let _ = std::fs::remove_file(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_successor_takes_the_place_and_keeps_it_when_the_former_leaves() {
        let dir = tempfile::tempdir().unwrap();
        let (former, old) = Place::below(&dir.path().join("run"), dir.path()).unwrap().bind().unwrap();
        let (successor, new) = Place::below(&dir.path().join("run"), dir.path()).unwrap().bind().unwrap();
        assert_eq!(former.path(), successor.path());
        former.leave();
        drop(old);
        UnixStream::connect(successor.path()).unwrap();
        new.accept().unwrap();
        successor.leave();
        assert!(!successor.path().exists());
    }

    #[test]
    fn what_a_killed_server_left_is_cleared_away_by_the_next() {
        let dir = tempfile::tempdir().unwrap();
        let (dead, living) = (dir.path().join("dead.sock"), dir.path().join("living.sock"));
        drop(UnixListener::bind(&dead).unwrap());
        let _listener = UnixListener::bind(&living).unwrap();
        Place::below(dir.path(), dir.path()).unwrap();
        assert!(!dead.exists() && living.exists());
    }

    #[test]
    fn servers_with_other_states_have_other_places() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = |state: &Path| Place::below(one.path(), state).unwrap().path;
        assert_ne!(place(one.path()), place(two.path()));
    }
}
