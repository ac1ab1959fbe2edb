//! The `WWW-Authenticate` challenge of a server, which describes the login that it requires.

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};

/// A longer challenge is ignored.
const MAX_BYTES: usize = 8 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Challenge(String);

impl Challenge {
    /// Returns the first bearer challenge; a server may also offer other schemes.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        headers.get_all(WWW_AUTHENTICATE).iter().find_map(|value| Self::read(value.to_str().ok()?))
    }

    pub(crate) fn read(text: &str) -> Option<Self> {
        let scheme = text.split_ascii_whitespace().next()?;
        let ours = text.len() <= MAX_BYTES && scheme.eq_ignore_ascii_case("bearer");
        ours.then(|| Self(text.to_owned()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns true if the current login lacks scopes.
    pub(crate) fn wants_more(&self) -> bool {
        self.parameter("error").as_deref() == Some("insufficient_scope")
    }

    /// Returns the required scopes; empty if the server names none.
    pub(crate) fn scopes(&self) -> Vec<String> {
        self.parameter("scope").iter().flat_map(|scope| scope.split_ascii_whitespace()).map(str::to_owned).collect()
    }

    /// Returns the URL of the server's resource metadata, which names its issuer.
    pub(crate) fn metadata(&self) -> Option<String> {
        self.parameter("resource_metadata")
    }

    fn parameter(&self, wanted: &str) -> Option<String> {
        let mut rest = self.0.as_str();
        while let Some((before, after)) = rest.split_once('=') {
            let name = before.trim_end().rsplit([' ', '\t', ',']).next().unwrap_or_default();
            let (value, behind) = value(after.trim_start());
            if name.eq_ignore_ascii_case(wanted) {
                return Some(value);
            }
            rest = behind;
        }
        None
    }
}

/// Splits off a parameter's value: a quoted string with backslash escapes, or a bare word.
fn value(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([' ', '\t', ',']).unwrap_or(text.len());
        let (word, behind) = text.split_at(end);
        return (word.to_owned(), behind);
    };
    let mut value = String::new();
    let mut escaped = false;
    for (at, c) in quoted.char_indices() {
        match c {
            _ if escaped => {
                escaped = false;
                value.push(c);
            }
            '\\' => escaped = true,
            '"' => return (value, quoted.get(at + 1..).unwrap_or_default()),
            _ => value.push(c),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use reqwest::header::{HeaderMap, HeaderValue, WWW_AUTHENTICATE};

    use super::{Challenge, MAX_BYTES};

    #[test]
    fn a_challenge_is_parsed_in_any_order_and_quoting() {
        let read = |text: &str| {
            let challenge = Challenge::read(text).unwrap();
            (challenge.wants_more(), challenge.scopes().join("+"), challenge.metadata())
        };
        let at = || Some("https://s.example/meta".to_owned());
        let cases = [
            (r#"Bearer error="insufficient_scope", scope="a b""#, (true, "a+b", None)),
            (r#"bearer  scope=a,resource_metadata="https://s.example/meta""#, (false, "a", at())),
            (
                r#"Bearer error_description="scope=\"x\", error=insufficient_scope", error="invalid_token""#,
                (false, "", None),
            ),
            (r#"Bearer realm="a", scope = "b", Scope="c""#, (false, "b", None)),
            (r#"Bearer scope="unended"#, (false, "unended", None)),
            ("Bearer", (false, "", None)),
            ("Bearer ===", (false, "", None)),
        ];
        for (text, (more, scopes, metadata)) in cases {
            assert_eq!(read(text), (more, scopes.to_owned(), metadata), "{text}");
        }
    }

    #[test]
    fn only_bearer_challenges_are_used() {
        assert_eq!(Challenge::read("Basic realm=\"x\""), None);
        assert_eq!(Challenge::read(""), None);
        assert_eq!(Challenge::read(&format!("Bearer scope={}", "x".repeat(MAX_BYTES))), None);
        let mut headers = HeaderMap::new();
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"x\""));
        assert_eq!(Challenge::of(&headers), None);
        headers.append(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer scope=a"));
        assert_eq!(Challenge::of(&headers).unwrap().as_str(), "Bearer scope=a");
    }
}
