//! A guest: a Linux kernel as an ordinary process, whose NFS client runs a script as root.
//!
//! User Mode Linux needs neither virtualisation nor a host module, and boots to the script in one to three
//! seconds. The guest sees the host's files read-only under an overlay in its own memory, so every program of
//! the host is there and nothing reaches the host but what the script puts into its output directory. It is no
//! security boundary. Several guests run at once, each on a network link of its own.

mod control;
mod inherit;
mod slot;
mod stream;

use crate::kernel::Kernel;
use crate::missing::{self, Missing};
use crate::process::{capture, tail};
use anyhow::{Context, Result, bail, ensure};
use control::{Control, Job};
use slot::{Slot, Tap};
use std::fs::File;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use stream::Stream;

/// How long a guest may take where a test does not say.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(600);
const CONSOLE_TAIL_LINES: usize = 40;
/// After the status has been told, how long the output may take to drain.
const DRAIN: Duration = Duration::from_secs(10);

/// What is to be booted; see [`Guest::builder`].
#[derive(Debug, Clone)]
pub struct GuestBuilder {
    kernel: Kernel,
    memory: String,
    timeout: Duration,
    out_dir: Option<PathBuf>,
}

/// A running guest. Dropped, it is killed with all its processes, and its link and files are removed.
///
/// Start it and wait for it on one thread: the guest dies with the thread that started it.
#[derive(Debug)]
pub struct Guest {
    process: Child,
    deadline: Instant,
    timeout: Duration,
    stdout: Stream,
    stderr: Stream,
    status: Stream,
    // In the order in which they are given back: link, files, slot.
    _tap: Tap,
    control: Control,
    slot: Slot,
}

/// How a guest's script ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The script's exit status.
    pub status: i32,
    /// Its standard output; bytes that are not UTF-8 are shown as U+FFFD.
    pub stdout: String,
    /// Its standard error, likewise.
    pub stderr: String,
    /// The last lines of the guest kernel's log.
    pub console_tail: String,
}

impl Outcome {
    /// Gives the standard output of a script that ended with status 0; errors with all it said otherwise.
    pub fn success(self) -> Result<String> {
        if self.status == 0 {
            return Ok(self.stdout);
        }
        bail!(
            "the guest's script ended with status {}\n--- stdout\n{}\n--- stderr\n{}\n--- console\n{}",
            self.status,
            tail(&self.stdout, 60),
            tail(&self.stderr, 60),
            tail(&self.console_tail, 10)
        )
    }
}

impl Guest {
    /// A guest with Debian's kernel, 1 GiB of memory and ten minutes of time.
    pub fn builder() -> GuestBuilder {
        GuestBuilder {
            kernel: Kernel::Debian61,
            memory: "1G".to_owned(),
            timeout: TIMEOUT_DEFAULT,
            out_dir: None,
        }
    }

    /// The host's address on the guest's link: `$SERVER` in the script.
    pub fn server_address(&self) -> Ipv4Addr {
        self.slot.host()
    }

    /// The same for IPv6: `$SERVER6` in the script.
    pub fn server_address6(&self) -> Ipv6Addr {
        self.slot.host6()
    }

    /// The guest's own address: `$GUEST` in the script.
    pub fn address(&self) -> Ipv4Addr {
        self.slot.guest()
    }

    /// Resets the TCP connections between host and guest, whoever made them, as a device on the way does that has forgotten
    /// them. How many those were.
    ///
    /// Errors when nothing was reset: there was none, or the host's kernel cannot.
    pub fn cut(&self) -> Result<usize> {
        let peer = self.address().to_string();
        let said = capture("ss", &["--kill", "--tcp", "--numeric", "--no-header", "dst", &peer])?;
        let count = said.lines().count();
        ensure!(
            count > 0,
            Missing::new(
                format!("a connection with {peer} that can be reset"),
                "the host's kernel is to have CONFIG_INET_DIAG_DESTROY"
            )
        );
        Ok(count)
    }

