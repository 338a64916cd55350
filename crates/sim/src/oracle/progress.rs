//! Every blocked request ends: once nothing fails any more, everybody finishes.

use std::collections::BTreeMap;

/// Who is doing what.
#[derive(Default)]
pub struct Progress {
    under_way: BTreeMap<String, (u64, String)>,
    begun: u64,
    ended: u64,
}

impl Progress {
    /// Somebody begins something; what he did before is over.
    pub fn doing(&mut self, who: &str, now: u64, what: impl Into<String>) {
        self.begun += 1;
        self.under_way.insert(who.into(), (now, what.into()));
    }

    /// Somebody has nothing more to do.
    pub fn done(&mut self, who: &str) {
        self.ended += 1;
        self.under_way.remove(who);
    }

    /// Whether all have.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Things done so far.
    #[must_use]
    pub const fn steps(&self) -> u64 {
        self.begun
    }

    /// Those who did not end.
    #[must_use]
    pub fn stuck(&self) -> Vec<String> {
        let told =
            |(who, (since, what)): (&String, &(u64, String))| format!("{who} since {since} ms: {what}");
        self.under_way.iter().map(told).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_does_not_end_is_named_with_what_he_waits_for() {
        let mut progress = Progress::default();
        progress.doing("a", 1, "write");
        progress.doing("b", 2, "lock");
        progress.done("a");
        assert!(!progress.is_over());
        assert_eq!(progress.stuck(), ["b since 2 ms: lock"]);
    }
}
