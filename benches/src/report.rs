//! Medians, spreads and ratios of what was measured, as a table for people and JSON for programs.

use crate::arena;
use crate::bout::is_client_limit;
pub(crate) use crate::figure::Figure;
use crate::goals::{self, Judged};
use crate::measure::{Failure, Harvest, Plan, Sample};
use crate::plan::{ClientKind, Op};
use crate::plot;
use crate::volume::FsKind;
use crate::wakeful;
use anyhow::Result;
use serde::Serialize;
use std::fmt::Write;
use std::fs;
use std::path::Path;

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
    /// Processes of the client, in the round that needed the most.
    pub(crate) processes: usize,
    /// Whether they worked nearly all the time, so that the rate is the client's more than the server's.
    pub(crate) is_client_limit: bool,
    /// Latency of half the calls at most, µs.
    pub(crate) p50_us: Figure,
    /// Latency of 99 in 100 calls at most, µs.
    pub(crate) p99_us: Figure,
    /// Its rate over that of the one it stands against, round by round.
    pub(crate) rate_ratio: Option<Figure>,
    /// The CPU time an operation of the one it stands against over its own, round by round.
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
    /// Who could not do it, in some round at least.
    pub(crate) refusals: Vec<Refusal>,
}

/// One contender that could not do one operation.
#[derive(Debug, Serialize)]
pub(crate) struct Refusal {
    /// Its name.
    pub(crate) contender: &'static str,
    /// In so many rounds.
    pub(crate) rounds: usize,
    /// Why, in the first of them.
    pub(crate) why: String,
}

/// Who takes part.
#[derive(Debug, Serialize)]
pub(crate) struct Party {
    /// Its name.
    pub(crate) name: &'static str,
    /// Whom it is compared with.
    pub(crate) against: Option<&'static str>,
    /// What it says its version is.
    pub(crate) version: String,
    /// Clients that it cannot be asked by.
    pub(crate) deaf_to: Vec<ClientKind>,
}

impl Party {
    fn is_deaf_to(&self, client: &str) -> bool {
        self.deaf_to.iter().any(|kind| kind.name() == client)
    }
}

/// Where it happens.
#[derive(Debug, Serialize)]
pub(crate) struct Scene {
    /// The file system below.
    pub(crate) fs: FsKind,
    /// The machine, or the guest.
    pub(crate) machine: String,
}

impl Scene {
    /// This machine.
    pub(crate) fn here(fs_kind: FsKind) -> Self {
        let cores = std::thread::available_parallelism().map_or(0, usize::from);
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let (congestion, idle) = (arena::congestion(), wakeful::described());
        Self { fs: fs_kind, machine: format!("Linux {}, {cores} cores, {congestion}, {idle}", kernel.trim()) }
    }
}

/// What the parts of a report are called.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    /// Every sample, as JSON.
    pub(crate) json: &'static str,
    /// For people.
    pub(crate) table: &'static str,
    /// The bars.
    pub(crate) plot: &'static str,
}

/// The whole run.
#[derive(Debug, Serialize)]
pub(crate) struct Summary<'a> {
    scene: Scene,
    parties: Vec<Party>,
    rows: Vec<Row>,
    /// What the comparison with Ganesha is held to, where it takes part.
    goals: Vec<Judged>,
    samples: &'a [Sample],
    failures: &'a [Failure],
}

impl<'a> Summary<'a> {
    /// Of everything a run brought.
    pub(crate) fn new(plan: &Plan, parties: Vec<Party>, scene: Scene, harvest: &'a Harvest) -> Self {
        let bases: Vec<_> = parties.iter().map(|party| (party.name, party.against)).collect();
        let mut rows = Vec::new();
        for client in &plan.clients {
            for shape in &plan.shapes {
                let name = shape.to_string();
                let row = |op: Op| row(harvest, &bases, client.name(), &name, op.name());
                rows.extend(plan.ops_in(*shape).map(row));
            }
        }
        for shape in &plan.shapes {
            rows.push(row(harvest, &[("echo", None)], "raw3", &shape.to_string(), "echo"));
        }
        rows.retain(|row| !row.cells.is_empty() || !row.refusals.is_empty());
        let goals = goals::judge(plan, &harvest.samples);
        Self { scene, parties, rows, goals, samples: &harvest.samples, failures: &harvest.failures }
    }

