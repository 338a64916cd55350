//! The page of plots: for each curve and operation the server's CPU time and the rate, a line for each server, along
//! what grows; both axes logarithmic, with the extremes of the rounds.

use std::fmt::Write as _;

use super::Curve;
use super::figures::{Point, by_operation};
use crate::report::Figure;

/// One plot, without what is written beside it.
const WIDTH: f64 = 280.0;
const HEIGHT: f64 = 150.0;
/// From one plot to the next: the room for marks and titles with it.
const ACROSS: f64 = 360.0;
const DOWN: f64 = 205.0;
const LEFT: f64 = 60.0;
/// Operations beside each other, two plots each.
const BESIDE: usize = 2;
const COLOURS: [&str; 6] = ["#888888", "#1f6fb2", "#d1812c", "#3d8b3d", "#a23b72", "#5b4b9a"];

/// Both ends of an axis, as powers of ten.
#[derive(Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) =
            values.filter(|v| *v > 0.0).fold((f64::MAX, f64::MIN), |(l, h), v| (l.min(v), h.max(v)));
        let (low, high) = if low <= high { (low.log10().floor(), high.log10().ceil()) } else { (0.0, 1.0) };
        Self { low, high: high.max(low + 1.0) }
    }

    /// From 0 to 1.
    fn place(self, value: f64) -> f64 {
        ((value.max(f64::MIN_POSITIVE).log10() - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
    }

    fn powers(self) -> impl Iterator<Item = f64> {
        (self.low as i32..=self.high as i32).map(|power| 10f64.powi(power))
    }
}

/// One plot: its place, what it is called, and what it shows of a point.
struct Plot<'a> {
    left: f64,
    top: f64,
    title: String,
    points: &'a [&'a Point],
    shown: fn(&Point) -> Figure,
}

/// The page.
pub(super) fn svg(points: &[Point]) -> String {
    let mut servers: Vec<&str> = Vec::new();
    for point in points {
        if !servers.contains(&point.server) {
            servers.push(point.server);
        }
    }
    let mut body = String::new();
    for (number, server) in servers.iter().enumerate() {
        let _ = writeln!(
            body,
            "<text x='{:.0}' y='40' font-size='12' font-weight='bold' fill='{}'>{server}</text>",
            LEFT + 150.0 * number as f64,
            colour(&servers, server)
        );
    }
    let (groups, mut top) = (by_operation(points), 70.0);
    for curve in Curve::ALL {
        let of_curve: Vec<_> = groups.iter().filter(|(of, ..)| *of == curve).collect();
        if of_curve.is_empty() {
            continue;
        }
        let _ = writeln!(
            body,
            "<text x='8' y='{top:.0}' font-size='13' font-weight='bold'>{}{}</text>",
            curve.axis(),
            memory(points, curve)
        );
        for (number, (_, op, of_it)) in of_curve.iter().enumerate() {
            let (row, column) = (number / BESIDE, number % BESIDE);
            let (left, top) = (LEFT + 2.0 * ACROSS * column as f64, top + 25.0 + DOWN * row as f64);
            let cpu = Plot {
                left,
                top,
                title: format!("{op}: server CPU, µs"),
                points: of_it,
                shown: |point| point.cpu_us,
            };
            cpu.draw(&mut body, &servers);
            let title = format!("{op}: rate, 1/s");
            let rate = Plot { left: left + ACROSS, title, shown: |point| point.rate, ..cpu };
            rate.draw(&mut body, &servers);
        }
        top += DOWN * of_curve.len().div_ceil(BESIDE) as f64 + 35.0;
    }
    let width = 2.0 * ACROSS * BESIDE as f64;
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{top}' font-family='sans-serif' \
         font-size='10'>\n<rect width='100%' height='100%' fill='white'/>\n\
         <text x='8' y='18' font-size='14'>Growth: median, least and greatest of the rounds (listings: an \
         entry)</text>\n{body}</svg>\n"
    )
}

fn colour(servers: &[&str], server: &str) -> &'static str {
    let number = servers.iter().position(|other| *other == server).unwrap_or_default();
    COLOURS[number % COLOURS.len()]
}

