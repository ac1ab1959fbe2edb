//! Unit vectors, quantised to bytes and compared by dot product.

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Vector {
    values: Box<[i8]>,
    /// The value of one quantisation step.
    step: f32,
}

impl Vector {
    /// Returns the direction of this sum; `None` for a zero sum.
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

    pub(crate) fn to_query(&self) -> QueryVector {
        QueryVector { values: self.values.iter().map(|value| i16::from(*value)).collect(), step: self.step }
    }
}

/// A query vector, widened to the type in which products are computed.
#[derive(Debug)]
pub(crate) struct QueryVector {
    values: Box<[i16]>,
    step: f32,
}

/// Many vectors in one array.
#[derive(Debug, Default)]
pub(crate) struct Vectors {
    values: Vec<i8>,
    /// The step of each vector; 0 for a text without one.
    steps: Vec<f32>,
    dimensions: usize,
}

impl Vectors {
    pub(crate) fn new<'a>(vectors: impl Iterator<Item = Option<&'a Vector>> + Clone) -> Self {
        let dimensions = vectors.clone().flatten().map(|vector| vector.values.len()).next().unwrap_or_default();
        let mut made = Self { dimensions, ..Self::default() };
        for vector in vectors {
            match vector {
                Some(vector) => made.values.extend(&vector.values),
                None => made.values.resize(made.values.len() + dimensions, 0),
            }
            made.steps.push(vector.map_or(0.0, |vector| vector.step));
        }
        made
    }

    /// Returns the cosine with each vector, from -1 to 1.
    pub(crate) fn nearness(&self, asked: &QueryVector) -> Vec<f32> {
        let rows = self.values.chunks_exact(self.dimensions.max(1));
        rows.zip(&self.steps).map(|(row, step)| shared(row, &asked.values) as f32 * step * asked.step).collect()
    }

    pub(crate) fn nearness_of(&self, number: usize, asked: &QueryVector) -> f32 {
        let row = self.values.get(number * self.dimensions..(number + 1) * self.dimensions).unwrap_or_default();
        let step = self.steps.get(number).copied().unwrap_or_default();
        shared(row, &asked.values) as f32 * step * asked.step
    }
}

/// Written so that the compiler vectorises it.
fn shared(row: &[i8], asked: &[i16]) -> i32 {
    row.iter().zip(asked).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}

#[cfg(test)]
mod tests {
    use super::{Vector, Vectors};

    #[test]
    fn nearness_is_the_cosine() {
        let vector = |values: &[f32]| Vector::unit(values).unwrap();
        let near =
            |a: &[f32], b: &[f32]| Vectors::new([Some(&vector(a)), None].into_iter()).nearness(&vector(b).to_query());
        assert!((near(&[3.0, 4.0], &[3.0, 4.0])[0] - 1.0).abs() < 0.01);
        assert!((near(&[1.0, 0.0], &[1.0, 1.0])[0] - 0.707).abs() < 0.01);
        assert!((near(&[1.0, 2.0], &[-1.0, -2.0])[0] + 1.0).abs() < 0.01);
        assert_eq!(near(&[1.0, 2.0], &[-1.0, -2.0])[1], 0.0);
        assert_eq!(Vector::unit(&[0.0, 0.0]), None);
    }
}
