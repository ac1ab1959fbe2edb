//! What a request consists of besides its caller: ids in the path, the query, and a JSON body.
//!
//! The table of routes says which query parameters and which body each route takes. A request is checked against it
//! before a handler sees the request, so that the documentation of a route cannot differ from what it accepts.

use std::collections::BTreeMap;

use axum::body::{Body, to_bytes};
use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Map, Value, json};
use store::PageKey;

use super::error::ApiError;
use super::limits::{MAX_ID_BYTES, MAX_QUERY_VALUE_BYTES};

/// The values that a query parameter takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParameterKind {
    Text,
    Number { max: u32, default: u32 },
    OneOf(&'static [&'static str]),
}

/// A query parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: &'static str,
    pub(crate) kind: ParameterKind,
    pub(crate) description: &'static str,
}

impl Parameter {
    pub(crate) fn schema(&self) -> Value {
        match self.kind {
            ParameterKind::Text => json!({"type": "string", "maxLength": MAX_QUERY_VALUE_BYTES}),
            ParameterKind::Number { max, default } => {
                json!({"type": "integer", "minimum": 1, "maximum": max, "default": default})
            }
            ParameterKind::OneOf(words) => json!({"type": "string", "enum": words}),
        }
    }

    fn check(&self, value: &str) -> Result<(), ApiError> {
        let fits = match self.kind {
            ParameterKind::Text => value.len() <= MAX_QUERY_VALUE_BYTES && !value.contains(char::is_control),
            ParameterKind::Number { max, .. } => value.parse::<u32>().is_ok_and(|number| (1..=max).contains(&number)),
            ParameterKind::OneOf(words) => words.contains(&value),
        };
        if fits {
            return Ok(());
        }
        Err(ApiError::invalid(match self.kind {
            ParameterKind::Text => {
                format!("`{}` has at most {MAX_QUERY_VALUE_BYTES} bytes and no control characters", self.name)
            }
            ParameterKind::Number { max, .. } => format!("`{}` is a number from 1 to {max}", self.name),
            ParameterKind::OneOf(words) => format!("`{}` is one of {}", self.name, words.join(", ")),
        }))
    }
}

/// The query parameters of a request, which have been checked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    parameters: &'static [Parameter],
    values: BTreeMap<&'static str, String>,
}

impl Query {
    /// Parses and checks the query of a request. Every parameter must be known and may be given once.
    pub(crate) fn read(parameters: &'static [Parameter], query: &str) -> Result<Self, ApiError> {
        let mut values = BTreeMap::new();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let known = parameters.iter().find(|parameter| parameter.name == name);
            let Some(parameter) = known else {
                let known: Vec<&str> = parameters.iter().map(|parameter| parameter.name).collect();
                return Err(ApiError::invalid(match known.as_slice() {
                    [] => "this route takes no query parameters".to_owned(),
                    known => format!("unknown query parameter; this route takes {}", known.join(", ")),
                }));
            };
            parameter.check(&value)?;
            if values.insert(parameter.name, value.into_owned()).is_some() {
                return Err(ApiError::invalid(format!("`{}` is given twice", parameter.name)));
            }
        }
        Ok(Self { parameters, values })
    }

    /// Returns the value of a parameter; `None` if it is missing or empty.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the value of a number parameter, or its default if it is missing.
    pub(crate) fn number(&self, name: &str) -> u32 {
        let given = self.text(name).and_then(|value| value.parse().ok());
        let default = || {
            self.parameters.iter().find(|parameter| parameter.name == name).map_or(1, |parameter| {
                match parameter.kind {
                    ParameterKind::Number { default, .. } => default,
                    ParameterKind::Text | ParameterKind::OneOf(_) => 1,
                }
            })
        };
        given.unwrap_or_else(default)
    }

    /// Returns the position in the parameter `cursor`, after which the page begins; `None` for the first page.
    pub(crate) fn after(&self) -> Result<Option<PageKey>, ApiError> {
        self.text("cursor").map(read_cursor).transpose()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Query {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

/// Returns the cursor of the page that begins after the row with this key.
pub(crate) fn cursor(key: &PageKey) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}:{}", key.at, key.id))
}

fn read_cursor(text: &str) -> Result<PageKey, ApiError> {
    let wrong = || ApiError::invalid("`cursor` is not one that this route returned as `nextCursor`");
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| wrong())?;
    let text = String::from_utf8(bytes).map_err(|_| wrong())?;
    let (at, id) = text.split_once(':').ok_or_else(wrong)?;
    if !is_id(id) {
        return Err(wrong());
    }
    Ok(PageKey { at: at.parse().map_err(|_| wrong())?, id: id.to_owned() })
}

