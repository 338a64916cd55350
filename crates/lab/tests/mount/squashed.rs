//! Root over an export that squashes it: what that one may is done at once and is his, what he may not fails as at the server.

use crate::fixture::{Served, run_in};
use anyhow::{Result, ensure};
use holdfast_lab::{FsType, LoopFs, Mount, ServerUnderTest, Trial};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

const NOBODY: u32 = 65534;
const USER: u32 = 1234;
const FILES: u64 = 500;
/// For the first names, capabilities and listings.
const QUESTIONS_MAX: u64 = 40;

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    vec![
        Trial::new("squashed::root_makes_and_removes_at_once_as_who_it_is_there", at_once),
        Trial::new("squashed::root_may_what_it_may_without_a_cache", as_without),
        Trial::new("squashed::who_has_an_open_file_writes_as_who_opened_it", handed_on),
        Trial::new("squashed::what_a_reload_changes_counts_from_the_next_call_on", reloaded),
    ]
}

fn served() -> Result<Served> {
    let filesystem = LoopFs::new(FsType::Xfs, 1 << 30)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    std::fs::set_permissions(&share, PermissionsExt::from_mode(0o777))?;
    let server = ServerUnderTest::builder(&share).squash("root").start()?;
    Ok(Served { server, filesystem })
}

fn at_once() -> Result<()> {
    let served = served()?;
    let mount = served.mount("nolocal")?;
    let make = "mkdir d; for n in $(seq $1); do echo $n > d/f$n; done; chmod 600 d/f1; stat -c %u d/f1 d";
    let said = run_in(&mount.path(), make, &[&FILES.to_string()])?;
    ensure!(said == format!("{NOBODY}\n{NOBODY}\n"), "{said}");
    let asked = || -> Result<u64> { Ok(mount.stats()?["questions"]["calls"].as_u64().unwrap_or(u64::MAX)) };
    let after_making = asked()?;
    mount.sync()?;
    let first = served.share().join("d/f1").metadata()?;
    ensure!((first.uid(), first.mode() & 0o7777) == (NOBODY, 0o600), "{first:?}");
    ensure!(std::fs::read_dir(served.share().join("d"))?.count() as u64 == FILES, "not all are there");
    run_in(&mount.path(), "rm -r d", &[])?;
    mount.sync()?;
    ensure!(!served.share().join("d").exists(), "it is still there");
    let all = asked()?;
    println!("     {after_making} questions to make {FILES} files, {} to remove them", all - after_making);
    ensure!(all <= QUESTIONS_MAX, "{all} questions");
    mount.check_alive()
}

/// Each line is what one call said.
const CALLS: &str = r#"
import errno, os, socket, stat
def say(what, call, *arguments, **named):
    try: call(*arguments, **named); said = "done"
    except OSError as e: said = errno.errorcode[e.errno]
    print(what, said, flush=True)
def write(path, flags=os.O_WRONLY | os.O_CREAT):
    fd = os.open(path, flags, 0o644)
    try: os.write(fd, b"more")
    finally: os.close(fd)
os.umask(0o022)
for d in "own", "sticky", "others", "open":
    # So that what the mount needs of it is there before it is tried.
    for n in range(3):
        try: write(f"{d}/before{n}")
        except OSError: pass
    os.listdir(d)
    for f in "user", "root", "group":
        os.stat(f"{d}/{f}")
        say(f"{d} write {f}", write, f"{d}/{f}")
        say(f"{d} read {f}", lambda: open(f"{d}/{f}").read())
        say(f"{d} truncate {f}", os.truncate, f"{d}/{f}", 1)
        say(f"{d} chmod {f}", os.chmod, f"{d}/{f}", 0o600)
        say(f"{d} chown {f}", os.chown, f"{d}/{f}", 65534, 65534)
        say(f"{d} utime {f}", os.utime, f"{d}/{f}", (1, 1))
        say(f"{d} touch {f}", os.utime, f"{d}/{f}")
        say(f"{d} link {f}", os.link, f"{d}/{f}", f"{d}/link-{f}")
        say(f"{d} rename {f}", os.rename, f"{d}/{f}", f"{d}/moved-{f}")
        say(f"{d} over {f}", os.rename, f"{d}/before0", f"{d}/{f}")
        say(f"{d} unlink {f}", os.unlink, f"{d}/{f}")
    say(f"{d} create", write, f"{d}/new", os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    say(f"{d} append", write, f"{d}/new", os.O_WRONLY | os.O_APPEND)
    say(f"{d} chmod new", os.chmod, f"{d}/new", 0o4755)
    say(f"{d} mkdir", os.mkdir, f"{d}/dir")
    say(f"{d} in it", write, f"{d}/dir/f")
    say(f"{d} symlink", os.symlink, "a", f"{d}/symlink")
    say(f"{d} fifo", os.mknod, f"{d}/fifo", stat.S_IFIFO | 0o600)
    say(f"{d} device", os.mknod, f"{d}/device", stat.S_IFCHR | 0o600, os.makedev(1, 3))
    say(f"{d} rmdir", os.rmdir, f"{d}/dir")
    for name in sorted(os.listdir(d)):
        s = os.lstat(f"{d}/{name}")
        print(d, name, oct(s.st_mode), s.st_uid, s.st_gid, s.st_nlink, s.st_size if stat.S_ISREG(s.st_mode) else "")
"#;

/// Directories of four kinds, each with a file of a user's, of root's, and of nobody's group.
fn plant(at: &Path) -> Result<()> {
    for (name, mode, owner) in
        [("own", 0o755, NOBODY), ("sticky", 0o1777, USER), ("others", 0o755, USER), ("open", 0o777, USER)]
    {
        let dir = at.join(name);
        std::fs::create_dir(&dir)?;
        for (file, mode, uid, gid) in
            [("user", 0o644, USER, USER), ("root", 0o666, 0, 0), ("group", 0o664, USER, NOBODY)]
        {
            let file = dir.join(file);
            std::fs::write(&file, "some")?;
            chown(&file, Some(uid), Some(gid))?;
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode))?;
        }
        chown(&dir, Some(owner), Some(owner))?;
        std::fs::set_permissions(&dir, PermissionsExt::from_mode(mode))?;
    }
    Ok(())
}

