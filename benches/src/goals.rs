//! What the comparison with NFS-Ganesha is held to: how many times less CPU time Holdfast takes for an operation, and how
//! many times its rate, by operation and client.

use crate::measure::{Plan, Sample};
use crate::plan::{ClientKind, Op};
use crate::report::{Figure, by_round};
use crate::rival::Contender;
use crate::wanted::Wanted;
use serde::Serialize;
use std::fmt::Write as _;

/// Who is judged: Ganesha forces no metadata to disk, so neither does this one.
const JUDGED: Contender = Contender::HoldfastAsync;
/// Who is shown beside it: what is promised by default.
const BESIDE: Contender = Contender::HoldfastSync;
/// Against whom: of several, in each figure, the one that is the hardest to beat.
const RIVALS: [Contender; 2] = [Contender::Ganesha, Contender::GaneshaTuned];

/// One line of the requirement.
struct Goal {
    ops: &'static [Op],
    clients: &'static [ClientKind],
    /// The rival's CPU time an operation over ours, at least.
    cpu: f64,
    /// Our rate over the rival's, at least.
    rate: f64,
}

const NFS3: &[ClientKind] = &[ClientKind::Libnfs, ClientKind::Raw3];
const NFS41: &[ClientKind] = &[ClientKind::Raw41];
const BATCHING: &[ClientKind] = &[ClientKind::Raw3, ClientKind::Raw41];
const ALL: &[ClientKind] = &[ClientKind::Libnfs, ClientKind::Raw3, ClientKind::Raw41];
const LOOKED_AT: &[Op] = &[Op::Getattr, Op::Lookup, Op::Access];
const NAMES: &[Op] = &[Op::Create, Op::Unlink, Op::Rename, Op::Mkdir];

const GOALS: [Goal; 9] = [
    Goal { ops: LOOKED_AT, clients: NFS3, cpu: 8.0, rate: 2.0 },
    Goal { ops: LOOKED_AT, clients: NFS41, cpu: 5.0, rate: 2.0 },
    Goal { ops: &[Op::Read4k], clients: &[ClientKind::Libnfs], cpu: 4.5, rate: 1.5 },
    Goal { ops: &[Op::Read4k], clients: BATCHING, cpu: 8.0, rate: 1.5 },
    Goal { ops: &[Op::Write4k], clients: ALL, cpu: 5.0, rate: 1.5 },
    Goal { ops: NAMES, clients: ALL, cpu: 3.0, rate: 1.5 },
    Goal { ops: &[Op::Readdir], clients: ALL, cpu: 5.0, rate: 2.0 },
    Goal { ops: &[Op::Read1m], clients: ALL, cpu: 3.0, rate: 1.5 },
    Goal { ops: &[Op::Write1m], clients: ALL, cpu: 2.0, rate: 1.3 },
];

/// One operation of one client in one shape, held to its goal.
#[derive(Debug, Serialize)]
pub(crate) struct Judged {
    client: &'static str,
    shape: String,
    op: &'static str,
    cpu: Reached,
    rate: Reached,
}

/// What was reached, of CPU time or of rate.
#[derive(Debug, Serialize)]
struct Reached {
    /// The rival that was the hardest to beat here.
    against: &'static str,
    /// How many times better, over the rounds.
    times: Figure,
    wanted: Wanted,
    is_met: bool,
    /// What Holdfast reaches with all on disk before it replies.
    sync: Option<Figure>,
}

/// Everything that was taken, held to its goal. What was not taken, by Holdfast or by every rival, is left out.
pub(crate) fn judge(plan: &Plan, samples: &[Sample]) -> Vec<Judged> {
    let mut judged = Vec::new();
    for &client in &plan.clients {
        for &shape in &plan.shapes {
            let name = shape.to_string();
            let here: Vec<_> =
                samples.iter().filter(|s| s.client == client.name() && s.shape == name).collect();
            judged.extend(plan.ops_in(shape).filter_map(|op| judge_one(client, &name, op, &here)));
        }
    }
    judged
}

fn judge_one(client: ClientKind, shape: &str, op: Op, here: &[&Sample]) -> Option<Judged> {
    let goal = GOALS.iter().find(|goal| goal.ops.contains(&op) && goal.clients.contains(&client))?;
    let of = |contender: Contender| -> Vec<&Sample> {
        here.iter().copied().filter(|s| s.op == op.name() && s.contender == contender.name()).collect()
    };
    let reached = |wanted: f64, times: fn(&Sample, &Sample) -> f64| {
        let over = |own, rival| Figure::of(by_round(&of(own), &of(rival), times));
        let rivals = RIVALS.into_iter().filter_map(|rival| Some((rival, over(JUDGED, rival)?)));
        let (rival, times) = rivals.min_by(|(_, a), (_, b)| a.median.total_cmp(&b.median))?;
        let wanted = Wanted::AtLeast(wanted);
        let is_met = wanted.is_met(times.median);
        Some(Reached { against: rival.name(), times, wanted, is_met, sync: over(BESIDE, rival) })
    };
    Some(Judged {
        client: client.name(),
        shape: shape.to_owned(),
        op: op.name(),
        cpu: reached(goal.cpu, |own, rival| rival.server_cpu_us / own.server_cpu_us)?,
        rate: reached(goal.rate, |own, rival| own.rate / rival.rate)?,
    })
}

