//! The machine of a mount, alone, with others, and against its model.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod again;
mod ahead;
mod appends;
mod asked_back;
mod both_sides;
mod counted;
mod delegated;
mod direct;
mod forgotten;
mod kept_beside;
mod kept_blocks;
mod late;
mod leased;
mod lent;
mod let_in;
mod listed;
mod listed_rights;
mod locked;
mod lost_data;
mod lost_make;
mod merged;
mod named_again;
mod nameless;
mod one_mount;
mod overtaken;
mod pooled;
mod remembered;
mod removed;
mod repeated;
mod restored;
mod rewritten;
mod speed;
mod squashed;
mod synced;
mod taken_back;
mod told;
mod trees;
mod trouble;
mod two_mounts;
mod uncommitted;
mod unnamed_there;
mod vanished;
mod world;
mod zeroed;
