//! One page of bars as SVG: for each operation every contender's CPU time and its rate, on logarithmic scales, with their
//! spread.

use crate::report::{Figure, Row};
use std::fmt::Write;

const BAR_HEIGHT: f64 = 12.0;
const WIDTH: f64 = 1320.0;
const COLOURS: [&str; 6] = ["#888888", "#444444", "#1f6fb2", "#d1812c", "#3d8b3d", "#8b4f9f"];

/// A logarithmic scale across a part of the page.
struct Scale {
    title: &'static str,
    left: f64,
    width: f64,
    /// The value at its left end, and how many tenfolds there are to its right end.
    least: f64,
    decades: f64,
}

const CPU: Scale =
    Scale { title: "Server CPU time an operation, us", left: 230.0, width: 400.0, least: 0.1, decades: 5.0 };
const RATE: Scale =
    Scale { title: "Operations a second", left: 820.0, width: 400.0, least: 10.0, decades: 6.0 };

/// The page.
pub(crate) fn svg(rows: &[Row]) -> String {
    let mut body = String::new();
    let mut y = 40.0;
    // Everybody has one colour, also where not all take part.
    let mut names: Vec<&str> = Vec::new();
    for cell in rows.iter().flat_map(|row| &row.cells) {
        if !names.contains(&cell.contender) {
            names.push(cell.contender);
        }
    }
    for row in rows {
        let _ = writeln!(
            body,
            "<text x='8' y='{:.0}' font-weight='bold'>{} {} {}</text>",
            y + BAR_HEIGHT - 2.0,
            row.op,
            row.client,
            row.shape
        );
        for cell in &row.cells {
            let place = names.iter().position(|name| *name == cell.contender).unwrap_or_default();
            let colour = COLOURS[place % COLOURS.len()];
            let cpu = format!("{} {:.2} us", cell.contender, cell.server_cpu_us.median);
            CPU.bar(&mut body, y, cell.server_cpu_us, colour, &cpu);
            RATE.bar(&mut body, y, cell.rate, colour, &format!("{:.0}/s", cell.rate.median));
            y += BAR_HEIGHT;
        }
        y += 6.0;
    }
    let title =
        |scale: &Scale| format!("<text x='{}' y='20' font-size='14'>{}</text>", scale.left, scale.title);
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='{WIDTH:.0}' height='{:.0}' font-family='sans-serif' \
         font-size='10'>\n<rect width='100%' height='100%' fill='white'/>\n\
         <text x='8' y='20'>(logarithmic; line: least to greatest of the rounds)</text>\n{}{}\n{body}</svg>\n",
        y + 10.0,
        title(&CPU),
        title(&RATE),
    )
}

impl Scale {
    fn x_of(&self, value: f64) -> f64 {
        let tenfolds = (value.max(self.least) / self.least).log10();
        self.left + (tenfolds / self.decades).clamp(0.0, 1.0) * self.width
    }

    fn bar(&self, body: &mut String, y: f64, figure: Figure, colour: &str, words: &str) {
        let (end, low, high) = (self.x_of(figure.median), self.x_of(figure.min), self.x_of(figure.max));
        let middle = y + BAR_HEIGHT / 2.0;
        let _ = writeln!(
            body,
            "<rect x='{}' y='{y:.0}' width='{:.1}' height='{:.0}' fill='{colour}'/>\
             <path d='M{low:.1} {middle:.0}H{high:.1}' stroke='black'/>\
             <text x='{:.0}' y='{:.0}'>{words}</text>",
            self.left,
            end - self.left,
            BAR_HEIGHT - 2.0,
            high.max(end) + 6.0,
            y + BAR_HEIGHT - 3.0,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_logarithmic_and_has_ends() {
        assert!((CPU.x_of(0.01) - CPU.left).abs() < 1e-9);
        assert!((CPU.x_of(1.0) - CPU.left - CPU.width / 5.0).abs() < 1e-9);
        assert!((CPU.x_of(1e9) - CPU.left - CPU.width).abs() < 1e-9);
        assert!((RATE.x_of(1e4) - RATE.left - RATE.width / 2.0).abs() < 1e-9);
    }
}
