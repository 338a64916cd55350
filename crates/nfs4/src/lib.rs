//! NFS version 4 over `vfs` and `state`: 4.0, 4.1 and 4.2 in one engine. An operation's meaning stands once, in its
//! own file under `op`; what operations have in common is the engine's. Nothing here knows a concrete backend.
#![forbid(unsafe_code)]

mod aside;
mod attr;
mod attribution;
mod callback;
mod caller;
mod compound;
mod config;
mod cx;
mod delegation;
mod desc;
mod engine;
mod error;
mod files;
mod finish;
mod handover;
mod io;
mod memory;
mod moved;
mod observe;
mod offload;
mod op;
mod order;
mod owner;
mod program;
mod report;
mod service;
mod slot;
mod stand_in;
mod table;

pub use attr::ids::{Id, IdNames, NumericIds, parse_number};
pub use callback::{CallOut, CalledOut, CallsOut};
pub use config::{ClientRecords, Config, Identity, NoRecords, Options, SessionRecords};
pub use desc::Minor;
pub use handover::{Image, NotFrozen, Thawed};
pub use observe::{Observed, Observer};
pub use program::Nfs4;
pub use report::{HeldFiles, callback_address};
