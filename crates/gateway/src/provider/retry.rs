//! Decides whether a failed request to a provider is retried, and when.
//!
//! A failed request has had no effects: the tool calls in a response are made only after the response is complete. So
//! retrying it is always safe.

use std::time::Duration;

use wire::upstream::IncompleteResponse;

use super::error::CallError;
use super::limits::{FIRST_DELAY, MAX_ATTEMPTS, MAX_DELAY};

/// The rules for retries and fallback models.
#[derive(Clone, Copy, Debug, Default)]
pub struct RetryPolicy;

/// Whether the client has received a part of the response that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientProgress {
    Nothing,
    Something,
}

impl RetryPolicy {
    /// Returns how long to wait before the request is sent again to the same model; `None` if it is not, for example
    /// because the provider asks for more than `MAX_DELAY`.
    ///
    /// `attempt` is the number of requests so far, `jitter` a random number from 0 to 1.
    pub fn retry_delay(error: &CallError, attempt: u32, jitter: f64) -> Option<Duration> {
        if attempt >= MAX_ATTEMPTS || !is_temporary(error) {
            return None;
        }
        if let CallError::Status { retry_after: Some(requested), .. } = error {
            return (*requested <= MAX_DELAY).then_some(*requested);
        }
        let doubled = FIRST_DELAY.saturating_mul(1 << attempt.saturating_sub(1).min(16)).min(MAX_DELAY);
        // From half of the delay to all of it, so that requests that failed together are not retried together.
        let jitter = if jitter.is_finite() { jitter.clamp(0.0, 1.0) } else { 1.0 };
        Some(doubled.mul_f64(0.5 + jitter / 2.0))
    }

    /// Whether the next fallback model may be tried, if the request is not retried. It may not if the client has
    /// received a part of the response: it would receive the beginnings of two.
    pub fn may_fall_back(error: &CallError, progress: ClientProgress) -> bool {
        progress == ClientProgress::Nothing && !is_fault_of_request(error)
    }
}

/// Whether the same request may succeed later.
fn is_temporary(error: &CallError) -> bool {
    match error {
        CallError::Status { status, kind, .. } => matches!(status, 408 | 429 | 500..=599) && !is_permanent_kind(kind),
        CallError::Unreachable(_) | CallError::TimedOut(_) => true,
        CallError::Broken(IncompleteResponse::Truncated | IncompleteResponse::Unreadable(_)) => true,
        CallError::Broken(IncompleteResponse::TooLarge(_)) => false,
        CallError::Broken(IncompleteResponse::Provider(error)) => !is_permanent_kind(&error.kind),
    }
}

/// Types and codes of errors that occur again if the request is retried.
const PERMANENT_KINDS: [&str; 14] = [
    "authentication_error",
    "billing_error",
    "content_filter",
    "context_length_exceeded",
    "insufficient_quota",
    "invalid_api_key",
    "invalid_prompt",
    "invalid_request_error",
    "model_not_found",
    "not_found_error",
    "permission_error",
    "request_too_large",
    "string_above_max_length",
    "unsupported_parameter",
];

fn is_permanent_kind(kind: &str) -> bool {
    // Some providers report an HTTP status in the stream, in place of a type or code.
    let is_status = |status: u16| (400..500).contains(&status) && !matches!(status, 408 | 429);
    PERMANENT_KINDS.contains(&kind) || kind.parse().is_ok_and(is_status)
}

