//! The words every other crate speaks: identifiers as distinct types, sets of capabilities, byte ranges, time,
//! entropy, and the named limits. It has no dependencies and does no I/O.
#![forbid(unsafe_code)]

pub mod batch;
pub mod calendar;
pub mod caps;
pub mod clock;
pub mod entropy;
pub mod ids;
pub mod limits;
pub mod range;
pub mod waiting;

pub use calendar::Civil;
pub use caps::{CapSet, in_doubt_ms, relied_on_ms};
pub use clock::{Clock, Instant, ManualClock, SystemClock, Timestamp};
pub use entropy::{Entropy, SeededEntropy, SystemEntropy};
pub use ids::{ChangeId, ClientId, Cookie, ExportId, FileKey, Length, Offset, Seqid, SessionId, SlotId};
pub use range::ByteRange;
