//! Other network file systems that mount through FUSE, as Debian packages them: each with a server of its own over the
//! same directory, reached by the same relay.

use anyhow::{Context, Result, bail, ensure};
use holdfast_lab::{Relay, missing, scratch};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const READY_PATIENCE: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);

/// What leads to a port of this host.
type Way<'a> = &'a dyn Fn(u16) -> Result<Relay>;

/// SSHFS over an SSH daemon of its own.
pub(super) struct Sshfs(Pair);

/// GlusterFS: one brick without replication, and the client translators that a volume has by default.
pub(super) struct Gluster(Pair);

impl Sshfs {
    /// Starts and mounts it.
    ///
    /// Errors when a program is missing or fails.
    pub(super) fn mount(share: &Path, way: Way<'_>) -> Result<(Self, Relay)> {
        let daemon = missing::program("sshd", "openssh-server")?;
        let client = missing::program("sshfs", "sshfs")?;
        let keygen = missing::program("ssh-keygen", "openssh-client")?;
        let scratch = Scratch::new()?;
        for key in ["host", "user"] {
            let mut make = Command::new(&keygen);
            make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(scratch.file(key));
            ensure!(make.quiet().status()?.success(), "ssh-keygen failed");
        }
        let port = free_port()?;
        let (host_key, may_enter) = (scratch.file("host"), scratch.file("user.pub"));
        std::fs::write(
            scratch.file("sshd.conf"),
            format!(
                "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\n\
                 PermitRootLogin prohibit-password\nStrictModes no\nPasswordAuthentication no\nUsePAM no\n\
                 PidFile none\nSubsystem sftp internal-sftp\n",
                host_key.display(),
                may_enter.display(),
            ),
        )?;
        // Where the daemon separates its privileges; its package's service makes it.
        std::fs::create_dir_all("/run/sshd")?;
        let server =
            Command::new(daemon).args(["-D", "-e", "-f"]).arg(scratch.file("sshd.conf")).quiet().spawn()?;
        let server = Server(server);
        wait_for_port(port)?;
        let relay = way(port)?;
        let options = format!(
            "IdentityFile={},StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null",
            scratch.file("user").display()
        );
        let mut mount = Command::new(client);
        mount.arg("-p").arg(relay.port().to_string()).arg(format!("root@127.0.0.1:{}", share.display()));
        let mounted = mount.arg(scratch.mount_point()).arg("-o").arg(options).quiet().status()?;
        ensure!(mounted.success(), "sshfs ended with {mounted}");
        Ok((Self(Pair { scratch, _client: None, _server: server }), relay))
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> PathBuf {
        self.0.scratch.mount_point()
    }
}

impl Gluster {
    /// Starts and mounts it.
    ///
    /// Errors when a program is missing or fails.
    pub(super) fn mount(share: &Path, way: Way<'_>) -> Result<(Self, Relay)> {
        let daemon = missing::program("glusterfsd", "glusterfs-server")?;
        let client = missing::program("glusterfs", "glusterfs-client")?;
        let scratch = Scratch::new()?;
        let port = free_port()?;
        std::fs::write(scratch.file("server.vol"), server_volume(share, port))?;
        let server = Command::new(daemon)
            .arg("-N")
            .arg("-f")
            .arg(scratch.file("server.vol"))
            .arg("-l")
            .arg(scratch.file("server.log"))
            .quiet()
            .spawn()?;
        let server = Server(server);
        wait_for_port(port)?;
        let relay = way(port)?;
        std::fs::write(scratch.file("client.vol"), client_volume(relay.port()))?;
        let client = Command::new(client)
            .arg("-N")
            .arg("-f")
            .arg(scratch.file("client.vol"))
            .arg("-l")
            .arg(scratch.file("client.log"))
            .arg(scratch.mount_point())
            .quiet()
            .spawn()?;
        let pair = Pair { scratch, _client: Some(Server(client)), _server: server };
        pair.scratch.wait_until_mounted()?;
        Ok((Self(pair), relay))
    }

