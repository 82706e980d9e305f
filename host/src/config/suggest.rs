//! "Did you mean": the nearest of the words that would have been right.

/// The nearest of `known` to `seen`, when it is near enough to be a slip of the hand.
pub(super) fn nearest<'a>(seen: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let allowed = (seen.chars().count() / 3).max(1);
    let scored = known.into_iter().map(|word| (distance(&seen.to_lowercase(), &word.to_lowercase()), word));
    scored.filter(|(far, _)| *far <= allowed).min().map(|(_, word)| word)
}

/// How many letters must be inserted, removed, replaced or swapped with a neighbour to turn one word into the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    let mut left_of_a = None;
    for (row, from) in a.chars().enumerate() {
        let mut line = vec![row + 1];
        for (column, to) in b.iter().enumerate() {
            let cell = |of: &[usize], at: usize| of.get(at).copied().unwrap_or(usize::MAX - 1);
            let replaced = cell(&last, column) + usize::from(from != *to);
            let mut least = replaced.min(cell(&last, column + 1) + 1).min(cell(&line, column) + 1);
            let left_of_b = column.checked_sub(1).and_then(|at| b.get(at)).copied();
            if left_of_a == Some(*to) && left_of_b == Some(from) {
                least = least.min(cell(&before_last, column - 1) + 1);
            }
            line.push(least);
        }
        before_last = std::mem::replace(&mut last, line);
        left_of_a = Some(from);
    }
    last.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_hand_finds_the_word_that_was_meant() {
        let known = ["endpoint", "security", "publish", "sampling", "silence"];
        assert_eq!(nearest("endpiont", known), Some("endpoint"));
        assert_eq!(nearest("Sampling", known), Some("sampling"));
        assert_eq!(nearest("publsh", known), Some("publish"));
    }

    #[test]
    fn a_word_that_is_like_none_suggests_none() {
        assert_eq!(nearest("colour", ["endpoint", "security"]), None);
        assert_eq!(nearest("", ["endpoint"]), None);
    }
}
