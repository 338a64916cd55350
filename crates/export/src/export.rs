//! One export: a backend, where it hangs in the namespace, and its rules.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use holdfast_base::ExportId;
use holdfast_vfs::{Backend, Caller, FsId, FsResult};

use crate::caller::{Credential, GroupSource};
use crate::clients::ClientRule;
use crate::location::Location;

/// The anonymous user and group that squashed callers become: `nobody` and `nogroup` of Debian.
pub const ANONYMOUS_ID: u32 = 65534;

/// The larger half of the identity of an export that is not here; no backend derives this from a UUID.
const ABSENT_FSID: u64 = 0x686f_6c64_676f_6e65;

/// Which callers become the anonymous user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Squash {
    /// The superuser, and group 0 wherever it is named.
    #[default]
    Root,
    /// Nobody.
    None,
    /// Everybody.
    All,
}

/// How processes on the server host use the exported directory beside Holdfast
/// (`docs/design/coherence.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalUse {
    /// Not at all.
    None,
    /// They may; their changes are noticed soon.
    #[default]
    Lazy,
    /// They may; only what the kernel guards against them is promised.
    Strict,
}

/// Rules of one export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportOptions {
    /// Refuse every change.
    pub is_read_only: bool,
    /// Who becomes anonymous.
    pub squash: Squash,
    /// User id of the anonymous.
    pub anonymous_uid: u32,
    /// Group id of the anonymous.
    pub anonymous_gid: u32,
    /// Hosts that may use it; an empty list admits nobody.
    pub clients: Vec<ClientRule>,
    /// Whether what the protocols call stable is on disk before the reply.
    pub is_sync: bool,
    /// Local use.
    pub local: LocalUse,
    /// Whether source ports of 1024 and above are accepted.
    pub accepts_high_ports: bool,
    /// Whether supplementary groups are looked up on the server rather than taken from the call. They are
    /// looked up in any case when the call carries all 16 it can hold.
    pub looks_up_groups: bool,
    /// Where else the same files are served, for clients that look for another server.
    pub replicas: Vec<Location>,
    /// Where it is served instead of here; served here where the list is empty.
    pub moved_to: Vec<Location>,
}

impl Default for ExportOptions {
    fn default() -> Self {
        Self {
            is_read_only: false,
            squash: Squash::Root,
            anonymous_uid: ANONYMOUS_ID,
            anonymous_gid: ANONYMOUS_ID,
            clients: ClientRule::this_host(),
            is_sync: true,
            local: LocalUse::Lazy,
            accepts_high_ports: true,
            looks_up_groups: false,
            replicas: Vec::new(),
            moved_to: Vec::new(),
        }
    }
}

/// An exported directory.
pub struct Export {
    /// Its number in handles: stable across restarts, derived from its path unless configured.
    pub id: ExportId,
    /// Its components below the pseudo-root; empty when it is the root itself.
    pub path: Vec<Vec<u8>>,
    /// What serves it.
    pub backend: Arc<dyn Backend>,
    /// Its rules.
    pub options: ExportOptions,
}

impl fmt::Debug for Export {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Export")
            .field("id", &self.id)
            .field("path", &self.path_display())
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl Export {
    /// The export's path as MOUNT names it, with a leading `/`.
    #[must_use]
    pub fn path_bytes(&self) -> Vec<u8> {
        if self.path.is_empty() {
            return b"/".to_vec();
        }
        self.path.iter().flat_map(|c| std::iter::once(b'/').chain(c.iter().copied())).collect()
    }

    /// The same for people, with what is no UTF-8 replaced.
    #[must_use]
    pub fn path_display(&self) -> String {
        String::from_utf8_lossy(&self.path_bytes()).into_owned()
    }

    /// Whether a host may use this export from that port.
    #[must_use]
    pub fn admits(&self, peer: IpAddr, port: u16) -> bool {
        (port < 1024 || self.options.accepts_high_ports)
            && self.options.clients.iter().any(|r| r.matches(peer))
    }

    /// Whether it is served elsewhere, and nothing of it here: it is *absent* (RFC 8881 section 11.2).
    #[must_use]
    pub fn is_moved(&self) -> bool {
        !self.options.moved_to.is_empty()
    }

    /// Where it is beside here, or instead.
    #[must_use]
    pub fn locations(&self) -> &[Location] {
        if self.is_moved() { &self.options.moved_to } else { &self.options.replicas }
    }

    /// What tells it from all other file systems while it is absent (RFC 8881 section 11.3.1).
    #[must_use]
    pub const fn absent_fsid(&self) -> FsId {
        FsId { major: ABSENT_FSID, minor: self.id.0 as u64 }
    }

    /// Who a credential is on this export, after squashing and group lookup.
    ///
    /// # Errors
    /// [`holdfast_vfs::FsError::Delay`] while the server's groups are being looked up, where they alone count.
    pub fn caller(&self, credential: &Credential<'_>, groups: &dyn GroupSource) -> FsResult<Caller> {
        crate::caller::map(credential, &self.options, groups)
    }
}
