//! Medians, spreads and ratios of what was measured, as a table for people and JSON for programs.

use crate::measure::{Harvest, Plan, Sample};
use crate::plot;
use crate::rival::Contender;
use crate::volume::FsKind;
use anyhow::Result;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;
use std::path::Path;

/// A figure over all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Figure {
    /// The median.
    pub(crate) median: f64,
    /// The least.
    pub(crate) min: f64,
    /// The greatest.
    pub(crate) max: f64,
}

impl Figure {
    /// Of some values; `None` of none.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[middle] } else { values[middle - 1].midpoint(values[middle]) };
        Some(Self { median, min, max })
    }
}

/// One contender in one operation.
#[derive(Debug, Serialize)]
pub(crate) struct Cell {
    /// Its name.
    pub(crate) contender: &'static str,
    /// Operations a second.
    pub(crate) rate: Figure,
    /// µs of server CPU time an operation.
    pub(crate) server_cpu_us: Figure,
    /// µs of client CPU time an operation.
    pub(crate) client_cpu_us: Figure,
    /// Latency of half the calls at most, µs.
    pub(crate) p50_us: Figure,
    /// Latency of 99 in 100 calls at most, µs.
    pub(crate) p99_us: Figure,
    /// Its rate over the first contender's, round by round.
    pub(crate) rate_ratio: Option<Figure>,
    /// The first contender's CPU time an operation over its own, round by round.
    pub(crate) cpu_ratio: Option<Figure>,
    /// Its CPU time an operation over that of an echoed message, round by round (raw clients only).
    pub(crate) echo_ratio: Option<Figure>,
}

/// One operation of one client in one shape.
#[derive(Debug, Serialize)]
pub(crate) struct Row {
    /// The client.
    pub(crate) client: &'static str,
    /// Connections x depth.
    pub(crate) shape: String,
    /// The operation.
    pub(crate) op: &'static str,
    /// Who was measured.
    pub(crate) cells: Vec<Cell>,
}

/// The whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Summary<'a> {
    fs: FsKind,
    cores: usize,
    kernel: String,
    versions: BTreeMap<&'static str, String>,
    rows: Vec<Row>,
    samples: &'a [Sample],
    failures: &'a [String],
}

impl<'a> Summary<'a> {
    /// Of everything a run brought.
    pub(crate) fn new(plan: &Plan, servers: &[Contender], fs_kind: FsKind, harvest: &'a Harvest) -> Self {
        let names: Vec<_> = servers.iter().map(|s| s.name()).collect();
        let samples = &harvest.samples[..];
        let mut rows = Vec::new();
        for client in &plan.clients {
            for shape in &plan.shapes {
                let shape = shape.to_string();
                let row = |op| row(samples, &names, client.name(), &shape, op);
                rows.extend(plan.ops.iter().map(|op| row(op.name())));
            }
        }
        for shape in &plan.shapes {
            rows.push(row(samples, &["echo"], "raw3", &shape.to_string(), "echo"));
        }
        rows.retain(|row| !row.cells.is_empty());
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim().to_owned();
        let versions = servers.iter().map(|server| (server.name(), server.version())).collect();
        Self { fs: fs_kind, cores, kernel, versions, rows, samples, failures: &harvest.failures }
    }

    /// Writes `results.json`, `table.txt` and `plot.svg` into a directory.
    ///
    /// Errors when it cannot be written to.
    pub(crate) fn write(&self, out: &Path) -> Result<()> {
        fs::write(out.join("results.json"), serde_json::to_string_pretty(self)?)?;
        fs::write(out.join("table.txt"), self.table())?;
        fs::write(out.join("plot.svg"), plot::svg(&self.rows))?;
        Ok(())
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let versions: Vec<_> = self.versions.iter().map(|(name, said)| format!("{name}: {said}")).collect();
        let mut text = format!(
            "Linux {}, {} cores, {}; {}.\nCPU: µs of server CPU time an operation; client: the same of the client.\n\
             x rate: its rate over the first server's. x cpu: the first server's CPU time over its own (above 1:\n\
             it costs less). Medians of rounds; [least - greatest]. readdir counts entries.\n",
            self.kernel,
            self.cores,
            self.fs.name(),
            versions.join(", ")
        );
        let mut section = None;
        for row in &self.rows {
            let this = (row.client, &row.shape);
            if section.replace(this) != Some(this) {
                heading(&mut text, row);
            }
            for cell in &row.cells {
                line(&mut text, row.op, cell);
            }
        }
        for failure in self.failures {
            let _ = writeln!(text, "FAILED {failure}");
        }
        text
    }
}

