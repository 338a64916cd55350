//! A mount that works without the server, with both killed at random moments while files are changed on both sides: what
//! `fsync` promised is there in the end, each thing once and whole, and the mount sees what there is.

use crate::fixture::{Served, run_in};
use anyhow::{Context, Result, bail, ensure};
use holdfast_lab::scratch::Scratch;
use holdfast_lab::{Mount, Scale, Trial};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The cases.
pub(crate) fn trials() -> Vec<Trial> {
    // A voyage takes most of a minute: those of the soak, and where one is named.
    if std::env::var_os("HOLDFAST_SEED").is_none() && Scale::from_env() == Scale::Test {
        return Vec::new();
    }
    let name = "offline::with_server_and_daemon_killed_at_random_what_fsync_promised_is_there_once_and_whole";
    vec![Trial::new(name, || {
        let (seeds, rounds) = Scale::from_env().pick((1, 5), (12, 12));
        let wanted = std::env::var("HOLDFAST_SEED").ok().and_then(|seed| seed.parse().ok());
        let first: u64 = wanted.unwrap_or(1);
        (first..first + seeds)
            .try_for_each(|seed| voyage(seed, rounds).with_context(|| format!("seed {seed}")))
    })]
}

/// What is to become of something that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is on a disk, and nobody has changed that since.
    Sure,
    /// It may be there or not: not on a disk yet, or replaced or removed without that being.
    Open,
    /// Its name was removed, and that is on a disk.
    Gone,
}

/// Everything that was ever written, by its text, which is like no other; and what happened.
struct Log {
    fates: BTreeMap<String, Fate>,
    /// What was there when it was replaced or removed, perhaps before its writer heard that it was on the disk: that says
    /// nothing any more.
    doubted: BTreeSet<String>,
    /// What they have put in the place of a shared file, by its name.
    theirs: BTreeMap<PathBuf, String>,
    /// The server is back, and what is known here may not have been compared with it.
    is_comparing: bool,
    last: u64,
    story: String,
    began: Instant,
}

impl Log {
    fn new() -> Self {
        Self {
            fates: BTreeMap::new(),
            doubted: BTreeSet::new(),
            theirs: BTreeMap::new(),
            is_comparing: false,
            last: 0,
            story: String::new(),
            began: Instant::now(),
        }
    }

    fn new_text(&mut self, whose: &str) -> String {
        self.last += 1;
        let text = format!("{whose} {}{}", self.last, " and more".repeat((self.last % 40) as usize));
        self.fates.insert(text.clone(), Fate::Open);
        text
    }

    fn doubt(&mut self, text: &str) {
        if self.fates.contains_key(text) {
            self.doubted.insert(text.to_owned());
            self.set(text, Fate::Open);
        }
    }

    fn set(&mut self, text: &str, fate: Fate) {
        let fate = if self.doubted.contains(text) { Fate::Open } else { fate };
        self.tell(&format!("{} is {fate:?}", short(text)));
        self.fates.insert(text.to_owned(), fate);
    }

    fn tell(&mut self, what: &str) {
        // Writing to a string does not fail.
        let _ = writeln!(self.story, "{:.3} s: {what}", self.began.elapsed().as_secs_f64());
    }
}

/// What tells a text from all others.
fn short(text: &str) -> &str {
    text.split(" and").next().unwrap_or(text).trim_end()
}

fn tell(log: &Mutex<Log>, what: impl FnOnce() -> String) {
    if let Ok(mut log) = log.lock() {
        log.tell(&what());
    }
}

/// Numbers that look random, from a seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 20) % sides
    }
}

/// Directories, and files in each that both sides write.
const DIRS: u64 = 3;
const SHARED: u64 = 3;

fn dir(at: &Path, dice: &mut Dice) -> PathBuf {
    at.join(format!("d{}", dice.roll(DIRS)))
}

/// What is there before it is replaced or removed: from then on it may or may not be. What cannot be read is left alone.
fn doubt(log: &Mutex<Log>, file: &Path) -> std::io::Result<()> {
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    tell(log, || format!("{} is in {}", short(&text), file.display()));
    if let Ok(mut log) = log.lock() {
        log.doubt(&text);
    }
    Ok(())
}

