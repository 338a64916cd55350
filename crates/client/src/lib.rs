//! A client of NFSv4.1 and 4.2 that blocks: the caller of an operation sleeps until its answer is there, and can be
//! woken at any time by a [`Cancel`].
//!
//! Underneath, calls share a few connections and the slots of one session; a thread of its own keeps connections,
//! session, lease and state in order, and gets back what a restart of the server, a lost lease or a broken connection
//! took. What cannot be had again is told ([`Error::Lost`], [`Callbacks`]). See `docs/design/client.md`.
#![deny(unsafe_code)]

mod attributes;
mod back;
mod boot;
mod chores;
mod claim;
mod client;
mod compound;
mod delegation;
mod error;
mod establish;
mod exchange;
mod former;
mod gate;
mod links;
mod lockers;
mod moved;
mod names;
mod offload;
mod op;
mod options;
mod program;
mod ranges;
mod reclaim;
mod recover;
mod run;
mod servers;
mod session;
mod state;
mod todo;
mod types;
mod undo;

pub use attributes::{Attributes, FsStat, SetAttributes, Time};
pub use boot::BootTime;
pub use client::Client;
pub use delegation::Delegated;
pub use error::{Error, Result, errno_of};
pub use former::{KnownAs, end_former};
pub use holdfast_rpc::link::{Cancel, Target};
pub use op::*;
pub use options::{Callbacks, Event, HeldAttributes, Options};
pub use program::{CallbackProgram, Hook, Hooked, SessionEvent, SessionHandle};
pub use state::OpenFile;
pub use types::*;
