//! Access lists: who is let in, and what is made under them, is as on the file system that is served.

use crate::fixture::{Served, run_in};
use anyhow::{Result, ensure};
use holdfast_lab::{FsType, LoopFs, ServerUnderTest, Trial};
use std::path::Path;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("listed::who_is_let_in_is_as_without_a_mount", as_there),
        Trial::new("listed::a_list_that_others_set_counts_at_once", at_once),
        Trial::new("listed::what_an_interrupted_setfacl_did_after_all_is_seen", interrupted),
        Trial::new("listed::that_directories_hand_on_no_list_costs_no_questions", told_with_grants),
    ]
}

/// A directory on the file system that is served, whose path is short of what is served.
fn served() -> Result<Served> {
    let filesystem = LoopFs::new(FsType::Xfs, 1 << 30)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    let server = ServerUnderTest::builder(&share).start()?;
    Ok(Served { server, filesystem })
}

/// 1000 owns all; 1234 and 1235 are named in lists; 1236 is of the owner's group.
const PLANT: &str = r"
for f in denied allowed group masked plain given; do echo some > $f; done
mkdir shut opened handing; for d in shut opened handing; do echo some > $d/f; done
chown -R 1000:1000 .; chmod 755 .
chmod 644 denied; setfacl -m u:1234:---,u:1235:rw-,m::rw- denied
chmod 600 allowed; setfacl -m u:1234:rw-,g:1235:r-- allowed
chmod 640 group; setfacl -m g::---,g:1234:r--,m::r-- group
chmod 600 masked; setfacl -m u:1234:rw-,m::r-- masked
chmod 640 plain given
chmod 755 shut; setfacl -m u:1234:---,g::---,m::r-x shut
chmod 700 opened; setfacl -m u:1234:rwx,u:1235:r-x opened
chmod 777 handing; setfacl -d -m u::rwx,g::r-x,o::---,u:1235:rw- handing
";

/// Each line is what one call said.
const CALLS: &str = r#"
import errno, os, sys
ACCESS = "system.posix_acl_access"
def say(what, call, *arguments):
    try: said = call(*arguments)
    except OSError as e: said = errno.errorcode[e.errno]
    print(what, "done" if said is None else said, flush=True)
def write(path, flags=os.O_WRONLY):
    fd = os.open(path, flags, 0o666)
    try: os.write(fd, b"more")
    finally: os.close(fd)
def made(path, flags=0): write(path, os.O_RDWR | os.O_CREAT | flags)
def look(path):
    s = os.lstat(path)
    try: listed = os.getxattr(path, ACCESS).hex()
    except OSError as e: listed = errno.errorcode[e.errno]
    names = sorted(os.listxattr(path)) if s.st_mode & 0o170000 != 0o120000 else []
    return oct(s.st_mode) + " " + str(s.st_uid) + " " + listed + " " + str(names)
def acting(uid, gid, what):
    pid = os.fork()
    if pid == 0:
        os.setgroups([]); os.setresgid(gid, gid, gid); os.setresuid(uid, uid, uid)
        try: what(uid); os._exit(0)
        except BaseException as e: print(e, flush=True); os._exit(1)
    if os.waitpid(pid, 0)[1] != 0: sys.exit(1)
def judged(uid):
    for f in "denied", "allowed", "group", "masked", "plain", "given", "shut/f", "opened/f":
        say(f"{uid} read {f}", lambda: open(f).read() and None)
        say(f"{uid} write {f}", write, f)
        say(f"{uid} append {f}", write, f, os.O_WRONLY | os.O_APPEND)
        say(f"{uid} access {f}", lambda: str([os.access(f, how) for how in (os.R_OK, os.W_OK, os.X_OK)]))
        say(f"{uid} truncate {f}", os.truncate, f, 5)
    for d in "shut", "opened", "handing":
        say(f"{uid} list {d}", lambda: os.listdir(d) and None)
        say(f"{uid} make {d}", made, f"{d}/by{uid}")
        say(f"{uid} remove {d}", os.unlink, f"{d}/by{uid}")
        say(f"{uid} mkdir {d}", os.mkdir, f"{d}/dir{uid}")
        say(f"{uid} rmdir {d}", os.rmdir, f"{d}/dir{uid}")
