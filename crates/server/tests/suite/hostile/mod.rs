//! Each of these gets an error or a closed connection, costs bounded memory, and disturbs no other client.

mod compounds;
mod connections;
mod readers;
mod records;

use crate::child::Server;
use crate::neighbour::Neighbour;

/// Runs an attack on a fresh server over memory. `may_cost` is what the server may grow by at any moment of it,
/// in MiB.
fn attack(may_cost: u64, attack: impl FnOnce(&Server)) {
    let server = Server::start("mem:");
    let neighbour = Neighbour::of(&server);
    let before = server.memory();
    attack(&server);
    let after = server.memory();
    neighbour.was_served();
    let grown = after.peak.saturating_sub(before.now) >> 10;
    eprintln!("the server grew by {grown} MiB at most, from {} to {} KiB", before.now, after.now);
    assert!(grown <= may_cost, "the server grew by {grown} MiB, {may_cost} are allowed");
}
