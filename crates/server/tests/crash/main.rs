//! The crash matrix: every mutation of every protocol, the server killed at every step of it, the request sent again
//! to the server started anew. The client sees one success, the disk one effect.
//!
//! Besides, what the same harness shows: the power cut, the disk under all of it as it is at the moment a reply is read;
//! one session over two addresses; delegations; quotas; listings.
//!
//! Needs the feature `failpoints`. The test binary runs itself as the server.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod aside;
mod caps;
mod cases;
mod crowd;
mod cut;
mod delegated;
mod disk;
mod everything;
mod exclusive;
mod frozen;
mod full;
mod listing;
mod lost;
mod made_in_grace;
mod nfs3;
mod nfs4;
mod quota;
mod reflink;
mod restart;
mod revoked;
mod server;
mod sessions;
mod tree;
mod trunking;
mod wire;

use holdfast_ledger::failpoint::Point;

macro_rules! matrix {
    ($($name:ident: $point:ident, $is_sync:literal;)*) => {
        $(mod $name {
            use super::*;

            #[test]
            fn nfs3_is_exact() {
                nfs3::run(Point::$point, $is_sync);
            }

            #[test]
            fn batches_are_exact() {
                caps::run(Point::$point, $is_sync);
            }

            #[test]
            fn a_tree_goes_once() {
                tree::run(Point::$point, $is_sync);
            }

            #[test]
            fn nfs4_0_is_exact() {
                nfs4::run(Point::$point, 0, $is_sync);
            }

            #[test]
            fn nfs4_1_is_exact() {
                nfs4::run(Point::$point, 1, $is_sync);
            }

            #[test]
            fn nfs4_2_is_exact() {
                nfs4::run(Point::$point, 2, $is_sync);
            }

            #[test]
            fn clones_are_exact() {
                reflink::run(Point::$point, $is_sync);
            }
        })*
    };
}

matrix! {
    killed_before_the_mutation: BeforeMutation, true;
    killed_after_the_mutation: AfterMutation, true;
    killed_after_the_reply_is_recorded: AfterJournal, true;
    killed_after_the_commit: AfterCommit, true;
    killed_before_the_reply_leaves: BeforeSend, true;
    killed_after_the_mutation_of_an_asynchronous_export: AfterMutation, false;
    killed_after_the_reply_of_an_asynchronous_export_is_recorded: AfterJournal, false;
}

#[test]
fn batches_are_exact_when_killed_in_the_midst_of_a_create() {
    caps::run(Point::HalfMade, true);
}

/// Not a test: the server, when a test starts this binary as one.
#[test]
fn as_a_server() {
    server::serve_if_told();
}
