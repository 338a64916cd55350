//! Mounts that share a host with their server read and write by its descriptors, and nobody sees a difference.

use crate::direct::PAGES;
use crate::fixture::{LET_GO, run_in};
use anyhow::{Context, Result, ensure};
use holdfast_lab::server::{ServerBuilder, Target};
use holdfast_lab::{FsType, LoopFs, Mount, ServerUnderTest, Trial};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("same_host::what_is_read_and_written_is_the_same_as_over_the_network", same_bytes),
        Trial::new("same_host::what_ends_at_the_disk_is_not_in_memory", to_the_disk),
        Trial::new("same_host::each_side_can_switch_it_off", switched_off),
        Trial::new("same_host::what_another_mount_writes_is_seen_at_once", || taking_turns(TURNS)),
        Trial::new("same_host::what_a_local_process_writes_is_seen", || taking_turns(LOCAL)),
        Trial::new("same_host::a_read_only_exports_descriptors_cannot_be_made_writable", read_only),
        Trial::new("same_host::one_users_descriptor_is_of_no_use_to_root_who_is_squashed", squashed),
        Trial::new("same_host::a_server_killed_and_restarted_lends_again", restarted),
        Trial::new(
            "same_host::a_stopped_mount_with_a_descriptor_holds_others_up_no_longer_than_any",
            stopped,
        ),
        Trial::new("same_host::what_is_passed_through_is_the_servers_own_file", passed_through),
        Trial::new("same_host::what_is_passed_through_goes_on_without_a_server", passed_through_restarted),
        Trial::new("same_host::each_open_of_what_is_passed_through_is_judged", passed_through_read_only),
        Trial::new("same_host::a_container_with_the_sockets_directory_is_on_this_host", || container(true)),
        Trial::new("same_host::a_container_without_it_is_not", || container(false)),
    ]
}

struct Here {
    server: ServerUnderTest,
    filesystem: LoopFs,
}

impl Here {
    fn new() -> Result<Self> {
        Self::with(|builder, _| Ok(builder))
    }

    fn with(more: impl FnOnce(ServerBuilder, &LoopFs) -> Result<ServerBuilder>) -> Result<Self> {
        let filesystem = LoopFs::new(FsType::Xfs, 1 << 30)?;
        let share = filesystem.path().join("share");
        std::fs::create_dir(&share)?;
        let sockets = filesystem.path().join("sockets");
        let builder = ServerUnderTest::builder(&share)
            .target(Target::Holdfast)
            .environment("HOLDFAST_LOCAL_DIR", &sockets.to_string_lossy());
        let server = more(builder, &filesystem)?.start()?;
        Ok(Self { server, filesystem })
    }

    fn share(&self) -> PathBuf {
        self.filesystem.path().join("share")
    }

    fn mount(&self, options: &str) -> Result<Mount> {
        Mount::new(self.server.port(), &self.server.export(), options)
    }
}

/// Reads and writes by descriptors so far.
fn counts(mount: &Mount) -> Result<(u64, u64)> {
    let stats = mount.stats()?;
    let count = |name: &str| stats["same_host"][name].as_u64().context("no same_host in the statistics");
    Ok((count("reads")?, count("writes")?))
}

fn python(script: &str, arguments: &[&str]) -> Result<String> {
    run_in(&std::env::temp_dir(), &format!("python3 - \"$@\" <<'E'\n{script}\nE\n"), arguments)
}

/// Writes at random places, beyond the end and with holes; reads what no cache has; all against a copy in memory.
const RANDOM: &str = "
import os, random, sys
path, seed = sys.argv[1], int(sys.argv[2])
r, SIZE = random.Random(seed), 12 << 20
os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o644))
model = bytearray()
for _ in range(2):
    fd = os.open(path, os.O_RDWR)
    for _ in range(120):
        at, n = r.randrange(SIZE), r.choice([1, 513, 4096, 131072, 300000])
        data = r.randbytes(n)
        if at > len(model): model.extend(bytes(at - len(model)))
        model[at:at + n] = data
        assert os.pwrite(fd, data, at) == n
        if r.random() < 0.1:
            os.fsync(fd); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        at = r.randrange(SIZE)
        assert os.pread(fd, 200000, at) == model[at:at + 200000], at
    cut = r.randrange(len(model)); os.ftruncate(fd, cut); del model[cut:]
    assert os.fstat(fd).st_size == cut
    os.fsync(fd); os.close(fd)
    fd = os.open(path, os.O_RDONLY); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    for at in range(0, len(model), 65536):
        assert os.pread(fd, 65536, at) == model[at:at + 65536], at
    assert os.pread(fd, 10, len(model)) == b''
    os.close(fd)
