//! A panel for each curve: along what grows, upwards the server's CPU time an operation, both logarithmic.

use std::fmt::Write as _;

use super::{Curve, Point};

const WIDTH: f64 = 520.0;
const HEIGHT: f64 = 300.0;
const MARGIN: f64 = 60.0;
/// Room for the names of the lines.
const LEGEND: f64 = 230.0;
const COLOURS: [&str; 10] = [
    "#888888", "#1f6fb2", "#d1812c", "#3d8b3d", "#a23b72", "#5b4b9a", "#2a9d8f", "#b5651d", "#555555",
    "#c1121f",
];

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
}

/// The page.
pub(super) fn svg(points: &[Point]) -> String {
    let mut body = String::new();
    let mut top = 30.0;
    for curve in Curve::ALL {
        let of_curve: Vec<_> = points.iter().filter(|point| point.curve == curve).collect();
        if !of_curve.is_empty() {
            panel(&mut body, &of_curve, (curve, top));
            top += HEIGHT + MARGIN;
        }
    }
    let width = WIDTH + MARGIN + LEGEND;
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{top}' font-family='sans-serif' \
         font-size='10'>\n<rect width='100%' height='100%' fill='white'/>\n\
         <text x='8' y='18' font-size='14'>Server CPU time an operation (µs; listings: an entry)</text>\n\
         {body}</svg>\n"
    )
}

fn panel(body: &mut String, points: &[&Point], (curve, top): (Curve, f64)) {
    let across = Scale::of(points.iter().map(|point| point.at as f64));
    let up = Scale::of(points.iter().map(|point| point.cpu_us));
    let x = |at: f64| MARGIN + across.place(at) * WIDTH;
    let y = |us: f64| top + HEIGHT - up.place(us) * (HEIGHT - 20.0);
    let bottom = top + HEIGHT;
    let _ = writeln!(
        body,
        "<path d='M{MARGIN} {top}V{bottom}h{WIDTH}' fill='none' stroke='black'/>\
         <text x='{:.0}' y='{:.0}'>{}</text>",
        MARGIN + WIDTH / 2.0,
        bottom + 28.0,
        curve.axis()
    );
    for power in across.low as i32..=across.high as i32 {
        let value = 10f64.powi(power);
        let _ = writeln!(body, "<text x='{:.0}' y='{:.0}'>{value}</text>", x(value), bottom + 14.0);
    }
    for power in up.low as i32..=up.high as i32 {
        let value = 10f64.powi(power);
        let _ = writeln!(body, "<text x='20' y='{:.0}'>{value}</text>", y(value) + 3.0);
    }
    let mut lines: Vec<(&str, &str)> = Vec::new();
    for point in points {
        if !lines.contains(&(point.server, point.op)) {
            lines.push((point.server, point.op));
        }
    }
    for (number, (line, colour)) in lines.iter().zip(COLOURS.iter().cycle()).enumerate() {
        let on_it = points.iter().filter(|point| (point.server, point.op) == *line);
        let path: Vec<_> =
            on_it.map(|point| format!("{:.1} {:.1}", x(point.at as f64), y(point.cpu_us))).collect();
        // A line of one point shows as well.
        let _ = writeln!(
            body,
            "<path d='M{}h0.1' fill='none' stroke='{colour}' stroke-width='2' stroke-linecap='round'/>\
             <text x='{:.0}' y='{:.0}' fill='{colour}'>{} {}</text>",
            path.join("L"),
            MARGIN + WIDTH + 10.0,
            top + 12.0 * (number as f64 + 1.0),
            line.0,
            line.1
        );
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
}
