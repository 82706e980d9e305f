//! Durations as people write them: `"250ms"`, `"1s"`, `"5m"`, `"2h"`, `"90d"`.
//!
//! The configuration and the manifests of roles share this parser, so that one spelling means one thing in both. A number without a
//! unit is refused: nobody should have to guess whether `5` was seconds or milliseconds.

use std::time::Duration;

const WANTED: &str = "write a whole number and a unit, ms, s, m, h or d, like \"250ms\" or \"5m\"";

/// Reads a whole number with one of the units `ms`, `s`, `m`, `h`, `d`.
///
/// # Errors
/// One sentence with what was seen and what is wanted.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is no duration: {WANTED}");
    let split = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at_checked(split).ok_or_else(wrong)?;
    let millis_each: u64 = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return Err(wrong()),
    };
    if number.is_empty() {
        return Err(wrong());
    }
    let millis = number.parse::<u64>().ok().and_then(|number| number.checked_mul(millis_each));
    millis.map(Duration::from_millis).ok_or_else(|| format!("{text:?} is too long a duration: {WANTED}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read() {
        let read = |text| parse(text).map(|d| d.as_millis());
        assert_eq!(read("250ms"), Ok(250));
        assert_eq!(read("1s"), Ok(1_000));
        assert_eq!(read("5m"), Ok(300_000));
        assert_eq!(read("2h"), Ok(7_200_000));
        assert_eq!(read("90d"), Ok(7_776_000_000));
        assert_eq!(read("0s"), Ok(0));
    }

    #[test]
    fn what_is_no_duration_is_refused_with_what_was_seen_and_what_is_wanted() {
        for seen in ["", "5", "s", "-1s", "1.5s", "1 s", "1S", "5min", "١s"] {
            let error = parse(seen).unwrap_err();
            assert_eq!(error, format!("{seen:?} is no duration: {WANTED}"));
        }
    }

    #[test]
    fn a_number_that_does_not_fit_is_refused() {
        for seen in ["18446744073709551615d", "99999999999999999999ms"] {
            assert!(parse(seen).unwrap_err().contains("is too long a duration"), "{seen}");
        }
    }
}
