//! The client cache machine: everything a mount knows, may rely on, has changed and has not sent yet.
//!
//! It is pure: no I/O, no threads, no clock. A driver calls operations, performs what they [`Ask`], hands the answers
//! back, sends the batches and writes that come out, and passes recalls in. The states and rules stand in
//! `docs/design/client-cache.md`.
#![forbid(unsafe_code)]

mod absorb;
mod acting;
mod ahead;
mod ask;
mod attrs;
mod batch;
mod caps;
mod clean;
mod coherence;
mod commits;
mod counted;
mod delegated;
mod dir;
mod disk;
mod errno;
mod extent;
mod forced;
mod fresh;
mod given_up;
mod ids;
pub mod invariant;
mod jobs;
mod leases;
mod losses;
mod machine;
mod made_there;
mod mutation;
mod names_taken;
mod node;
mod ops;
mod pace;
mod pages;
mod persist;
mod pool;
mod queue;
mod recall;
mod reclaim;
mod reports;
mod results;
mod rewrites;
mod step;
mod stores;
mod tell;
mod trim;
mod writes;

pub use acting::Acting;
pub use ahead::AheadOut;
pub use ask::{
    Access, AllocateMode, Answer, Ask, Generation, Listed, Making, Object, Question, RenameMode, Room,
    SeekKind, XattrMode,
};
pub use attrs::{Attrs, Changes, Device, Kind, NewAttrs, SetTime};
pub use caps::Grant;
pub use delegated::Shown;
pub use disk::{BlockAt, BlockOut, Settling};
pub use errno::Errno;
pub use holdfast_base::CapSet;
pub use ids::{Caller, Fh, Handle, Name, NodeId, Now, OpenToken};
pub use jobs::Job;
pub use leases::Promise;
pub use machine::{Machine, Settings};
pub use mutation::{
    Batch, Born, CommitOut, Mutation, MutationResult, NewObject, Target, Until, WriteId, WriteOut,
};
pub use ops::{
    ACCESS_LISTS, Attributes, DirEntry, Entry, Lookup, OpenFlags, Opened, OpenedDir, Taker, is_access_list,
};
pub use persist::{Change, Conflict, Doubt, FoundBlock, RestoreError, Within, resolved};
pub use pool::{PoolOut, Spare};
pub use step::{ReadInto, Step, Turn, Wait, WriteTo};
pub use tell::{Forget, Hits, Invalidation, Pending, Reclaim, Reclaimed, Release, Report, Stats, Whole};
pub use writes::Written;
