//! Opens that are passed through: the kernel reads and writes the server's own file, and no request comes here.
//!
//! The kernel's rules (`docs/design/fuse.md`): while one open of a file is passed through all others must be, and while one
//! is not none may be. So the first open of a file decides, until its last close.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::OnceLock;
use std::time::Duration;

use holdfast_base::limits::PASSTHROUGH_BYTES_MIN;
use holdfast_fuse::{BackingId, NodeId, OpenFlags, Passthrough};
use holdfast_volume::cache::{Errno, Fh};
use holdfast_volume::{Volume, Waiting};
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use rustix::fs::OFlags;

/// The file behind a node.
#[derive(Debug)]
struct Behind {
    id: BackingId,
    path: OwnedFd,
}

/// How a node is open.
#[derive(Debug)]
enum How {
    /// Somebody is about to find out.
    Undecided,
    /// Its requests come here.
    Here,
    Passed(Behind),
}

#[derive(Debug)]
struct Node {
    how: How,
    opens: u64,
}

/// All nodes that are open, where any may be passed through.
#[derive(Debug)]
pub(super) struct Passing {
    is_on: bool,
    /// Once the mount stands.
    kernel: OnceLock<Passthrough>,
    nodes: Mutex<FxHashMap<NodeId, Node>>,
    decided: Condvar,
}

/// How often one who waits for another's decision looks whether he is to give up.
const LOOK_EVERY: Duration = Duration::from_millis(20);

impl Passing {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, kernel: OnceLock::new(), nodes: Mutex::default(), decided: Condvar::new() }
    }

    /// Files are passed through from now on.
    pub(super) fn by(&self, kernel: Passthrough) {
        let _ = self.kernel.set(kernel);
    }

    /// One more open of a node: what it is passed through to, if it is.
    ///
    /// # Errors
    /// `EINTR`, and what the server says of this open. Then it does not count.
    pub(super) fn opened(
        &self,
        volume: &Volume,
        who: &dyn Waiting,
        (node, fh): (NodeId, Fh),
        flags: OpenFlags,
    ) -> Result<Option<BackingId>, Errno> {
        if !self.is_on {
            return Ok(None);
        }
        if let Some(passed) = self.joined(who, node)? {
            if passed.is_some()
                && let Err(errno) = volume.judged_by_server(who, fh)
            {
                self.closed(node);
                return Err(errno);
            }
            return Ok(passed);
        }
        let kernel = self.kernel.get();
        let behind = kernel.map_or(Ok(None), |kernel| decided(kernel, volume, who, (node, fh), flags));
        let mut nodes = self.nodes.lock();
        let (how, told) = match behind {
            Ok(Some(behind)) => {
                let id = behind.id;
                (How::Passed(behind), Ok(Some(id)))
            }
            Ok(None) => (How::Here, Ok(None)),
            Err(errno) => {
                // Whoever waits for it decides anew.
                nodes.remove(&node);
                self.decided.notify_all();
                return Err(errno);
            }
        };
        nodes.insert(node, Node { how, opens: 1 });
        self.decided.notify_all();
        told
    }

    /// An open that may have made the file: its requests come here, unless others have it open otherwise.
    ///
    /// # Errors
    /// Those of [`Passing::opened`].
    pub(super) fn made_or_opened(
        &self,
        volume: &Volume,
        who: &dyn Waiting,
        of: (NodeId, Fh),
        flags: OpenFlags,
    ) -> Result<Option<BackingId>, Errno> {
        if !self.is_on {
            return Ok(None);
        }
        {
            let mut nodes = self.nodes.lock();
            if let std::collections::hash_map::Entry::Vacant(place) = nodes.entry(of.0) {
                place.insert(Node { how: How::Here, opens: 1 });
                return Ok(None);
            }
        }
        self.opened(volume, who, of, flags)
    }

    /// Joins those who have the node open; `None`: there are none, and the caller decides.
    fn joined(&self, who: &dyn Waiting, id: NodeId) -> Result<Option<Option<BackingId>>, Errno> {
        let mut nodes = self.nodes.lock();
        loop {
            match nodes.get_mut(&id) {
                None => {
                    nodes.insert(id, Node { how: How::Undecided, opens: 0 });
                    return Ok(None);
                }
                Some(Node { how: How::Undecided, .. }) => {
                    self.decided.wait_for(&mut nodes, LOOK_EVERY);
                    if who.cancel().is_cancelled() {
                        return Err(Errno::EINTR);
                    }
                }
                Some(Node { how: How::Here, opens }) => {
                    *opens += 1;
                    return Ok(Some(None));
                }
                Some(Node { how: How::Passed(behind), opens }) => {
                    *opens += 1;
                    return Ok(Some(Some(behind.id)));
                }
            }
        }
    }

    /// One open fewer.
    pub(super) fn closed(&self, id: NodeId) {
        let mut nodes = self.nodes.lock();
        let Some(node) = nodes.get_mut(&id) else { return };
        node.opens = node.opens.saturating_sub(1);
        if node.opens > 0 || matches!(node.how, How::Undecided) {
            return;
        }
        if let (Some(Node { how: How::Passed(behind), .. }), Some(kernel)) =
            (nodes.remove(&id), self.kernel.get())
        {
            kernel.close(behind.id);
        }
    }

    /// Puts on disk what was written past us.
    ///
    /// # Errors
    /// What the file system says.
    pub(super) fn synced(&self, id: NodeId) -> rustix::io::Result<()> {
        let path = match self.nodes.lock().get(&id) {
            Some(Node { how: How::Passed(behind), .. }) => behind.path.try_clone(),
            _ => return Ok(()),
        };
        let path = path.map_err(|_| rustix::io::Errno::MFILE)?;
        rustix::fs::fsync(opened_anew(&path, OFlags::RDONLY)?)
    }
}

