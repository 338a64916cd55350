//! SIGTERM, SIGINT and SIGHUP as something that is waited for, in a process that has threads and no runtime.
#![allow(unsafe_code)]

use std::io;
use std::mem::MaybeUninit;

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM or SIGINT: send what is left, unmount, end.
    End,
    /// SIGHUP: a daemon's terminal has gone, or somebody expects a configuration to be read. Nothing to do.
    Hangup,
}

/// The signals, held back from every thread that is started after this one was made.
pub(crate) struct Signals(libc::sigset_t);

impl Signals {
    /// Holds the signals back. To be called before any other thread is started.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn hold() -> io::Result<Self> {
        let mut set = MaybeUninit::uninit();
        // SAFETY: sigemptyset initialises the set it is given a valid pointer to; sigaddset and pthread_sigmask are
        // given that initialised set and valid signal numbers; a null pointer for the old mask is allowed.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP] {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            let set = set.assume_init();
            match libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) {
                0 => Ok(Self(set)),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// Waits for one.
    ///
    /// # Errors
    /// Those of the system.
    pub(crate) fn wait(&self) -> io::Result<Signal> {
        let mut signal = 0;
        // SAFETY: both pointers are valid for the call, and the set was initialised in `hold`.
        match unsafe { libc::sigwait(&raw const self.0, &raw mut signal) } {
            0 if signal == libc::SIGHUP => Ok(Signal::Hangup),
            0 => Ok(Signal::End),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}
