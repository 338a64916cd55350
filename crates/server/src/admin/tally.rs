//! Counting what the protocols do: their observers, over the counters of `holdfast-admin`.

use std::sync::Arc;
use std::time::Instant;

use holdfast_admin::stats::{Class, Event, Operation, Stats};
use holdfast_wire::nfs3::{NfsStat3, Proc3};
use holdfast_wire::nfs4::{NfsStat4, OpNum4};

/// Procedures of NFSv3: 0 to 21.
const PROCEDURES: u32 = 22;

/// Operations of NFSv4 are numbered from 3 to below this.
const OPERATIONS: u32 = 80;

/// The observer of both protocols.
pub struct Tally {
    pub(crate) stats: Arc<Stats>,
}

impl Tally {
    /// With all counters zero.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let nfs3 = (0..PROCEDURES).map(|n| Operation {
            protocol: "nfs3",
            name: Proc3::from_u32(n).map_or("?", Proc3::name),
            class: class_of(Proc3::from_u32(n).map_or("", Proc3::name)),
        });
        // Numbers that no operation has, and whatever is none: in the last place.
        let nfs4 = (0..=OPERATIONS).map(|n| {
            let name = OpNum4::from_u32(n).unwrap_or(OpNum4::Illegal).name();
            Operation { protocol: "nfs4", name, class: class_of(name) }
        });
        Arc::new(Self { stats: Stats::new(nfs3.chain(nfs4).collect()) })
    }
}

/// What sort of work an operation is, by the name that both protocols write alike.
fn class_of(name: &str) -> Class {
    match name {
        "READ" | "READ_PLUS" | "SEEK" => Class::Read,
        "WRITE" | "COMMIT" | "ALLOCATE" | "DEALLOCATE" | "COPY" | "CLONE" | "WRITE_SAME" => Class::Write,
        "GETATTR" | "LOOKUP" | "LOOKUPP" | "ACCESS" | "READLINK" | "READDIR" | "READDIRPLUS" | "FSSTAT"
        | "FSINFO" | "PATHCONF" | "VERIFY" | "NVERIFY" | "GETXATTR" | "LISTXATTRS" => Class::Look,
        "SETATTR" | "CREATE" | "MKDIR" | "SYMLINK" | "MKNOD" | "REMOVE" | "RMDIR" | "RENAME" | "LINK"
        | "SETXATTR" | "REMOVEXATTR" => Class::Change,
        _ => Class::State,
    }
}

impl holdfast_nfs3::Observer for Tally {
    fn begins(&self, may_wait: bool) -> Option<(Instant, u32)> {
        self.stats.begin(may_wait)
    }

    fn answered(&self, answered: &holdfast_nfs3::Answered) {
        self.stats.record(&Event {
            op: answered.procedure.as_u32() as usize,
            is_error: answered.status != NfsStat3::Ok,
            peer: answered.peer,
            export: answered.export,
            received: answered.received,
            sent: answered.sent,
            took: answered.took,
            weight: answered.weight,
        });
    }
}

impl holdfast_nfs4::Observer for Tally {
    fn begins(&self, may_wait: bool) -> Option<(Instant, u32)> {
        self.stats.begin(may_wait)
    }

    fn operation(&self, observed: &holdfast_nfs4::Observed) {
        self.stats.record(&Event {
            op: (PROCEDURES + observed.op.as_u32().min(OPERATIONS)) as usize,
            is_error: observed.status != NfsStat4::Ok,
            peer: observed.peer,
            export: observed.export,
            received: observed.received,
            sent: observed.sent,
            took: observed.took,
            weight: observed.weight,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_has_a_row_of_its_own_name() {
        let read = Tally::new().stats.read();
        let name = |at: u32| read.operations[at as usize].0.name;
        assert_eq!([name(0), name(1), name(21)], ["NULL", "GETATTR", "COMMIT"]);
        for n in 3..OPERATIONS {
            let op = OpNum4::from_u32(n).unwrap_or(OpNum4::Illegal);
            assert_eq!(name(PROCEDURES + n), op.name());
        }
        assert_eq!(name(PROCEDURES + OPERATIONS), "ILLEGAL");
        assert!(OpNum4::from_u32(OPERATIONS).is_none(), "a new operation needs a place");
    }
}