    /// The host directory that the guest writes: `$OUT` in the script.
    pub fn out_dir(&self) -> &Path {
        self.control.out()
    }

    /// Waits until the script has said `words`; a line break among them makes sure of a whole line.
    ///
    /// Errors when the script ends first, or after `patience`.
    pub fn wait_for(&self, words: &str, patience: Duration) -> Result<()> {
        let deadline = self.deadline.min(Instant::now() + patience);
        ensure!(
            self.stdout.wait_until(deadline, |text| text.contains(words)),
            "the guest never said {words:?}\n--- stdout\n{}\n--- stderr\n{}\n--- console\n{}",
            tail(&self.stdout.text(), 20),
            tail(&self.stderr.text(), 20),
            self.console_tail()
        );
        Ok(())
    }

    /// Whether the script has said `words` by now.
    pub fn has_said(&self, words: &str) -> bool {
        self.stdout.text().contains(words)
    }

    /// All that the script has said by now on its standard output.
    pub fn said(&self) -> String {
        self.stdout.text()
    }

    /// Lets a script that does `lab_wait NAME` go on.
    pub fn signal(&self, name: &str) -> Result<()> {
        File::create(self.out_dir().join(".signal").join(name)).context("signalling the guest")?;
        Ok(())
    }

    /// Waits for the script's end.
    ///
    /// Errors when the time is over, or when the guest died without telling a status (its kernel's last words
    /// are in the message).
    pub fn wait(mut self) -> Result<Outcome> {
        let is_told = self.status.wait_until(self.deadline, |text| text.contains('\n'));
        if !is_told {
            let why = if Instant::now() >= self.deadline {
                format!("the guest did not end within {:?}", self.timeout)
            } else {
                "the guest died".to_owned()
            };
            bail!("{why}\n{}", self.last_words());
        }
        let drained_by = Instant::now() + DRAIN;
        self.stdout.wait_closed(drained_by);
        self.stderr.wait_closed(drained_by);
        self.end();
        let told = self.status.text();
        let status = told.trim().parse().with_context(|| format!("the guest's status is {told:?}"))?;
        Ok(Outcome {
            status,
            stdout: self.stdout.text(),
            stderr: self.stderr.text(),
            console_tail: self.console_tail(),
        })
    }

    /// The last that it has said on each of its outputs, for messages of failures.
    pub fn last_words(&self) -> String {
        format!(
            "--- stdout\n{}\n--- stderr\n{}\n--- console\n{}",
            tail(&self.stdout.text(), 40),
            tail(&self.stderr.text(), 40),
            self.console_tail()
        )
    }

    fn console_tail(&self) -> String {
        let log = std::fs::read(self.control.console()).unwrap_or_default();
        tail(&String::from_utf8_lossy(&log), CONSOLE_TAIL_LINES)
    }

    /// Ends every process of the guest: the child is the parent of a process namespace that dies with it.
    fn end(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.end();
    }
}

impl GuestBuilder {
    /// The kernel to boot.
    pub fn kernel(mut self, kernel: Kernel) -> Self {
        self.kernel = kernel;
        self
    }

    /// The guest's memory, as the kernel's `mem=` takes it (`1G`, `512M`).
    pub fn memory(mut self, size: &str) -> Self {
        size.clone_into(&mut self.memory);
        self
    }

    /// How long the guest may run in all.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// A host directory that the guest may write, at the same path, `$OUT`; without it, one that goes with the
    /// guest. The script does `sync` before the host looks.
    pub fn out_dir(mut self, dir: &Path) -> Self {
        self.out_dir = Some(dir.to_path_buf());
        self
    }

    /// Boots, runs `script` (bash, after `assets/prelude.sh`, in `/tmp`) with `env`, and waits for its end.
    ///
    /// Errors as [`GuestBuilder::start`] and [`Guest::wait`]; a script that fails is an [`Outcome`].
    pub fn run_script(self, script: &str, env: &[(&str, &str)]) -> Result<Outcome> {
        self.start(script, env)?.wait()
    }

