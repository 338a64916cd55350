//! What a case has running: finds it, tells what it is doing, and ends it.
//!
//! Some of it may wait in the kernel for a mount whose daemon does not answer. What is read here of such a process needs
//! none of its locks; its arguments and its environment, which do, are read of `holdfast`'s own processes alone, and of
//! others when those are gone.

use crate::case::PLACE;
use crate::process::tail;
use anyhow::{Result, ensure};
use rustix::mount::{UnmountFlags, unmount};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long processes may take to go.
const GOING: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(100);
/// Lines shown of each log.
const LOG_LINES: usize = 30;
/// Functions shown of each stack in the kernel, the innermost first.
const STACK_DEPTH: usize = 7;

/// All that a case has started.
#[derive(Debug, Clone)]
pub(crate) struct Remains {
    case: u32,
    mark: Vec<u8>,
}

#[derive(Debug, Clone)]
struct Process {
    pid: u32,
    parent: u32,
    name: String,
    state: char,
}

impl Remains {
    /// Of the case with this process and this directory.
    pub(crate) fn of(case: u32, place: &Path) -> Self {
        Self { case, mark: format!("{PLACE}={}", place.display()).into_bytes() }
    }

    /// What it has running, what that waits for in the kernel, and what it logged last.
    pub(crate) fn tell(&self) -> String {
        let mut told = String::new();
        for process in self.known(&processes()) {
            let arguments = fs::read(format!("/proc/{}/cmdline", process.pid));
            let shown = match arguments {
                Ok(bytes) if process.is_holdfast() => String::from_utf8_lossy(&bytes).replace('\0', " "),
                _ => process.name.clone(),
            };
            told += &format!("     process {} {} {shown}\n", process.pid, process.state);
            if process.pid == self.case || process.is_holdfast() || process.state == 'D' {
                told += &threads(process.pid);
            }
        }
        for log in self.scratches().iter().flat_map(|scratch| logs(scratch)) {
            let said = fs::read(&log).unwrap_or_default();
            if !said.is_empty() {
                told += &format!(
                    "     --- {}\n{}\n",
                    log.display(),
                    tail(&String::from_utf8_lossy(&said), LOG_LINES)
                );
            }
        }
        told
    }

    /// Kills all of it: first the daemons of mounts, and who waits for one of them is freed; and then the rest.
    ///
    /// Errors with what does not go.
    pub(crate) fn end(&self) -> Result<()> {
        let scratches = self.scratches();
        self.known(&processes()).iter().filter(|process| process.is_holdfast()).for_each(Process::kill);
        // Another process may have the device open; forced, the connection ends all the same.
        let table = fs::read_to_string("/proc/self/mounts")?;
        for place in fuse_mounts(&table, &scratches) {
            let _ = unmount(&place, UnmountFlags::FORCE | UnmountFlags::DETACH);
        }
        let started = Instant::now();
        loop {
            let left = self.everything();
            if left.is_empty() {
                return Ok(());
            }
            left.iter().for_each(Process::kill);
            ensure!(started.elapsed() < GOING, "killed, and not gone: {left:?}");
            std::thread::sleep(POLL);
        }
    }

    /// Its own process, those that descend from it, and `holdfast`'s that are known by the mark.
    fn known(&self, all: &[Process]) -> Vec<Process> {
        let descendants = descendants(self.case, all);
        let is_ours = |process: &&Process| {
            descendants.contains(&process.pid) || (process.is_holdfast() && self.has_mark(process.pid))
        };
        all.iter().filter(is_ours).cloned().collect()
    }

    fn everything(&self) -> Vec<Process> {
        let all = processes();
        let descendants = descendants(self.case, &all);
        let is_ours = |process: &Process| descendants.contains(&process.pid) || self.has_mark(process.pid);
        all.into_iter().filter(is_ours).collect()
    }

    fn has_mark(&self, pid: u32) -> bool {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == self.mark)
    }

    /// The scratch directories that the case holds: it has the lock of each open.
    fn scratches(&self) -> Vec<PathBuf> {
        let files = fs::read_dir(format!("/proc/{}/fd", self.case)).into_iter().flatten().flatten();
        let held = files.filter_map(|file| fs::read_link(file.path()).ok());
        held.filter_map(|path| crate::scratch::of_lock(&path).map(Path::to_path_buf)).collect()
    }
}

impl Process {
    /// From a line of `/proc/PID/stat`; none for one that has ended.
    fn parse(line: &str) -> Option<Self> {
        // The name may hold spaces and parentheses itself.
        let (front, rest) = line.rsplit_once(')')?;
        let (pid, name) = front.split_once(" (")?;
        let mut fields = rest.split_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let process = Self { pid: pid.parse().ok()?, parent, name: name.to_owned(), state };
        (!matches!(state, 'Z' | 'X')).then_some(process)
    }

    fn is_holdfast(&self) -> bool {
        let program = fs::read_link(format!("/proc/{}/exe", self.pid)).unwrap_or_default();
        program.file_name().is_some_and(|name| name.to_string_lossy().starts_with("holdfast"))
    }