    /// Writes it into a directory.
    ///
    /// Errors when it cannot be written to.
    pub(crate) fn write(&self, out: &Path, names: Names) -> Result<()> {
        fs::write(out.join(names.json), serde_json::to_string_pretty(self)?)?;
        fs::write(out.join(names.table), self.table())?;
        fs::write(out.join(names.plot), plot::svg(&self.rows))?;
        Ok(())
    }

    /// For people.
    pub(crate) fn table(&self) -> String {
        let versions: Vec<_> = self.parties.iter().map(|p| format!("{}: {}", p.name, p.version)).collect();
        let pairs = self.parties.iter().filter_map(|p| Some(format!("{} against {}", p.name, p.against?)));
        let mut text = format!(
            "{}, {}; {}.\nCPU: µs of server CPU time an operation; client: the same of the client.\n\
             x rate: its rate over that of the other. x cpu: the other's CPU time over its own (above 1: it\n\
             costs less); {}.\nMedians of rounds; [least - greatest]. readdir counts entries.\n\
             Behind client, its processes where they are several, and ! where they worked nearly all the time.\n\
             What comes to the same in two shapes (readdir, read1m, write1m) is in the first alone.\n",
            self.scene.machine,
            self.scene.fs.name(),
            versions.join(", "),
            pairs.collect::<Vec<_>>().join(", ")
        );
        let mut section = None;
        for row in &self.rows {
            let this = (row.client, &row.shape);
            if section.replace(this) != Some(this) {
                heading(&mut text, row);
                for party in self.parties.iter().filter(|party| party.is_deaf_to(row.client)) {
                    let _ = writeln!(text, "{} does not speak this version of NFS", party.name);
                }
            }
            for cell in &row.cells {
                line(&mut text, row.op, cell);
            }
            for Refusal { contender, rounds, why } in &row.refusals {
                let _ = writeln!(text, "{:<9}{contender:<15}FAILED in {rounds} rounds: {why}", row.op);
            }
        }
        text + &goals::table(&self.goals)
    }
}

fn heading(text: &mut String, row: &Row) {
    let _ = writeln!(
        text,
        "\n{} {}\n{:<9}{:<15}{:>10}{:>9}{:>8}{:>11}{:>9}  {:<24}{:<24}/ echo",
        row.client, row.shape, "", "", "rate/s", "CPU", "client", "p50 us", "p99 us", "x rate", "x cpu",
    );
}

fn line(text: &mut String, op: &str, cell: &Cell) {
    let ratio = |figure: Option<Figure>| figure.map_or(String::new(), |f| f.to_string());
    let echo = cell.echo_ratio.map_or(String::new(), |f| format!("{:.1}", f.median));
    let _ = writeln!(
        text,
        "{op:<9}{:<15}{:>10.0}{:>9.2}{:>8.2} {:<3}{:>7.0}{:>9.0}  {:<24}{:<24}{echo}",
        cell.contender,
        cell.rate.median,
        cell.server_cpu_us.median,
        cell.client_cpu_us.median,
        mark(cell),
        cell.p50_us.median,
        cell.p99_us.median,
        ratio(cell.rate_ratio),
        ratio(cell.cpu_ratio),
    );
}

fn mark(cell: &Cell) -> String {
    let processes = if cell.processes > 1 { format!("x{}", cell.processes) } else { String::new() };
    processes + if cell.is_client_limit { "!" } else { "" }
}

