//! Sizes as people write them: `"32MiB"`.

/// Bytes of a size like `"32MiB"`, `"512KiB"` or `"1GiB"`.
///
/// # Errors
/// A sentence that says what was seen and what is wanted.
pub fn parse(text: &str) -> Result<usize, String> {
    let wrong = || format!("{text:?} is no size: write a whole number with KiB, MiB or GiB, such as \"32MiB\"");
    let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = text.split_at_checked(digits).ok_or_else(wrong)?;
    let shift = match unit.trim() {
        "KiB" => 10_u32,
        "MiB" => 20,
        "GiB" => 30,
        _ => return Err(wrong()),
    };
    let number: usize = number.parse().map_err(|_| wrong())?;
    number.checked_mul(1 << shift).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn binary_units_are_read() {
        assert_eq!(parse("32MiB"), Ok(32 << 20));
        assert_eq!(parse("1 GiB"), Ok(1 << 30));
    }

    #[test]
    fn what_is_no_size_says_what_is_wanted() {
        for text in ["", "MiB", "32", "32MB", "-1MiB", "99999999999999999999GiB"] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("such as \"32MiB\""), "{error}");
        }
    }
}
