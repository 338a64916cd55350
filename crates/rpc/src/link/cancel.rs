//! Waiting that can be given up: a token for whoever wants to end it, and a list of sleepers for whoever ends what
//! they wait for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Thread;
use std::time::Instant;

use parking_lot::Mutex;

/// Why a waiting ended without what it was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// The token was given.
    Cancelled,
    /// The time is over.
    TimedOut,
}

/// A token: whoever waits under it is woken once it is given, and stays cancelled. Clones are the same token.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Token>);

#[derive(Debug, Default)]
struct Token {
    is_given: AtomicBool,
    sleepers: Wakers,
}

impl Cancel {
    /// A token that nobody has given.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every waiting under the token, now and later.
    pub fn cancel(&self) {
        self.0.is_given.store(true, Ordering::SeqCst);
        self.0.sleepers.wake_all();
    }

    /// Whether it was given.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.is_given.load(Ordering::SeqCst)
    }

    /// Sleeps until `ready` brings something. It is asked at once and after every wake-up of this thread, so whoever
    /// makes it ready has to wake it.
    ///
    /// # Errors
    /// [`Stopped`], when the token is given or the deadline passes first.
    pub fn wait<T>(
        &self,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, Stopped> {
        if let Some(value) = ready() {
            return Ok(value);
        }
        let _asleep = self.0.sleepers.enter();
        loop {
            if let Some(value) = ready() {
                return Ok(value);
            }
            if self.is_cancelled() {
                return Err(Stopped::Cancelled);
            }
            match deadline {
                None => std::thread::park(),
                Some(deadline) => match deadline.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => std::thread::park_timeout(left),
                    _ => return Err(Stopped::TimedOut),
                },
            }
        }
    }

    /// Sleeps until the deadline.
    ///
    /// # Errors
    /// [`Stopped::Cancelled`].
    pub fn sleep_until(&self, deadline: Instant) -> Result<(), Stopped> {
        match self.wait(Some(deadline), || None::<()>) {
            Err(Stopped::Cancelled) => Err(Stopped::Cancelled),
            _ => Ok(()),
        }
    }
}

/// Threads asleep until something of which they are told all at once.
#[derive(Debug, Default)]
pub struct Wakers(Mutex<Vec<Thread>>);

impl Wakers {
    /// Notes this thread until the guard is dropped.
    #[must_use]
    pub fn enter(&self) -> Asleep<'_> {
        self.0.lock().push(std::thread::current());
        Asleep(self)
    }

    /// Wakes all.
    pub fn wake_all(&self) {
        self.0.lock().iter().for_each(Thread::unpark);
    }

    /// Sleeps until `ready` brings something, is cancelled or is late; whoever changes what `ready` looks at calls
    /// [`Wakers::wake_all`].
    ///
    /// # Errors
    /// [`Stopped`].
    pub fn wait<T>(
        &self,
        cancel: &Cancel,
        deadline: Option<Instant>,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Result<T, Stopped> {
        if let Some(value) = ready() {
            return Ok(value);
        }
        let _asleep = self.enter();
        cancel.wait(deadline, ready)
    }
}

/// A thread noted among sleepers.
#[derive(Debug)]
pub struct Asleep<'a>(&'a Wakers);

impl Drop for Asleep<'_> {
    fn drop(&mut self) {
        let own = std::thread::current().id();
        let mut sleepers = self.0.0.lock();
        if let Some(at) = sleepers.iter().position(|thread| thread.id() == own) {
            sleepers.swap_remove(at);
        }
    }
}
