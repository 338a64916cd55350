//! Tables, times and sizes for people.

use std::fmt::Write as _;

use holdfast_base::Civil;

/// A table: rows are padded to the widest cell of each column, two spaces between; nothing is cut, so that what a
/// script reads does not depend on a terminal.
pub(crate) struct Table {
    heads: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Numbers are put to the right.
    is_number: Vec<bool>,
}

impl Table {
    /// A table of these columns. One whose name begins with `#` holds numbers.
    pub(crate) fn new(heads: &[&'static str]) -> Self {
        Self {
            heads: heads.iter().map(|head| head.trim_start_matches('#')).collect(),
            rows: Vec::new(),
            is_number: heads.iter().map(|head| head.starts_with('#')).collect(),
        }
    }

    /// Adds a row. An empty cell is shown as a dash, so that columns can be counted.
    pub(crate) fn row<const N: usize>(&mut self, cells: [String; N]) {
        debug_assert_eq!(N, self.heads.len());
        let dashed = |cell: String| if cell.is_empty() { "-".to_owned() } else { cell };
        self.rows.push(cells.into_iter().map(dashed).collect());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let heads: Vec<String> = self.heads.iter().map(|head| (*head).to_owned()).collect();
        let rows = || std::iter::once(&heads).chain(&self.rows);
        let width = |n: usize| rows().map(|row| row[n].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..heads.len()).map(width).collect();
        for row in rows() {
            let mut line = String::new();
            for ((cell, width), is_number) in row.iter().zip(&widths).zip(&self.is_number) {
                if *is_number {
                    write!(line, "{cell:>width$}  ")?;
                } else {
                    write!(line, "{cell:<width$}  ")?;
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A time of day in UTC, as the log writes it.
pub(crate) fn moment(unix_ms: u64) -> String {
    let Civil { year, month, day, hour, minute, second } = Civil::from_unix(unix_ms / 1000);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}Z")
}

/// A duration in its two largest units.
pub(crate) fn duration(ms: u64) -> String {
    let s = ms / 1000;
    match s {
        0 => format!("{ms} ms"),
        1..60 => format!("{s} s"),
        60..3600 => format!("{} min {} s", s / 60, s % 60),
        3600..86_400 => format!("{} h {} min", s / 3600, s / 60 % 60),
        _ => format!("{} d {} h", s / 86_400, s / 3600 % 24),
    }
}

/// A short time in its unit.
pub(crate) fn short(nanos: u64) -> String {
    let n = nanos as f64;
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} us", n / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} ms", n / 1e6),
        _ => format!("{:.1} s", n / 1e9),
    }
}

/// Bytes in their unit.
pub(crate) fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value:.0} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

/// A number with its thousands apart.
pub(crate) fn number(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_no_cell_is_empty() {
        let mut table = Table::new(&["NAME", "#COUNT", "WHERE"]);
        table.row(["a".into(), "7".into(), "x y".into()]);
        table.row(["müller".into(), "1,000".into(), String::new()]);
        assert_eq!(table.to_string(), "NAME    COUNT  WHERE\na           7  x y\nmüller  1,000  -\n");
    }

    #[test]
    fn moments_are_calendar_times() {
        for (ms, text) in [
            (0, "1970-01-01 00:00:00Z"),
            (951_782_399_999, "2000-02-28 23:59:59Z"),
            (951_825_600_000, "2000-02-29 12:00:00Z"),
            (1_709_251_200_000, "2024-03-01 00:00:00Z"),
            (4_107_542_399_000, "2100-02-28 23:59:59Z"),
            (4_107_542_400_000, "2100-03-01 00:00:00Z"),
        ] {
            assert_eq!(moment(ms), text);
        }
    }

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!([duration(15), duration(59_999), duration(61_000)], ["15 ms", "59 s", "1 min 1 s"]);
        assert_eq!([duration(7_260_000), duration(90_000_000)], ["2 h 1 min", "1 d 1 h"]);
        assert_eq!([short(999), short(1_500), short(2_000_000)], ["999 ns", "1.5 us", "2.0 ms"]);
        assert_eq!([bytes(0.0), bytes(1536.0), bytes(1e15)], ["0 B", "1.5 KiB", "909.5 TiB"]);
        assert_eq!([number(0), number(999), number(1_234_567)], ["0", "999", "1,234,567"]);
    }
}