impl Reached {
    fn line(&self) -> String {
        let sync = self.sync.map_or(String::new(), |sync| format!("{:.2}", sync.median));
        let verdict = self.wanted.verdict(self.times.median);
        format!("{:<24}{verdict:<15}{sync:<8}{:<15}", self.times.to_string(), self.against)
    }
}

/// For people; nothing where nothing was judged.
pub(crate) fn table(judged: &[Judged]) -> String {
    if judged.is_empty() {
        return String::new();
    }
    let mut text = format!(
        "\nGoals: {} against {}, in each figure whichever is the hardest to beat; beside it {}.\n",
        JUDGED.name(),
        RIVALS.map(Contender::name).join(" or "),
        BESIDE.name()
    );
    let columns = format!("{:<15}{:<8}{:<15}", "wanted", "sync", "against");
    let mut section = None;
    for one in judged {
        let this = (one.client, &one.shape);
        if section.replace(this) != Some(this) {
            let title = format!("\n{} {}\n{:<9}", one.client, one.shape, "");
            let heading = format!("{title}{:<24}{columns}{:<24}{columns}", "x cpu", "x rate");
            let _ = writeln!(text, "{}", heading.trim_end());
        }
        let line = format!("{:<9}{}{}", one.op, one.cpu.line(), one.rate.line());
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let reached: Vec<_> = judged.iter().flat_map(|one| [&one.cpu, &one.rate]).collect();
    let met = reached.iter().filter(|one| one.is_met).count();
    let _ = writeln!(text, "\n{met} of {} goals met.", reached.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(contender: Contender, client: ClientKind, op: Op, rate: f64, server_cpu_us: f64) -> Sample {
        Sample {
            contender: contender.name(),
            client: client.name(),
            shape: "4x8".to_owned(),
            op: op.name(),
            round: 1,
            processes: 1,
            units: 1,
            rate,
            server_cpu_us,
            client_cpu_us: 1.0,
            p50_us: 1.0,
            p99_us: 1.0,
        }
    }

    fn plan(clients: &[ClientKind]) -> Plan {
        Plan {
            clients: clients.to_vec(),
            shapes: vec![crate::plan::Shape { connections: 4, depth: 8 }],
            ops: Op::ALL.to_vec(),
            time: std::time::Duration::ZERO,
            listing_time: std::time::Duration::ZERO,
            count: 0,
            processes: None,
            users: 0,
        }
    }

    #[test]
    fn every_operation_has_one_goal_by_every_client() {
        for op in Op::ALL {
            for client in ALL {
                let goals =
                    GOALS.iter().filter(|goal| goal.ops.contains(&op) && goal.clients.contains(client));
                assert_eq!(goals.count(), 1, "{} {}", op.name(), client.name());
            }
        }
    }

    #[test]
    fn the_same_ratio_may_do_through_libnfs_and_not_by_a_client_that_batches() {
        let clients = [ClientKind::Libnfs, ClientKind::Raw3];
        let samples: Vec<_> = clients
            .into_iter()
            .flat_map(|client| {
                [
                    sample(Contender::Ganesha, client, Op::Read4k, 10.0, 30.0),
                    sample(Contender::HoldfastAsync, client, Op::Read4k, 20.0, 5.0),
                    sample(Contender::HoldfastSync, client, Op::Read4k, 15.0, 6.0),
                ]
            })
            .collect();
        let told = table(&judge(&plan(&clients), &samples));
        let lines: Vec<_> = told.lines().filter(|line| line.starts_with("read4k")).collect();
        assert!(lines[0].contains("6.00 [6.00 - 6.00]      >= 4.5 met     5.00    ganesha"), "{told}");
        assert!(lines[0].contains("2.00 [2.00 - 2.00]      >= 1.5 met     1.50    ganesha"), "{told}");
        assert!(lines[1].contains(">= 8 NOT MET"), "{told}");
        assert!(told.ends_with("\n3 of 4 goals met.\n"), "{told}");
    }

    #[test]
    fn in_each_figure_the_rival_counts_that_is_the_hardest_to_beat() {
        let client = ClientKind::Raw3;
        let samples = [
            sample(Contender::Ganesha, client, Op::Getattr, 10.0, 20.0),
            sample(Contender::GaneshaTuned, client, Op::Getattr, 20.0, 30.0),
            sample(Contender::HoldfastAsync, client, Op::Getattr, 40.0, 2.0),
        ];
        let told = table(&judge(&plan(&[client]), &samples));
        let line = told.lines().find(|line| line.starts_with("getattr")).unwrap();
        assert!(line.contains("10.00 [10.00 - 10.00]   >= 8 met               ganesha  "), "{told}");
        assert!(line.contains("2.00 [2.00 - 2.00]      >= 2 met               ganesha-tuned"), "{told}");
    }

    #[test]
    fn what_was_not_taken_is_not_judged() {
        let own = sample(Contender::HoldfastAsync, ClientKind::Raw3, Op::Mkdir, 1.0, 1.0);
        assert_eq!(table(&judge(&plan(&[ClientKind::Raw3]), &[own])), "");
    }
}
