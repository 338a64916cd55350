//! Commands on the host, and what `/proc` says of a process.

use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// Runs a program to its end and gives its standard output; a failure carries its standard error.
pub fn capture<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Result<String> {
    let output = output(program, args)?;
    if !output.status.success() {
        let shown: Vec<_> = args.iter().map(|arg| arg.as_ref().to_string_lossy()).collect();
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {} ended with {}: {}", shown.join(" "), output.status, stderr.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program to its end and gives everything it said, whatever its status.
pub fn output<S: AsRef<OsStr>>(program: &str, args: &[S]) -> Result<Output> {
    let path = crate::missing::program(program, program).unwrap_or_else(|_| program.into());
    Command::new(path).args(args).stdin(Stdio::null()).output().with_context(|| format!("starting {program}"))
}

/// Bytes of memory a process holds resident (`VmRSS`).
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS line")?;
    let kib: u64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS is no number")?;
    Ok(kib * 1024)
}

/// CPU time, user and system, that a process has used (all its threads), in steps of the clock tick (10 ms).
pub fn cpu_time(pid: u32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The second field is the command's name in parentheses, and may itself hold spaces and parentheses.
    let (_, rest) = stat.rsplit_once(')').context("no command name in /proc/PID/stat")?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    let ticks = |field: usize| -> Result<u64> { Ok(fields.get(field).context("short stat line")?.parse()?) };
    // Fields 14 (utime) and 15 (stime) of proc(5), counted here from field 3.
    let total = ticks(11)? + ticks(12)?;
    Ok(Duration::from_nanos(total * (1_000_000_000 / rustix::param::clock_ticks_per_second())))
}

/// Whether all threads of a process are held still (SIGSTOP).
pub fn is_stopped(pid: u32) -> Result<bool> {
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))?.flatten() {
        // A thread may have ended meanwhile.
        let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
        let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start());
        if state.is_some_and(|state| !state.starts_with('T')) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Characters of one line in an error message.
const LINE_CHARS_MAX: usize = 500;

/// The last `lines` lines of a text, for error messages; long lines are cut.
pub fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    let cut = |line: &&str| line.chars().take(LINE_CHARS_MAX).collect::<String>();
    all[all.len().saturating_sub(lines)..].iter().map(cut).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_computes_shows_cpu_time_and_memory() {
        let pid = std::process::id();
        let before = cpu_time(pid).unwrap();
        let started = std::time::Instant::now();
        while cpu_time(pid).unwrap() < before + Duration::from_millis(20) {
            assert!(started.elapsed() < Duration::from_secs(20), "CPU time stands still");
        }
        assert!(resident_bytes(pid).unwrap() > 100_000);
    }

    #[test]
    fn a_failing_command_carries_its_complaint() {
        let error = capture("sh", &["-c", "echo broken >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.contains("broken") && error.contains('3'), "{error}");
    }
}
