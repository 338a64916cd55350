//! The server's file system is full: whoever asks whether his data is safe is told, nothing hangs, and with room again all
//! goes on.

use crate::fixture::{Served, run_in};
use anyhow::{Context as _, Result, ensure};
use holdfast_lab::scratch::Scratch;
use holdfast_lab::server::{Target, holdfast_binary};
use holdfast_lab::{FsType, Trial};

/// The least that ext4 is made with all that it has.
const BYTES: u64 = 48 << 20;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let ways = [("all", "nolocal"), ("delegations", "cache=delegations,nolocal"), ("none", "cache=none")];
    let trial = |(way, options): (&str, &'static str)| {
        Trial::new(format!("full::who_asks_is_told_and_what_was_acknowledged_is_there::{way}"), move || {
            filled(options)
        })
    };
    let ended =
        Trial::new("full::a_mount_that_is_told_to_end_says_what_was_lost_and_by_its_exit_code", ended);
    ways.into_iter().map(trial).chain([ended]).collect()
}

/// Of each piece it is known whether it was acknowledged by `fsync`, of its own open or of a later one.
const FILL: &str = "
import errno, os, sys, time
mount, share = sys.argv[1:]
piece = lambda n: bytes([n % 251]) * (1 << 20)
def put(name, data, sync):
    # Whether it is safe, and where not, who said so: an error other than that the disk is full is none that is expected.
    said = None
    fd = os.open(mount + '/' + name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    for act, do in [('write', lambda: os.write(fd, data)), ('fsync', lambda: sync and os.fsync(fd)), ('close', lambda: os.close(fd))]:
        try: do()
        except OSError as e:
            assert e.errno == errno.ENOSPC, (name, act, e)
            said = said or act
            if act == 'write': os.close(fd); break
    return said
def fill(kind, sync):
    kept, told = [], []
    for n in range(200):
        try: said = put(f'{kind}{n}', piece(n), sync)
        except OSError as e:
            assert e.errno == errno.ENOSPC, e
            said = 'open'
        (told if said else kept).append((n, said))
        if len(told) == 5: return kept, told
    raise AssertionError('nobody was told', kind, len(kept), told)
kept, told = fill('synced', True)
assert kept and all(said != 'close' for _, said in told), told
for n, _ in kept: assert open(f'{share}/synced{n}', 'rb').read() == piece(n), n
# A close does not wait, and says what is known by then; of the rest who opens the file later hears by fsync.
for n, _ in kept[:10]: os.unlink(f'{mount}/synced{n}')
for n, _ in told:
    if os.path.exists(f'{mount}/synced{n}'): os.unlink(f'{mount}/synced{n}')
safe, lost = [], []
for n in range(60):
    try: said = put(f'closed{n}', piece(n), False)
    except OSError as e:
        assert e.errno == errno.ENOSPC, e
        said = 'open'
    if not said:
        try:
            fd = os.open(f'{mount}/closed{n}', os.O_WRONLY)
            try: os.fsync(fd)
            except OSError as e: said = 'fsync of another open'; assert e.errno == errno.ENOSPC, e
            try: os.close(fd)
            except OSError as e: said = said or 'close'; assert e.errno == errno.ENOSPC, e
        except FileNotFoundError: said = 'open'
    (lost if said else safe).append((n, said))
assert lost
for n, _ in safe: assert open(f'{share}/closed{n}', 'rb').read() == piece(n), n
print('told by', sorted({said for _, said in told}), 'and', sorted({said for _, said in lost}), len(kept), len(safe))
# Room again.
for n, _ in safe + lost:
    if os.path.exists(f'{mount}/closed{n}'): os.unlink(f'{mount}/closed{n}')
end = time.time() + 20
while put('again', piece(7), True):
    assert time.time() < end, 'no room'
    time.sleep(0.1)
assert open(share + '/again', 'rb').read() == piece(7)
for n, _ in kept[10:]: assert open(f'{mount}/synced{n}', 'rb').read() == piece(n), n
";

fn filled(options: &str) -> Result<()> {
    let mut served = Served::sized(Target::Holdfast, FsType::Ext4, BYTES)?;
    let mount = served.mount(options)?;
    let (path, share) = (mount.path(), served.share());
    let (path, share) = (path.to_string_lossy(), share.to_string_lossy());
    let script = format!("python3 - \"$@\" <<'E'\n{FILL}\nE\n");
    let said = run_in(&std::env::temp_dir(), &script, &[&path, &share])
        .with_context(|| format!("{}\n{}", mount.log(), served.server.log()))?;
    println!("     {options}: {}", said.trim());
    mount.check_alive()?;
    let ended = mount.unmount(&[]);
    if options.contains("cache=none") {
        ended?;
    } else {
        // What was put off and could not be done is told of once more.
        let told = ended.err().map(|error| format!("{error:#}")).unwrap_or_default();
        ensure!(told.contains("No space left on device"), "umount said: {told}");
        mount.wait_end()?;
    }
    served.server.check_alive()
}

/// In the foreground, as a service manager has it. Nobody asks about any of the files.
const STOPPED: &str = "
mkdir mnt; export HOLDFAST_RUNTIME_DIR=$PWD/run
\"$1\" mount -f \"$2\" mnt -o nolocal 2>said & daemon=$!
trap 'kill -KILL $daemon 2>/dev/null || true; umount -l mnt 2>/dev/null || true' EXIT
for i in $(seq 200); do mountpoint -q mnt && break; sleep 0.05; done
mountpoint -q mnt
for i in $(seq 60); do head -c 1M /dev/urandom >mnt/f$i 2>/dev/null || true; done
kill -TERM $daemon; code=0; wait $daemon || code=$?
cat said; ! mountpoint -q mnt; echo code $code
";

fn ended() -> Result<()> {
    let served = Served::sized(Target::Holdfast, FsType::Ext4, BYTES)?;
    let scratch = Scratch::new("stopped")?;
    let source = format!("127.0.0.1:{}:{}", served.server.port(), served.server.export());
    let binary = holdfast_binary()?;
    let said = run_in(scratch.path(), STOPPED, &[&binary.to_string_lossy(), &source])?;
    ensure!(said.ends_with("code 1\n"), "{said}");
    let complaint = said.lines().find(|line| line.contains("not everything could be done"));
    ensure!(complaint.is_some_and(|line| line.contains("No space left on device")), "{said}");
    Ok(())
}
