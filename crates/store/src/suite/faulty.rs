//! A decorator that makes chosen calls fail, before or after they took effect.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::{Batch, Fence, Flow, Result, Store, StoreError, Watch};

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does nothing and fails.
    Fail,
    /// It takes effect, and its caller is told that it failed.
    ApplyThenFail,
}

#[derive(Default)]
struct Plan {
    calls: u64,
    faults: BTreeMap<u64, Fault>,
}

/// A store whose chosen calls fail with [`StoreError::Io`]. Calls are counted from 1, all methods together but
/// for [`Store::watch`].
pub struct Faulty<S> {
    inner: S,
    plan: Mutex<Plan>,
}

impl<S: Store> Faulty<S> {
    /// Wraps a store; without a plan nothing fails.
    pub fn new(inner: S) -> Self {
        Self { inner, plan: Mutex::default() }
    }

    /// Makes the `nth` call from now fail; 1 is the next one.
    pub fn fail_nth(&self, nth: u64, fault: Fault) {
        let mut plan = self.plan.lock();
        let at = plan.calls + nth;
        plan.faults.insert(at, fault);
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.plan.lock().calls
    }

    /// Takes the wrapped store out.
    pub fn into_inner(self) -> S {
        self.inner
    }

    fn call<T>(&self, run: impl FnOnce(&S) -> Result<T>) -> Result<T> {
        let fault = {
            let mut plan = self.plan.lock();
            plan.calls += 1;
            let call = plan.calls;
            plan.faults.remove(&call)
        };
        let injected = || Err(StoreError::Io("injected".into()));
        match fault {
            None => run(&self.inner),
            Some(Fault::Fail) => injected(),
            Some(Fault::ApplyThenFail) => run(&self.inner).and_then(|_| injected()),
        }
    }
}

impl<S: Store> Store for Faulty<S> {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.call(|s| s.get(key))
    }

    fn scan(&self, prefix: &[u8], take: &mut dyn FnMut(&[u8], &[u8]) -> Flow) -> Result<()> {
        self.call(|s| s.scan(prefix, take))
    }

    fn transaction(&self, batch: &Batch) -> Result<()> {
        self.call(|s| s.transaction(batch))
    }

    fn watch(&self, prefix: &[u8]) -> Result<Watch> {
        self.inner.watch(prefix)
    }

    fn fence(&self, name: &[u8]) -> Result<Fence> {
        self.call(|s| s.fence(name))
    }
}
