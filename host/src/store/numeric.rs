//! Exact numbers between their text and PostgreSQL's binary form: groups of four decimal digits, so that no digit is ever lost.
//!
//! Counters are unsigned 64-bit values in `numeric(20)` and totals are `numeric(30)`; the usual decimal types stop at 28 digits.

/// The most digits of a parameter.
const MOST_DIGITS: usize = 1_000;

const NEGATIVE: u16 = 0x4000;

/// Why a text is not an exact number.
pub(super) const WANTED: &str =
    "an exact number is written as digits with an optional sign and point, at most 1000 digits";

/// Appends the binary form of `text`, or answers `None` and appends nothing.
pub(super) fn encode(text: &str, out: &mut Vec<u8>) -> Option<()> {
    let (negative, digits) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    };
    let point = digits.iter().position(|b| *b == b'.').unwrap_or(digits.len());
    let (whole, fraction) = (digits.get(..point)?, digits.get(point + 1..).unwrap_or(&[]));
    let count = whole.len() + fraction.len();
    if count == 0 || count > MOST_DIGITS || !whole.iter().chain(fraction).all(u8::is_ascii_digit) {
        return None;
    }
    let mut groups: Vec<u16> = Vec::with_capacity(count / 4 + 2);
    let first = whole.len() % 4;
    let (head, rest) = whole.split_at_checked(first)?;
    if first > 0 {
        groups.push(group(head));
    }
    groups.extend(rest.chunks(4).map(group));
    let mut weight = i16::try_from(groups.len()).ok()? - 1;
    groups.extend(fraction.chunks(4).map(|c| {
        let missing = u32::try_from(4 - c.len()).unwrap_or(0);
        group(c) * 10_u16.pow(missing)
    }));
    let leading = groups.iter().take_while(|g| **g == 0).count();
    weight -= i16::try_from(leading).ok()?;
    let significant = groups.get(leading..).unwrap_or(&[]);
    let trailing = significant.iter().rev().take_while(|g| **g == 0).count();
    let significant = significant.get(..significant.len() - trailing).unwrap_or(&[]);
    if significant.is_empty() {
        weight = 0;
    }
    let sign = if negative && !significant.is_empty() { NEGATIVE } else { 0 };
    out.extend_from_slice(&u16::try_from(significant.len()).ok()?.to_be_bytes());
    out.extend_from_slice(&weight.to_be_bytes());
    out.extend_from_slice(&sign.to_be_bytes());
    out.extend_from_slice(&u16::try_from(fraction.len()).ok()?.to_be_bytes());
    for group in significant {
        out.extend_from_slice(&group.to_be_bytes());
    }
    Some(())
}

fn group(digits: &[u8]) -> u16 {
    digits.iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'))
}

/// The text of a binary number; `None` when the bytes are none.
pub(super) fn decode(bytes: &[u8]) -> Option<String> {
    let mut words = bytes.chunks_exact(2).map(|pair| pair.try_into().map_or(0, u16::from_be_bytes));
    let count = words.next()?;
    let weight = i32::from(words.next()?.cast_signed());
    let sign = words.next()?;
    let scale = usize::from(words.next()?);
    let groups: Vec<u16> = words.collect();
    if groups.len() != usize::from(count) {
        return None;
    }
    match sign {
        0 | NEGATIVE => {}
        0xC000 => return Some("NaN".to_owned()),
        0xD000 => return Some("Infinity".to_owned()),
        0xF000 => return Some("-Infinity".to_owned()),
        _ => return None,
    }
    // The group that counts units of 10000^power.
    let at = |power: i32| usize::try_from(weight - power).ok().and_then(|i| groups.get(i)).copied().unwrap_or(0);
    let mut text = String::with_capacity(groups.len() * 4 + 4);
    if sign == NEGATIVE {
        text.push('-');
    }
    let whole: String = (0..=weight.max(0)).rev().map(|power| format!("{:04}", at(power))).collect();
    let whole = whole.trim_start_matches('0');
    text.push_str(if whole.is_empty() { "0" } else { whole });
    if scale > 0 {
        let powers = i32::try_from(scale.div_ceil(4)).ok()?;
        let fraction: String = (1..=powers).map(|power| format!("{:04}", at(-power))).collect();
        text.push('.');
        text.push_str(fraction.get(..scale)?);
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(text: &str) -> String {
        let mut bytes = Vec::new();
        encode(text, &mut bytes).unwrap();
        decode(&bytes).unwrap()
    }

    #[test]
    fn every_digit_survives() {
        for text in [
            "0",
            "1",
            "-1",
            "9999",
            "10000",
            "18446744073709551615",
            "-18446744073709551615",
            "123456789012345678901234567890",
            "0.1",
            "0.00010001",
            "-0.00001",
            "12345.678900",
            "100000000.00000001",
            "40000",
            "0.000000000000000000000000000001",
        ] {
            assert_eq!(round(text), text);
        }
    }

    #[test]
    fn random_numbers_survive() {
        for seed in 0..2_000 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut digits = |most: usize| -> String {
                let count = random.usize(0..most);
                (0..count).map(|_| random.digit(10)).collect()
            };
            let whole = digits(30);
            let whole = whole.trim_start_matches('0');
            let fraction = digits(20);
            let whole = if whole.is_empty() { "0" } else { whole };
            let text = if fraction.is_empty() { whole.to_owned() } else { format!("{whole}.{fraction}") };
            assert_eq!(round(&text), text);
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        for text in ["", "-", ".", "1e5", "NaN", "1.2.3", " 1", "١", "0x10"] {
            let mut bytes = Vec::new();
            assert!(encode(text, &mut bytes).is_none(), "{text:?}");
            assert!(bytes.is_empty());
        }
    }

    #[test]
    fn odd_ways_to_write_a_number_mean_the_same() {
        assert_eq!(round("+007"), "7");
        assert_eq!(round("-0"), "0");
        assert_eq!(round(".5"), "0.5");
        assert_eq!(round("5."), "5");
    }
}
