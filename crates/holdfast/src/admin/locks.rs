//! `holdfast locks`.

use std::fmt::{self, Display, Formatter};

use anyhow::Result;
use holdfast_admin::report::{Holding, Range, Taken};
use holdfast_admin::request::{LocksWanted, Request};

use super::args::{LocksArgs, LocksCommand};
use super::clients::people_taken;
use super::table::{Table, moment};

pub(crate) fn run(args: &LocksArgs) -> Result<()> {
    let mut server = args.asking.connect()?;
    if let Some(LocksCommand::Release(which)) = &args.command {
        let taken: Taken = server.ask(Request::Release(which.which()))?;
        return args.asking.show(&taken, people_taken);
    }
    let held = by_path(server.locks(LocksWanted { which: args.which.which(), after: None })?);
    args.asking.show(&held, |held| People(held.clone()))
}

/// Sorted by path, those without one last: the server tells them by file, in an order that means nothing to people. What
/// is held of one file keeps its order.
pub(super) fn by_path(mut held: Vec<Holding>) -> Vec<Holding> {
    held.sort_by(|a, b| {
        let place = |of: &Holding| (of.path.is_none(), of.path.clone(), of.file.clone());
        place(a).cmp(&place(b))
    });
    held
}

/// Holdings for people.
pub(super) struct People(pub(super) Vec<Holding>);

impl Display for People {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut table =
            Table::new(&["KIND", "PATH", "CLIENT", "ADDRESS", "PROTOCOL", "WHAT", "SINCE", "REMARKS"]);
        for held in &self.0 {
            table.row([
                held.kind.name().to_owned(),
                path(held),
                held.client_name.clone(),
                held.addresses.join(","),
                held.protocol.clone(),
                what(held),
                held.since_unix_ms.map(moment).unwrap_or_default(),
                remarks(held),
            ]);
        }
        if table.is_empty() { f.write_str("nothing is held\n") } else { table.fmt(f) }
    }
}

fn path(held: &Holding) -> String {
    let deleted = if held.is_deleted { " (deleted)" } else { "" };
    held.path.as_ref().map_or_else(|| format!("file {}", held.file), |path| format!("{path}{deleted}"))
}

/// Access and what is denied to others, or ranges.
fn what(held: &Holding) -> String {
    let mut parts: Vec<String> = held.access.iter().cloned().collect();
    if let Some(deny) = held.deny.as_deref().filter(|deny| *deny != "none") {
        parts.push(format!("denies {deny}"));
    }
    parts.extend(held.ranges.iter().map(range));
    parts.join(", ")
}

fn range(range: &Range) -> String {
    match (range.first, range.last) {
        (0, None) => format!("{} whole file", range.kind),
        (first, None) => format!("{} {first} to end", range.kind),
        (first, Some(last)) => format!("{} {first}-{last}", range.kind),
    }
}

fn remarks(held: &Holding) -> String {
    let mut remarks = Vec::new();
    if let Some(since) = held.recalled_unix_ms {
        remarks.push(format!("recalled since {}", moment(since)));
    }
    if held.is_revoked {
        remarks.push("revoked".to_owned());
    }
    if held.is_courteous {
        remarks.push("courteous".to_owned());
    }
    remarks.join(", ")
}