/// Returns the JSON of a page. The caller reads one row more than `limit`, which shows whether there is a next page.
pub(crate) fn page<T>(mut rows: Vec<T>, limit: u32, key: impl Fn(&T) -> PageKey, show: impl Fn(&T) -> Value) -> Value {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let has_more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| has_more).map(|row| cursor(&key(row)));
    let items: Vec<Value> = rows.iter().map(show).collect();
    json!({"items": items, "nextCursor": next})
}

/// Whether a text can be an id. Other texts are not looked up, because not every store accepts control characters.
pub(crate) fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_ID_BYTES && !text.contains(char::is_control)
}

/// The ids in a request's path, in order.
#[derive(Clone, Debug)]
pub(crate) struct Ids(Vec<String>);

impl Ids {
    pub(crate) fn first(&self) -> &str {
        self.0.first().map(String::as_str).unwrap_or_default()
    }

    pub(crate) fn second(&self) -> &str {
        self.0.get(1).map(String::as_str).unwrap_or_default()
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Ids {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let path = Path::<Vec<(String, String)>>::from_request_parts(parts, state).await;
        let Path(ids) = path.map_err(|_| ApiError::invalid("the path is not valid UTF-8"))?;
        let ids: Vec<String> = ids.into_iter().map(|(_, id)| id).collect();
        if ids.iter().all(|id| is_id(id)) { Ok(Self(ids)) } else { Err(ApiError::not_found()) }
    }
}

/// The fields of a request's JSON body, which have been checked against the route's schema.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    pub(crate) fn is_true(&self, name: &str) -> bool {
        self.0.get(name) == Some(&Value::Bool(true))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Reads a body and checks it against the schema. An empty body counts as an object without fields.
    pub(crate) async fn read(headers: &HeaderMap, body: Body, max: usize, schema: &Value) -> Result<Self, ApiError> {
        let too_large = || {
            let message = format!("this request may have at most {max} bytes");
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
        };
        let bytes = to_bytes(body, max).await.map_err(|_| too_large())?;
        let value = if bytes.is_empty() {
            Value::Object(Map::new())
        } else {
            if !is_json(headers) {
                let message = "send JSON with `Content-Type: application/json`";
                return Err(ApiError::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", message));
            }
            let text = std::str::from_utf8(&bytes).map_err(|_| ApiError::invalid("the body is not UTF-8"))?;
            contract::json::read(text).map_err(|error| ApiError::invalid(format!("the body is not JSON: {error}")))?
        };
        catalog::arguments::check(schema, &value).map_err(|error| ApiError::invalid(error.to_string()))?;
        match value {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err(ApiError::invalid("the body must be a JSON object")),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Fields {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Ok(parts.extensions.get::<Self>().cloned().unwrap_or_default())
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = given.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use store::PageKey;

    use super::{Parameter, ParameterKind, Query, cursor, is_id, page, read_cursor};

    static PARAMETERS: [Parameter; 2] = [
        Parameter { name: "limit", kind: ParameterKind::Number { max: 9, default: 3 }, description: "" },
        Parameter { name: "cursor", kind: ParameterKind::Text, description: "" },
    ];

    #[test]
    fn a_query_has_only_known_parameters_once_and_within_their_bounds() {
        let read = |query: &str| Query::read(&PARAMETERS, query);
        assert_eq!(read("").unwrap().number("limit"), 3);
        assert_eq!(read("limit=9").unwrap().number("limit"), 9);
        for bad in ["limit=0", "limit=10", "limit=", "limit=1&limit=1", "other=1", "cursor=%00", "limit=-1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert!(read(&format!("cursor={}", "x".repeat(1_025))).is_err());
    }

    #[test]
    fn a_cursor_is_read_as_it_was_written_and_others_are_refused() {
        let key = PageKey { at: -7, id: "run:1".to_owned() };
        assert_eq!(read_cursor(&cursor(&key)).unwrap(), key);
        let nul = cursor(&PageKey { at: 1, id: "a\0".to_owned() });
        for bad in ["", "!", "AAAA", nul.as_str()] {
            assert!(read_cursor(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_page_has_a_cursor_only_if_there_is_more() {
        let key = |id: &i64| PageKey { at: *id, id: "x".to_owned() };
        let two = page(vec![1, 2], 2, key, |id| json!(id));
        assert_eq!(two, json!({"items": [1, 2], "nextCursor": null}));
        let more = page(vec![1, 2, 3], 2, key, |id| json!(id));
        assert_eq!(more, json!({"items": [1, 2], "nextCursor": cursor(&key(&2))}));
    }

    #[test]
    fn a_text_with_control_characters_or_too_many_bytes_is_no_id() {
        assert!(is_id("gw:main:0") && is_id(&"x".repeat(256)));
        assert!(!is_id("") && !is_id("a\0") && !is_id("a\n") && !is_id(&"x".repeat(257)));
    }
}
