//! CPU time of whole processes, in nanoseconds. What `/proc/PID/stat` shows as utime + stime (all threads, ended
//! ones too), without its steps of 10 ms: one burst of a cheap operation costs less than a few of those.
#![allow(unsafe_code)]

use std::io;
use std::time::Duration;

/// CPU time, user and system, that a process has used since it began. `pid` is as this process sees it.
///
/// Errors when there is no such process.
pub(crate) fn of_process(pid: u32) -> io::Result<Duration> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::ErrorKind::InvalidInput)?;
    let mut clock: libc::clockid_t = 0;
    // SAFETY: the pointer is to a local that lives through the call.
    let error = unsafe { libc::clock_getcpuclockid(pid, &raw mut clock) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    read(clock)
}

/// CPU time that this process has used.
///
/// Errors only where the kernel has no such clock.
pub(crate) fn of_self() -> io::Result<Duration> {
    read(libc::CLOCK_PROCESS_CPUTIME_ID)
}

fn read(clock: libc::clockid_t) -> io::Result<Duration> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a local that lives through the call.
    if unsafe { libc::clock_gettime(clock, &raw mut time) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // A CPU clock never runs below zero, and its nanoseconds are below one second.
    Ok(Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_in_the_process_clock_by_either_name() {
        let (before, own_before) = (of_process(std::process::id()).unwrap(), of_self().unwrap());
        let started = std::time::Instant::now();
        while of_self().unwrap() < own_before + Duration::from_millis(5) {
            assert!(started.elapsed() < Duration::from_secs(20), "CPU time stands still");
        }
        assert!(of_process(std::process::id()).unwrap() >= before + Duration::from_millis(5));
    }

    #[test]
    fn a_process_that_is_not_there_has_no_clock() {
        assert!(of_process(0x3fff_fff0).is_err());
    }
}
