//! A client whose process has died, and what its server keeps for it: whoever outlives it and was told by what it is known has that
//! dropped at once. Else others wait for a lease for what it held.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::client::Inner;
use crate::recover::Setback;
use crate::{Callbacks, Client, Error, Handle, HeldAttributes, Options, Recall, Result};

/// By what a server knows a client, and where that server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownAs {
    /// The client's name (`co_ownerid`).
    pub owner: Vec<u8>,
    /// Where the server was last reached.
    pub address: SocketAddr,
    /// The minor version that is spoken there.
    pub minor: u32,
}

impl Client {
    /// By what the server in use knows this client; nothing while none does.
    #[must_use]
    pub fn known_as(&self) -> Option<KnownAs> {
        let inner = self.inner();
        let identity = inner.gate.identity()?;
        Some(KnownAs { owner: inner.owner.clone(), address: identity.address, minor: identity.minor })
    }
}

/// Has a server drop all that it keeps for a client whose process has died, opens, locks, promises and sessions: its next life comes
/// under the same name, is confirmed by a session (RFC 8881 section 18.35.4, case 5), and leaves for good. To a server that knows no
/// such client nothing happens.
///
/// Of a client that lives this takes everything as well. `options` are those that it was made with; each call to the server waits for
/// [`Options::patience`] at most, and there are four.
///
/// # Errors
/// Why it could not be done.
pub fn end_former(options: Options, former: &KnownAs) -> Result<()> {
    let KnownAs { owner, address, minor } = former.clone();
    // By another verifier it is another life.
    let options = Options { owner: Some(owner), verifier: None, minor: Some(minor), slots: 1, ..options };
    let inner = Inner::new(options, Arc::new(Deaf));
    let link = inner.connect_at(address).map_err(|e| Error::Unreachable(e.to_string()))?;
    let established = inner.establish(&link).map_err(|setback| match setback {
        Setback::Again => Error::Disconnected,
        Setback::Because(why) => why,
    })?;
    inner.destroy(&link, &established.session)
}

/// Nothing is held, so nobody calls back.
struct Deaf;

impl Callbacks for Deaf {
    fn recall(&self, _: &Handle, _: Recall) {}

    fn held_attributes(&self, _: &Handle) -> Option<HeldAttributes> {
        None
    }
}