    fn kill(&self) {
        if let Some(pid) = i32::try_from(self.pid).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        }
    }
}

fn processes() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let lines = entries.filter_map(|entry| fs::read_to_string(entry.path().join("stat")).ok());
    lines.filter_map(|line| Process::parse(&line)).collect()
}

fn descendants(of: u32, all: &[Process]) -> BTreeSet<u32> {
    let mut found = BTreeSet::from([of]);
    loop {
        let more: Vec<u32> = all
            .iter()
            .filter(|process| found.contains(&process.parent) && !found.contains(&process.pid))
            .map(|process| process.pid)
            .collect();
        if more.is_empty() {
            return found;
        }
        found.extend(more);
    }
}

/// Where in the kernel its threads are; those that are at the same place are told of together.
fn threads(pid: u32) -> String {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
        let Ok(line) = fs::read_to_string(task.path().join("stat")) else { continue };
        let Some(thread) = Process::parse(&line) else { continue };
        let wchan = fs::read_to_string(task.path().join("wchan")).unwrap_or_default();
        let stack = fs::read_to_string(task.path().join("stack")).unwrap_or_default();
        let functions: Vec<_> = stack.lines().filter_map(function).take(STACK_DEPTH).collect();
        let place = format!("{} {wchan}: {}", thread.state, functions.join(" < "));
        places.entry(place).or_default().push(format!("{} {}", thread.pid, thread.name));
    }
    places.iter().map(|(place, who)| format!("       {place}\n         {}\n", who.join(", "))).collect()
}

/// `[<0>] fuse_simple_request+0x1a/0x2b [fuse]` is in `fuse_simple_request`.
fn function(line: &str) -> Option<&str> {
    line.split_whitespace().nth(1)?.split('+').next()
}

/// The files of a scratch directory that are logs. A mount in it is not looked into.
fn logs(scratch: &Path) -> Vec<PathBuf> {
    let own = ["log", "console", "stdout", "stderr"].map(|name| scratch.join(name));
    let of_daemons =
        fs::read_dir(scratch.join("run")).into_iter().flatten().flatten().map(|entry| entry.path());
    let of_daemons = of_daemons.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    own.into_iter().chain(of_daemons).collect()
}

/// Where FUSE is mounted in these directories, by a table as `/proc/PID/mounts` is; the last mounted first.
fn fuse_mounts(table: &str, directories: &[PathBuf]) -> Vec<PathBuf> {
    let place = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let (place, kind) = (PathBuf::from(fields.next()?), fields.next()?);
        let is_ours = directories.iter().any(|directory| place.starts_with(directory));
        (kind.starts_with("fuse") && is_ours).then_some(place)
    };
    table.lines().rev().filter_map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn who_has_left_its_parent_is_found_by_its_mark_and_ended() {
        let place = PathBuf::from(format!("/nowhere/{}", std::process::id()));
        let mut case = Command::new("sh")
            .args(["-c", "(sleep 1000 &) ; sleep 1000 & wait"])
            .env(PLACE, &place)
            .spawn()
            .unwrap();
        let remains = Remains::of(case.id(), &place);
        let started = Instant::now();
        // A shell that has not begun its program yet is still a shell, and one more may be about to end.
        let asleep =
            |remains: &Remains| remains.everything().iter().filter(|one| one.name == "sleep").count();
        while asleep(&remains) < 2 {
            assert!(started.elapsed() < Duration::from_secs(20), "{:?}", remains.everything());
        }
        assert!(remains.tell().contains("sleep"), "{}", remains.tell());
        remains.end().unwrap();
        case.wait().unwrap();
        assert!(remains.everything().is_empty());
    }

    #[test]
    fn mounts_are_those_of_fuse_in_the_directories() {
        let table = "127.0.0.1:/share /tmp/holdfast-lab-mount-a/mnt fuse.holdfast rw,nosuid 0 0\n\
                     127.0.0.1:/share /tmp/holdfast-lab-mount-b/mnt fuse.holdfast rw,nosuid 0 0\n\
                     /dev/loop0 /tmp/holdfast-lab-mount-a/fs xfs rw 0 0\n";
        let own = [PathBuf::from("/tmp/holdfast-lab-mount-a")];
        assert_eq!(fuse_mounts(table, &own), [Path::new("/tmp/holdfast-lab-mount-a/mnt")]);
    }

    #[test]
    fn a_process_with_any_name_is_read_and_one_that_has_ended_is_none() {
        let process = Process::parse("12 (a (b) c) D 7 12 12 0").unwrap();
        assert_eq!((process.pid, process.parent, process.state), (12, 7, 'D'));
        assert_eq!(process.name, "a (b) c");
        assert!(Process::parse("12 (a) Z 7 12").is_none());
        assert_eq!(function("[<0>] request_wait_answer+0x10a/0x250 [fuse]"), Some("request_wait_answer"));
    }
}
