//! Metrics in Prometheus's text format (version 0.0.4).

use std::fmt::Write as _;

use crate::report::{MemoryStatus, Status};
use crate::stats::{BUCKETS, Class, GroupSums, OpSums, Operation, bucket_end};

/// A text under way: families of metrics, each with its help once.
#[derive(Debug, Default)]
pub struct Text(String);

impl Text {
    /// Begins a family: `kind` is `counter`, `gauge` or `histogram`.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(self.0, "# HELP holdfast_{name} {help}\n# TYPE holdfast_{name} {kind}");
    }

    /// One value of the family begun last, or of a part of it (`name` with its suffix).
    pub fn value(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let _ = write!(self.0, "holdfast_{name}");
        for (n, (label, text)) in labels.iter().enumerate() {
            let _ = write!(self.0, "{}{label}=\"{}\"", if n == 0 { '{' } else { ',' }, escaped(text));
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    /// A family of one value.
    pub fn single(&mut self, (name, kind): (&str, &str), help: &str, value: f64) {
        self.family(name, kind, help);
        self.value(name, &[], value);
    }

    /// The text.
    #[must_use]
    pub fn finish(self) -> String {
        self.0
    }
}

fn escaped(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// What `status` tells, as metrics.
pub fn status(text: &mut Text, status: &Status) {
    text.family("build_info", "gauge", "Version of the program that serves.");
    text.value("build_info", &[("version", &status.version)], 1.0);
    text.single(
        ("start_time_seconds", "gauge"),
        "When this run began, in seconds since 1970.",
        status.started_unix_ms as f64 / 1000.0,
    );
    text.single(("runs_total", "counter"), "Starts of this server.", status.run as f64);
    let is_grace = u8::from(status.grace.is_active);
    text.single(("grace", "gauge"), "1 while only reclaims are granted.", is_grace.into());
    text.single(("connections", "gauge"), "Connections open.", status.connections as f64);
    text.family("state", "gauge", "State held for clients, by sort.");
    for count in &status.state {
        text.value("state", &[("sort", &count.name)], count.count as f64);
    }
    text.family("state_events_total", "counter", "What happened to state since the start.");
    for count in &status.events {
        text.value("state_events_total", &[("event", &count.name)], count.count as f64);
    }
    for (name, help, pick) in [
        (
            "fill",
            "How much of a bounded thing is in use.",
            (|fill| fill.used) as fn(&crate::report::Fill) -> u64,
        ),
        ("fill_max", "Its bound.", |fill| fill.max),
    ] {
        text.family(name, "gauge", help);
        for fill in &status.fills {
            text.value(name, &[("of", &fill.name)], pick(fill) as f64);
        }
    }
    if let Some(memory) = &status.memory {
        memory_there_is(text, memory);
    }
    let process = &status.process;
    for (name, kind, help, value) in [
        ("resident_bytes", "gauge", "Memory in use.", process.resident_bytes as f64),
        ("descriptors", "gauge", "Descriptors open.", process.descriptors as f64),
        ("threads", "gauge", "Threads.", process.threads as f64),
        ("cpu_seconds_total", "counter", "Processor time used.", process.cpu_ms as f64 / 1000.0),
    ] {
        text.single((name, kind), help, value);
    }
}

fn memory_there_is(text: &mut Text, memory: &MemoryStatus) {
    for (name, kind, help, value) in [
        ("memory_bytes", "gauge", "Memory there is for the server in all.", memory.total_bytes as f64),
        ("memory_available_bytes", "gauge", "What can still be had of it.", memory.available_bytes as f64),
        ("memory_short", "gauge", "1 while memory is short.", u8::from(memory.is_short).into()),
        ("memory_shortages_total", "counter", "How often memory ran short.", memory.shortages as f64),
    ] {
        text.single((name, kind), help, value);
    }
}

/// Operations: counts, errors, and how long they take. Those never executed are left out.
pub fn operations(text: &mut Text, operations: &[(Operation, OpSums)]) {
    let done = || operations.iter().filter(|(_, sums)| sums.count > 0);
    let labels = |op: &Operation| [("protocol", op.protocol), ("operation", op.name)];
    text.family("operations_total", "counter", "Operations executed.");
    for (op, sums) in done() {
        text.value("operations_total", &labels(op), sums.count as f64);
    }
    text.family("operation_errors_total", "counter", "Operations that failed, names not found included.");
    for (op, sums) in done().filter(|(_, sums)| sums.errors > 0) {
        text.value("operation_errors_total", &labels(op), sums.errors as f64);
    }
    text.family(
        "operation_seconds",
        "histogram",
        "How long operations take; of those that cannot wait only some are timed, and count for the others.",
    );
    for (op, sums) in done() {
        latencies(text, labels(op), sums);
    }
}

/// Every second bucket, so factors of four: what dashboards show, at half the series.
fn latencies(text: &mut Text, [protocol, operation]: [(&str, &str); 2], sums: &OpSums) {
    let mut below = 0;
    for n in 0..BUCKETS {
        below += sums.buckets[n];
        if let Some(end) = bucket_end(n).filter(|_| n % 2 == 1) {
            let le = format!("{}", end as f64 / 1e9);
            text.value("operation_seconds_bucket", &[protocol, operation, ("le", &le)], below as f64);
        }
    }
    text.value("operation_seconds_bucket", &[protocol, operation, ("le", "+Inf")], below as f64);
    text.value("operation_seconds_sum", &[protocol, operation], sums.nanos as f64 / 1e9);
    text.value("operation_seconds_count", &[protocol, operation], below as f64);
}

/// Clients or exports: operations by class, errors, bytes. `sort` is the label's name.
pub fn groups(text: &mut Text, sort: &str, rows: &[(String, GroupSums)]) {
    let name = format!("{sort}_operations_total");
    text.family(&name, "counter", "Operations by sort of work.");
    for (group, sums) in rows {
        for class in Class::ALL {
            let count = sums.classes[class as usize];
            if count > 0 {
                text.value(&name, &[(sort, group), ("class", class.name())], count as f64);
            }
        }
    }
    for (part, help, pick) in [
        ("errors_total", "Operations that failed.", (|sums| sums.errors) as fn(&GroupSums) -> u64),
        ("received_bytes_total", "Bytes of arguments.", |sums| sums.received),
        ("sent_bytes_total", "Bytes of results.", |sums| sums.sent),
    ] {
        let name = format!("{sort}_{part}");
        text.family(&name, "counter", help);
        for (group, sums) in rows {
            text.value(&name, &[(sort, group)], pick(sums) as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_as_prometheus_reads_it() {
        let mut text = Text::default();
        let op = Operation { protocol: "nfs3", name: "READ", class: Class::Read };
        let mut sums = OpSums { count: 3, errors: 1, nanos: 3_000, ..OpSums::default() };
        sums.buckets[1] = 3;
        let never = Operation { protocol: "nfs3", name: "LINK", class: Class::Change };
        operations(&mut text, &[(op, sums), (never, OpSums::default())]);
        groups(&mut text, "export", &[("/a\"b\\".to_owned(), GroupSums { sent: 7, ..GroupSums::default() })]);
        let text = text.finish();
        for line in [
            "# TYPE holdfast_operations_total counter",
            r#"holdfast_operations_total{protocol="nfs3",operation="READ"} 3"#,
            r#"holdfast_operation_seconds_bucket{protocol="nfs3",operation="READ",le="0.000002048"} 3"#,
            r#"holdfast_operation_seconds_bucket{protocol="nfs3",operation="READ",le="+Inf"} 3"#,
            r#"holdfast_operation_seconds_sum{protocol="nfs3",operation="READ"} 0.000003"#,
            r#"holdfast_export_sent_bytes_total{export="/a\"b\\"} 7"#,
        ] {
            assert!(text.lines().any(|l| l == line), "{line} in\n{text}");
        }
        assert!(!text.contains("LINK"));
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let (_, value) = line.rsplit_once(' ').unwrap();
            value.parse::<f64>().unwrap();
        }
    }
}