    /// Boots and starts `script`, without waiting.
    ///
    /// Errors with [`missing::Missing`] when the machine lacks what a guest needs.
    pub fn start(self, script: &str, env: &[(&str, &str)]) -> Result<Guest> {
        check_host()?;
        let slot = Slot::take()?;
        let job = Job { script, env };
        let control = Control::new(&self.kernel, &slot, self.out_dir.as_deref(), &job)?;
        let tap = Tap::new(&slot)?;
        let console = File::create(control.console())?;
        let (stdout, stdout_end) = std::io::pipe()?;
        let (stderr, stderr_end) = std::io::pipe()?;
        let (status, status_end) = std::io::pipe()?;
        let ends: Vec<OwnedFd> = vec![stdout_end.into(), stderr_end.into(), status_end.into()];
        let mut command = self.command(&control, &tap, &console, &ends)?;
        let mut passed = ends;
        passed.push(console.into());
        inherit::pass_descriptors(&mut command, passed);
        let said =
            [File::create(control.path().join("stdout"))?, File::create(control.path().join("stderr"))?];
        let process = command.spawn().context("starting the guest")?;
        // Our copies of the pipes' writing ends live in the command; their readers wait for the last to go.
        drop(command);
        Ok(Guest {
            process,
            deadline: Instant::now() + self.timeout,
            timeout: self.timeout,
            stdout: Stream::follow(stdout, Some(said[0].try_clone()?)),
            stderr: Stream::follow(stderr, Some(said[1].try_clone()?)),
            status: Stream::follow(status, None),
            _tap: tap,
            control,
            slot,
        })
    }

    fn command(&self, control: &Control, tap: &Tap, console: &File, ends: &[OwnedFd]) -> Result<Command> {
        let dir = control.path().display();
        let mut command = Command::new(missing::program("setpriv", "util-linux")?);
        // A process namespace of its own: when its first process (the shell) goes, every process of the guest
        // goes, and it goes when we do.
        command
            .args(["--pdeathsig=KILL", "unshare", "--pid", "--fork", "--kill-child=KILL"])
            // The guest's view of the host's files costs its kernel's process a descriptor for each it keeps.
            .args(["sh", "-c", "ulimit -n \"$(ulimit -Hn)\"; \"$@\"; exit $?", "guest"])
            .arg(self.kernel.binary()?)
            .args([format!("mem={}", self.memory), format!("uml_dir={dir}/"), format!("lab={dir}")])
            .args([
                "umid=uml",
                "root=/dev/root",
                "rootfstype=hostfs",
                "rootflags=/",
                "ro",
                "quiet",
                "panic=1",
            ])
            .arg(format!("init={dir}/init"))
            .args(self.kernel.parameters().split_whitespace())
            .args(["con=null", "ssl=null"])
            .arg(format!("con0=null,fd:{}", console.as_raw_fd()))
            .args(ends.iter().enumerate().map(|(line, end)| format!("ssl{line}=null,fd:{}", end.as_raw_fd())))
            .arg(tap.kernel_parameter())
            .stdin(Stdio::null())
            .stdout(console.try_clone()?)
            .stderr(console.try_clone()?)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            // The guest's memory is a file here: it must be fast and hold all of it.
            .env("TMPDIR", "/dev/shm");
        if let Some(shim) = control.shim() {
            command.env("LD_PRELOAD", shim);
        }
        Ok(command)
    }
}

/// Checks for all that every guest needs, so that a lack is named before anything is made.
fn check_host() -> Result<()> {
    missing::superuser()?;
    for (program, package) in [
        ("setpriv", "util-linux"),
        ("unshare", "util-linux"),
        ("ip", "iproute2"),
        ("busybox", "busybox-static"),
        ("mount.nfs", "nfs-common"),
        ("modprobe", "kmod"),
        ("gcc", "gcc libc6-dev"),
    ] {
        missing::program(program, package)?;
    }
    Ok(())
}
