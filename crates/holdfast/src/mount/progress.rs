//! The bar that is shown while a mount sends what is left.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use holdfast_mount::control::Progress;

/// Shorter waits show nothing.
const QUIET: Duration = Duration::from_millis(400);

const WIDTH: u64 = 30;

/// A bar on standard error; on what is no terminal, nothing.
pub(crate) struct ProgressBar {
    doing: &'static str,
    since: Instant,
    /// The most that there was to do, which is what the whole bar stands for.
    most: Progress,
    is_shown: bool,
}

impl ProgressBar {
    pub(crate) fn new(doing: &'static str) -> Self {
        Self { doing, since: Instant::now(), most: Progress::default(), is_shown: false }
    }

    /// Shows how much is left.
    pub(crate) fn show(&mut self, left: Progress) {
        self.most.changes = self.most.changes.max(left.changes);
        self.most.bytes = self.most.bytes.max(left.bytes);
        if self.since.elapsed() < QUIET || !std::io::stderr().is_terminal() {
            return;
        }
        self.is_shown = true;
        eprint!("\r{}\x1b[K", line(self.doing, self.most, left));
        // A terminal that is gone is no reason to stop.
        let _ = std::io::stderr().flush();
    }

    /// Takes the bar away.
    pub(crate) fn end(&mut self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}

fn line(doing: &str, most: Progress, left: Progress) -> String {
    // A change is worth as much as 16 KiB of data: about as long to send.
    let weight =
        |progress: Progress| progress.changes.saturating_mul(16 << 10).saturating_add(progress.bytes);
    let (most, rest) = (weight(most).max(1), weight(left));
    let done = (u128::from(most - rest.min(most)) * u128::from(WIDTH) / u128::from(most)) as usize;
    let bar = "#".repeat(done) + &"-".repeat(WIDTH as usize - done);
    let mib = left.bytes as f64 / f64::from(1 << 20);
    format!("{doing} [{bar}] {} changes, {mib:.1} MiB left", left.changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_full_when_nothing_is_left_and_empty_at_first() {
        let most = Progress { changes: 10, bytes: 1 << 20 };
        assert!(line("sending", most, most).contains(&format!("[{}]", "-".repeat(30))));
        assert!(line("sending", most, Progress::default()).contains(&format!("[{}]", "#".repeat(30))));
        let half = Progress { changes: 5, bytes: 1 << 19 };
        let shown = line("sending", most, half);
        assert!(shown.contains(&format!("[{}{}]", "#".repeat(15), "-".repeat(15))), "{shown}");
        assert!(shown.ends_with("5 changes, 0.5 MiB left"));
    }
}
