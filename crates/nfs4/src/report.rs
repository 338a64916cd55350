//! What there is, for administrators: files that clients hold something of, and where clients of 4.0 are called.

use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_base::FileKey;
use holdfast_export::WireHandle;
use holdfast_vfs::FileObject;

use crate::program::Nfs4;

/// Files that clients hold something of.
#[derive(Default)]
pub struct HeldFiles {
    /// Open files, those that carry locks among them.
    pub open: Vec<Arc<dyn FileObject>>,
    /// Objects that are delegated, or whose locks are waited for.
    pub named: Vec<(FileKey, WireHandle)>,
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