import hashlib; print(hashlib.md5(model).hexdigest())
";

/// Makes a file of so many MiB by one mount, and reads it back when no cache has it.
const WHOLE: &str = "
import os, sys
path, mib = sys.argv[1], int(sys.argv[2])
data = os.urandom(1 << 20)
fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
for n in range(mib): os.pwrite(fd, data, n << 20)
os.fsync(fd); os.close(fd)
fd = os.open(path, os.O_RDONLY); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
for n in range(mib): assert os.pread(fd, 1 << 20, n << 20) == data, n
";

fn same_bytes() -> Result<()> {
    let here = Here::new()?;
    let (near, far) = (here.mount("")?, here.mount("nolocal")?);
    // What is made after the first is made under promises, and so is the writing.
    run_in(&near.path(), "echo first >first; ls -l >/dev/null", &[])?;
    for (seed, (mount, name)) in [(&near, "near"), (&far, "far"), (&near, "again")].into_iter().enumerate() {
        let path = mount.path().join(name);
        let sum = python(RANDOM, &[&path.to_string_lossy(), &seed.to_string()])?;
        mount.sync()?;
        let there = run_in(&here.share(), "md5sum <$1", &[name])?;
        ensure!(there.split_whitespace().next() == Some(sum.trim()), "{name}: {sum} here, {there} there");
    }
    let ((reads, writes), over_network) = (counts(&near)?, counts(&far)?);
    ensure!(reads > 0 && writes > 0, "by descriptors: {reads} reads, {writes} writes\n{}", near.log());
    ensure!(over_network == (0, 0), "without: {over_network:?}");
    near.check_alive()?;
    near.unmount(&[])
}

const TO_THE_DISK: &str = "
import mmap, sys, time
path, below = sys.argv[1:]
MIB = 1 << 20
fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
buffer, back = mmap.mmap(-1, MIB), mmap.mmap(-1, MIB)
def write():
    buffer[:] = os.urandom(MIB)
    assert os.pwrite(fd, buffer, 0) == MIB
for _ in range(20):
    write()
    time.sleep(0.02)
after_writes = pages(below)
for _ in range(20):
    back[:] = bytes(MIB)
    assert os.preadv(fd, [back], 0) == MIB and back[:] == buffer[:]
    time.sleep(0.02)
print(after_writes, pages(below))
";

fn to_the_disk() -> Result<()> {
    let here = Here::new()?;
    let mount = here.mount("direct=disk")?;
    // Whoever looks below has the server take its descriptors back: so not before the end.
    let script = format!("{PAGES}\n{TO_THE_DISK}");
    let (path, below) = (mount.path().join("f"), here.share().join("f"));
    let pages =
        python(&script, &[&path.to_string_lossy(), &below.to_string_lossy()]).with_context(|| mount.log())?;
    ensure!(pages.trim() == "0 0", "pages in memory: {pages}");
    let (reads, writes) = counts(&mount)?;
    ensure!(reads > 0 && writes > 0, "{reads} reads and {writes} writes by descriptors");
    Ok(())
}

fn switched_off() -> Result<()> {
    let here = Here::with(|builder, filesystem| {
        let config = filesystem.path().join("config.toml");
        std::fs::write(&config, "same_host = false\n")?;
        Ok(builder.arguments(&["--config", &config.to_string_lossy()]))
    })?;
    let mount = here.mount("")?;
    python(WHOLE, &[&mount.path().join("f").to_string_lossy(), "8"])?;
    ensure!(counts(&mount)? == (0, 0), "{}", mount.stats()?);
    ensure!(!here.filesystem.path().join("sockets").exists(), "a socket all the same");
    let here = Here::new()?;
    let mount = here.mount("nolocal")?;
    python(WHOLE, &[&mount.path().join("f").to_string_lossy(), "8"])?;
    ensure!(counts(&mount)? == (0, 0), "{}", mount.stats()?);
    Ok(())
}

