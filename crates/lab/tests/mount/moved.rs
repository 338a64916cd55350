//! Exports that servers say lie elsewhere as well, or instead (`fs_locations`).

use crate::failing::{LIMIT, bash, has_worked};
use crate::fixture::run_in;
use crate::offline::{killed, wait_standing};
use anyhow::{Context as _, Result, ensure};
use holdfast_lab::scratch::Scratch;
use holdfast_lab::{FsType, LoopFs, Mount, ServerUnderTest, Trial};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    let ways = [("all", ""), ("delegations", ",cache=delegations"), ("none", ",cache=none")];
    let moved = ways.into_iter().map(|(way, options)| {
        let name = format!("moved::what_is_under_way_goes_on_where_the_export_has_moved_to::{way}");
        Trial::new(name, move || moved_under_load(options)).limit(LIMIT)
    });
    moved
        .chain([
            Trial::new("moved::a_server_that_was_told_of_takes_over", told),
            Trial::new("moved::a_mount_of_what_lies_elsewhere_goes_there", referred),
            Trial::new("moved::who_goes_nowhere_but_where_it_was_named_to_stays", stays),
            Trial::new("moved::what_was_kept_goes_where_the_export_has_moved_to::at_once", || kept(true)),
            Trial::new("moved::what_was_kept_goes_where_the_export_has_moved_to::later", || kept(false)),
        ])
        .collect()
}

/// How long a mount may take to learn what it is told.
const PATIENCE: Duration = Duration::from_secs(30);

/// Two servers over one directory.
struct Two {
    first: ServerUnderTest,
    second: ServerUnderTest,
    filesystem: LoopFs,
}

impl Two {
    /// Both run, each with a state of its own, and one key for handles; or, `as_peers`, the first runs with the state that the
    /// second then goes on with.
    fn new(as_peers: bool) -> Result<Self> {
        let filesystem = LoopFs::new(FsType::Xfs, 1 << 30)?;
        let share = filesystem.path().join("share");
        std::fs::create_dir(&share)?;
        std::fs::write(filesystem.path().join("key"), "00112233445566778899aabbccddeeff")?;
        let start = |name: &str| -> Result<ServerUnderTest> {
            let state = if as_peers { "state".to_owned() } else { format!("state-{name}") };
            let config = filesystem.path().join(name);
            write_config(&filesystem, name, "")?;
            let builder = ServerUnderTest::builder(&share).state_dir(&filesystem.path().join(state));
            builder.config(&config).start()
        };
        // Started once, so that it has a port.
        let mut second = start("second")?;
        second.kill()?;
        let mut first = start("first")?;
        if as_peers {
            first.kill()?;
            let told = format!("replicas = [\"127.0.0.1:{}\"]", second.port());
            write_config(&filesystem, "first", &told)?;
            first.restart()?;
        } else {
            second.restart()?;
        }
        Ok(Self { first, second, filesystem })
    }

    /// The first says that the second has it.
    fn move_on(&self) -> Result<()> {
        let moved = format!("moved_to = [\"127.0.0.1:{}\"]", self.second.port());
        write_config(&self.filesystem, "first", &moved)?;
        self.first.reload()
    }

    fn mount(&self, options: &str) -> Result<Mount> {
        Mount::new(self.first.port(), "/share", &format!("rw{options}"))
    }

    fn share(&self) -> PathBuf {
        self.filesystem.path().join("share")
    }
}

fn write_config(filesystem: &LoopFs, name: &str, more: &str) -> Result<()> {
    let dir = filesystem.path();
    let at = dir.display();
    let text = format!(
        "handle_key = \"{at}/key\"\n[[export]]\nsource = \"{at}/share\"\npath = \"/share\"\nsquash = \"none\"\n\
         clients = [\"all\"]\n{more}\n"
    );
    Ok(std::fs::write(filesystem.path().join(name), text)?)
}