def making(uid):
    os.umask(0o077)
    made(f"handing/f{uid}"); made(f"handing/x{uid}", os.O_EXCL)
    os.mkdir(f"handing/d{uid}", 0o777); made(f"handing/d{uid}/f")
    os.symlink("f", f"handing/l{uid}"); os.mkfifo(f"handing/p{uid}", 0o666)
    os.mkdir(f"bare{uid}") if uid == 1000 else None
    for name in "f", "x", "d", "l", "p": print(uid, name, look(f"handing/{name}{uid}") if name != "l" else "")
    print(uid, "nested", look(f"handing/d{uid}/f"))
def changing(uid):
    # The mask is what chmod changes of a list.
    for mode in 0o640, 0o600, 0o666:
        os.chmod("denied", mode); print("chmod", oct(mode), look("denied"))
    os.setxattr("given", ACCESS, os.getxattr("allowed", ACCESS)); print("given", look("given"))
    say("taken", os.removexattr, "masked", ACCESS); print("masked", look("masked"))
who = [(1000, 1000), (1234, 1234), (1235, 1235), (1236, 1000), (1237, 1237)]
if sys.argv[1] == "judged":
    # Root fills the cache, by which nobody else is to be let in.
    for at, _, files in os.walk("."):
        for f in files: open(os.path.join(at, f)).read()
    for uid, gid in who: acting(uid, gid, judged)
elif sys.argv[1] == "making":
    for uid, gid in who[:2]: acting(uid, gid, making)
else:
    acting(1000, 1000, changing)
    say("not the owner's", lambda: acting(1234, 1234, lambda _: say("set", os.setxattr, "plain", ACCESS, os.getxattr("denied", ACCESS))))
    for uid, gid in who: acting(uid, gid, judged)
"#;

fn said(at: &Path, what: &str) -> Result<String> {
    run_in(at, "python3 -c \"$1\" \"$2\"", &[CALLS, what])
}

/// What the calls say below a mount with these options, and without one where there are none.
fn told(options: Option<&str>, what: &[&str]) -> Result<Vec<String>> {
    let served = served()?;
    run_in(&served.share(), PLANT, &[])?;
    let Some(options) = options else {
        return what.iter().map(|what| said(&served.share(), what)).collect();
    };
    let mount = served.mount(options)?;
    let told = what.iter().map(|what| said(&mount.path(), what)).collect::<Result<_>>()?;
    mount.sync()?;
    // What is told later would be an error that nobody heard in time.
    ensure!(mount.stats()?["changes"]["failed"].as_u64() == Some(0), "{}", mount.stats()?);
    mount.check_alive()?;
    Ok(told)
}

fn as_there() -> Result<()> {
    let all = ["judged", "making", "changed"];
    let there = told(None, &all)?;
    ensure!(there.iter().all(|said| said.lines().count() >= 10), "{there:?}");
    for options in ["nolocal", "local"] {
        for ((here, there), what) in told(Some(options), &all)?.iter().zip(&there).zip(all) {
            for (here, there) in here.lines().zip(there.lines()) {
                ensure!(here == there, "{options}, {what}: mounted: {here}; there: {there}");
            }
            ensure!(here.lines().count() == there.lines().count(), "they differ in length");
        }
    }
    // Without capabilities no list is known here: the kernel goes by the mode, and the server, which is asked, by the list. So nobody
    // is let in who is not there.
    let without = told(Some("cache=none"), &all[..2])?;
    for (here, there) in without[0].lines().zip(there[0].lines()) {
        let is_stricter = here.ends_with(" EACCES") || here.contains(" access ");
        ensure!(here == there || is_stricter, "cache=none: mounted: {here}; there: {there}");
    }
    let modes = |said: &str| -> Vec<String> {
        said.lines().map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" ")).collect()
    };
    ensure!(modes(&without[1]) == modes(&there[1]), "cache=none: {}\nthere: {}", without[1], there[1]);
    Ok(())
}

