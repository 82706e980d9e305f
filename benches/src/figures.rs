//! Medians and percentiles.

/// The value that a share of all the others does not exceed (`share` from 0 to 1); `NaN` of nothing.
#[must_use]
pub fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a place in a short list"
    )]
    let place = (last as f64 * share.clamp(0.0, 1.0)).round() as usize;
    sorted.get(place).copied().unwrap_or(f64::NAN)
}

/// The middle one; of an even number the mean of both.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    let at = |place: usize| sorted.get(place).copied().unwrap_or(f64::NAN);
    if sorted.len() % 2 == 1 { at(half) } else { f64::midpoint(at(half.wrapping_sub(1)), at(half)) }
}

/// A bar that a figure is held against.
#[derive(Debug, Clone, Copy)]
pub enum Bar {
    /// Not below.
    AtLeast(f64),
    /// Below.
    Below(f64),
}

/// One line: what was measured, the figure, the bar, and whether it is met.
pub fn report(what: &str, figure: f64, unit: &str, bar: Bar) {
    let (met, wanted) = match bar {
        Bar::AtLeast(bar) => (figure >= bar, format!("at least {bar}")),
        Bar::Below(bar) => (figure < bar, format!("below {bar}")),
    };
    println!("{what}: {figure:.3} {unit} ({wanted} {unit}: {})", if met { "met" } else { "MISSED" });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_lies_between_the_middle_ones() {
        assert!((median(&[4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < f64::EPSILON);
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
        assert!(median(&[]).is_nan());
    }

    #[test]
    fn the_99th_percentile_of_a_hundred_leaves_one_above_it() {
        let values: Vec<f64> = (1..=101).map(f64::from).collect();
        assert!((percentile(&values, 0.99) - 100.0).abs() < f64::EPSILON);
    }
}
