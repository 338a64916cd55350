//! A decorator whose transactions wait until they are let through, as on a disk that hangs.

use parking_lot::{Condvar, Mutex};

use crate::{Batch, Fence, Flow, Result, Store, Watch};

#[derive(Default)]
struct Gate {
    is_shut: bool,
    waiting: usize,
}

/// A store that can be made to hang; what was read before can be read then too.
pub struct Hanging<S> {
    inner: S,
    gate: Mutex<Gate>,
    changed: Condvar,
}

impl<S: Store> Hanging<S> {
    /// Wraps a store, which does not hang.
    pub fn new(inner: S) -> Self {
        Self { inner, gate: Mutex::default(), changed: Condvar::new() }
    }

    /// Has transactions wait from now on.
    pub fn hang(&self) {
        self.gate.lock().is_shut = true;
    }

    /// Lets all of them through.
    pub fn go_on(&self) {
        self.gate.lock().is_shut = false;
        self.changed.notify_all();
    }

    /// Waits until so many transactions wait.
    pub fn await_waiting(&self, count: usize) {
        let mut gate = self.gate.lock();
        while gate.waiting < count {
            self.changed.wait(&mut gate);
        }
    }

    fn pass(&self) {
        let mut gate = self.gate.lock();
        gate.waiting += 1;
        self.changed.notify_all();
        while gate.is_shut {
            self.changed.wait(&mut gate);
        }
        gate.waiting -= 1;
    }
}

impl<S: Store> Store for Hanging<S> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.get(key)
    }

    fn scan(&self, prefix: &[u8], take: &mut dyn FnMut(&[u8], &[u8]) -> Flow) -> Result<()> {
        self.inner.scan(prefix, take)
    }

    fn transaction(&self, batch: &Batch) -> Result<()> {
        self.pass();
        self.inner.transaction(batch)
    }

    fn watch(&self, prefix: &[u8]) -> Result<Watch> {
        self.inner.watch(prefix)
    }

    fn fence(&self, name: &[u8]) -> Result<Fence> {
        self.pass();
        self.inner.fence(name)
    }
}