/// What `holdfast mount servers show` says.
fn shown(mount: &Mount) -> Result<String> {
    let output = mount.command()?.args(["mount", "servers", "show"]).arg(mount.path()).output()?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Waits for it to have a line with these words.
fn shows(mount: &Mount, words: &[&str]) -> Result<()> {
    let started = Instant::now();
    loop {
        let said = shown(mount)?;
        if said.lines().any(|line| words.iter().all(|word| line.contains(word))) {
            return Ok(());
        }
        ensure!(started.elapsed() < PATIENCE, "{words:?} in none of\n{said}\n{}", mount.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Nobody named the second one but the first.
fn told() -> Result<()> {
    let mut two = Two::new(true)?;
    let mount = two.mount("")?;
    let second = format!("127.0.0.1:{}", two.second.port());
    shows(&mount, &[&second, "told by a server"])?;
    ensure!(!shown(&mount)?.lines().any(|l| l.contains(&second) && l.contains("in use")), "too soon");
    run_in(&mount.path(), "for i in $(seq 1 300); do echo $i >f$i; done", &[])?;
    two.first.kill()?;
    let working = bash(&mount.path(), "for i in $(seq 301 600); do echo $i >f$i; done; sync f600", &[])?;
    two.second.restart()?;
    let output = working.wait_with_output()?;
    ensure!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), mount.log());
    shows(&mount, &[&second, "in use"])?;
    mount.unmount(&[])?;
    let left = run_in(&two.share(), "cat f* | sort -n | uniq | wc -l", &[])?;
    ensure!(left.trim() == "600", "{left} files\n{}", mount.log());
    Ok(())
}

/// Everyday work until the file `$1` is there, and a round after that.
const LOAD: &str = "
i=0; over=
until [ \"$over\" ]; do
    [ ! -e $1 ] || over=yes
    i=$((i + 1))
    mkdir d$i; echo one $i >d$i/a; mv d$i/a d$i/b; echo two >>d$i/b; cp d$i/b d$i/c; ln d$i/c d$i/e; rm d$i/c
    seen=$(cat d$i/b d$i/e); [ \"$(wc -l <<<\"$seen\")\" = 4 ] || { echo \"d$i has $seen\" >&2; exit 1; }
    sync d$i/b
done
echo $i >$1
";

/// A file that is open before and after.
const OPEN: &str =
    "exec 3>>quiet/open; echo one >&3; while [ ! -e $1 ]; do sleep 0.05; done; echo two >&3; exec 3>&-";

/// The export moves while one mount works, one is idle and knows, and one has a file open.
fn moved_under_load(options: &str) -> Result<()> {
    let mut two = Two::new(false)?;
    let (busy, idle) = (two.mount(options)?, two.mount(options)?);
    run_in(&idle.path(), "mkdir quiet; for i in $(seq 20); do echo old >quiet/f$i; done; cat quiet/*", &[])?;
    let go_on = two.filesystem.path().join("go-on");
    let open = bash(&idle.path(), OPEN, &[&go_on.display().to_string()])?;
    let enough = two.filesystem.path().join("enough");
    let mut load = bash(&busy.path(), LOAD, &[&enough.display().to_string()])?;
    ensure!(has_worked(&mut load, &two.share(), 0)?, "the load has failed");
    two.move_on()?;
    let second = format!("127.0.0.1:{}", two.second.port());
    shows(&busy, &[&second, "in use"])?;
    // It has asked for nothing.
    shows(&idle, &[&second, "in use"])?;
    std::fs::write(go_on, "")?;
    let output = open.wait_with_output()?;
    ensure!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), idle.log());
    std::fs::write(&enough, "")?;
    let output = load.wait_with_output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{said}\n{}", busy.log());
    let rounds = std::fs::read_to_string(&enough)?;
    // The first is of no use to anybody any more, and may go.
    two.first.check_alive()?;
    two.first.kill()?;
    run_in(&busy.path(), "echo new >quiet/f1; sync quiet/f1", &[])?;
    ensure!(run_in(&idle.path(), "cat quiet/f1 quiet/open", &[])? == "new\none\ntwo\n", "two truths");
    for mount in [&busy, &idle] {
        mount.check_alive()?;
        mount.unmount(&[]).with_context(|| mount.log())?;
    }
    two.second.check_alive()?;
    run_in(&two.share(), "[ \"$(cat d*/b d*/e | wc -l)\" = $((4 * $1)) ]", &[rounds.trim()])?;
    let twice = run_in(&two.share(), "find . -name '*-20[0-9]*T*Z*'", &[])?;
    ensure!(twice.is_empty(), "done on both servers:\n{twice}\n{}", busy.log());
    Ok(())
}

/// The first never had it.
fn referred() -> Result<()> {
    let two = Two::new(false)?;
    two.move_on()?;
    let mount = two.mount("")?;
    shows(&mount, &[&format!("127.0.0.1:{}", two.second.port()), "in use"])?;
    std::fs::write(mount.path().join("file"), "content")?;
    mount.unmount(&[])?;
    ensure!(std::fs::read(two.share().join("file"))? == b"content", "not there");
    Ok(())
}

/// What an operation says that meets the move.
const MOVED: &str = "for i in $(seq 100); do if ! said=$(stat $1/nobody-asked-for-$i 2>&1); then case $said in \
*remote*) echo remote; exit;; *No\\ such*) sleep 0.1;; *) echo \"$said\"; exit;; esac; fi; done; echo \"$said\"";

fn stays() -> Result<()> {
    let two = Two::new(false)?;
    let second = format!("127.0.0.1:{}", two.second.port());
    let (alone, named) = (two.mount(",noreferrals")?, two.mount(&format!(",noreferrals,server={second}"))?);
    for mount in [&alone, &named] {
        run_in(&mount.path(), "ls; echo before > $1; sync $1", &[&mount.daemon().to_string()])?;
    }
    run_in(&alone.path(), "echo queued > queued", &[])?;
    two.move_on()?;
    shows(&named, &[&second, "in use"])?;
    run_in(&named.path(), "echo after > after; sync after", &[])?;
    let root = alone.path().display().to_string();
    let said = run_in(Path::new("/"), MOVED, &[&root])?;
    ensure!(said == "remote\n", "it says {said}\n{}", alone.log());
    ensure!(!shown(&alone)?.contains(&second), "{}", shown(&alone)?);
    // What is queued, if it is still, waits for the user's word.
    let output = alone.command()?.args(["mount", "servers", "add", &second]).arg(alone.path()).output()?;
    ensure!(output.status.success(), "{output:?}");
    run_in(Path::new("/"), "for i in $(seq 100); do ls $1 && exit 0; sleep 0.1; done; exit 1", &[&root])?;
    shows(&alone, &[&second, "in use"])?;
    run_in(&alone.path(), "cat after queued; echo named > named; sync named", &[])
        .with_context(|| alone.log())?;
    for mount in [&alone, &named] {
        mount.check_alive()?;
        mount.unmount(&[]).with_context(|| mount.log())?;
    }
    Ok(())
}

/// A mount with a journal begins anew after its export has moved; or begins while the first server is away, which says it when it is
/// back.
fn kept(is_at_once: bool) -> Result<()> {
    let mut two = Two::new(false)?;
    let disk = Scratch::new("kept")?;
    let options = format!(",offline={}", disk.path().join("journal").display());
    let first = two.mount(&options)?;
    run_in(
        &first.path(),
        "mkdir d; for i in $(seq 20); do echo old $i > d/f$i; done; ls -l d; cat d/*",
        &[],
    )?;
    first.sync()?;
    two.first.kill()?;
    wait_standing(&first, "away")?;
    let away = "for i in $(seq 20); do echo new $i > d/g$i; done; echo more >> d/f1; rm d/f2; mv d/f3 d/h3; sync d/g20 d/f1";
    run_in(&first.path(), away, &[]).with_context(|| first.log())?;
    killed(&first)?;
    let moved = format!("moved_to = [\"127.0.0.1:{}\"]", two.second.port());
    write_config(&two.filesystem, "first", &moved)?;
    if is_at_once {
        two.first.restart()?;
    }
    let again = two.mount(&options)?;
    if !is_at_once {
        run_in(&again.path(), "echo later > d/later; sync d/later", &[])?;
        two.first.restart()?;
    }
    shows(&again, &[&format!("127.0.0.1:{}", two.second.port()), "in use"])?;
    wait_standing(&again, "online")?;
    again.sync().with_context(|| again.log())?;
    let there = "[ \"$(cat d/g20)\" = 'new 20' ]; [ \"$(cat d/f1)\" = $'old 1\\nmore' ]; [ ! -e d/f2 ]; [ \"$(cat d/h3)\" = 'old 3' ]; \
                 ls d | wc -l; find . -name '*-20[0-9]*T*Z*'";
    let count = if is_at_once { "39\n" } else { "40\n" };
    for at in [two.share(), again.path()] {
        let said = run_in(&at, there, &[]).with_context(|| again.log())?;
        ensure!(said == count, "{said}\n{}", again.log());
    }
    again.check_alive()?;
    again.unmount(&[]).with_context(|| again.log())
}
