//! What failed after it had returned, for the log and for people: each time with the path, which is worked out when it is told,
//! for many at once.

use crate::ids::{Name, NodeId};
use crate::machine::Machine;
use crate::tell::Report;

/// A report, and the name it is about where that is not simply the object's.
#[derive(Debug)]
pub(crate) struct Noted {
    report: Report,
    at: Option<(NodeId, Name)>,
}

impl Machine {
    /// Notes what changed something after it had returned, and failed.
    pub(crate) fn report(&mut self, report: Report) {
        self.report_at(None, report);
    }

    /// Notes what is to be known and is no change that failed; once, until it is given out.
    pub(crate) fn tell(&mut self, report: Report) {
        self.tell_of(None, report);
    }

    /// The same of a name.
    pub(crate) fn tell_of(&mut self, at: Option<(NodeId, Name)>, report: Report) {
        let room = self.reports.len() < holdfast_base::limits::REPORTS_MAX;
        if room && !self.reports.iter().any(|noted| noted.report == report && noted.at == at) {
            self.reports.push_back(Noted { report, at });
        }
    }

    /// The same of a name, which the object may not have any more.
    pub(crate) fn report_at(&mut self, at: Option<(NodeId, Name)>, report: Report) {
        self.error.get_or_insert(report.errno);
        if self.reports.len() < holdfast_base::limits::REPORTS_MAX {
            self.reports.push_back(Noted { report, at });
        }
    }

    /// Failures of what had already returned, for the log; each is given out once.
    pub fn take_reports(&mut self) -> Vec<Report> {
        if self.reports.is_empty() {
            return Vec::new();
        }
        // Names may be forgotten of what the server refuses when it is back.
        let places = self.last_places();
        let noted = std::mem::take(&mut self.reports);
        let with_path = |Noted { mut report, at }: Noted| {
            report.path = match (&at, report.node) {
                (Some((dir, name)), _) => {
                    let mut path = crate::persist::path_of(&places, *dir);
                    path.extend((!path.is_empty()).then_some(b'/'));
                    path.extend_from_slice(name.as_bytes());
                    path
                }
                (None, Some(node)) => crate::persist::path_of(&places, node),
                (None, None) => Vec::new(),
            };
            report.fileid = report.node.and_then(|id| self.nodes.get(&id)).map(|n| n.attrs.fileid);
            report
        };
        noted.into_iter().map(with_path).collect()
    }
}