    /// Where it is mounted.
    pub(super) fn path(&self) -> PathBuf {
        self.0.scratch.mount_point()
    }
}

/// What a rival consists of, in the order in which it goes: the mount, its client, its server.
struct Pair {
    scratch: Scratch,
    _client: Option<Server>,
    _server: Server,
}

/// Files of a rival, and its mount point; unmounted when dropped.
pub(super) struct Scratch(scratch::Scratch);

/// A process that is ended when dropped.
pub(super) struct Server(Child);

pub(super) trait Quiet {
    /// Says nothing, and hears nothing.
    fn quiet(&mut self) -> &mut Self;
}

impl Quiet for Command {
    fn quiet(&mut self) -> &mut Self {
        self.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())
    }
}

impl Scratch {
    pub(super) fn new() -> Result<Self> {
        let scratch = Self(scratch::Scratch::new("rival")?);
        std::fs::create_dir(scratch.mount_point())?;
        Ok(scratch)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn mount_point(&self) -> PathBuf {
        self.file("mnt")
    }

    fn is_mounted(&self) -> bool {
        let table = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        table.contains(&*self.mount_point().to_string_lossy())
    }

    pub(super) fn wait_until_mounted(&self) -> Result<()> {
        let deadline = Instant::now() + READY_PATIENCE;
        while !self.is_mounted() {
            ensure!(Instant::now() < deadline, "{} was not mounted", self.mount_point().display());
            std::thread::sleep(POLL);
        }
        Ok(())
    }

    pub(super) fn unmount(&self) {
        if self.is_mounted() {
            let _ = rustix::mount::unmount(self.mount_point(), rustix::mount::UnmountFlags::DETACH);
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Its files are removed next, and must not be those of the server.
        self.unmount();
    }
}

impl Server {
    pub(super) fn start(command: &mut Command) -> Result<Self> {
        let program = command.get_program().display().to_string();
        Ok(Self(command.spawn().with_context(|| format!("starting {program}"))?))
    }

    pub(super) fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

fn wait_for_port(port: u16) -> Result<()> {
    let deadline = Instant::now() + READY_PATIENCE;
    while let Err(error) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
        if Instant::now() > deadline {
            bail!(error);
        }
        std::thread::sleep(POLL);
    }
    Ok(())
}

/// What `gluster volume create` writes for a brick, without its management, quotas and change log.
fn server_volume(share: &Path, port: u16) -> String {
    volume("posix", "storage/posix", &[("directory", &share.display().to_string())], None)
        + &volume("locks", "features/locks", &[], Some("posix"))
        + &volume("threads", "performance/io-threads", &[], Some("locks"))
        + &volume(
            "brick",
            "protocol/server",
            &[
                ("transport-type", "tcp"),
                ("transport.socket.bind-address", "127.0.0.1"),
                ("transport.socket.listen-port", &port.to_string()),
                ("auth.addr.threads.allow", "*"),
            ],
            Some("threads"),
        )
}

fn client_volume(port: u16) -> String {
    let remote = volume(
        "remote",
        "protocol/client",
        &[
            ("transport-type", "tcp"),
            ("remote-host", "127.0.0.1"),
            ("remote-port", &port.to_string()),
            ("remote-subvolume", "threads"),
        ],
        None,
    );
    remote
        + &volume("write-behind", "performance/write-behind", &[], Some("remote"))
        + &volume("quick-read", "performance/quick-read", &[], Some("write-behind"))
        + &volume("open-behind", "performance/open-behind", &[], Some("quick-read"))
        + &volume("metadata-cache", "performance/md-cache", &[], Some("open-behind"))
}

fn volume(name: &str, kind: &str, options: &[(&str, &str)], below: Option<&str>) -> String {
    let options: String = options.iter().map(|(key, value)| format!("  option {key} {value}\n")).collect();
    let below = below.map(|below| format!("  subvolumes {below}\n")).unwrap_or_default();
    format!("volume {name}\n  type {kind}\n{options}{below}end-volume\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_stand_on_each_other() {
        assert_eq!(
            volume("a", "x/y", &[("o", "1")], Some("b")),
            "volume a\n  type x/y\n  option o 1\n  subvolumes b\nend-volume\n"
        );
        let client = client_volume(7);
        let defined: Vec<_> = client.lines().filter_map(|line| line.strip_prefix("volume ")).collect();
        let used = client.lines().filter_map(|line| line.strip_prefix("  subvolumes "));
        assert!(used.zip(&defined).all(|(used, defined)| used == *defined), "{client}");
    }
}