/// `bases` says of each contender whom it is compared with.
fn row(
    harvest: &Harvest,
    bases: &[(&'static str, Option<&'static str>)],
    client: &'static str,
    shape: &str,
    op: &'static str,
) -> Row {
    let of = |contender: &str, op: &str| -> Vec<&Sample> {
        let is_it = |s: &&Sample| s.contender == contender && s.op == op && s.shape == shape;
        harvest.samples.iter().filter(is_it).filter(|s| s.client == client).collect()
    };
    let echo = of("echo", "echo");
    let cells = bases.iter().filter_map(|&(name, against)| {
        let own = of(name, op);
        let mut cell = cell(name, &own)?;
        if let Some(base) = against.map(|base| of(base, op)) {
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
    let refusals = bases.iter().filter_map(|&(name, _)| refusal(harvest, name, client, shape, op));
    Row { client, shape: shape.to_owned(), op, cells: cells.collect(), refusals: refusals.collect() }
}

fn refusal(
    harvest: &Harvest,
    contender: &'static str,
    client: &str,
    shape: &str,
    op: &str,
) -> Option<Refusal> {
    let is_it =
        |f: &&Failure| f.contender == contender && f.op == op && f.client == client && f.shape == shape;
    let mut failures = harvest.failures.iter().filter(is_it);
    let why = failures.next()?.why.clone();
    Some(Refusal { contender, rounds: 1 + failures.count(), why })
}

fn cell(contender: &'static str, own: &[&Sample]) -> Option<Cell> {
    let figure = |field: fn(&Sample) -> f64| Figure::of(own.iter().map(|s| field(s)).collect());
    let (rate, client_cpu_us) = (figure(|s| s.rate)?, figure(|s| s.client_cpu_us)?);
    let processes = own.iter().map(|s| s.processes).max()?;
    Some(Cell {
        contender,
        rate,
        server_cpu_us: figure(|s| s.server_cpu_us)?,
        client_cpu_us,
        processes,
        is_client_limit: is_client_limit(client_cpu_us.median, rate.median, processes),
        p50_us: figure(|s| s.p50_us)?,
        p99_us: figure(|s| s.p99_us)?,
        rate_ratio: None,
        cpu_ratio: None,
        echo_ratio: None,
    })
}

/// A ratio for each round that both were measured in.
pub(crate) fn by_round(
    own: &[&Sample],
    base: &[&Sample],
    ratio: impl Fn(&Sample, &Sample) -> f64,
) -> Vec<f64> {
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
            processes: 1,
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
        let harvest = Harvest { samples: samples.to_vec(), failures: Vec::new() };
        let bases = [("ganesha", None), ("holdfast-async", Some("ganesha"))];
        let row = row(&harvest, &bases, "raw3", "4x8", "getattr");
        let own = &row.cells[1];
        assert_eq!(own.rate_ratio, Some(Figure { median: 3.0, min: 2.0, max: 4.0 }));
        assert_eq!(own.cpu_ratio, Some(Figure { median: 20.0, min: 10.0, max: 30.0 }));
        assert_eq!(row.cells[0].rate_ratio, None);
    }

    #[test]
    fn what_a_contender_cannot_do_stands_in_its_place_in_the_table() {
        let failure = |round, why: &str| Failure {
            contender: "nfs3-server",
            client: "raw3",
            shape: "4x8".to_owned(),
            op: "getattr",
            round,
            why: why.to_owned(),
        };
        let failures = vec![failure(1, "status 10004"), failure(2, "something else")];
        let harvest = Harvest { samples: vec![sample("ganesha", 1, 10.0, 30.0)], failures };
        let party = |name, against, deaf_to| Party { name, against, version: String::new(), deaf_to };
        let parties = vec![
            party("ganesha", None, Vec::new()),
            party("nfs3-server", Some("ganesha"), vec![ClientKind::Raw3]),
        ];
        let plan = Plan {
            clients: vec![ClientKind::Raw3],
            shapes: vec![crate::plan::Shape { connections: 4, depth: 8 }],
            ops: vec![Op::Getattr],
            time: std::time::Duration::ZERO,
            listing_time: std::time::Duration::ZERO,
            count: 0,
            processes: None,
            users: 0,
        };
        let table = Summary::new(&plan, parties, Scene::here(FsKind::Tmpfs), &harvest).table();
        let at = |text: &str| table.find(text).unwrap_or_else(|| panic!("no {text:?} in:\n{table}"));
        assert!(at("nfs3-server does not speak") < at("getattr  ganesha"));
        assert!(at("getattr  ganesha") < at("getattr  nfs3-server    FAILED in 2 rounds: status 10004"));
        assert!(at("nfs3-server against ganesha") > 0);
    }
}
