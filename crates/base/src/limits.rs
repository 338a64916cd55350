//! Every bound in one place, each with the reason for its value. A queue, cache, list or table without a line
//! here is a defect.

mod caps;
mod manager;
mod mount;
mod nlm;
mod protocol;
mod service;
mod state;
mod storage;
mod transport;

pub use caps::*;
pub use manager::*;
pub use mount::*;
pub use nlm::*;
pub use protocol::*;
pub use service::*;
pub use state::*;
pub use storage::*;
pub use transport::*;
