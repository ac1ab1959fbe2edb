//! The numbers that one object gives, by key.

use std::collections::BTreeMap;

use super::reader::ConfigReader;
use crate::limits::{Bound, SEARCH_DEFAULT_LIMIT};

/// The given numbers, already within their ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Numbers(BTreeMap<&'static str, u64>);

impl Numbers {
    pub(super) fn read(reader: &mut ConfigReader<'_, '_>, bounds: &[&Bound]) -> Self {
        Self(bounds.iter().filter_map(|bound| Some((bound.key, reader.number(bound)?))).collect())
    }

    pub(super) fn merged_over(&self, base: &Self) -> Self {
        let mut merged = base.0.clone();
        merged.extend(&self.0);
        Self(merged)
    }

    pub(super) fn given(&self, bound: &Bound) -> Option<u64> {
        self.0.get(bound.key).copied()
    }

    pub(super) fn get(&self, bound: &Bound) -> u64 {
        self.given(bound).unwrap_or(bound.default)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// How many tools a search returns, by default and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SearchLimits {
    pub default: u64,
    pub max: u64,
}

impl SearchLimits {
    pub(super) fn of(numbers: &Numbers, max: &Bound) -> Self {
        let max = numbers.get(max);
        Self { default: numbers.get(&SEARCH_DEFAULT_LIMIT).min(max), max }
    }
}
