//! The limits as bars: how much of what is allowed each figure takes, on a logarithmic scale, with its spread.

use std::fmt::Write as _;

use super::Line;
use crate::wanted::Wanted;

const BAR_HEIGHT: f64 = 14.0;
const LEFT: f64 = 520.0;
const SCALE_WIDTH: f64 = 360.0;
/// At the left end; the bound is as far from it as from the right end.
const LEAST: f64 = 0.01;
const DECADES: f64 = 4.0;
const MET: &str = "#3d8b3d";
const NOT_MET: &str = "#c1121f";

/// The page: of what is only shown nothing.
pub(super) fn svg(lines: &[Line<'_>]) -> String {
    let mut body = String::new();
    let mut y = 40.0;
    for line in lines {
        let Some(of) = share(line.wanted) else { continue };
        let figure = line.figure;
        let (end, ends) = (x_of(of(figure.median)), [x_of(of(figure.min)), x_of(of(figure.max))]);
        let (middle, text) = (y + BAR_HEIGHT / 2.0, y + BAR_HEIGHT - 3.0);
        let _ = writeln!(
            body,
            "<text x='{:.0}' y='{text:.0}' text-anchor='end'>{}</text>\
             <rect x='{LEFT}' y='{y:.0}' width='{:.1}' height='{:.0}' fill='{}'/>\
             <path d='M{:.1} {middle:.0}H{:.1}' stroke='black'/>\
             <text x='{:.0}' y='{text:.0}'>{:.2}, wanted {}</text>",
            LEFT - 6.0,
            line.what.replace('&', "&amp;").replace('<', "&lt;"),
            end - LEFT,
            BAR_HEIGHT - 2.0,
            if line.is_met() { MET } else { NOT_MET },
            ends[0],
            ends[1],
            LEFT + SCALE_WIDTH + 6.0,
            figure.median,
            line.wanted.verdict(figure.median).replace('<', "&lt;").replace('>', "&gt;"),
        );
        y += BAR_HEIGHT;
    }
    let bound = x_of(1.0);
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' width='1060' height='{:.0}' font-family='sans-serif' \
         font-size='10'>\n<rect width='100%' height='100%' fill='white'/>\n\
         <text x='8' y='20' font-size='14'>What is allowed (the line), and how much of it is taken (logarithmic; \
         black: least to greatest of the rounds)</text>\n{body}\
         <path d='M{bound:.1} 32V{y:.0}' stroke='black' stroke-dasharray='3'/></svg>\n",
        y + 10.0
    )
}

/// What a value is of what is allowed: beyond 1, it is not as wanted.
fn share(wanted: Wanted) -> Option<Box<dyn Fn(f64) -> f64>> {
    match wanted {
        Wanted::AtMost(bound) => Some(Box::new(move |value| value / bound)),
        Wanted::AtLeast(bound) => Some(Box::new(move |value| bound / value)),
        Wanted::Shown => None,
    }
}

/// What is no number, or less than nothing, is at an end.
fn x_of(share: f64) -> f64 {
    let tenfolds = (share.max(LEAST) / LEAST).log10() / DECADES;
    LEFT + tenfolds.clamp(0.0, 1.0) * SCALE_WIDTH
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Figure;

    #[test]
    fn a_bar_crosses_the_line_when_its_figure_is_not_as_wanted() {
        let line = |what, wanted, value| Line {
            what,
            wanted,
            figure: Figure { median: value, min: value, max: value },
        };
        let lines = [
            line("near", Wanted::AtMost(3.0), 2.9),
            line("slow", Wanted::AtLeast(0.8), 0.4),
            line("beside", Wanted::Shown, 1.0),
        ];
        let page = svg(&lines);
        assert!(page.contains("near") && page.contains("slow") && !page.contains("beside"));
        assert!(page.contains(MET) && page.contains("&gt;= 0.8 NOT MET"));
        assert!(x_of(2.9 / 3.0) < x_of(1.0) && x_of(0.8 / 0.4) > x_of(1.0));
        assert!((x_of(-1.0) - LEFT).abs() < 1e-9 && (x_of(1e9) - LEFT - SCALE_WIDTH).abs() < 1e-9);
    }
}
