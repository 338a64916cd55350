//! What a server must remember to go on after a crash: client and session records, its boot's number, its identity,
//! who may reclaim what (the grace machine), and how an intent without a reply is settled. Over `store`, without
//! any other I/O; the grace machine and the settling of intents are pure.
//!
//! `docs/design/exactly-once.md` says how the parts meet.
#![forbid(unsafe_code)]

pub mod boot;
mod codec;
mod created;
pub mod grace;
pub mod identity;
pub mod intent;
pub mod keys;
pub mod records;
pub mod sequence;
pub mod settle;
mod unfinished;

use holdfast_store::StoreError;

pub use boot::Boot;
pub use codec::DecodeError;
pub use created::CreatedRecord;
pub use grace::{Grace, GraceEffect, Reclaim};
pub use identity::Identity;
pub use intent::{Intent, Look, Step};
pub use records::{
    ChannelRecord, ClientName, ClientRecord, LostRecord, RecordChange, Records, SessionRecord,
};
pub use sequence::Sequence;
pub use settle::{Facts, Seen, Settled, settle};

/// Why a record could not be read or written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecoveryError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A record is damaged, or of a version that this program does not know (it was downgraded).
    #[error("the stored {what} record {key} cannot be read: {reason}")]
    Record {
        /// Which kind of record.
        what: &'static str,
        /// Its key, printable.
        key: String,
        /// What is wrong.
        reason: String,
    },
}

/// The result of what this crate does with a store.
pub type Result<T> = std::result::Result<T, RecoveryError>;
