//! What a figure is held to.

use serde::Serialize;

/// What is wanted of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Wanted {
    /// At most this much.
    AtMost(f64),
    /// At least this much.
    AtLeast(f64),
    /// Shown beside another.
    Shown,
}

impl Wanted {
    /// Whether `value` is that: a value that is none is not.
    pub(crate) fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
            Self::Shown => true,
        }
    }

    /// What is wanted, and whether `value` is that.
    pub(crate) fn verdict(self, value: f64) -> String {
        let wanted = match self {
            Self::AtMost(bound) => format!("<= {bound}"),
            Self::AtLeast(bound) => format!(">= {bound}"),
            Self::Shown => return String::new(),
        };
        format!("{wanted} {}", if self.is_met(value) { "met" } else { "NOT MET" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_met_at_the_bound_and_by_no_missing_value() {
        assert_eq!(Wanted::AtMost(3.0).verdict(3.0), "<= 3 met");
        assert_eq!(Wanted::AtLeast(0.8).verdict(0.5), ">= 0.8 NOT MET");
        assert_eq!(Wanted::AtLeast(0.8).verdict(f64::NAN), ">= 0.8 NOT MET");
        assert_eq!(Wanted::AtMost(0.8).verdict(f64::NAN), "<= 0.8 NOT MET");
        assert_eq!(Wanted::Shown.verdict(1.0), "");
    }
}
