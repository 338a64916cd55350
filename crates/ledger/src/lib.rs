//! Exactly-once execution, as every protocol uses it: a request that changes a file system goes through a
//! [`Mutation`], which leaves word of it in the journal before it is done ([`Undertaking`]); after a crash the
//! [`Ledger`] settles what was cut short, and the request, sent again, finds what became of it.
//!
//! `docs/design/exactly-once.md` enumerates the cases. The protocols' part is small: one [`Undertaking`] a request,
//! every mutation through it, then [`Undertaking::finish`] before the group commit and [`Undertaking::seal`]
//! after it.
#![forbid(unsafe_code)]

mod alive;
pub mod failpoint;
mod intent;
mod ledger;
mod look;
mod mutation;
mod names;
pub mod outcome;
mod settling;
mod undertaking;

pub use ledger::{BatchRecord, Ledger, Now, Remembered, system_now};
pub use mutation::Mutation;
pub use undertaking::{Standing, Undertaking};
