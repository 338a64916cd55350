//! Moments as people read them: dates and times of day in UTC.

/// A moment's date and time of day in UTC, by the Gregorian calendar. Leap seconds are not told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// 1970 and later.
    pub year: u64,
    /// 1 to 12.
    pub month: u64,
    /// 1 to 31.
    pub day: u64,
    /// 0 to 23.
    pub hour: u64,
    /// 0 to 59.
    pub minute: u64,
    /// 0 to 59.
    pub second: u64,
}

impl Civil {
    /// So many seconds after 1970 began. Days are counted in eras of 400 years that begin on the first of March.
    #[must_use]
    pub const fn from_unix(seconds: u64) -> Self {
        let (days, of_day) = (seconds / 86_400 + 719_468, seconds % 86_400);
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        Self {
            year: era * 400 + year_of_era + (month <= 2) as u64,
            month,
            day: day_of_year - (153 * march_month + 2) / 5 + 1,
            hour: of_day / 3600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leap_days_and_the_ends_of_days_and_centuries_are_right() {
        for (seconds, year, month, day, of_day) in [
            (0, 1970, 1, 1, (0, 0, 0)),
            (951_782_400, 2000, 2, 29, (0, 0, 0)),
            (1_709_251_199, 2024, 2, 29, (23, 59, 59)),
            (4_102_444_800, 2100, 1, 1, (0, 0, 0)),
        ] {
            let (hour, minute, second) = of_day;
            assert_eq!(Civil::from_unix(seconds), Civil { year, month, day, hour, minute, second });
        }
    }
}
