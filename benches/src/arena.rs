//! The private place that a run happens in: own network (loopback alone), mounts and processes. An rpcbind lives
//! there, without which NFS-Ganesha does not serve NFSv3; and nothing that is left over outlives the run.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Set in the environment of the process that runs inside.
const INSIDE: &str = "HOLDFAST_BENCH_INSIDE";
/// Names another congestion control than [`CONGESTION`].
const CONGESTION_VARIABLE: &str = "HOLDFAST_BENCH_CONGESTION";
/// Over loopback, where nothing is lost, it does as CUBIC does, Linux's default, which a namespace may not always choose.
/// A machine's own may pace (BBR), and then its timers are what is measured.
const CONGESTION: &str = "reno";
const CONGESTION_FILE: &str = "/proc/sys/net/ipv4/tcp_congestion_control";
const RPCBIND_PORT: u16 = 111;
const RPCBIND_PATIENCE: Duration = Duration::from_secs(10);

/// The namespace's own helpers, ended when dropped.
#[derive(Debug)]
pub(crate) struct Arena {
    rpcbind: Child,
}

/// Goes inside, by starting this program once more there, or sets the place up where it is inside already.
///
/// Errors when namespaces cannot be made (the superuser can), or a program is missing.
pub(crate) fn enter() -> Result<Arena> {
    if std::env::var_os(INSIDE).is_none() {
        let own = std::env::current_exe().context("finding this program")?;
        // What ends this process (Ctrl-C) ends all that is inside with it, and nothing inside before: a mount whose servers went first
        // would never let go of who waits for it. For the same reason it is a shell whose end is that of the namespace.
        let inside = Command::new("setpriv")
            .args(["--pdeathsig=KILL", "unshare", "--net", "--mount", "--pid", "--fork", "--kill-child"])
            .args(["--mount-proc", "--", "sh", "-c", "\"$@\"; exit $?", "sh"])
            .arg(own)
            .args(std::env::args_os().skip(1))
            .env(INSIDE, "1")
            .process_group(0)
            .status()
            .context("starting setpriv and unshare (package util-linux)")?;
        std::process::exit(inside.code().unwrap_or(1));
    }
    // rpcbind and the servers keep sockets and pid files there; the machine's own must not be seen or touched.
    run("mount", &["-t", "tmpfs", "tmpfs", "/run"])?;
    run("ip", &["link", "set", "lo", "up"])?;
    let congestion = std::env::var(CONGESTION_VARIABLE).unwrap_or_else(|_| CONGESTION.to_owned());
    fs::write(CONGESTION_FILE, &congestion)
        .with_context(|| format!("choosing the congestion control {congestion}"))?;
    let rpcbind = Command::new("rpcbind")
        .arg("-f")
        .stdin(Stdio::null())
        .spawn()
        .context("starting rpcbind (scripts/install-bench installs it)")?;
    let arena = Arena { rpcbind };
    wait_for(SocketAddrV4::new(Ipv4Addr::LOCALHOST, RPCBIND_PORT), RPCBIND_PATIENCE).context("rpcbind")?;
    Ok(arena)
}

/// The congestion control of the place, for a report.
pub(crate) fn congestion() -> String {
    fs::read_to_string(CONGESTION_FILE).unwrap_or_default().trim().to_owned()
}

impl Drop for Arena {
    fn drop(&mut self) {
        let _ = self.rpcbind.kill();
        let _ = self.rpcbind.wait();
    }
}

/// Waits until something accepts connections there.
///
/// Errors when nothing does in time.
pub(crate) fn wait_for(address: SocketAddrV4, patience: Duration) -> Result<()> {
    let deadline = Instant::now() + patience;
    while TcpStream::connect(address).is_err() {
        ensure!(Instant::now() < deadline, "nothing listens on {address} after {patience:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Runs a command to its end.
///
/// Errors when it cannot be started or fails; the message holds what it complained of.
pub(crate) fn run(program: &str, args: &[&str]) -> Result<()> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {program}"))?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{program} {}: {}", args.join(" "), complaint.trim());
    Ok(())
}
