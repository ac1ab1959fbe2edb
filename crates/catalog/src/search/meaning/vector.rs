//! A direction, in bytes: what two of them share is a sum of products.

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Vector {
    values: Box<[i8]>,
    /// What one step of a value is worth.
    step: f32,
}

impl Vector {
    /// The direction of this sum; a sum of nothing has none.
    pub(crate) fn unit(sum: &[f32]) -> Option<Self> {
        let length = sum.iter().map(|value| value * value).sum::<f32>().sqrt();
        let largest = sum.iter().fold(0.0_f32, |largest, value| largest.max(value.abs()));
        if length <= f32::EPSILON {
            return None;
        }
        let per_step = 127.0 / largest;
        #[expect(clippy::cast_possible_truncation, reason = "the largest becomes 127")]
        let values = sum.iter().map(|value| (value * per_step).round() as i8).collect();
        Some(Self { values, step: 1.0 / per_step / length })
    }

    /// From -1, opposite, to 1, alike.
    pub(crate) fn nearness(&self, other: &Self) -> f32 {
        let products = self.values.iter().zip(&other.values).map(|(a, b)| i32::from(*a) * i32::from(*b));
        products.sum::<i32>() as f32 * self.step * other.step
    }
}

#[cfg(test)]
mod tests {
    use super::Vector;

    #[test]
    fn nearness_is_the_cosine() {
        let vector = |values: &[f32]| Vector::unit(values).unwrap();
        let near = |a: &[f32], b: &[f32]| vector(a).nearness(&vector(b));
        assert!((near(&[3.0, 4.0], &[3.0, 4.0]) - 1.0).abs() < 0.01);
        assert!((near(&[1.0, 0.0], &[1.0, 1.0]) - 0.707).abs() < 0.01);
        assert!((near(&[1.0, 2.0], &[-1.0, -2.0]) + 1.0).abs() < 0.01);
        assert_eq!(Vector::unit(&[0.0, 0.0]), None);
    }
}