/// Replaces a shared file's contents. Who opens a file to write it anew, just when the server is back, cuts off what is there:
/// not what it has looked at, which may have been what was known here.
fn replace(
    log: &Mutex<Log>,
    (mount, shared): (&Path, &Path),
    how: impl FnOnce() -> std::io::Result<()>,
) -> std::io::Result<()> {
    let is_comparing = || log.lock().is_ok_and(|log| log.is_comparing);
    let is_unseen = is_comparing();
    let done = doubt(log, shared).and_then(|()| how());
    if (is_unseen || is_comparing())
        && let (Ok(mut log), Ok(name)) = (log.lock(), shared.strip_prefix(mount))
        && let Some(text) = log.theirs.get(name).cloned()
    {
        log.doubt(&text);
    }
    done
}

fn new_text(log: &Mutex<Log>, whose: &str) -> String {
    log.lock().map(|mut log| log.new_text(whose)).unwrap_or_default()
}

fn set(log: &Mutex<Log>, text: &str, fate: Fate) {
    if let Ok(mut log) = log.lock() {
        log.set(text, fate);
    }
}

/// Writes a file, whole, and perhaps forces it to a disk: true where that was done.
fn write(log: &Mutex<Log>, file: &Path, text: &str, forced: bool) -> std::io::Result<bool> {
    tell(log, || format!("{} goes to {}, forced: {forced}", short(text), file.display()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(file)?;
    file.write_all(text.as_bytes())?;
    if forced {
        file.sync_all()?;
    }
    Ok(forced)
}

/// Works in the mount until it is told to stop; what fails may have been done or not.
fn work(mount: &Path, log: &Mutex<Log>, dice: &mut Dice, (is_over, done): (&AtomicBool, &AtomicU64)) {
    let mut own: Vec<(PathBuf, String)> = Vec::new();
    while !is_over.load(Ordering::SeqCst) {
        let result = one_thing(mount, log, dice, &mut own);
        if let Err(error) = &result {
            tell(log, || error.to_string());
        }
        done.fetch_add(u64::from(result.is_ok()), Ordering::SeqCst);
        if result.is_err() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

fn one_thing(
    mount: &Path,
    log: &Mutex<Log>,
    dice: &mut Dice,
    own: &mut Vec<(PathBuf, String)>,
) -> std::io::Result<()> {
    let (place, forced) = (dir(mount, dice), dice.roll(2) == 0);
    let shared = place.join(format!("b{}", dice.roll(SHARED)));
    let which = (!own.is_empty()).then(|| dice.roll(own.len() as u64) as usize);
    match (dice.roll(20), which) {
        (0..3, _) => {
            let text = new_text(log, "ours");
            replace(log, (mount, &shared), || write(log, &shared, &text, true).map(drop))?;
            set(log, &text, Fate::Sure);
        }
        (3..5, _) => {
            let text = new_text(log, "ours");
            let new = place.join(format!("tmp{}", text.len()));
            write(log, &new, &text, true)?;
            tell(log, || format!("{} is renamed to {}", short(&text), shared.display()));
            replace(log, (mount, &shared), || std::fs::rename(&new, &shared))?;
            File::open(&place)?.sync_all()?;
            set(log, &text, Fate::Sure);
        }
        (5..7, Some(which)) => {
            let (file, text) = own.swap_remove(which);
            set(log, &text, Fate::Open);
            std::fs::remove_file(&file)?;
            if let Some(parent) = file.parent().filter(|_| forced) {
                File::open(parent)?.sync_all()?;
                set(log, &text, Fate::Gone);
            }
        }
        (7..10, Some(which)) => {
            let to = place.join(format!("m{}", dice.roll(1 << 40)));
            tell(log, || format!("{} is renamed to {}", short(&own[which].1), to.display()));
            std::fs::rename(&own[which].0, &to)?;
            own[which].0 = to;
        }
        (10..12, _) => {
            let sub = place.join(format!("s{}", dice.roll(4)));
            // It may be there.
            let _ = std::fs::create_dir(&sub);
            let text = new_text(log, "ours");
            if write(log, &sub.join(format!("o{}", dice.roll(1 << 40))), &text, forced)? {
                set(log, &text, Fate::Sure);
            }
        }
        _ => {
            let text = new_text(log, "ours");
            let file = place.join(format!("o{}", dice.roll(1 << 40)));
            if write(log, &file, &text, forced)? {
                set(log, &text, Fate::Sure);
                own.push((file, text));
            }
        }
    }
    Ok(())
}

/// Changes what is served, while nobody serves it.
fn theirs(share: &Path, log: &Mutex<Log>, dice: &mut Dice) -> Result<()> {
    for _ in 0..dice.roll(8) {
        let place = dir(share, dice);
        match dice.roll(5) {
            0..=2 => {
                // As editors do: what is changed in place may be written over by what was on its way (`offline.md`, 5).
                let (shared, new) = (place.join(format!("b{}", dice.roll(SHARED))), place.join("new"));
                doubt(log, &shared)?;
                let text = new_text(log, "theirs");
                write(log, &new, &text, false)?;
                tell(log, || format!("{} is renamed to {}", short(&text), shared.display()));
                std::fs::rename(&new, &shared)?;
                set(log, &text, Fate::Sure);
                if let (Ok(mut log), Ok(name)) = (log.lock(), shared.strip_prefix(share)) {
                    log.theirs.insert(name.to_owned(), text);
                }
            }
            3 => {
                let sub = place.join(format!("s{}", dice.roll(4)));
                let files: Vec<PathBuf> = listed(&sub).unwrap_or_default().into_keys().collect();
                files.iter().try_for_each(|file| doubt(log, &sub.join(file)))?;
                if sub.exists() {
                    tell(log, || format!("{} is removed", sub.display()));
                    std::fs::remove_dir_all(&sub)?;
                }
            }
            _ => {
                let text = new_text(log, "theirs");
                let sub = place.join(format!("s{}", dice.roll(4)));
                let _ = std::fs::create_dir(&sub);
                write(log, &sub.join(format!("t{}", dice.roll(1 << 40))), &text, false)?;
                set(log, &text, Fate::Sure);
            }
        }
    }
    Ok(())
}

/// Every file below a directory, with what it contains.
fn listed(directory: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut all = BTreeMap::new();
    let mut todo = vec![PathBuf::new()];
    while let Some(below) = todo.pop() {
        for entry in std::fs::read_dir(directory.join(&below))? {
            let entry = entry?;
            let path = below.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                todo.push(path);
            } else {
                let text = std::fs::read(entry.path()).with_context(|| format!("{}", path.display()))?;
                all.insert(path, String::from_utf8_lossy(&text).into_owned());
            }
        }
    }
    Ok(all)
}

/// How long a daemon that was killed may hold its journal, on a busy host.
const DYING: Duration = Duration::from_secs(60);

fn mount(served: &Served, disk: &Path) -> Result<Mount> {
    let until = Instant::now() + DYING;
    loop {
        match served.mount(&format!("offline={}", disk.join("journal").display())) {
            Err(error) if format!("{error:#}").contains("in use") && Instant::now() < until => {}
            other => return other,
        }
    }
}

fn wait_online(mount: &Mount) -> Result<()> {
    let started = Instant::now();
    while mount.stats()?["standing"].as_str() != Some("online") {
        ensure!(started.elapsed() < Duration::from_secs(120), "it does not come back\n{}", mount.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

/// Nothing is left to be told or sent.
fn all_sent(mount: &Mount) -> Result<()> {
    let mut said = String::new();
    for _ in 0..20 {
        match mount.sync() {
            Ok(()) => return Ok(()),
            // Each thing that could not be as it was asked for is told once.
            Err(error) => said = format!("{error:#}"),
        }
    }
    bail!("it goes on failing: {said}\n{}", mount.log())
}

fn voyage(seed: u64, rounds: u32) -> Result<()> {
    let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut served = Served::new()?;
    let (disk, share) = (Scratch::new("adrift")?, served.share());
    let log = Mutex::new(Log::new());
    let mut current = mount(&served, disk.path())?;
    run_in(
        &current.path(),
        "for d in 0 1 2; do mkdir d$d; for b in 0 1 2; do echo before >d$d/b$b; done; done",
        &[],
    )?;
    run_in(&current.path(), "cat d*/b*; ls -lR", &[])?;
    current.sync()?;
    let mut done = 0;
    for round in 0..rounds {
        done += stormy(&mut served, &mut current, &log, &mut dice, disk.path())
            .with_context(|| format!("round {round}, after {done} changes"))?;
    }
    wait_online(&current)?;
    all_sent(&current)?;
    current.check_alive()?;
    let (there, here) = (listed(&share)?, listed(&current.path())?);
    ensure!(there == here, "{}\n{}", differences(&there, &here), current.log());
    let log = log.into_inner().map_err(|_| anyhow::anyhow!("the worker panicked"))?;
    judge(&log, &there).with_context(|| {
        let path = std::env::temp_dir().join(format!("holdfast-adrift-{seed}.log"));
        let kept = std::fs::write(&path, format!("{}\n{}", log.story, current.log()));
        kept.map_or_else(|e| e.to_string(), |()| format!("what happened is in {}", path.display()))
    })?;
    ensure!(done > u64::from(rounds), "only {done} changes were made");
    eprintln!("seed {seed}: {done} changes, {} texts, {} files", log.fates.len(), there.len());
    current.unmount(&[])
}

/// Changes to be made before anybody is killed, where that comes about in time.
const BUSY: u64 = 5;
const BUSY_PATIENCE: Duration = Duration::from_secs(5);

fn comparing(log: &Mutex<Log>) {
    if let Ok(mut log) = log.lock() {
        log.is_comparing = true;
    }
}

/// The mount is online, and the kernel has forgotten what it was told before.
fn compared(log: &Mutex<Log>) {
    std::thread::sleep(Duration::from_millis(100));
    if let Ok(mut log) = log.lock() {
        log.is_comparing = false;
        log.tell("online");
    }
}

/// Works for a while, in which the server, the daemon or both go and come back.
fn stormy(
    served: &mut Served,
    current: &mut Mount,
    log: &Mutex<Log>,
    dice: &mut Dice,
    disk: &Path,
) -> Result<u64> {
    let (path, is_over, done) = (current.path(), AtomicBool::new(false), AtomicU64::new(0));
    let seed = dice.roll(u64::MAX >> 24) | 1;
    if log.lock().is_ok_and(|log| log.is_comparing) && current.stats()?["standing"].as_str() == Some("online")
    {
        compared(log);
    }
    let pause = |dice: &mut Dice, ms: u64| std::thread::sleep(Duration::from_millis(dice.roll(ms)));
    let (server_goes, daemon_goes) =
        [(true, false), (true, true), (false, true), (true, true)][dice.roll(4) as usize];
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| work(&path, log, &mut Dice(seed), (&is_over, &done)));
        pause(dice, 1500);
        // However slow the host: where anything can be done at all, some is.
        let patience = Instant::now() + BUSY_PATIENCE;
        while done.load(Ordering::SeqCst) < BUSY && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(20));
        }
        if server_goes {
            tell(log, || "the server is killed".to_owned());
            served.server.kill()?;
            pause(dice, 2500);
            theirs(&served.share(), log, dice)?;
        }
        if daemon_goes {
            pause(dice, 500);
            tell(log, || format!("the daemon is killed\n{}", current.log()));
            run_in(Path::new("/"), "kill -KILL $1", &[&current.daemon().to_string()])?;
        }
        let is_late = dice.roll(2) == 0;
        if server_goes && !is_late {
            comparing(log);
            served.server.restart()?;
            tell(log, || "the server is back".to_owned());
            pause(dice, 3000);
        }
        is_over.store(true, Ordering::SeqCst);
        worker.join().map_err(|_| anyhow::anyhow!("the worker panicked"))?;
        if daemon_goes {
            current.wait_end()?;
            *current = mount(served, disk)?;
        }
        if server_goes && is_late {
            comparing(log);
            served.server.restart()?;
            tell(log, || "the server is back, late".to_owned());
        }
        if dice.roll(2) == 0 {
            wait_online(current)?;
            compared(log);
        }
        Ok(done.load(Ordering::SeqCst))
    })
}

fn differences(there: &BTreeMap<PathBuf, String>, here: &BTreeMap<PathBuf, String>) -> String {
    let missing = |one: &BTreeMap<PathBuf, String>, other: &BTreeMap<PathBuf, String>| {
        let not_so = one.iter().filter(|(path, text)| other.get(*path) != Some(*text));
        not_so.map(|(path, text)| format!("{}={text}", path.display())).collect::<Vec<_>>().join("\n  ")
    };
    format!(
        "at the server alone:\n  {}\nby the mount alone:\n  {}",
        missing(there, here),
        missing(here, there)
    )
}

fn judge(log: &Log, there: &BTreeMap<PathBuf, String>) -> Result<()> {
    let mut found: BTreeMap<&str, Vec<&Path>> = BTreeMap::new();
    for (path, text) in there {
        found.entry(text).or_default().push(path);
    }
    for (text, fate) in &log.fates {
        let at = found.get(text.as_str()).map_or(0, Vec::len);
        let is_right = match fate {
            Fate::Sure => at == 1,
            Fate::Open => at <= 1,
            Fate::Gone => at == 0,
        };
        ensure!(is_right, "{text:?} is {fate:?}, and is at {:?}", found.get(text.as_str()));
    }
    for (text, at) in found {
        let is_whole = text.is_empty() || text == "before\n" || log.fates.contains_key(text);
        ensure!(is_whole, "nobody ever wrote {text:?}, which is in {at:?}");
    }
    Ok(())
}
