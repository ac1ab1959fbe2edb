//! The arguments of a call. The catalog has checked them against the schema; what it could not decide is checked here.

use contract::limits::Bound;
use serde_json::Value;

use super::failure::Failure;

/// The arguments of a call, an object.
pub(super) struct Input<'v>(&'v Value);

impl<'v> Input<'v> {
    pub(super) fn of(value: &'v Value) -> Self {
        Self(value)
    }

    /// Returns an argument, unless it is absent or `null`.
    fn given(&self, key: &str) -> Option<&'v Value> {
        self.0.get(key).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'v str>, Failure> {
        let Some(value) = self.given(key) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| Failure::new(format!("`{key}` must be a string")))
    }

    pub(super) fn required_text(&self, key: &str) -> Result<&'v str, Failure> {
        self.text(key)?.ok_or_else(|| Failure::new(format!("`{key}` is missing; give it as a string")))
    }

    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>, Failure> {
        let Some(value) = self.given(key) else { return Ok(None) };
        value.as_bool().map(Some).ok_or_else(|| Failure::new(format!("`{key}` must be `true` or `false`")))
    }

    /// Returns a whole number of at least 1.
    pub(super) fn count(&self, key: &str) -> Result<Option<u64>, Failure> {
        match self.whole(key)? {
            Some(0) => Err(Failure::new(format!("`{key}` must be at least 1"))),
            other => Ok(other),
        }
    }

    /// Returns a number within its range, or its default.
    pub(super) fn bounded(&self, bound: &Bound) -> Result<usize, Failure> {
        let number = self.whole(bound.key)?.map_or(bound.default, |given| bound.clamp(given));
        Ok(usize::try_from(number).unwrap_or(usize::MAX))
    }

    fn whole(&self, key: &str) -> Result<Option<u64>, Failure> {
        let Some(value) = self.given(key) else { return Ok(None) };
        let float = || value.as_f64().filter(|number| *number >= 0.0 && number.fract() == 0.0 && *number < 1e15);
        // Within the range of the filter, the cast is exact.
        let whole = value.as_u64().or_else(|| float().map(|number| number as u64));
        whole.map(Some).ok_or_else(|| Failure::new(format!("`{key}` must be a whole number")))
    }

    pub(super) fn list(&self, key: &str) -> Result<Option<&'v [Value]>, Failure> {
        let Some(value) = self.given(key) else { return Ok(None) };
        let list = value.as_array().map(Vec::as_slice);
        list.map(Some).ok_or_else(|| Failure::new(format!("`{key}` must be a list")))
    }
}
