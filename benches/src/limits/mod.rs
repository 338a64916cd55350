//! The bounds that the server is held to besides its rivals: what the machine itself can do. Each is taken in every round
//! beside what it is compared with, and printed beside what is wanted.

mod bouts;
mod creates;
mod one_byte;
mod plot;
mod probe;
mod slow;
mod slow_disk;
mod slow_image;

use anyhow::{Context, Result};
use serde::Serialize;
use std::fmt::Write as _;
use std::fs;
use std::time::Duration;

use crate::arena;
use crate::arguments::Ground;
use crate::report::Figure;
use crate::volume::Volume;
use crate::wanted::Wanted;

/// What `limits` takes.
#[derive(Debug, clap::Args)]
pub(crate) struct LimitsArguments {
    /// Limits (all, when not given)
    #[arg(long, value_delimiter = ',')]
    limits: Vec<Limit>,
    /// Rounds: in each everything has its turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=1000))]
    rounds: u64,
    /// Milliseconds of each timed burst
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    ms: u64,
    /// Entries of the large directory; the small one has a tenth
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    entries: u64,
    /// End with a failure when something that is wanted is not met
    #[arg(long)]
    strict: bool,
    #[command(flatten)]
    ground: Ground,
}

/// A bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Limit {
    /// GETATTR's CPU time over that of an echoed message of its size
    Echo,
    /// What READ of 1 MiB moves over what iperf3 does
    Iperf,
    /// 1,000 durable creates, 32 in flight, over those of a local program with one force for each 32
    Creates,
    /// The rate of GETATTR over 1,000 connections over that over 16; and the echo server's
    Connections,
    /// Latency of cached operations while another client's READ waits for a slow disk
    SlowDisk,
    /// The same while two clients make names over a journal that a slow disk takes
    SlowJournal,
    /// What writes of one byte cost the journal, over a local program's
    OneByte,
    /// The cost of an entry in a listing of a large directory over that in one of a tenth of it
    Directory,
}

impl Limit {
    const ALL: [Self; 8] = [
        Self::Echo,
        Self::Iperf,
        Self::Creates,
        Self::Connections,
        Self::SlowDisk,
        Self::SlowJournal,
        Self::OneByte,
        Self::Directory,
    ];
}

/// One figure of one round.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Taken {
    pub(crate) limit: Limit,
    pub(crate) what: String,
    pub(crate) wanted: Wanted,
    pub(crate) value: f64,
}

/// Takes all figures, and writes them. Gives whether all is as wanted, if that was asked for.
///
/// Errors when a server or the volume cannot be had, or a call fails.
pub(crate) fn run(arguments: &LimitsArguments) -> Result<bool> {
    let _arena = arena::enter()?;
    let scratch = tempfile::Builder::new().prefix("holdfast-bench-").tempdir()?;
    let volume = Volume::new(arguments.ground.fs, scratch.path(), 1)?;
    let wanted = if arguments.limits.is_empty() { &Limit::ALL[..] } else { &arguments.limits[..] };
    let mut taken = Vec::new();
    for round in 1..=arguments.rounds {
        for &limit in wanted {
            eprintln!("round {round} of {}: {limit:?}", arguments.rounds);
            let own = scratch.path().join(format!("{round}-{limit:?}"));
            fs::create_dir(&own)?;
            let stand = bouts::Stand {
                volume: &volume,
                scratch: &own,
                time: Duration::from_millis(arguments.ms),
                entries: arguments.entries,
                fs: arguments.ground.fs,
                round,
            };
            taken.extend(stand.take(limit).with_context(|| format!("{limit:?}"))?);
        }
    }
    drop(volume);
    fs::create_dir_all(&arguments.ground.out)?;
    let lines = lines(&taken);
    let text = table(&lines);
    fs::write(arguments.ground.out.join("limits.json"), serde_json::to_string_pretty(&taken)?)?;
    fs::write(arguments.ground.out.join("limits.txt"), &text)?;
    fs::write(arguments.ground.out.join("limits.svg"), plot::svg(&lines))?;
    print!("{text}");
    Ok(!arguments.strict || lines.iter().all(Line::is_met))
}

/// A figure over all rounds.
struct Line<'a> {
    what: &'a str,
    wanted: Wanted,
    figure: Figure,
}

impl Line<'_> {
    fn is_met(&self) -> bool {
        self.wanted.is_met(self.figure.median)
    }
}

/// In the order in which they were first taken.
fn lines(taken: &[Taken]) -> Vec<Line<'_>> {
    let mut shown: Vec<(Limit, &str)> = Vec::new();
    let mut lines = Vec::new();
    for one in taken {
        let key = (one.limit, one.what.as_str());
        if shown.contains(&key) {
            continue;
        }
        shown.push(key);
        let values = taken.iter().filter(|t| (t.limit, t.what.as_str()) == key).map(|t| t.value).collect();
        let Some(figure) = Figure::of(values) else { continue };
        lines.push(Line { what: &one.what, wanted: one.wanted, figure });
    }
    lines
}

/// For people: each figure's median over the rounds, its extremes, and whether the median is as wanted.
fn table(lines: &[Line<'_>]) -> String {
    let mut text = format!("{:<80}{:>9}{:>9}{:>9}  wanted\n", "", "median", "least", "greatest");
    for Line { what, wanted, figure: Figure { median, min, max } } in lines {
        let verdict = wanted.verdict(*median);
        let _ = writeln!(text, "{what:<80}{median:>9.2}{min:>9.2}{max:>9.2}  {verdict}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_the_rounds_is_held_to_what_is_wanted() {
        let one = |what: &str, wanted, value| Taken { limit: Limit::Echo, what: what.into(), wanted, value };
        let taken = [
            one("a", Wanted::AtMost(3.0), 9.0),
            one("b", Wanted::AtLeast(0.8), 0.5),
            one("a", Wanted::AtMost(3.0), 1.0),
            one("a", Wanted::AtMost(3.0), 2.0),
            one("c", Wanted::Shown, 7.0),
        ];
        let judged = lines(&taken);
        assert_eq!(judged.iter().map(Line::is_met).collect::<Vec<_>>(), [true, false, true]);
        let text = table(&judged);
        let lines: Vec<_> = text.lines().skip(1).collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with('a') && lines[0].ends_with("<= 3 met"), "{}", lines[0]);
        assert!(lines[1].ends_with(">= 0.8 NOT MET"), "{}", lines[1]);
        assert!(lines[2].contains("7.00"), "{}", lines[2]);
    }
}
