//! Ages and durations, as people type and read them.

use store::Millis;

const UNITS: [(&str, Millis); 5] =
    [("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000), ("w", 7 * 86_400_000)];

/// A duration that was typed as a number and a unit, such as `90s`, `30m`, `12h`, `7d` or `2w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Age(pub(crate) Millis);

impl Age {
    /// Parses an age, for `clap`.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "expected a number and a unit, such as 30m, 12h or 7d (units: s, m, h, d, w)".to_owned();
        let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
        let unit = text.get(digits.len()..).unwrap_or_default();
        let (_, milliseconds) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        let number: u32 = digits.parse().map_err(|_| wrong())?;
        Millis::from(number).checked_mul(milliseconds).map(Self).ok_or_else(|| "it is too long".to_owned())
    }

    /// Returns the time this long before `now`.
    pub(crate) fn before(self, now: Millis) -> Millis {
        now.saturating_sub(self.0)
    }
}

/// Formats a duration in one unit: `350 ms`, `12 s`, `5 min`, `3 h`, `2 d`.
pub(crate) fn span(ms: Millis) -> String {
    let ms = ms.max(0);
    match ms / 1000 {
        0 => format!("{ms} ms"),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} d", seconds / 86_400),
    }
}

/// Returns how long ago something was, rounded: `just now`, `5 min ago`, `3 h ago`, `2 days ago`.
pub(crate) fn ago(ms: Millis) -> String {
    match ms / 1000 {
        ..60 => "just now".to_owned(),
        seconds @ 60..7_200 => format!("{} min ago", seconds / 60),
        seconds @ 7_200..172_800 => format!("{} h ago", seconds / 3_600),
        seconds => format!("{} days ago", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::{Age, ago, span};

    #[test]
    fn times_are_printed_as_rounded_ages() {
        let cases = [(-5, "just now"), (59_000, "just now"), (60_000, "1 min ago"), (7_199_000, "119 min ago")];
        let later = [(7_200_000, "2 h ago"), (172_800_000, "2 days ago")];
        for (milliseconds, expected) in cases.into_iter().chain(later) {
            assert_eq!(ago(milliseconds), expected);
        }
    }

    #[test]
    fn spans_are_printed_in_a_fitting_unit() {
        let printed = [-5, 350, 1_000, 119_999, 120_000, 7_200_000, 172_800_000].map(span);
        assert_eq!(printed, ["0 ms", "350 ms", "1 s", "119 s", "2 min", "2 h", "2 d"]);
    }

    #[test]
    fn an_age_needs_a_number_and_a_unit() {
        assert_eq!(Age::parse("90s"), Ok(Age(90_000)));
        assert_eq!(Age::parse("0d"), Ok(Age(0)));
        assert_eq!(Age::parse("2w").map(|age| age.before(14 * 86_400_000)), Ok(0));
        for wrong in ["", "7", "d", "-1d", "1.5h", "7 d", "7d ", "7y", "99999999999999999w", "ä"] {
            assert!(Age::parse(wrong).is_err(), "{wrong}");
        }
    }
}
