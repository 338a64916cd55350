//! What applications do in a run, and what they are told.

use super::chance::Chance;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Names that directories may have, and so begin other paths.
const PLACES: [&str; 4] = ["", "d/", "e/", "d/s/"];
const LEAVES: [&str; 5] = ["a", "b", "c", "d", "s"];
/// Descriptors of a mount.
pub(crate) const SLOTS: usize = 4;

/// One call. Paths are below the run's directory.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum Op {
    Open { path: String, slot: usize, how: How },
    Close { slot: usize },
    Write { slot: usize, offset: u64, bytes: Vec<u8> },
    Read { slot: usize, offset: u64, length: usize },
    Cut { slot: usize, size: u64 },
    StatOpen { slot: usize },
    Fsync { slot: usize },
    Stat { path: String },
    Truncate { path: String, size: u64 },
    Chmod { path: String, mode: u32 },
    Touch { path: String, seconds: i64 },
    Mkdir { path: String, mode: u32 },
    Rmdir { path: String },
    Unlink { path: String },
    Rename { from: String, to: String },
    Link { from: String, to: String },
    Symlink { path: String, text: String },
    Readlink { path: String },
    List { path: String },
    SetXattr { path: String, value: u8 },
    GetXattr { path: String },
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct How {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    pub(crate) creates: Option<u32>,
    pub(crate) exclusive: bool,
    pub(crate) truncates: bool,
    pub(crate) appends: bool,
}

/// What a call gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Told {
    Done,
    Errno(i32),
    Count(usize),
    Bytes(Vec<u8>),
    Text(String),
    Names(BTreeSet<String>),
    Stat(Seen),
    /// All that is below the run's directory.
    Tree(BTreeMap<String, String>),
}

/// What `stat` shows, as far as a model can know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) kind: char,
    pub(crate) mode: u32,
    pub(crate) links: u64,
    /// Of directories 0: it is the file system's affair.
    pub(crate) size: u64,
    /// Only where it was set and nothing has moved it since.
    pub(crate) modified: Option<i64>,
}

impl Told {
    /// Whether what a mount told is what the model tells, which may not know every time.
    pub(crate) fn is_as(&self, model: &Self) -> bool {
        match (self, model) {
            (Self::Stat(told), Self::Stat(model)) => {
                let modified = model.modified.and(told.modified);
                Seen { modified, ..*told } == *model
            }
            _ => self == model,
        }
    }
}

fn path(chance: &mut Chance) -> String {
    let place = chance.of(&PLACES);
    let leaf = if place.is_empty() { chance.of(&["a", "b", "d", "e"]) } else { chance.of(&LEAVES) };
    format!("{place}{leaf}")
}

fn how(chance: &mut Chance) -> How {
    let writes = !chance.once_in(3);
    let creates = (!chance.once_in(3)).then(|| chance.of(&[0o644, 0o600, 0o640]));
    How {
        reads: !writes || chance.once_in(2),
        writes,
        creates,
        exclusive: creates.is_some() && chance.once_in(4),
        truncates: writes && chance.once_in(4),
        appends: writes && chance.once_in(4),
    }
}

/// Some bytes, or as many as need more than a page or two.
fn bytes(chance: &mut Chance, is_small: bool) -> Vec<u8> {
    let length = if is_small || !chance.once_in(6) { 1 + chance.below(300) } else { chance.below(90_000) };
    let first = chance.next() as u8;
    (0..length).map(|at| first.wrapping_add((at / 7) as u8) | 1).collect()
}

impl Op {
    /// Any call. A small one touches the first page of a file only.
    pub(crate) fn any(chance: &mut Chance, is_small: bool) -> Self {
        let slot = chance.below(SLOTS);
        let offset = if is_small || !chance.once_in(5) { chance.below(3_000) } else { chance.below(120_000) };
        let offset = offset as u64;
        match chance.below(30) {
            0..=3 => Self::Open { path: path(chance), slot, how: how(chance) },
            4 => Self::Close { slot },
            5..=7 => Self::Write { slot, offset, bytes: bytes(chance, is_small) },
            8..=10 => {
                let length = if is_small { 300 } else { chance.of(&[10, 5_000, 100_000]) };
                Self::Read { slot, offset, length }
            }
            11 => Self::Cut { slot, size: offset },
            12 => Self::StatOpen { slot },
            13 if chance.once_in(3) => Self::Fsync { slot },
            13..=15 => Self::Stat { path: path(chance) },
            16 => Self::Truncate { path: path(chance), size: offset },
            17 => Self::Chmod { path: path(chance), mode: chance.of(&[0o600, 0o644, 0o755, 0o701]) },
            18 => Self::Touch { path: path(chance), seconds: 1_000_000 + chance.below(1_000_000) as i64 },
            19 | 20 => Self::Mkdir { path: path(chance), mode: chance.of(&[0o755, 0o700]) },
            21 => Self::Rmdir { path: path(chance) },
            22 | 23 => Self::Unlink { path: path(chance) },
            24 | 25 => Self::Rename { from: path(chance), to: path(chance) },
            26 => Self::Link { from: path(chance), to: path(chance) },
            27 if chance.once_in(2) => {
                Self::Symlink { path: path(chance), text: format!("nowhere-{}", chance.below(1000)) }
            }
            27 => Self::Readlink { path: path(chance) },
            28 => Self::List { path: chance.of(&["", "d", "e", "d/s"]).to_owned() },
            _ if chance.once_in(2) => Self::SetXattr { path: path(chance), value: chance.next() as u8 },
            _ => Self::GetXattr { path: path(chance) },
        }
    }

    /// Whether it leaves something behind that a tree does not show, so that nobody could tell which of two came last.
    pub(crate) fn is_hidden(&self) -> bool {
        matches!(self, Self::Touch { .. } | Self::SetXattr { .. })
    }

    /// The paths it walks.
    pub(crate) fn paths(&self) -> Vec<&str> {
        match self {
            Self::Open { path, .. }
            | Self::Stat { path }
            | Self::Truncate { path, .. }
            | Self::Chmod { path, .. }
            | Self::Touch { path, .. }
            | Self::Mkdir { path, .. }
            | Self::Rmdir { path }
            | Self::Unlink { path }
            | Self::Symlink { path, .. }
            | Self::Readlink { path }
            | Self::List { path }
            | Self::SetXattr { path, .. }
            | Self::GetXattr { path } => vec![path],
            Self::Rename { from, to } | Self::Link { from, to } => vec![from, to],
            _ => vec![],
        }
    }

    /// The names it may change.
    pub(crate) fn renamed(&self) -> Vec<&str> {
        match self {
            Self::Mkdir { path, .. }
            | Self::Rmdir { path }
            | Self::Unlink { path }
            | Self::Symlink { path, .. } => vec![path],
            Self::Rename { from, to } => vec![from, to],
            Self::Link { to, .. } => vec![to],
            _ => vec![],
        }
    }
}
