//! The state engine: who the clients are, what they have open and locked, and whether a request was already
//! answered. Pure: it takes the time, random bytes and requests in its own words, and returns results, plus
//! [`Effect`]s that the edge runs after it has let go of the engine. It never blocks, never does I/O, and holds
//! nothing without a bound named in `holdfast_base::limits`. `docs/design/state.md` is its specification.
#![forbid(unsafe_code)]

mod aside;
mod caps;
mod caps_freeze;
mod caps_names;
mod caps_recall;
mod caps_set;
mod census;
mod channel;
mod check;
mod client;
mod close;
mod contention;
mod deadlock;
mod deed;
mod delegation;
mod delegation_grounds;
mod delegation_offer;
mod delegation_want;
mod descriptors;
mod effect;
mod engine;
mod error;
mod file;
mod flushing;
mod foreign;
mod freeze;
mod grace;
mod image;
pub mod invariant;
mod line;
mod lock;
mod lock_conflict;
mod lock_index;
mod lock_room;
mod lock_set;
mod looked;
mod memory;
mod moved;
mod names;
mod open;
mod outside;
mod owner;
mod owner_sequence;
mod plain;
mod policy;
mod pressure;
mod range_map;
mod reclaimed;
mod report;
mod session;
mod share;
mod slab;
mod slots;
mod stateid;
mod unlock;
mod waiters;
mod witness;

pub use aside::LocksHeld;
pub use caps::{CapGrant, CapOffer, CapRelease, CapRequest, CapTicket};
pub use caps_names::NameKey;
pub use caps_set::Forbidden;
pub use census::Census;
pub use channel::ChannelAttrs;
pub use check::{Caller, IoBy, IoGrant};
pub use client::{
    Callback, CreateSession, CreatedSession, ExchangeId, ExchangeIntent, ExchangedId, SetClientId,
};
pub use contention::{Contention, RecallAnswer};
pub use deed::{Deed, DelegationKind, EntryKinds};
pub use delegation::{Delegated, DelegationRequest, DelegationToken, Grounds, Seen, WhyNone, WriteHolder};
pub use delegation_offer::{DelegationTicket, Offer};
pub use delegation_want::WantHow;
pub use effect::Effect;
pub use engine::{Config, Engine};
pub use error::StateError;
pub use foreign::{
    Door, ForeignClaim, ForeignOwner, ForeignRefusal, ForeignRequest, ForeignTicket, ForeignWait,
};
pub use freeze::{Frozen, Unsound};
pub use grace::{Claim, Grace, Recorded};
pub use image::{ClientImage, Snapshot};
pub use lock::{LockBy, LockRefusal, LockRequest, LockTicket, Wait};
pub use lock_conflict::{Conflict, ConflictHolder, LockTest};
pub use lock_set::{LockKind, LockSet};
pub use memory::{InUse, Memory};
pub use names::{ConnId, Dialect, LockToken, OpenId, OwnerName, Principal, Verifier};
pub use open::{Backing, OpenRequest, OpenTicket, Opened};
pub use owner_sequence::{OwnerOf, OwnerOp, OwnerTicket, OwnerTurn};
pub use policy::{Directories, Policy};
pub use range_map::RangeMap;
pub use report::{ClientReport, Held, HolderReport, Holding};
pub use session::{Completed, Direction, Sequenced, Session, SessionImage, Sessions, StatusFlags};
pub use share::{Access, Share};
pub use slots::{Admission, KeptReply, SlotImage, SlotRequest, SlotTable};
pub use stateid::{BootInstance, StateId, StateIdForm};
pub use witness::Witness;
