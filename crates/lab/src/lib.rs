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
pub mod loopfs;
pub mod missing;
pub mod mount;
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
pub mod turn;

pub use expected::{Expectations, Observation, Outcome as SuiteOutcome};
pub use guest::{Guest, GuestBuilder, Outcome};
pub use kernel::Kernel;
pub use loopfs::{FsType, LoopFs};
pub use missing::Missing;
pub use mount::Mount;
pub use relay::{Relay, Way};
pub use scale::Scale;
pub use server::{NfsVersion, ServerBuilder, ServerUnderTest};
pub use trial::Trial;
pub use turn::Turn;
