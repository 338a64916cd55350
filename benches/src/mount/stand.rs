//! A contender with its server, its way to it and its mount, on a file system of its own: nobody works in what another
//! left.

use super::Side;
use super::bare::Bare;
use super::ceph::Ceph;
use super::rivals::{Gluster, Sshfs};
use anyhow::Result;
use holdfast_lab::server::Target;
use holdfast_lab::{FsType, LoopFs, Mount, Relay, ServerUnderTest, Way};
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Bytes of the file system: a tree and a large file, with room to spare.
const FILE_SYSTEM_BYTES: u64 = 8 << 30;

/// A contender, ready. What it is made of goes in the order in which it stands on each other.
pub(super) struct Stand {
    mounted: Mounted,
    _way: Option<Relay>,
    _server: Option<ServerUnderTest>,
    _file_system: LoopFs,
}

enum Mounted {
    Holdfast(Mount),
    Sshfs(Sshfs),
    Gluster(Gluster),
    Ceph(Ceph),
    Bare(Bare),
    Local(PathBuf),
}

impl Stand {
    /// Starts it.
    ///
    /// Errors when a program is missing or fails.
    pub(super) fn raise(side: Side, way: Way) -> Result<Self> {
        let (file_system, share) = fresh_share()?;
        let relay = |port| Relay::start(SocketAddr::from((Ipv4Addr::LOCALHOST, port)), way);
        let (mounted, way, server) = match side {
            // A way alone has nothing mounted, and is never raised.
            Side::Local | Side::Link | Side::PacketLink => (Mounted::Local(share), None, None),
            Side::Sshfs => {
                let (rival, way) = Sshfs::mount(&share, &relay)?;
                (Mounted::Sshfs(rival), Some(way), None)
            }
            Side::Gluster => {
                let (rival, way) = Gluster::mount(&share, &relay)?;
                (Mounted::Gluster(rival), Some(way), None)
            }
            Side::Fuse => (Mounted::Bare(Bare::mount()?), None, None),
            Side::Ceph => (Mounted::Ceph(Ceph::mount(&share, way)?), None, None),
            Side::Holdfast | Side::Synchronous | Side::Ganesha | Side::Kernel => {
                let target = if side == Side::Ganesha { Target::Ganesha } else { Target::Holdfast };
                let server = serve(&share, target)?;
                let way = relay(server.port())?;
                // The bypass of the network has a bench of its own.
                let options = if side == Side::Synchronous { "cache=none" } else { "nolocal" };
                let mount = Mount::new(way.port(), &server.export(), options)?;
                (Mounted::Holdfast(mount), Some(way), Some(server))
            }
        };
        Ok(Self { mounted, _way: way, _server: server, _file_system: file_system })
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> PathBuf {
        match &self.mounted {
            Mounted::Holdfast(mount) => mount.path(),
            Mounted::Sshfs(rival) => rival.path(),
            Mounted::Gluster(rival) => rival.path(),
            Mounted::Ceph(rival) => rival.path(),
            Mounted::Bare(bare) => bare.path(),
            Mounted::Local(share) => share.clone(),
        }
    }

    /// Has everything sent and forced to disk, as far as the contender can.
    ///
    /// Errors when that fails.
    pub(super) fn sync(&self) -> Result<()> {
        match &self.mounted {
            Mounted::Holdfast(mount) => mount.sync(),
            _ => sync_file_system(&self.path()),
        }
    }

    /// How often the mount has asked its server so far; `None` where nobody counts.
    ///
    /// Errors when the mount does not tell.
    pub(super) fn round_trips(&self) -> Result<Option<u64>> {
        match &self.mounted {
            Mounted::Holdfast(mount) => mount.round_trips().map(Some),
            _ => Ok(None),
        }
    }

    /// Unmounts, and ends the server.
    ///
    /// Errors when the mount does not end well.
    pub(super) fn take_down(self) -> Result<()> {
        match &self.mounted {
            Mounted::Holdfast(mount) => mount.unmount(&[]),
            _ => Ok(()),
        }
    }
}

/// A new file system with an empty directory to share.
///
/// Errors when there is no room for it.
pub(super) fn fresh_share() -> Result<(LoopFs, PathBuf)> {
    let file_system = LoopFs::new(FsType::Xfs, FILE_SYSTEM_BYTES)?;
    let share = file_system.path().join("share");
    std::fs::create_dir(&share)?;
    Ok((file_system, share))
}

/// An NFS server over it.
///
/// Errors when it does not start.
pub(super) fn serve(share: &Path, target: Target) -> Result<ServerUnderTest> {
    ServerUnderTest::builder(share).target(target).lease_seconds(60).start()
}

/// `syncfs`: what the kernel's own clients send everything at. Most FUSE file systems never hear of it.
///
/// Errors of the system.
pub(super) fn sync_file_system(at: &Path) -> Result<()> {
    rustix::fs::syncfs(File::open(at)?)?;
    Ok(())
}
