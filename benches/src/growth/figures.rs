//! What the rounds brought, as figures: of each point the median and the extremes, and the table of them.

use serde::Serialize;
use std::fmt::Write as _;

use super::Curve;
use crate::report::Figure;

/// One point in one round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sample {
    /// The curve.
    pub(super) curve: Curve,
    /// Of several along one axis, which operation.
    pub(super) op: &'static str,
    /// The contender's name.
    pub(super) server: &'static str,
    /// The round, from 1.
    pub(super) round: u64,
    /// Along the axis.
    pub(super) at: u64,
    /// µs of the server's CPU time an operation (listings: an entry).
    pub(super) cpu_us: f64,
    /// µs of the client's.
    pub(super) client_us: f64,
    /// Operations a second.
    pub(super) rate: f64,
    /// Bytes of the server's memory that came along with each of what is counted along the axis.
    pub(super) memory_bytes: Option<f64>,
}

/// What was not to be had.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Failure {
    /// The curve.
    pub(super) curve: Curve,
    /// The contender's name.
    pub(super) server: &'static str,
    /// The round, from 1.
    pub(super) round: u64,
    /// Why.
    pub(super) why: String,
}

/// One point over all rounds.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    /// The curve.
    pub(super) curve: Curve,
    /// Of several along one axis, which operation.
    pub(super) op: &'static str,
    /// The contender's name.
    pub(super) server: &'static str,
    /// Along the axis.
    pub(super) at: u64,
    /// µs of the server's CPU time an operation (listings: an entry).
    pub(super) cpu_us: Figure,
    /// µs of the client's.
    pub(super) client_us: Figure,
    /// Operations a second.
    pub(super) rate: Figure,
    /// Bytes of the server's memory that came along with each of what is counted along the axis.
    pub(super) memory_bytes: Option<Figure>,
}

/// The points, in the order in which they first came up.
pub(super) fn points(samples: &[Sample]) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for sample in samples {
        let Sample { curve, op, server, at, .. } = *sample;
        let is_this = |c: Curve, o: &str, s: &str, a: u64| (c, o, s, a) == (curve, op, server, at);
        if points.iter().any(|p| is_this(p.curve, p.op, p.server, p.at)) {
            continue;
        }
        let of_it: Vec<_> = samples.iter().filter(|s| is_this(s.curve, s.op, s.server, s.at)).collect();
        let figure = |of: fn(&Sample) -> f64| Figure::of(of_it.iter().map(|s| of(s)).collect());
        let memory_bytes = Figure::of(of_it.iter().filter_map(|s| s.memory_bytes).collect());
        points.push(Point {
            curve,
            op,
            server,
            at,
            cpu_us: figure(|s| s.cpu_us).unwrap_or_default(),
            client_us: figure(|s| s.client_us).unwrap_or_default(),
            rate: figure(|s| s.rate).unwrap_or_default(),
            memory_bytes,
        });
    }
    points
}

/// Those that belong to each other, in the order in which they first came up: of each curve its operations, of each
/// operation its points.
pub(super) fn by_operation(points: &[Point]) -> Vec<(Curve, &'static str, Vec<&Point>)> {
    let mut groups: Vec<(Curve, &'static str, Vec<&Point>)> = Vec::new();
    for curve in Curve::ALL {
        for point in points.iter().filter(|point| point.curve == curve) {
            match groups.iter_mut().find(|(c, op, _)| (*c, *op) == (curve, point.op)) {
                Some((_, _, of_it)) => of_it.push(point),
                None => groups.push((curve, point.op, vec![point])),
            }
        }
    }
    groups
}

/// For people.
pub(super) fn table(points: &[Point], failures: &[Failure]) -> String {
    let mut text = String::from(
        "server: µs of the server's CPU time an operation (listings: an entry), median, least and greatest of the \
         rounds;\nclient: µs of the client's: where it is near 1,000,000 / rate, the client is the limit;\n\
         KiB each: of the server's memory, for each of what is counted along the axis.\n",
    );
    for (curve, op, mut of_it) in by_operation(points) {
        let _ = writeln!(text, "\n{op}, {}", curve.axis());
        let memory = if of_it.iter().any(|point| point.memory_bytes.is_some()) { "KiB each" } else { "" };
        let head = format!(
            "{:>10}  {:<16}{:>9}{:>20}{:>9}{:>10}{:>20}  {memory}",
            "", "", "server", "", "client", "rate/s", ""
        );
        let _ = writeln!(text, "{}", head.trim_end());
        of_it.sort_by_key(|point| point.at);
        for Point { server, at, cpu_us, client_us, rate, memory_bytes, .. } in of_it {
            let memory = memory_bytes.map_or(String::new(), |bytes| {
                let Figure { median, min, max } = bytes;
                format!("  {:.2} [{:.2}-{:.2}]", median / 1024.0, min / 1024.0, max / 1024.0)
            });
            let spread = format!("[{:.2}-{:.2}]", cpu_us.min, cpu_us.max);
            let rates = format!("[{:.0}-{:.0}]", rate.min, rate.max);
            let _ = writeln!(
                text,
                "{at:>10}  {server:<16}{:>9.2}{spread:>20}{:>9.2}{:>10.0}{rates:>20}{memory}",
                cpu_us.median, client_us.median, rate.median
            );
        }
    }
    for Failure { curve, server, round, why } in failures {
        let _ = writeln!(text, "\n{server} failed in round {round}, {}: {why}", curve.axis());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(op: &'static str, (round, at): (u64, u64), cpu_us: f64, memory_bytes: Option<f64>) -> Sample {
        let (curve, server) = (Curve::Opens, "one");
        Sample { curve, op, server, round, at, cpu_us, client_us: 1.0, rate: 1e6 / cpu_us, memory_bytes }
    }

    #[test]
    fn a_point_is_the_median_of_its_rounds_with_the_extremes() {
        let samples = [
            sample("open", (1, 100), 9.0, Some(2048.0)),
            sample("open", (1, 1000), 4.0, None),
            sample("open", (2, 100), 1.0, Some(1024.0)),
            sample("open", (3, 100), 2.0, Some(4096.0)),
        ];
        let points = points(&samples);
        assert_eq!(points.len(), 2);
        assert_eq!(points[0].cpu_us, Figure { median: 2.0, min: 1.0, max: 9.0 });
        assert_eq!(points[0].memory_bytes, Some(Figure { median: 2048.0, min: 1024.0, max: 4096.0 }));
        assert_eq!((points[1].at, points[1].memory_bytes), (1000, None));
    }

    #[test]
    fn the_table_has_each_operation_once_and_what_failed() {
        let samples = [
            sample("open", (1, 1000), 4.0, None),
            sample("getattr", (1, 100), 3.0, None),
            sample("open", (1, 100), 5.0, Some(2048.0)),
        ];
        let failure =
            Failure { curve: Curve::Locks, server: "one", round: 1, why: "no reply for 30s".to_owned() };
        let text = table(&points(&samples), &[failure]);
        let lines: Vec<_> = text.lines().skip(3).filter(|line| !line.is_empty()).collect();
        assert_eq!(lines[0], "open, opens held");
        assert!(
            lines[2].trim_start().starts_with("100 ") && lines[2].ends_with("2.00 [2.00-2.00]"),
            "{text}"
        );
        assert!(lines[3].trim_start().starts_with("1000 "), "{text}");
        assert_eq!(lines[4], "getattr, opens held");
        assert!(text.ends_with("no reply for 30s\n"), "{text}");
    }
}
