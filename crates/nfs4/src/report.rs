//! What there is, for administrators: files that clients hold something of, and where clients of 4.0 are called.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdfast_base::FileKey;
use holdfast_export::WireHandle;
use holdfast_state::Census;
use holdfast_vfs::FileObject;
use parking_lot::Mutex;

use crate::program::Nfs4;
use crate::service::Service;

/// Files that clients hold something of.
#[derive(Default)]
pub struct HeldFiles {
    /// Open files, those that carry locks among them.
    pub open: Vec<Arc<dyn FileObject>>,
    /// Objects that are delegated, or whose locks are waited for.
    pub named: Vec<(FileKey, WireHandle)>,
}

/// A census that took this long is repeated only after a while: everybody waits for it.
const COSTLY: Duration = Duration::from_millis(1);

/// So much longer a while than it took.
const PAUSE: u32 = 100;

/// The last census, for who asks again and again.
#[derive(Default)]
pub(crate) struct LastCensus(Mutex<Option<Taken>>);

struct Taken {
    census: Census,
    at: Instant,
    took: Duration,
}

impl LastCensus {
    /// What there is: the last census, where another would cost too much.
    pub(crate) fn take(&self, service: &Service) -> Census {
        let mut last = self.0.lock();
        if let Some(Taken { census, at, took }) = &*last
            && *took > COSTLY
            && at.elapsed() < *took * PAUSE
        {
            return *census;
        }
        let (census, took) = service.look(|engine| {
            let began = Instant::now();
            (engine.census(), began.elapsed())
        });
        *last = Some(Taken { census, at: Instant::now(), took });
        census
    }
}

impl Nfs4 {
    /// Files that clients hold something of. Each may come several times.
    #[must_use]
    pub fn held_files(&self) -> HeldFiles {
        let HeldFiles { mut open, mut named } = HeldFiles::default();
        let service = self.service();
        service.files.each(&mut |file| open.push(Arc::clone(file)), &mut |key, fh| named.push((key, fh)));
        service.delegations.each(&mut |key, fh| named.push((key, fh)));
        HeldFiles { open, named }
    }
}

/// Where a client of 4.0 is called back, from what the state engine keeps of it.
#[must_use]
pub fn callback_address(callback: &holdfast_state::Callback) -> Option<SocketAddr> {
    crate::callback::address::kept(&callback.address)
}
