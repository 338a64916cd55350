//! `holdfast top`: what is done at the moment, from the difference of two looks at the counters.

use std::collections::HashMap;
use std::fmt::{self, Display, Formatter};
use std::io::{self, IsTerminal as _};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use holdfast_admin::report::{Counters, GroupCounters, OperationCounters};
use holdfast_admin::request::Request;
use serde::Serialize;

use super::args::TopArgs;
use super::print;
use super::table::{Table, bytes, moment, short};

/// Moves to the upper left corner and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub(crate) fn run(args: &TopArgs) -> Result<()> {
    let mut server = args.asking.connect()?;
    let is_screen = io::stdout().is_terminal() && !args.asking.json;
    let mut before: Counters = server.ask(Request::Counters)?;
    let mut looks = 0;
    while args.count.is_none_or(|count| looks < count) {
        thread::sleep(Duration::from_secs_f64(args.interval));
        let now: Counters = server.ask(Request::Counters)?;
        let busy = Busy::between(&before, &now, args.rows);
        if is_screen {
            print(&CLEAR)?;
        }
        if args.asking.json {
            // A line a look, so that they can be told apart.
            print(&format_args!("{}\n", serde_json::to_string(&busy)?))?;
        } else {
            print(&format_args!("{busy}\n"))?;
        }
        before = now;
        looks += 1;
    }
    Ok(())
}

/// What was done between two looks.
#[derive(Serialize)]
pub(super) struct Busy {
    at_unix_ms: u64,
    seconds: f64,
    clients: Vec<GroupRate>,
    exports: Vec<GroupRate>,
    operations: Vec<OperationRate>,
}

/// A client or an export; everything a second.
#[derive(Serialize)]
struct GroupRate {
    name: String,
    known_as: Vec<String>,
    operations: f64,
    read: f64,
    write: f64,
    look: f64,
    change: f64,
    errors: f64,
    received_bytes: f64,
    sent_bytes: f64,
}

/// An operation: how often a second, and how long it has taken since the start.
#[derive(Serialize)]
struct OperationRate {
    protocol: String,
    name: String,
    operations: f64,
    errors: f64,
    p50_ns: u64,
    p99_ns: u64,
}

impl Busy {
    /// The busiest `rows` of each sort.
    pub(super) fn between(before: &Counters, now: &Counters, rows: usize) -> Self {
        let seconds = (now.at_unix_ms.saturating_sub(before.at_unix_ms) as f64 / 1000.0).max(0.001);
        Self {
            at_unix_ms: now.at_unix_ms,
            seconds,
            clients: groups(&before.clients, &now.clients, (rows, seconds)),
            exports: groups(&before.exports, &now.exports, (rows, seconds)),
            operations: operations(&before.operations, &now.operations, (rows, seconds)),
        }
    }
}

fn groups(before: &[GroupCounters], now: &[GroupCounters], (rows, seconds): (usize, f64)) -> Vec<GroupRate> {
    let known: HashMap<&str, &GroupCounters> = before.iter().map(|group| (&*group.name, group)).collect();
    let nothing = GroupCounters::default();
    let rate = |now: &GroupCounters| {
        // Counters of one that was away for long begin anew.
        let before = known.get(&*now.name).copied().filter(|b| b.operations() <= now.operations());
        let before = before.unwrap_or(&nothing);
        let a_second =
            |pick: fn(&GroupCounters) -> u64| pick(now).saturating_sub(pick(before)) as f64 / seconds;
        GroupRate {
            name: now.name.clone(),
            known_as: now.known_as.clone(),
            operations: a_second(GroupCounters::operations),
            read: a_second(|group| group.read),
            write: a_second(|group| group.write),
            look: a_second(|group| group.look),
            change: a_second(|group| group.change),
            errors: a_second(|group| group.errors),
            received_bytes: a_second(|group| group.received_bytes),
            sent_bytes: a_second(|group| group.sent_bytes),
        }
    };
    busiest(now.iter().map(rate), |group| group.operations, rows)
}

fn operations(
    before: &[OperationCounters],
    now: &[OperationCounters],
    (rows, seconds): (usize, f64),
) -> Vec<OperationRate> {
    let key = |op: &OperationCounters| (op.protocol.clone(), op.name.clone());
    let known: HashMap<_, &OperationCounters> = before.iter().map(|op| (key(op), op)).collect();
    let rate = |now: &OperationCounters| {
        let (count, errors) = known.get(&key(now)).map_or((0, 0), |before| (before.count, before.errors));
        OperationRate {
            protocol: now.protocol.clone(),
            name: now.name.clone(),
            operations: now.count.saturating_sub(count) as f64 / seconds,
            errors: now.errors.saturating_sub(errors) as f64 / seconds,
            p50_ns: now.p50_ns,
            p99_ns: now.p99_ns,
        }
    };
    busiest(now.iter().map(rate), |op| op.operations, rows)
}

fn busiest<T>(all: impl Iterator<Item = T>, rate: fn(&T) -> f64, rows: usize) -> Vec<T> {
    let mut all: Vec<T> = all.filter(|one| rate(one) > 0.0).collect();
    all.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    all.truncate(rows);
    all
}

impl Display for Busy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}, a second, over {:.1} s", moment(self.at_unix_ms), self.seconds)?;
        for (head, groups) in [("CLIENT", &self.clients), ("EXPORT", &self.exports)] {
            let mut table =
                Table::new(&[head, "#OPS", "#READ", "#WRITE", "#LOOK", "#CHANGE", "#FAILED", "#IN", "#OUT"]);
            for group in groups {
                let known = match group.known_as.as_slice() {
                    [] => String::new(),
                    names => format!(" ({})", names.join(", ")),
                };
                table.row([
                    format!("{}{known}", group.name),
                    rate(group.operations),
                    rate(group.read),
                    rate(group.write),
                    rate(group.look),
                    rate(group.change),
                    rate(group.errors),
                    bytes(group.received_bytes),
                    bytes(group.sent_bytes),
                ]);
            }
            write!(f, "\n{table}")?;
        }
        let mut table =
            Table::new(&["OPERATION", "PROTOCOL", "#OPS", "#FAILED", "#HALF WITHIN", "#99 % WITHIN"]);
        for op in &self.operations {
            table.row([
                op.name.clone(),
                op.protocol.clone(),
                rate(op.operations),
                rate(op.errors),
                short(op.p50_ns),
                short(op.p99_ns),
            ]);
        }
        write!(f, "\n{table}")
    }
}

fn rate(a_second: f64) -> String {
    format!("{a_second:.1}")
}
