//! How steeply a curve grows.

/// Returns the steepest slope on logarithmic axes in the larger half of a curve of `(size, value)`, smallest size first:
/// 0 is flat, 1 is linear, 2 is quadratic.
///
/// The value at the smallest size is taken as the constant part, and subtracted where a value is at least twice it.
/// Below that, the difference would be mostly noise. Each point is compared with the nearest one of at most half its
/// size, because closer ones would amplify the noise.
pub fn steepest_slope(curve: &[(f64, f64)]) -> f64 {
    let Some((_, constant)) = curve.first() else { return 0.0 };
    let growing = |value: f64| if value >= 2.0 * constant { value - constant } else { value };
    let slope = |(at, (size, value)): (usize, &(f64, f64))| {
        let before = curve.get(..at)?.iter().rev().find(|(smaller, _)| 2.0 * smaller <= *size)?;
        let (from, to) = (growing(before.1), growing(*value));
        (from > 0.0 && to > 0.0).then(|| (to / from).ln() / (size / before.0).ln())
    };
    let slopes = curve.iter().enumerate().skip(curve.len() / 2 + 1).filter_map(slope);
    slopes.reduce(f64::max).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::steepest_slope;

    fn slope_of(value: impl Fn(f64) -> f64) -> f64 {
        steepest_slope(&[1.0, 10.0, 100.0, 1_000.0, 10_000.0].map(|size| (size, value(size))))
    }

    #[test]
    fn a_constant_has_no_slope_and_powers_have_their_exponents() {
        assert_eq!(slope_of(|_| 7.0), 0.0);
        assert!((slope_of(|size| size) - 1.0).abs() < 0.01);
        assert!((slope_of(|size| size * size) - 2.0).abs() < 0.01);
    }

    #[test]
    fn a_constant_part_does_not_hide_a_quadratic_one() {
        assert!(slope_of(|size| 1e3 + size * size) > 1.9);
    }

    #[test]
    fn points_that_are_close_together_are_not_compared() {
        let slope = steepest_slope(&[(1.0, 1.0), (2.0, 1.0), (3.0, 1.2)]);
        assert!(slope < 0.2, "{slope}");
    }
}
