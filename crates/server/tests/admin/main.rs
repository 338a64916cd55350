//! The admin socket of a real server, with real clients that hold things.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

#[path = "../suite/client.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod client;
mod clients;
mod locks;
#[path = "../handover/mount.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod mount;
#[path = "../handover/nfs4.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod nfs4;
mod nlm;
mod pressure;
mod reload;
#[path = "../handover/server.rs"]
#[allow(dead_code, reason = "another suite uses all of it")]
mod server;
mod status;

use std::path::Path;

use holdfast_admin::AdminClient;
use holdfast_admin::report::Holding;
use holdfast_admin::report::HoldingKind;
use holdfast_admin::request::{LocksWanted, Which};

use server::Server;

fn ask(server: &Server) -> AdminClient {
    AdminClient::connect(&server.path("state")).unwrap()
}

fn locks(server: &Server, which: Which) -> Vec<Holding> {
    ask(server).locks(LocksWanted { which, after: None }).unwrap()
}

fn on(path: &Path) -> Which {
    Which { path: Some(path.display().to_string()), ..Which::default() }
}

fn of_client(client: &str) -> Which {
    Which { client: Some(client.to_owned()), ..Which::default() }
}

fn kinds(held: &[Holding]) -> Vec<HoldingKind> {
    let mut kinds: Vec<_> = held.iter().map(|held| held.kind).collect();
    kinds.sort_by_key(|kind| kind.name());
    kinds
}