/// One who reads by a descriptor, and others who write.
const TURNS: &str = "
import os, sys
near, far, _ = sys.argv[1:]
SIZE = 2 << 20
def fill(path, n):
    fd = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
    for at in range(0, SIZE, 65536): os.pwrite(fd, bytes([n % 251]) * 65536, at)
    os.close(fd)
def check(path, n):
    fd = os.open(path, os.O_RDONLY)
    for at in range(0, SIZE, 65536):
        assert os.pread(fd, 65536, at) == bytes([n % 251]) * 65536, (path, n, at)
    os.close(fd)
for n in range(24):
    writer, reader = (near, far) if n % 2 else (far, near)
    fill(writer + '/f', n); check(reader + '/f', n); check(writer + '/f', n)
# While the reader has it open all the time: what it opens next sees it.
held = os.open(near + '/f', os.O_RDONLY)
for n in range(24, 60):
    for at in range(0, SIZE, 131072): os.pread(held, 65536, at)
    w = os.open(far + '/f', os.O_WRONLY); os.pwrite(w, bytes([n]) * 4096, (n % 16) << 17); os.close(w)
    fd = os.open(near + '/f', os.O_RDONLY)
    assert os.pread(fd, 4096, (n % 16) << 17) == bytes([n]) * 4096, n
    os.close(fd)
# Both write by turns, each byte of a page by one of them.
a, b = os.open(near + '/g', os.O_RDWR | os.O_CREAT, 0o644), os.open(far + '/g', os.O_RDWR)
for n in range(2048): os.pwrite(b if n % 2 else a, bytes([n % 251]), n)
want = bytes(n % 251 for n in range(2048))
assert os.pread(a, 4096, 0) == want and os.pread(b, 4096, 0) == want
";

const LOCAL: &str = "
import os, sys, time
near, _, there = sys.argv[1:]
SIZE = 4 << 20
# A lazy export's changes are noticed within milliseconds, by who gets a processor; what is not noticed is never seen.
def soon(is_seen, what):
    until = time.monotonic() + 20
    while not is_seen():
        assert time.monotonic() < until, what
        time.sleep(0.005)
def is_all(path, n):
    try:
        with open(path, 'rb', buffering=0) as file: return file.read(2 * SIZE) == bytes([n]) * SIZE
    except FileNotFoundError: return False
w = os.open(there + '/f', os.O_CREAT | os.O_RDWR, 0o644)
for n in range(8):
    for at in range(0, SIZE, 1 << 20): os.pwrite(w, bytes([n]) * (1 << 20), at)
    soon(lambda: is_all(near + '/f', n), n)
os.close(w)
# One who opens it while it is written here waits until all of that is there.
for n in range(4):
    fd = os.open(near + '/g', os.O_CREAT | os.O_RDWR, 0o644)
    for at in range(0, SIZE, 65536): os.pwrite(fd, bytes([n + 1]) * 65536, at)
    w = os.open(there + '/g', os.O_RDWR)
    for at in range(0, SIZE, 65536): assert os.pread(w, 65536, at) == bytes([n + 1]) * 65536, (n, at)
    os.pwrite(w, b'local', 5); os.close(w); os.close(fd)
    soon(lambda: open(near + '/g', 'rb').read(10)[5:] == b'local', n)
";

fn taking_turns(script: &str) -> Result<()> {
    let here = Here::new()?;
    let (near, far) = (here.mount("")?, here.mount("nolocal")?);
    run_in(&near.path(), "echo first >first; ls -l >/dev/null", &[])?;
    // So that the mount has met its server, whatever the script does.
    python(WHOLE, &[&near.path().join("known").to_string_lossy(), "4"])?;
    let places = [near.path(), far.path(), here.share()].map(|path| path.to_string_lossy().into_owned());
    python(script, &places.each_ref().map(String::as_str))
        .with_context(|| format!("{}\n{}", near.log(), far.log()))?;
    let (reads, writes) = counts(&near)?;
    ensure!(reads > 0 && writes > 0, "by descriptors: {reads} reads, {writes} writes");
    near.check_alive()?;
    far.check_alive()
}