fn opened_anew(path: &OwnedFd, flags: OFlags) -> rustix::io::Result<OwnedFd> {
    use std::os::fd::AsRawFd as _;
    let name = format!("/proc/self/fd/{}", path.as_raw_fd());
    rustix::fs::open(name, flags | OFlags::CLOEXEC | OFlags::NONBLOCK, rustix::fs::Mode::empty())
}

/// The file behind a node that nobody has open yet, if it is to be passed through.
fn decided(
    kernel: &Passthrough,
    volume: &Volume,
    who: &dyn Waiting,
    (node, fh): (NodeId, Fh),
    flags: OpenFlags,
) -> Result<Option<Behind>, Errno> {
    // The kernel appends where it believes the end to be, and is not told when others move it.
    if flags.contains(OpenFlags::APPEND) {
        return Ok(None);
    }
    let attributes = volume.getattr(who, super::node(node))?;
    if attributes.attrs.size < PASSTHROUGH_BYTES_MIN {
        return Ok(None);
    }
    let Some(path) = volume.path_behind(who, super::node(node), fh)? else { return Ok(None) };
    match registered(kernel, &path) {
        Ok(id) => Ok(Some(Behind { id, path })),
        Err(error) => {
            tracing::info!(%error, "not passed through");
            Ok(None)
        }
    }
}

/// Kernels before 6.16 take no `O_PATH` descriptor.
fn registered(kernel: &Passthrough, path: &OwnedFd) -> Result<BackingId, holdfast_fuse::PassthroughError> {
    let by_path = kernel.open(path.as_fd());
    if !matches!(by_path, Err(holdfast_fuse::PassthroughError::Unsuitable(rustix::io::Errno::BADF))) {
        return by_path;
    }
    let file = opened_anew(path, OFlags::RDWR).or_else(|_| opened_anew(path, OFlags::RDONLY));
    file.map_or(by_path, |file| kernel.open(file.as_fd()))
}
