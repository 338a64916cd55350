//! A deterministic world of servers, clients, a network and disks: a seed is a world, and the same seed gives the
//! same world to the last byte. Oracles watch what must never happen. `docs/design/sim.md` says what is real here and
//! what is played.
#![forbid(unsafe_code)]

pub mod client;
pub mod disk;
pub mod exec;
pub mod life;
pub mod machine;
pub mod mount;
pub mod oracle;
mod peers;
pub mod rng;
pub mod run;
pub mod store;
pub mod trace;
mod wire;
pub mod world;
