//! The bar that is shown while a mount sends what is left.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use holdfast_mount::control::Progress;

/// Shorter waits show nothing.
const QUIET: Duration = Duration::from_millis(400);

const WIDTH: u64 = 30;

/// How often a line is written on what is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(2);

/// A bar on standard error; on what is no terminal, a line now and then.
pub(crate) struct ProgressBar {
    doing: &'static str,
    since: Instant,
    /// When a line was written last, or the first wait began.
    told: Instant,
    /// The most that there was to do, which is what the whole bar stands for.
    most: Progress,
    is_shown: bool,
}

impl ProgressBar {
    pub(crate) fn new(doing: &'static str) -> Self {
        let now = Instant::now();
        Self { doing, since: now, told: now, most: Progress::default(), is_shown: false }
    }

    /// Shows how much is left.
    pub(crate) fn show(&mut self, left: Progress) {
        self.most.changes = self.most.changes.max(left.changes);
        self.most.bytes = self.most.bytes.max(left.bytes);
        if !std::io::stderr().is_terminal() {
            if self.told.elapsed() >= LINE_EVERY {
                self.told = Instant::now();
                eprintln!("{}: {}", self.doing, in_words(left));
            }
            return;
        }
        if self.since.elapsed() < QUIET {
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
    let (most, rest) = (weight(most).max(1), weight(left));
    let done = (u128::from(most - rest.min(most)) * u128::from(WIDTH) / u128::from(most)) as usize;
    let bar = "#".repeat(done) + &"-".repeat(WIDTH as usize - done);
    format!("{doing} [{bar}] {}", in_words(left))
}

/// About how long it takes. A change is worth as much as 16 KiB of data; to put what is sent on a disk, a small part of sending it.
const fn weight(left: Progress) -> u64 {
    let unsent = left.bytes.saturating_sub(left.bytes_sent);
    left.changes.saturating_mul(16 << 10).saturating_add(unsent).saturating_add(left.bytes_sent / 16)
}

fn in_words(left: Progress) -> String {
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let unsent = mib(left.bytes.saturating_sub(left.bytes_sent));
    let sent = if left.bytes_sent == 0 {
        String::new()
    } else {
        format!(", {:.1} MiB sent and not on disk", mib(left.bytes_sent))
    };
    format!("{} changes, {unsent:.1} MiB left{sent}", left.changes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_is_full_when_nothing_is_left_and_empty_at_first() {
        let most = Progress { changes: 10, bytes: 1 << 20, bytes_sent: 0 };
        assert!(line("sending", most, most).contains(&format!("[{}]", "-".repeat(30))));
        assert!(line("sending", most, Progress::default()).contains(&format!("[{}]", "#".repeat(30))));
        let half = Progress { changes: 5, bytes: 1 << 19, bytes_sent: 0 };
        let shown = line("sending", most, half);
        assert!(shown.contains(&format!("[{}{}]", "#".repeat(15), "-".repeat(15))), "{shown}");
        assert!(shown.ends_with("5 changes, 0.5 MiB left"));
    }

    #[test]
    fn what_is_sent_and_not_on_disk_is_nearly_done() {
        let most = Progress { changes: 0, bytes: 32 << 20, bytes_sent: 0 };
        let sent = Progress { bytes_sent: 32 << 20, ..most };
        let shown = line("sending", most, sent);
        assert!(shown.contains(&format!("[{}--]", "#".repeat(28))), "{shown}");
        assert!(shown.ends_with("0 changes, 0.0 MiB left, 32.0 MiB sent and not on disk"), "{shown}");
    }
}