fn read_only() -> Result<()> {
    let here = Here::with(|builder, filesystem| {
        let (kept, config) = (filesystem.path().join("kept"), filesystem.path().join("config.toml"));
        std::fs::create_dir(&kept)?;
        std::fs::write(kept.join("f"), vec![7; 4 << 20])?;
        std::fs::set_permissions(kept.join("f"), PermissionsExt::from_mode(0o666))?;
        let text = format!(
            "[[export]]\nsource = \"{}\"\npath = \"/kept\"\nread_only = true\nsquash = \"none\"\nclients = [\"all\"]\n",
            kept.display()
        );
        std::fs::write(&config, text)?;
        Ok(builder.arguments(&["--config", &config.to_string_lossy()]))
    })?;
    let mount = Mount::new(here.server.port(), "/kept", "")?;
    let file = std::fs::File::open(mount.path().join("f"))?;
    let mut data = vec![0; 64 << 10];
    for at in (0..4 << 20).step_by(data.len()) {
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut data, at as u64)?;
        ensure!(data.iter().all(|byte| *byte == 7), "other bytes at {at}");
    }
    ensure!(counts(&mount)?.0 > 0, "no descriptor: {}\n{}", mount.stats()?, mount.log());
    // As the daemon, and whoever takes it over, could.
    let held = std::fs::read_dir(format!("/proc/{}/fd", mount.daemon()))?.flatten().map(|entry| entry.path());
    let of_file = |path: &PathBuf| {
        // Its mount lies nowhere, so the path that is shown is that below it.
        std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.len() == 4 << 20)
    };
    let held: Vec<_> = held.filter(of_file).collect();
    ensure!(!held.is_empty(), "the daemon holds no descriptor of the file");
    for path in held {
        let error = std::fs::OpenOptions::new().write(true).open(&path).err().and_then(|e| e.raw_os_error());
        ensure!(error == Some(30), "opened for writing through {}: {error:?}", path.display());
    }
    let error = std::fs::write(mount.path().join("f"), "x").err().and_then(|e| e.raw_os_error());
    ensure!(error == Some(30), "writing said {error:?}");
    Ok(())
}

const AS_USER: &str = "
import os, sys
path, user = sys.argv[1], int(sys.argv[2])
if user: os.setgroups([]); os.setgid(user); os.setuid(user)
fd = os.open(path, os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
for at in range(0, 4 << 20, 65536): assert os.pread(fd, 65536, at) == b's' * 65536
";

fn squashed() -> Result<()> {
    let here = Here::with(|builder, _| Ok(builder.squash("root")))?;
    let file = here.share().join("secret");
    std::fs::write(&file, vec![b's'; 4 << 20])?;
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600))?;
    std::os::unix::fs::chown(&file, Some(1000), Some(1000))?;
    let (near, far) = (here.mount("")?, here.mount("nolocal")?);
    let read =
        |mount: &Mount, user: &str| python(AS_USER, &[&mount.path().join("secret").to_string_lossy(), user]);
    for _ in 0..2 {
        read(&near, "1000")?;
        ensure!(read(&near, "0").is_err(), "root reads what it may not");
        ensure!(read(&near, "1001").is_err(), "another user reads what he may not");
        ensure!(read(&far, "0").is_err(), "and over the network");
    }
    ensure!(counts(&near)?.0 > 0, "no descriptor: {}", near.log());
    Ok(())
}

const LOAD: &str = "
import os, random, sys
path, stop, r = sys.argv[1], sys.argv[2], random.Random(1)
model = {}
fd = os.open(path, os.O_CREAT | os.O_RDWR, 0o644)
n = 0
while not os.path.exists(stop):
    n += 1
    at = r.randrange(64) << 16
    model[at] = n % 256
    os.pwrite(fd, bytes([n % 256]) * 65536, at)
    if n % 20 == 0: os.fsync(fd); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    at = r.choice(list(model))
    assert os.pread(fd, 65536, at) == bytes([model[at]]) * 65536, (n, at)
os.fsync(fd); os.close(fd)
fd = os.open(path, os.O_RDONLY); os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
for at in model: assert os.pread(fd, 65536, at) == bytes([model[at]]) * 65536, at
";

