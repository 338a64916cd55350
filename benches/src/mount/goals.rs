//! What the mount is held to, by load.

use super::load::{Load, Scale};
use super::{Results, Side};
use crate::report::Figure;
use crate::wanted::Wanted;
use std::fmt::Write as _;

/// What a load's time is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Against {
    /// The better of this mount with nothing put off and the kernel's client.
    Synchronous,
    /// The file system below.
    Local,
    /// A mount through FUSE with nothing behind it.
    Fuse,
    /// The way itself.
    Link,
    /// Nothing: microseconds a file.
    Each,
    /// Nothing: round trips.
    RoundTrips,
}

/// One goal: a load, what its time is taken over or under, and what is wanted of that.
type Goal = (Load, Against, Wanted);

const GOALS: [Goal; 21] = [
    (Load::Create, Against::Synchronous, Wanted::AtLeast(30.0)),
    (Load::Create, Against::Each, Wanted::AtMost(60.0)),
    (Load::Unlink, Against::Synchronous, Wanted::AtLeast(50.0)),
    (Load::Unlink, Against::Each, Wanted::AtMost(20.0)),
    (Load::Unpack, Against::Synchronous, Wanted::AtLeast(20.0)),
    (Load::Remove, Against::Synchronous, Wanted::AtLeast(50.0)),
    (Load::Build, Against::Local, Wanted::AtMost(1.15)),
    (Load::Clean, Against::Local, Wanted::AtMost(2.0)),
    (Load::FindAgain, Against::Local, Wanted::AtMost(2.0)),
    (Load::FindAgain, Against::RoundTrips, Wanted::AtMost(0.0)),
    (Load::GrepAgain, Against::Local, Wanted::AtMost(2.0)),
    (Load::GrepAgain, Against::RoundTrips, Wanted::AtMost(0.0)),
    (Load::GitStatus, Against::Local, Wanted::AtMost(2.0)),
    (Load::GitStatus, Against::RoundTrips, Wanted::AtMost(0.0)),
    (Load::Write, Against::Link, Wanted::AtLeast(0.9)),
    (Load::Read, Against::Link, Wanted::AtLeast(0.9)),
    (Load::Unpack, Against::Local, Wanted::Shown),
    (Load::Create, Against::Fuse, Wanted::Shown),
    (Load::Unlink, Against::Fuse, Wanted::Shown),
    (Load::Clean, Against::Fuse, Wanted::Shown),
    (Load::GrepAgain, Against::Fuse, Wanted::Shown),
];

impl Against {
    const fn words(self) -> &'static str {
        match self {
            Self::Synchronous => "times as fast as the better synchronous mount",
            Self::Local => "times the local file system",
            Self::Fuse => "times FUSE with nothing behind it",
            Self::Link => "of what the way moves",
            Self::Each => "us a file",
            Self::RoundTrips => "round trips",
        }
    }
}

/// A line for each goal whose figures were taken, with the medians of all rounds and whether they are as wanted.
pub(super) fn judged(results: &Results, scale: &Scale) -> String {
    let mut text = format!("{:70}  wanted\n", "");
    for (load, against, wanted) in GOALS {
        let Some(value) = value(results, scale, load, against) else { continue };
        let what = format!("{}, {}", load.name(), against.words());
        let _ = writeln!(text, "{what:60}{value:>10.2}  {}", wanted.verdict(value));
    }
    text
}

fn value(results: &Results, scale: &Scale, load: Load, against: Against) -> Option<f64> {
    let taken = results.get(&load)?;
    let seconds = |side: Side| {
        let rounds = taken.get(&side)?.iter().map(|one| one.seconds).collect();
        Figure::of(rounds).map(|figure| figure.median)
    };
    let ours = seconds(Side::Holdfast)?;
    Some(match against {
        Against::Synchronous => {
            let better =
                [Side::Synchronous, Side::Kernel].into_iter().filter_map(seconds).reduce(f64::min)?;
            better / ours
        }
        Against::Local => ours / seconds(Side::Local)?,
        Against::Fuse => ours / seconds(Side::Fuse)?,
        Against::Link => seconds(Side::Link)? / ours,
        Against::Each => ours * 1e6 / scale.files as f64,
        Against::RoundTrips => {
            let rounds = taken.get(&Side::Holdfast)?.iter();
            // The most: one round that asked is one too many.
            rounds.filter_map(|one| one.round_trips).max()? as f64
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::Outcome;
    use super::*;

    #[test]
    fn the_better_synchronous_mount_is_what_counts() {
        let mut results = Results::new();
        let mut add = |load, side, seconds, round_trips| {
            let one = Outcome { seconds, round_trips };
            results.entry(load).or_default().entry(side).or_default().push(one);
        };
        add(Load::Create, Side::Holdfast, 1.0, None);
        add(Load::Create, Side::Synchronous, 40.0, None);
        add(Load::Create, Side::Kernel, 20.0, None);
        add(Load::FindAgain, Side::Holdfast, 0.3, Some(0));
        add(Load::FindAgain, Side::Holdfast, 0.3, Some(2));
        add(Load::FindAgain, Side::Local, 0.2, None);
        add(Load::Read, Side::Link, 0.95, None);
        add(Load::Read, Side::Holdfast, 1.0, None);
        let told = judged(&results, &Scale::tiny());
        let line = |words: &str| {
            told.lines().find(|line| line.starts_with(words)).unwrap_or_else(|| panic!("{words}: {told}"))
        };
        assert!(line("create, times").ends_with("20.00  >= 30 NOT MET"), "{told}");
        assert!(line("find again, times").ends_with("1.50  <= 2 met"), "{told}");
        assert!(line("find again, round").ends_with("2.00  <= 0 NOT MET"), "{told}");
        assert!(line("read, of").ends_with("0.95  >= 0.9 met"), "{told}");
        assert!(!told.contains("unlink"), "what was not taken is not judged: {told}");
    }
}