/// Whether the request itself is wrong, so that other models would refuse it too.
fn is_fault_of_request(error: &CallError) -> bool {
    let is_request_kind = |kind: &str| matches!(kind, "invalid_request_error" | "invalid_prompt" | "400" | "422");
    match error {
        CallError::Status { status, .. } => matches!(status, 400 | 422),
        CallError::Broken(IncompleteResponse::Provider(error)) => is_request_kind(&error.kind),
        CallError::Broken(_) | CallError::Unreachable(_) | CallError::TimedOut(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wire::upstream::{IncompleteResponse, ProviderError};

    use super::{ClientProgress, RetryPolicy};
    use crate::provider::CallError;

    fn status(status: u16, kind: &str, retry_after: Option<u64>) -> CallError {
        let retry_after = retry_after.map(Duration::from_millis);
        CallError::Status { status, kind: kind.to_owned(), message: String::new(), retry_after }
    }

    fn reported(kind: &str) -> CallError {
        CallError::Broken(IncompleteResponse::Provider(ProviderError { kind: kind.to_owned(), message: String::new() }))
    }

    #[test]
    fn each_failure_has_the_expected_retry_and_fallback() {
        let cases = [
            // The failure, whether it is retried, and whether a fallback may be tried.
            (status(400, "invalid_request_error", None), false, false),
            (status(401, "authentication_error", None), false, true),
            (status(403, "permission_error", None), false, true),
            (status(404, "not_found_error", None), false, true),
            (status(408, "", None), true, true),
            (status(409, "", None), false, true),
            (status(413, "request_too_large", None), false, true),
            (status(422, "", None), false, false),
            (status(429, "rate_limit_error", None), true, true),
            (status(429, "insufficient_quota", None), false, true),
            (status(429, "", Some(60_000)), true, true),
            (status(429, "", Some(60_001)), false, true),
            (status(500, "api_error", None), true, true),
            (status(502, "", None), true, true),
            (status(503, "", None), true, true),
            (status(529, "overloaded_error", None), true, true),
            (status(302, "redirect", None), false, true),
            (CallError::Unreachable("refused".to_owned()), true, true),
            (CallError::TimedOut(Duration::from_secs(1)), true, true),
            (CallError::Broken(IncompleteResponse::Truncated), true, true),
            (CallError::Broken(IncompleteResponse::Unreadable("x".to_owned())), true, true),
            (CallError::Broken(IncompleteResponse::TooLarge("x".to_owned())), false, true),
            (reported("overloaded_error"), true, true),
            (reported(""), true, true),
            (reported("502"), true, true),
            (reported("429"), true, true),
            (reported("402"), false, true),
            (reported("invalid_request_error"), false, false),
        ];
        for (error, is_retried, falls_back) in cases {
            assert_eq!(RetryPolicy::retry_delay(&error, 1, 0.0).is_some(), is_retried, "{error:?}");
            assert_eq!(RetryPolicy::may_fall_back(&error, ClientProgress::Nothing), falls_back, "{error:?}");
            assert!(!RetryPolicy::may_fall_back(&error, ClientProgress::Something), "{error:?}");
        }
    }

    #[test]
    fn delays_double_with_jitter_until_the_fourth_request() {
        let error = CallError::Broken(IncompleteResponse::Truncated);
        let delay = |attempt, jitter| RetryPolicy::retry_delay(&error, attempt, jitter).map(|delay| delay.as_millis());
        assert_eq!([1, 2, 3].map(|attempt| delay(attempt, 1.0)), [Some(500), Some(1_000), Some(2_000)]);
        assert_eq!([1, 2, 3].map(|attempt| delay(attempt, 0.0)), [Some(250), Some(500), Some(1_000)]);
        assert_eq!((delay(4, 1.0), delay(u32::MAX, 1.0)), (None, None));
        assert_eq!((delay(1, -3.0), delay(1, 9.0), delay(1, f64::NAN)), (Some(250), Some(500), Some(500)));
    }

    #[test]
    fn the_delay_that_a_provider_asks_for_is_used() {
        let asked = |ms: u64| RetryPolicy::retry_delay(&status(503, "", Some(ms)), 1, 0.5);
        assert_eq!((asked(0), asked(7_000)), (Some(Duration::ZERO), Some(Duration::from_secs(7))));
        assert_eq!(RetryPolicy::retry_delay(&status(503, "", Some(1)), 4, 0.5), None);
    }
}