fn as_without() -> Result<()> {
    let told = |options: &str| -> Result<String> {
        let served = served()?;
        plant(&served.share())?;
        let mount = served.mount(options)?;
        let said = run_in(&mount.path(), "python3 -c \"$1\"", &[CALLS])?;
        mount.sync()?;
        // What is told later would be an error that nobody heard in time.
        ensure!(mount.stats()?["changes"]["failed"].as_u64() == Some(0), "{}", mount.stats()?);
        mount.check_alive()?;
        Ok(said)
    };
    let (with, without) = (told("nolocal")?, told("nolocal,cache=none")?);
    ensure!(with.lines().count() > 100, "{with}");
    for (with, without) in with.lines().zip(without.lines()) {
        ensure!(with == without, "with a cache: {with}; without: {without}");
    }
    ensure!(with == without, "they differ in length");
    Ok(())
}

/// What a user has opened, a process of root's writes, truncates, maps and reads: root may do nothing there of itself.
const HANDED_ON: &str = r#"
import fcntl, mmap, os, sys
user = int(sys.argv[1])
def opened(name, flags):
    os.seteuid(user)
    try: return os.open(name, flags)
    finally: os.seteuid(0)
log = opened("log", os.O_WRONLY | os.O_APPEND)
os.write(log, b"appended\n")
os.fsync(log)
os.write(log, b"and more\n")
os.close(log)
cut = opened("cut", os.O_RDWR)
os.ftruncate(cut, 4)
os.pwrite(cut, b"-" * 4096, 4)
with mmap.mmap(cut, 4100) as mapped: mapped[:4] = b"MAPS"
os.fsync(cut)
os.close(cut)
own = opened("log", os.O_RDWR)
fcntl.flock(own, fcntl.LOCK_EX)
fcntl.flock(own, fcntl.LOCK_UN)
fcntl.lockf(own, fcntl.LOCK_EX)
os.close(own)
private = opened("private", os.O_RDONLY)
print(os.read(private, 100).decode(), end="")
"#;

fn handed_on() -> Result<()> {
    for options in ["nolocal", "nolocal,cache=none"] {
        let served = served()?;
        for (name, mode) in [("log", 0o644), ("cut", 0o600), ("private", 0o600)] {
            let file = served.share().join(name);
            std::fs::write(&file, format!("{name}\n"))?;
            chown(&file, Some(USER), Some(USER))?;
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode))?;
        }
        let mount = served.mount(options)?;
        let said = run_in(&mount.path(), "python3 -c \"$1\" $2", &[HANDED_ON, &USER.to_string()])?;
        ensure!(said == "private\n", "{options}: read {said:?}");
        mount.sync()?;
        ensure!(mount.stats()?["changes"]["failed"].as_u64() == Some(0), "{options}: {}", mount.stats()?);
        let has = |name: &str| std::fs::read_to_string(served.share().join(name));
        ensure!(has("log")? == "log\nappended\nand more\n", "{options}: {:?}", has("log"));
        ensure!(has("cut")? == format!("MAPS{}", "-".repeat(4096)), "{options}: {:?}", has("cut"));
        mount.check_alive()?;
    }
    Ok(())
}

fn reloaded() -> Result<()> {
    let filesystem = LoopFs::new(FsType::Xfs, 1 << 30)?;
    let share = filesystem.path().join("share");
    std::fs::create_dir(&share)?;
    std::fs::set_permissions(&share, PermissionsExt::from_mode(0o777))?;
    let config = filesystem.path().join("config");
    let squash = |who: &str| -> Result<()> {
        let text = format!(
            "[[export]]\nsource = \"{}\"\npath = \"/share\"\nsquash = \"{who}\"\nclients = [\"all\"]\n",
            share.display()
        );
        Ok(std::fs::write(&config, text)?)
    };
    squash("none")?;
    let server = ServerUnderTest::builder(&share).config(&config).start()?;
    let mount = Mount::new(server.port(), "/share", "nolocal")?;
    let make = "echo 1 > $1; stat -c %u $1; sync $1";
    ensure!(run_in(&mount.path(), make, &["before"])? == "0\n", "root is not squashed");
    for (who, shown) in [("root", NOBODY), ("none", 0)] {
        squash(who)?;
        server.reload()?;
        // Its first call tells.
        run_in(&mount.path(), make, &[&format!("first-{who}")])?;
        let name = format!("second-{who}");
        let said = run_in(&mount.path(), make, &[&name])?;
        ensure!(said == format!("{shown}\n"), "{who}: shown as {said}");
        ensure!(share.join(&name).metadata()?.uid() == shown, "{who}: another's there");
    }
    ensure!(mount.stats()?["changes"]["failed"].as_u64() == Some(0), "{}", mount.stats()?);
    mount.check_alive()
}
