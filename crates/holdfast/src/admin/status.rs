//! `holdfast status`.

use std::fmt::{self, Display, Formatter};

use anyhow::Result;
use holdfast_admin::report::{Count, GraceStatus, MemoryStatus, RateStatus, STORED, Status};
use holdfast_admin::request::Request;

use super::args::StatusArgs;
use super::print;
use super::table::{bytes, duration, moment, number};

/// What it means that the service manager cannot keep all descriptors.
const TOO_MANY: &str = ": after `systemctl restart` clients would have to reclaim; `holdfast reload --upgrade` hands on any number";

pub(crate) fn run(args: &StatusArgs) -> Result<()> {
    let mut client = args.asking.connect()?;
    if args.prometheus {
        return print(&client.ask::<String>(Request::Metrics)?);
    }
    let status: Status = client.ask(Request::Status)?;
    args.asking.show(&status, |status| People(status.clone()))
}

/// A status for people.
pub(super) struct People(pub(super) Status);

impl Display for People {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Status { version, pid, uptime_ms, state_dir, started_unix_ms, .. } = &self.0;
        let (up, since) = (duration(*uptime_ms), moment(*started_unix_ms));
        writeln!(f, "holdfast {version}, process {pid}, up {up} (since {since})")?;
        line(f, "state in", state_dir)?;
        line(f, "listens on", &self.0.listen.join(", "))?;
        if let Some(metrics) = &self.0.metrics {
            line(f, "metrics", &format!("http://{metrics}/metrics"))?;
        }
        for export in &self.0.exports {
            let source = export.source.as_ref().map(|source| format!(" from {source}")).unwrap_or_default();
            line(f, "export", &format!("{}{source}: {}", export.path, export.rules))?;
        }
        line(f, "grace", &grace(&self.0.grace))?;
        line(f, "lease", &duration(self.0.lease_ms))?;
        let (open, most) = (number(self.0.connections), number(self.0.connections_max));
        line(f, "connections", &format!("{open} of {most}"))?;
        self.work(f)?;
        counts(f, "state", &self.0.state)?;
        counts(f, "events", &self.0.events)?;
        for fill in &self.0.fills {
            let is_too_much = fill.name == STORED && fill.used > fill.max;
            let so = if is_too_much { TOO_MANY } else { "" };
            line(f, &fill.name, &format!("{} of {}{so}", number(fill.used), number(fill.max)))?;
        }
        if let Some(memory) = &self.0.memory {
            line(f, "memory there is", &memory_there_is(memory))?;
        }
        self.process(f)
    }
}

fn memory_there_is(memory: &MemoryStatus) -> String {
    let of = |amount: u64| bytes(amount as f64);
    let mut text =
        format!("{} by {}, {} available", of(memory.total_bytes), memory.bound, of(memory.available_bytes));
    if memory.is_short {
        let least = of(memory.short_below_bytes);
        text += &format!(": short (below {least}), clients are asked to give back and caches shrink");
    }
    match memory.shortages {
        0 => {}
        1 => text += "; short once since the start",
        times => text += &format!("; short {} times since the start", number(times)),
    }
    text
}

impl People {
    fn work(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let totals = &self.0.totals;
        let done = format!(
            "{} operations, {} failed; {} in, {} out",
            number(totals.operations),
            number(totals.errors),
            bytes(totals.received_bytes as f64),
            bytes(totals.sent_bytes as f64)
        );
        line(f, "done", &done)?;
        let mut rates = self.0.rates.clone();
        // Shortly after the start all are over the same time.
        rates.dedup_by_key(|rate| rate.seconds.to_bits());
        for rate in rates.iter().filter(|rate| rate.seconds > 0.0) {
            let RateStatus { seconds, operations, received_bytes, sent_bytes } = rate;
            let (received, sent) = (bytes(*received_bytes), bytes(*sent_bytes));
            let text = format!("{operations:.1} operations/s; {received}/s in, {sent}/s out");
            line(f, &format!("last {seconds:.0} s"), &text)?;
        }
        Ok(())
    }

    fn process(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let p = &self.0.process;
        let (now, peak) = (bytes(p.resident_bytes as f64), bytes(p.resident_peak_bytes as f64));
        line(f, "memory", &format!("{now}, at most {peak}"))?;
        line(f, "descriptors", &format!("{} of {}", number(p.descriptors), number(p.descriptors_max)))?;
        line(f, "processor", &format!("{} in {} threads", duration(p.cpu_ms), p.threads))
    }
}

fn line(f: &mut Formatter<'_>, name: &str, text: &str) -> fmt::Result {
    writeln!(f, "  {name:<18}{text}")
}

/// What there is of each sort; sorts of which there is nothing are left out.
fn counts(f: &mut Formatter<'_>, name: &str, counts: &[Count]) -> fmt::Result {
    let some: Vec<String> =
        counts.iter().filter(|c| c.count > 0).map(|c| format!("{} {}", number(c.count), c.name)).collect();
    line(f, name, if some.is_empty() { "none".to_owned() } else { some.join(", ") }.as_str())
}

fn grace(grace: &GraceStatus) -> String {
    if !grace.is_active {
        return "over".into();
    }
    let mut text = "lasts".to_owned();
    if let Some(ms) = grace.ends_in_ms {
        text += &format!(", at most another {}", duration(ms));
    }
    if let Some(reason) = &grace.reason {
        text += &format!(": {reason}");
    }
    if !grace.awaited.is_empty() {
        let more = grace.awaited_count.saturating_sub(grace.awaited.len() as u64);
        text += &format!(" ({}", grace.awaited.join(", "));
        if more > 0 {
            text += &format!(" and {} more", number(more));
        }
        text.push(')');
    }
    text
}
