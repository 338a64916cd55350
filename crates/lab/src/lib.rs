//! The lab: guests with real kernel clients, the server binary under test, scratch file systems, and the lists
//! of what is expected of suites that others wrote.
//!
//! The lab drives the `holdfast` binary from outside, as a user does, and depends on no crate of the server.
//! What a test needs and this machine lacks fails under its own name (`Missing`); it never passes.

pub mod case;
pub mod checkout;
pub mod expected;
pub mod guest;
pub mod kernel;
pub mod link;
pub mod loopfs;
pub mod missing;
pub mod mount;
pub mod namespace;
pub mod packets;
mod port;
pub mod process;
pub mod relay;
mod remains;
pub mod rival;
pub mod scale;
pub mod scratch;
pub mod server;
pub mod suites;
pub mod trial;
mod tun;
pub mod turn;
pub mod way;

pub use expected::{Expectations, Observation, Outcome as SuiteOutcome};
pub use guest::{Guest, GuestBuilder, Outcome};
pub use kernel::Kernel;
pub use link::Link;
pub use loopfs::{FsType, LoopFs};
pub use missing::Missing;
pub use mount::Mount;
pub use namespace::Namespace;
pub use relay::Relay;
pub use scale::Scale;
pub use server::{NfsVersion, ServerBuilder, ServerUnderTest};
pub use trial::Trial;
pub use turn::Turn;
pub use way::Way;