fn heading(text: &mut String, row: &Row) {
    let _ = writeln!(
        text,
        "\n{} {}\n{:<9}{:<15}{:>10}{:>9}{:>8}{:>9}{:>9}  {:<24}{:<24}/ echo",
        row.client, row.shape, "", "", "rate/s", "CPU", "client", "p50 us", "p99 us", "x rate", "x cpu",
    );
}

fn line(text: &mut String, op: &str, cell: &Cell) {
    let ratio = |figure: Option<Figure>| {
        figure.map_or(String::new(), |f| format!("{:.2} [{:.2} - {:.2}]", f.median, f.min, f.max))
    };
    let echo = cell.echo_ratio.map_or(String::new(), |f| format!("{:.1}", f.median));
    let _ = writeln!(
        text,
        "{op:<9}{:<15}{:>10.0}{:>9.2}{:>8.2}{:>9.0}{:>9.0}  {:<24}{:<24}{echo}",
        cell.contender,
        cell.rate.median,
        cell.server_cpu_us.median,
        cell.client_cpu_us.median,
        cell.p50_us.median,
        cell.p99_us.median,
        ratio(cell.rate_ratio),
        ratio(cell.cpu_ratio),
    );
}

fn row(
    samples: &[Sample],
    names: &[&'static str],
    client: &'static str,
    shape: &str,
    op: &'static str,
) -> Row {
    let of = |contender: &str, op: &str| -> Vec<&Sample> {
        let is_it = |s: &&Sample| s.contender == contender && s.op == op && s.shape == shape;
        samples.iter().filter(is_it).filter(|s| s.client == client).collect()
    };
    let base = names.first().map_or(Vec::new(), |name| of(name, op));
    let echo = of("echo", "echo");
    let cells = names.iter().enumerate().filter_map(|(place, &name)| {
        let mut cell = cell(name, &of(name, op))?;
        let own = of(name, op);
        if place > 0 {
            cell.rate_ratio = Figure::of(by_round(&own, &base, |own, base| own.rate / base.rate));
            cell.cpu_ratio =
                Figure::of(by_round(&own, &base, |own, base| base.server_cpu_us / own.server_cpu_us));
        }
        if name != "echo" {
            cell.echo_ratio =
                Figure::of(by_round(&own, &echo, |own, echo| own.server_cpu_us / echo.server_cpu_us));
        }
        Some(cell)
    });
    Row { client, shape: shape.to_owned(), op, cells: cells.collect() }
}

fn cell(contender: &'static str, own: &[&Sample]) -> Option<Cell> {
    let figure = |field: fn(&Sample) -> f64| Figure::of(own.iter().map(|s| field(s)).collect());
    Some(Cell {
        contender,
        rate: figure(|s| s.rate)?,
        server_cpu_us: figure(|s| s.server_cpu_us)?,
        client_cpu_us: figure(|s| s.client_cpu_us)?,
        p50_us: figure(|s| s.p50_us)?,
        p99_us: figure(|s| s.p99_us)?,
        rate_ratio: None,
        cpu_ratio: None,
        echo_ratio: None,
    })
}

/// A ratio for each round that both were measured in.
fn by_round(own: &[&Sample], base: &[&Sample], ratio: impl Fn(&Sample, &Sample) -> f64) -> Vec<f64> {
    let in_round = |round| base.iter().find(|b| b.round == round);
    own.iter().filter_map(|o| in_round(o.round).map(|b| ratio(o, b))).filter(|r| r.is_finite()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(contender: &'static str, round: usize, rate: f64, server_cpu_us: f64) -> Sample {
        Sample {
            contender,
            client: "raw3",
            shape: "4x8".to_owned(),
            op: "getattr",
            round,
            units: 1,
            rate,
            server_cpu_us,
            client_cpu_us: 1.0,
            p50_us: 1.0,
            p99_us: 1.0,
        }
    }

    #[test]
    fn ratios_are_taken_within_a_round_and_then_the_median() {
        let samples = [
            sample("ganesha", 1, 10.0, 30.0),
            sample("ganesha", 2, 100.0, 300.0),
            sample("holdfast-async", 1, 40.0, 3.0),
            sample("holdfast-async", 2, 200.0, 10.0),
            sample("holdfast-async", 3, 1.0, 1.0),
        ];
        let row = row(&samples, &["ganesha", "holdfast-async"], "raw3", "4x8", "getattr");
        let own = &row.cells[1];
        assert_eq!(own.rate_ratio, Some(Figure { median: 3.0, min: 2.0, max: 4.0 }));
        assert_eq!(own.cpu_ratio, Some(Figure { median: 20.0, min: 10.0, max: 30.0 }));
        assert_eq!(row.cells[0].rate_ratio, None);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_two_in_the_middle() {
        assert_eq!(Figure::of(vec![4.0, 1.0, 3.0, 2.0]).map(|f| f.median), Some(2.5));
        assert_eq!(Figure::of(Vec::new()), None);
    }
}