/// What each of what is counted along the axis took of a server's memory, where most of it was.
fn memory(points: &[Point], curve: Curve) -> String {
    let mut text = String::new();
    let of_curve = points.iter().filter(|point| point.curve == curve);
    for (_, figure, server) in greatest(of_curve.filter_map(|p| Some((p.at, p.memory_bytes?, p.server)))) {
        let _ = write!(text, "; {server} {:.2} KiB each", figure.median / 1024.0);
    }
    text
}

/// Of each server that which is farthest along.
fn greatest<'a>(all: impl Iterator<Item = (u64, Figure, &'a str)>) -> Vec<(u64, Figure, &'a str)> {
    let mut kept: Vec<(u64, Figure, &str)> = Vec::new();
    for one in all {
        match kept.iter_mut().find(|(.., server)| *server == one.2) {
            Some(other) if other.0 < one.0 => *other = one,
            Some(_) => {}
            None => kept.push(one),
        }
    }
    kept
}

impl Plot<'_> {
    fn draw(&self, body: &mut String, servers: &[&str]) {
        let Self { left, top, points, shown, .. } = *self;
        let across = Scale::of(points.iter().map(|point| point.at as f64));
        let up = Scale::of(points.iter().flat_map(|point| [shown(point).min, shown(point).max]));
        let x = |at: f64| left + across.place(at) * WIDTH;
        let y = |value: f64| top + HEIGHT - up.place(value) * HEIGHT;
        let bottom = top + HEIGHT;
        let _ = writeln!(
            body,
            "<text x='{left:.0}' y='{:.0}' font-weight='bold'>{}</text>\
             <path d='M{left} {top}V{bottom}h{WIDTH}' fill='none' stroke='black'/>",
            top - 6.0,
            self.title
        );
        for value in across.powers() {
            let _ = writeln!(body, "<text x='{:.0}' y='{:.0}'>{value}</text>", x(value), bottom + 14.0);
        }
        for value in up.powers() {
            let (end, at) = (left - 4.0, y(value) + 3.0);
            let _ = writeln!(body, "<text x='{end:.0}' y='{at:.0}' text-anchor='end'>{value}</text>");
        }
        for server in servers {
            let mut of_it: Vec<_> = points.iter().filter(|point| point.server == *server).collect();
            of_it.sort_by_key(|point| point.at);
            if of_it.is_empty() {
                continue;
            }
            let place = |point: &Point| (x(point.at as f64), shown(point));
            let line = of_it.iter().map(|point| place(point));
            let line: Vec<_> = line.map(|(x, figure)| format!("{x:.1} {:.1}", y(figure.median))).collect();
            let spread = of_it.iter().map(|point| place(point));
            let spread: String =
                spread.map(|(x, f)| format!("M{x:.1} {:.1}V{:.1}", y(f.min), y(f.max))).collect();
            // A line of one point shows as well.
            let _ = writeln!(
                body,
                "<path d='M{}h0.1{spread}' fill='none' stroke='{}' stroke-width='1.5' stroke-linecap='round'/>",
                line.join("L"),
                colour(servers, server)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_logarithmic_and_hold_every_value() {
        let scale = Scale::of([3.0, 0.0, 450.0].into_iter());
        assert!((scale.low, scale.high) == (0.0, 3.0));
        assert!((scale.place(10.0) - 1.0 / 3.0).abs() < 1e-9);
        assert!(scale.place(0.0).abs() < 1e-9 && (scale.place(5000.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn every_operation_has_a_plot_of_cost_and_one_of_rate_with_a_line_for_each_server() {
        let figure = |median| Figure { median, min: median / 2.0, max: median * 2.0 };
        let point = |op, server, at, memory_bytes| Point {
            curve: Curve::Opens,
            op,
            server,
            at,
            cpu_us: figure(3.0),
            client_us: figure(1.0),
            rate: figure(1000.0),
            memory_bytes,
        };
        let page = svg(&[
            point("open", "one", 10, Some(figure(4096.0))),
            point("open", "one", 100, Some(figure(2048.0))),
            point("open", "two", 10, None),
            point("read", "one", 10, None),
        ]);
        assert_eq!(page.matches("server CPU, µs").count(), 2);
        assert_eq!(page.matches("rate, 1/s").count(), 2);
        assert_eq!(page.matches("stroke-linecap").count(), 6);
        assert!(page.contains("opens held; one 2.00 KiB each"), "{page}");
    }
}
