//! The manager of state: the one engine that all protocols share, what is promised to clients, and the guard before
//! every backend that has promises recalled before somebody else does what they exclude. `docs/design/coherence.md`
//! says what is promised against whom.
#![forbid(unsafe_code)]

mod agent;
mod caps;
mod changers;
mod contend;
mod delegate;
mod entries;
mod guarded;
mod held;
mod index;
mod manager;
mod names;
mod names_promised;
mod recalls;
mod scarce_leases;
mod unreclaimed;

pub use agent::{Agent, NotKept};
pub use caps::CapsOn;
pub use delegate::{Granted, PledgeOn};
pub use entries::{Entry, EntryChange, kinds_of_rename};
pub use guarded::Guarded;
pub use held::{AttributeHolder, HeldAnswer, HeldAttributes};
pub use index::{Conflict, Entered, PromiseIndex, Promised};
pub use manager::{Manager, Parts};
pub use unreclaimed::Unreclaimed;