/// A load in the background, which ends when the file `stop` is there.
fn load(here: &Here, mount: &Mount) -> Result<Child> {
    let (path, stop) = (mount.path().join("load"), here.filesystem.path().join("stop"));
    let mut command = Command::new("python3");
    command.args(["-c", LOAD]).args([path, stop]).stdin(Stdio::null()).stderr(Stdio::piped());
    command.spawn().context("starting python3")
}

fn ended(here: &Here, load: Child) -> Result<()> {
    std::fs::write(here.filesystem.path().join("stop"), "")?;
    let output = load.wait_with_output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn restarted() -> Result<()> {
    let mut here = Here::new()?;
    let mount = here.mount("")?;
    run_in(&mount.path(), "echo first >first; ls -l >/dev/null", &[])?;
    let load = load(&here, &mount)?;
    for _ in 0..3 {
        std::thread::sleep(Duration::from_secs(1));
        here.server.kill()?;
        std::thread::sleep(Duration::from_millis(200));
        here.server.restart()?;
        let (before, started) = (counts(&mount)?, Instant::now());
        // Grace is as long as the lease at most, and ends when this client has reclaimed.
        while counts(&mount)? == before {
            ensure!(started.elapsed() < Duration::from_secs(40), "no descriptor again\n{}", mount.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    ended(&here, load)?;
    mount.check_alive()
}

fn stopped() -> Result<()> {
    let here = Here::with(|builder, _| Ok(builder.lease_seconds(3)))?;
    let (near, far) = (here.mount("")?, here.mount("nolocal")?);
    run_in(&near.path(), "echo first >first; ls -l >/dev/null", &[])?;
    let path = |mount: &Mount| mount.path().join("f").to_string_lossy().into_owned();
    python(WHOLE, &[&path(&near), "4"])?;
    let keeper = "
import os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
for n in range(8): os.pwrite(fd, b'before', n); os.fsync(fd)
print('ready', flush=True); time.sleep(600)";
    let mut keeper = Command::new("python3")
        .args(["-c", keeper, &path(&near)])
        .stdout(Stdio::piped())
        .spawn()
        .context("starting python3")?;
    let mut output = keeper.stdout.take().context("no output")?;
    std::io::Read::read_exact(&mut output, &mut [0; 6])?;
    let daemon = near.daemon().to_string();
    run_in(&here.share(), "kill -STOP $1", &[&daemon])?;
    let started = Instant::now();
    let written = run_in(&far.path(), "printf after >other; printf after | dd of=f conv=notrunc 2>&1", &[]);
    let took = started.elapsed();
    run_in(&here.share(), "kill -CONT $1", &[&daemon])?;
    written?;
    // A recall's time is a lease; the pause between two questions comes to it.
    ensure!(took < Duration::from_secs(20), "the other mount waited for {took:?}");
    keeper.kill()?;
    keeper.wait()?;
    let started = Instant::now();
    // That what it was promised is lost the mount hears with its next question, or when its lease is due.
    while run_in(&near.path(), "head -c 5 f", &[])? != "after" {
        ensure!(started.elapsed() < Duration::from_secs(20), "not seen: what was written\n{}", near.log());
        std::thread::sleep(Duration::from_millis(100));
    }
    near.check_alive()
}

/// A process in a network and a mount namespace of its own, joined to this host by a pair of links.
struct Container {
    init: Child,
    links: u32,
}

impl Container {
    fn new() -> Result<Self> {
        let script = format!("{LET_GO}; exec sleep 600");
        let init = Command::new("unshare").args(["-nm", "sh", "-c", &script]).spawn().context("unshare")?;
        let links = init.id() % 4096;
        let container = Self { init, links };
        let (outside, net) = (format!("hf{links}"), container.net());
        container.wait_inside()?;
        let script =
            "ip link add $1 type veth peer name eth0 netns $2; ip addr add $3.1/24 dev $1; ip link set $1 up
            nsenter -t $2 -n ip addr add $3.2/24 dev eth0; nsenter -t $2 -n ip link set eth0 up";
        run_in(&std::env::temp_dir(), script, &[&outside, &container.init.id().to_string(), &net])?;
        Ok(container)
    }

    /// It leaves this program's namespaces a moment after it has started, and lets go of others' mounts before it sleeps.
    fn wait_inside(&self) -> Result<()> {
        let (comm, started) = (format!("/proc/{}/comm", self.init.id()), Instant::now());
        while std::fs::read_to_string(&comm)?.trim() != "sleep" {
            ensure!(started.elapsed() < Duration::from_secs(60), "the container does not begin");
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }

    /// Beside those of the lab's guests (10.214).
    fn net(&self) -> String {
        format!("10.{}.{}", 216 + self.links / 256, self.links % 256)
    }

    fn run(&self, script: &str, arguments: &[&str]) -> Result<String> {
        let init = self.init.id().to_string();
        let mut all =
            vec!["-t", init.as_str(), "-n", "-m", "bash", "-euo", "pipefail", "-c", script, "script"];
        all.extend(arguments);
        let output = Command::new("nsenter").args(all).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "in the container: {said}");
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        // The pair of links goes with the namespace.
        let _ = self.init.kill();
        let _ = self.init.wait();
    }
}

fn container(has_sockets: bool) -> Result<()> {
    let here = Here::new()?;
    let container = Container::new()?;
    let (inside, sockets) = (here.filesystem.path().join("inside"), here.filesystem.path().join("sockets"));
    for dir in ["mnt", "run", "local"] {
        std::fs::create_dir_all(inside.join(dir))?;
    }
    let source = format!("{}.1:{}:{}", container.net(), here.server.port(), here.server.export());
    let binary = holdfast_lab::server::holdfast_binary()?;
    let [inside, sockets, binary] = [inside, sockets, binary].map(|path| path.to_string_lossy().into_owned());
    let bind = if has_sockets { "mount --bind $2 $1/local" } else { ":" };
    let mount = format!(
        "{bind}; mount -t tmpfs none $2; export HOLDFAST_RUNTIME_DIR=$1/run
         $4 mount $3 $1/mnt -o local=$1/local; echo first >$1/mnt/first; ls -l $1/mnt >/dev/null"
    );
    container.run(&mount, &[&inside, &sockets, &source, &binary])?;
    let file = format!("{inside}/mnt/f");
    container.run(&format!("python3 - \"$@\" <<'E'\n{WHOLE}\nE\n"), &[&file, "8"])?;
    let stats = "export HOLDFAST_RUNTIME_DIR=$1/run; $2 mount stats --json $1/mnt";
    let stats: serde_json::Value = serde_json::from_str(&container.run(stats, &[&inside, &binary])?)?;
    let umount = "export HOLDFAST_RUNTIME_DIR=$1/run; $2 umount $1/mnt; cat $1/run/*.log";
    let log = container.run(umount, &[&inside, &binary])?;
    let reads = stats["same_host"]["reads"].as_u64().context("no statistics")?;
    ensure!((reads > 0) == has_sockets, "{reads} reads by descriptors\n{log}");
    Ok(())
}

/// Files of this size are passed through when they are opened, not when they are made.
const PASSED: &str = "
import mmap, os, sys
path, there = sys.argv[1:]
SIZE = 8 << 20
data = os.urandom(SIZE)
with open(path, 'wb') as f: f.write(data)
rd, wr = os.open(path, os.O_RDONLY), os.open(path, os.O_RDWR)
for n in range(64):
    at = (n * 0x1f351) % SIZE
    assert os.pread(rd, 5000, at) == data[at:at + 5000], at
data = bytearray(data)
for n in range(64):
    at = (n * 0x2f351) % SIZE
    os.pwrite(wr, bytes([n]) * 4096, at); data[at:at + 4096] = bytes([n]) * 4096
del data[SIZE:]; size = os.fstat(wr).st_size; os.ftruncate(wr, SIZE)
assert os.pread(rd, SIZE, 0) == data
assert open(there, 'rb').read() == data, 'not on the server at once'
os.pwrite(wr, b'end', SIZE); assert os.fstat(rd).st_size == SIZE + 3 == os.stat(path).st_size
m = mmap.mmap(wr, SIZE); m[7:12] = b'mmap!'; m.flush(); m.close()
assert os.pread(rd, 5, 7) == b'mmap!'
os.fsync(wr); os.close(rd); os.close(wr)
assert open(path, 'rb').read() == open(there, 'rb').read()
";

fn passed_through() -> Result<()> {
    let here = Here::new()?;
    let (near, far) = (here.mount("passthrough")?, here.mount("nolocal")?);
    run_in(&near.path(), "echo first >first; ls -l >/dev/null", &[])?;
    let (path, there) = (near.path().join("f"), here.share().join("f"));
    let sent = |mount: &Mount| -> Result<u64> {
        mount.stats()?["operations"].as_u64().context("no operations in the statistics")
    };
    python(PASSED, &[&path.to_string_lossy(), &there.to_string_lossy()]).with_context(|| near.log())?;
    // What is passed through is no operation of the mount.
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path)?;
    let before = sent(&near)?;
    let mut page = [0; 4096];
    for n in 0..200 {
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut page, n * 4096)?;
        std::os::unix::fs::FileExt::write_all_at(&file, &page, n * 4096)?;
    }
    let took = sent(&near)? - before;
    ensure!(took < 50, "{took} operations for 400 reads and writes\n{}", near.log());
    // Another mount writes while it is open and passed through: seen at once, and the other way.
    for n in 0..20u8 {
        let seen = far.path().join("f");
        std::os::unix::fs::FileExt::write_all_at(&file, &[n; 512], 1000)?;
        let text = std::fs::read(&seen)?;
        ensure!(text[1000..1512] == [n; 512], "{n}: not seen by the other mount");
        let other = std::fs::OpenOptions::new().write(true).open(&seen)?;
        std::os::unix::fs::FileExt::write_all_at(&other, &[n + 100; 512], 2000)?;
        drop(other);
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut page[..512], 2000)?;
        ensure!(page[..512] == [n + 100; 512], "{n}: what the other mount wrote is not seen");
    }
    drop(file);
    near.check_alive()?;
    far.check_alive()?;
    near.unmount(&[])
}

fn passed_through_restarted() -> Result<()> {
    let mut here = Here::new()?;
    let mount = here.mount("passthrough")?;
    let path = mount.path().join("f");
    std::fs::write(&path, vec![1; 1 << 20])?;
    let file = std::fs::OpenOptions::new().read(true).write(true).open(&path)?;
    let mut page = [0; 4096];
    for n in 0..3u8 {
        std::os::unix::fs::FileExt::write_all_at(&file, &[n; 4096], 8192)?;
        here.server.kill()?;
        // It is the kernel's to do: nobody is asked.
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut page, 8192)?;
        ensure!(page == [n; 4096], "other bytes while the server is dead");
        std::os::unix::fs::FileExt::write_all_at(&file, &[n + 1; 4096], 8192)?;
        here.server.restart()?;
    }
    drop(file);
    let text = std::fs::read(&path)?;
    ensure!(text.len() == 1 << 20 && text[8192..12288] == [3; 4096], "after the restarts");
    mount.check_alive()?;
    mount.unmount(&[])
}

