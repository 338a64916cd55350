//! What could not be done on the server after an application was told that it was done: in the log, and for who asks next
//! (`holdfast mount sync`, `umount`).

use std::collections::VecDeque;

use holdfast_volume::cache::Report;
use parking_lot::Mutex;

/// So many are kept to be shown; the log has all.
const SHOWN_MAX: usize = 8;

/// Failures since somebody last asked.
#[derive(Debug, Default)]
pub(crate) struct Complaints {
    lately: Mutex<VecDeque<String>>,
}

impl Complaints {
    /// Puts reports into the log, with the server that refused.
    pub(crate) fn tell(&self, reports: Vec<Report>, (source, server): (&str, Option<&str>)) {
        let mut lately = self.lately.lock();
        for report in reports {
            let line = worded(&report);
            tracing::error!(source, server, "not done on the server: {line}");
            if lately.len() < SHOWN_MAX {
                lately.push_back(line);
            }
        }
    }

    /// Those since the last time, the first of them.
    pub(crate) fn take(&self) -> Vec<String> {
        self.lately.lock().drain(..).collect()
    }
}

/// `/dir/file: write: No space left on device (os error 28)`.
fn worded(report: &Report) -> String {
    let name = match (report.path.is_empty(), report.fileid) {
        (false, _) => format!("/{}", String::from_utf8_lossy(&report.path)),
        (true, Some(number)) => format!("inode {number}"),
        (true, None) => "a file".to_owned(),
    };
    let why = std::io::Error::from_raw_os_error(report.errno.0);
    let kept_as = report.kept_as.as_ref().map(|name| String::from_utf8_lossy(name.as_bytes()).into_owned());
    let kept_as = kept_as.map(|name| format!("; ours is {name}")).unwrap_or_default();
    format!("{name}: {}: {why}{kept_as}", report.what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_volume::cache::{Errno, Name};

    fn report(path: &str) -> Report {
        Report {
            what: "write".into(),
            path: path.into(),
            fileid: Some(77),
            node: None,
            errno: Errno::ENOSPC,
            kept_as: None,
        }
    }

    #[test]
    fn a_complaint_names_the_file_and_why() {
        assert_eq!(worded(&report("d/f")), "/d/f: write: No space left on device (os error 28)");
        assert!(worded(&report("")).starts_with("inode 77: write: "));
        let aside = Report { kept_as: Some(Name::new(b"f-1")), ..report("f") };
        assert!(worded(&aside).ends_with("; ours is f-1"), "{}", worded(&aside));
    }

    #[test]
    fn who_asks_is_shown_the_first_ones_once() {
        let complaints = Complaints::default();
        complaints.tell((0..20).map(|n| report(&n.to_string())).collect(), ("s:/e", None));
        let shown = complaints.take();
        assert_eq!(shown.len(), SHOWN_MAX);
        assert!(shown[0].starts_with("/0: "), "{shown:?}");
        assert_eq!(complaints.take(), [""; 0]);
    }
}
