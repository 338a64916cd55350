//! What is exported, to whom, and under which rules: the namespace that every protocol serves, handles as they
//! travel, callers as they are mapped, and the committer that makes mutations durable in groups.
#![forbid(unsafe_code)]

pub mod caller;
pub mod clients;
pub mod committer;
pub mod export;
pub mod handle;
pub mod location;
pub mod namespace;
mod pace;
pub mod pseudo;

pub use caller::{Credential, GroupSource, Groups, NoGroups};
pub use clients::{ClientRule, Network, NetworkParseError};
pub use committer::{Answering, Committed, Committer, Force};
pub use export::{ANONYMOUS_ID, Export, ExportOptions, LocalUse, Squash};
pub use handle::{HandleError, Place, Sealer, WireHandle};
pub use location::{Location, LocationParseError};
pub use namespace::{Namespace, NamespaceError, Object};
pub use pseudo::{PSEUDO_FSID, PseudoDir, PseudoNode};