fn passed_through_read_only() -> Result<()> {
    let here = Here::with(|builder, _| Ok(builder.squash("root")))?;
    let file = here.share().join("f");
    std::fs::write(&file, vec![7; 1 << 20])?;
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644))?;
    std::os::unix::fs::chown(&file, Some(1000), Some(1000))?;
    let mount = here.mount("passthrough")?;
    let path = mount.path().join("f").to_string_lossy().into_owned();
    // The owner's open is passed through; root, who is nobody here, may read it meanwhile and not write it.
    let script = "
import os, sys
path = sys.argv[1]
fd, wait = os.pipe()
pid = os.fork()
if not pid:
    os.setgid(1000); os.setuid(1000)
    fd = os.open(path, os.O_RDWR); assert os.pread(fd, 9, 9) == bytes([7] * 9); os.pwrite(fd, b'x', 5)
    os.write(wait, b'1'); import time; time.sleep(2); os._exit(0)
assert os.read(fd, 1) == b'1'
assert os.pread(os.open(path, os.O_RDONLY), 9, 9) == bytes([7] * 9)
try: os.pwrite(os.open(path, os.O_RDWR), b'no', 0)
except PermissionError: pass
else: raise AssertionError('root wrote what is not his')
os.waitpid(pid, 0)";
    python(script, &[&path]).with_context(|| mount.log())?;
    ensure!(std::fs::read(&file)?[..6] == [7, 7, 7, 7, 7, b'x'], "other bytes on the server");
    mount.check_alive()
}
