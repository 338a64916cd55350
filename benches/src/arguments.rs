//! What runs have in common on the command line.

use crate::measure::Plan;
use crate::plan::{ClientKind, Op, Shape};
use crate::volume::FsKind;
use std::path::PathBuf;
use std::time::Duration;

/// On what a run stands, and where it leaves what it finds.
#[derive(Debug, clap::Args)]
pub(crate) struct Ground {
    /// The file system below
    #[arg(long, value_enum, default_value_t = FsKind::Xfs)]
    pub(crate) fs: FsKind,
    /// Directory for what comes of it
    #[arg(long, default_value = "target/bench")]
    pub(crate) out: PathBuf,
}

/// Entries of a directory that is listed several times over in the usual time.
const ENTRIES_IN_TIME: usize = 25_000;

/// Clients, operations, and how much of them.
#[derive(Debug, clap::Args)]
pub(crate) struct LoadArguments {
    /// Clients
    #[arg(long, value_delimiter = ',', default_value = "libnfs,raw3,raw41")]
    pub(crate) clients: Vec<ClientKind>,
    /// Operations (all, when not given); rename and unlink bring what they need along
    #[arg(long, value_delimiter = ',')]
    ops: Vec<Op>,
    /// Connections x calls in flight on each
    #[arg(long, value_delimiter = ',', default_value = "4x8")]
    pub(crate) shapes: Vec<Shape>,
    /// Rounds: in each every server has its turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    pub(crate) rounds: u64,
    /// Milliseconds of each timed operation; listings of more than 25,000 entries take longer in proportion
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u64).range(10..=600_000))]
    ms: u64,
    /// Number of each operation that makes or removes names
    #[arg(long, default_value_t = 4000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: u64,
    /// Processes of the client that share the connections (threads, of raw3 and raw41); when not given, one, and two where
    /// one is the limit
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=64))]
    processes: Option<u8>,
    /// Users (uid 1000 and so on) that call in turn on each connection of raw3 and raw41; none: root
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1000))]
    users: u32,
    /// Entries of the directory that is listed
    #[arg(long, default_value_t = 10_000)]
    pub(crate) entries: usize,
    /// Directory for what comes of it
    #[arg(long, default_value = "target/bench")]
    pub(crate) out: PathBuf,
}

impl LoadArguments {
    /// What is to be done in every turn.
    pub(crate) fn plan(&self) -> Plan {
        let time = Duration::from_millis(self.ms);
        let times_longer = self.entries.max(ENTRIES_IN_TIME) as f64 / ENTRIES_IN_TIME as f64;
        Plan {
            clients: self.clients.clone(),
            shapes: self.shapes.clone(),
            ops: with_what_they_need(&self.ops),
            time,
            listing_time: time.mul_f64(times_longer),
            count: self.count,
            processes: self.processes.map(usize::from),
            users: self.users,
        }
    }

    /// The turns in their order: round (from 1) and contender. The order turns by one each round, so that nobody always
    /// comes first.
    pub(crate) fn turns<T: Copy>(&self, contenders: &[T]) -> Vec<(usize, Vec<T>)> {
        let turned = |round: usize| {
            let mut turned = contenders.to_vec();
            turned.rotate_left((round - 1) % contenders.len().max(1));
            (round, turned)
        };
        // Bounded by the parser.
        (1..=self.rounds as usize).map(turned).collect()
    }
}

/// In the order of a turn; names must be made to be renamed, and renamed to be removed under their new name.
fn with_what_they_need(wanted: &[Op]) -> Vec<Op> {
    let is_wanted = |op: &Op| match op {
        Op::Create => wanted.iter().any(|w| matches!(w, Op::Create | Op::Rename | Op::Unlink)),
        Op::Rename => wanted.iter().any(|w| matches!(w, Op::Rename | Op::Unlink)),
        op => wanted.contains(op),
    };
    Op::ALL.into_iter().filter(|op| wanted.is_empty() || is_wanted(op)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_bring_along_what_they_need() {
        assert_eq!(with_what_they_need(&[]), Op::ALL);
        assert_eq!(with_what_they_need(&[Op::Unlink]), [Op::Create, Op::Rename, Op::Unlink]);
        assert_eq!(with_what_they_need(&[Op::Mkdir, Op::Getattr]), [Op::Getattr, Op::Mkdir]);
    }

    #[test]
    fn everybody_comes_first_in_some_round() {
        let arguments = LoadArguments {
            clients: Vec::new(),
            ops: Vec::new(),
            shapes: Vec::new(),
            rounds: 3,
            ms: 10,
            count: 1,
            processes: None,
            users: 0,
            entries: 0,
            out: PathBuf::new(),
        };
        let turns = arguments.turns(&["a", "b"]);
        assert_eq!(turns, [(1, vec!["a", "b"]), (2, vec!["b", "a"]), (3, vec!["a", "b"])]);
    }
}