fn at_once() -> Result<()> {
    let served = served()?;
    run_in(&served.share(), "echo some > f; chmod 640 f; chown 1000:1000 f; mkdir -m 777 d", &[])?;
    let (mount, other) = (served.mount("nolocal")?, served.mount("nolocal")?);
    let reads = |at: &Path, uid: &str| -> Result<bool> {
        let read =
            "setpriv --reuid $1 --regid $1 --clear-groups cat f > /dev/null 2>&1 && echo yes || echo no";
        Ok(run_in(at, read, &[uid])? == "yes\n")
    };
    for at in [mount.path(), other.path()] {
        run_in(&at, "cat f; ls d; echo > d/a$$; stat d", &[])?;
        ensure!(!reads(&at, "1234")?, "it may not yet");
    }
    // By another mount, and by a local process.
    run_in(&other.path(), "setfacl -m u:1234:r f; setfacl -d -m o::---,u:1234:rw d", &[])?;
    for at in [mount.path(), other.path()] {
        ensure!(reads(&at, "1234")?, "the list was set before");
        run_in(&at, "umask 0; echo > d/b$$; test $(stat -c %a d/b$$) = 660; rm d/b$$", &[])?;
    }
    let told_by = |at: &Path| run_in(at, "getfacl -cn f d | grep -v '^#'", &[]);
    let there = told_by(&served.share())?;
    ensure!(told_by(&mount.path())? == there && told_by(&other.path())? == there, "{there}");
    run_in(&served.share(), "setfacl -b f; sleep 0.2", &[])?;
    for at in [mount.path(), other.path()] {
        ensure!(!reads(&at, "1234")?, "the list is gone");
    }
    mount.check_alive()?;
    other.check_alive()
}

/// The server waits for the other mount, which stands still, when the user gives up; then that goes on.
fn interrupted() -> Result<()> {
    let served = served()?;
    run_in(&served.share(), "for i in 1 2 3; do echo some > f$i; chmod 640 f$i; done", &[])?;
    let (mount, other) = (served.mount("nolocal")?, served.mount("nolocal")?);
    let list = |at: &Path, file: &str| run_in(at, "getfacl -cn $1 | grep -v '^#'", &[file]);
    let signal = |name: &str| run_in(Path::new("/"), "kill -$1 $2", &[name, &other.daemon().to_string()]);
    let mut done = 0;
    for file in ["f1", "f2", "f3"] {
        for at in [mount.path(), other.path()] {
            run_in(&at, "ls -l . >/dev/null; cat $1; getfacl -c $1 >/dev/null 2>&1", &[file])?;
        }
        signal("STOP")?;
        let given_up =
            run_in(&mount.path(), "timeout -s INT 0.3 setfacl -m u:1234:r $1 2>&1 || echo gave up", &[file]);
        let between = run_in(&mount.path(), "ls -l . >/dev/null; getfacl -cn $1; getfacl -cn $1", &[file]);
        signal("CONT")?;
        ensure!(given_up?.contains("gave up") && !between?.contains("1234"), "it was not held up");
        // Longer than the server waits for anybody in one call.
        run_in(&served.share(), "sleep 1.5", &[])?;
        let there = list(&served.share(), file)?;
        done += u32::from(there.contains("1234"));
        for at in [mount.path(), other.path()] {
            let here = list(&at, file)?;
            ensure!(here == there, "{file}: mounted: {here}there: {there}");
        }
    }
    println!("     {done} of 3 were done after all");
    mount.check_alive()?;
    other.check_alive()
}

fn told_with_grants() -> Result<()> {
    let served = served()?;
    run_in(&served.share(), "for i in $(seq 40); do mkdir d$i; done; setfacl -d -m u:1234:r d40", &[])?;
    for mount in [served.mount("nolocal")?, served.mount("nolocal")?] {
        let before = mount.round_trips()?;
        // The listing brings what covers them, and nobody has them alone.
        let lists = "ls -l . >/dev/null; getfacl -cn d* | grep -c 'default:user:1234'";
        let lists = run_in(&mount.path(), lists, &[])?;
        ensure!(lists == "1\n", "one of them has a list, not {lists}");
        let trips = mount.round_trips()? - before;
        println!("     40 directories: {trips} round trips");
        ensure!(trips < 10, "{trips} round trips: {}", mount.stats()?);
        mount.check_alive()?;
    }
    Ok(())
}
