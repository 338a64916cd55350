//! One page of bars as SVG: for each operation every contender's CPU time, on a logarithmic scale, with its spread.

use crate::report::Row;
use std::fmt::Write;

const BAR_HEIGHT: f64 = 12.0;
const LEFT: f64 = 230.0;
const SCALE_WIDTH: f64 = 560.0;
/// µs at the left end, and how many tenfolds to the right end.
const LEAST_US: f64 = 0.1;
const DECADES: f64 = 5.0;
const COLOURS: [&str; 5] = ["#888888", "#1f6fb2", "#d1812c", "#3d8b3d", "#8b4f9f"];

/// The page.
pub(crate) fn svg(rows: &[Row]) -> String {
    let mut body = String::new();
    let mut y = 40.0;
    for row in rows {
        let _ = writeln!(
            body,
            "<text x='8' y='{:.0}' font-weight='bold'>{} {} {}</text>",
            y + BAR_HEIGHT - 2.0,
            row.op,
            row.client,
            row.shape
        );
        for (cell, colour) in row.cells.iter().zip(COLOURS.iter().cycle()) {
            let figure = cell.server_cpu_us;
            let (end, low, high) = (x_of(figure.median), x_of(figure.min), x_of(figure.max));
            let middle = y + BAR_HEIGHT / 2.0;
            let _ = writeln!(
                body,
                "<rect x='{LEFT}' y='{y:.0}' width='{:.1}' height='{:.0}' fill='{colour}'/>\
                 <path d='M{low:.1} {middle:.0}H{high:.1}' stroke='black'/>\
                 <text x='{:.0}' y='{:.0}'>{} {:.2} us, {:.0}/s</text>",
                end - LEFT,
                BAR_HEIGHT - 2.0,
                high.max(end) + 6.0,
                y + BAR_HEIGHT - 3.0,
                cell.contender,
                figure.median,
                cell.rate.median
            );
            y += BAR_HEIGHT;
        }
        y += 6.0;
    }
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='1060' height='{:.0}' font-family='sans-serif' \
         font-size='10'>\n<rect width='100%' height='100%' fill='white'/>\n\
         <text x='8' y='20' font-size='14'>Server CPU time an operation (µs, logarithmic; line: least to greatest \
         of the rounds)</text>\n{body}</svg>\n",
        y + 10.0
    )
}

fn x_of(us: f64) -> f64 {
    LEFT + ((us.max(LEAST_US) / LEAST_US).log10() / DECADES).clamp(0.0, 1.0) * SCALE_WIDTH
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_is_logarithmic_and_has_ends() {
        assert!((x_of(0.01) - LEFT).abs() < 1e-9);
        assert!((x_of(1.0) - LEFT - SCALE_WIDTH / 5.0).abs() < 1e-9);
        assert!((x_of(1e9) - LEFT - SCALE_WIDTH).abs() < 1e-9);
    }
}
