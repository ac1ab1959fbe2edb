//! The stored form of a run's result, read back when a client asks for it again.

use std::sync::Arc;

use contract::cell::{CellResult, Media, OutputItem, Telemetry};
use contract::error::ErrorCode;
use contract::ids::OutputHandle;
use contract::json;
use serde_json::Value;
use serde_json::value::RawValue;
use store::Store;

use crate::output::media_of;
use crate::output_reader::read_whole;

pub(crate) fn to_json(result: &CellResult) -> String {
    serde_json::to_string(result).unwrap_or_default()
}

/// Returns the result as a JSON value. A cell's value may nest deeper than most JSON readers allow.
pub(crate) fn to_value(result: &CellResult) -> Value {
    contract::json::read(&to_json(result)).unwrap_or(Value::Null)
}

/// Reads a recorded result. `None` if it is not the end of a run, or cannot be read.
pub(crate) fn from_json(text: &str) -> Option<CellResult> {
    let value = json::read(text).ok()?;
    let output = value.get("output")?.as_array()?.iter().map(item).collect::<Option<Vec<_>>>()?;
    let telemetry: Telemetry = serde_json::from_value(value.get("telemetry")?.clone()).ok()?;
    match value.get("status")?.as_str()? {
        "completed" => Some(CellResult::Completed { value: raw(value.get("value")?)?, output, telemetry }),
        "failed" => Some(CellResult::Failed {
            error: value.get("error")?.as_str()?.to_owned(),
            code: value.get("code").and_then(Value::as_str).and_then(ErrorCode::parse),
            output,
            effects: value.get("effects").map_or(Some(Vec::new()), |list| serde_json::from_value(list.clone()).ok())?,
            telemetry,
        }),
        _ => None,
    }
}

fn item(value: &Value) -> Option<OutputItem> {
    match value.get("type")?.as_str()? {
        "text" => Some(OutputItem::Text { text: value.get("text")?.as_str()?.to_owned() }),
        "json" => Some(OutputItem::Json { value: raw(value.get("value")?)? }),
        "image" => Some(OutputItem::Image(media(value)?)),
        "audio" => Some(OutputItem::Audio(media(value)?)),
        "stored" => serde_json::from_value(value.clone()).ok().map(OutputItem::Stored),
        _ => None,
    }
}

/// Reads an image or a sound. Its data is in the store; see [`with_media`].
fn media(value: &Value) -> Option<Media> {
    Some(Media {
        mime_type: value.get("mimeType")?.as_str()?.to_owned(),
        data: Arc::default(),
        handle: value.get("handle").and_then(Value::as_str).map(OutputHandle::new),
    })
}

/// Loads the images and sounds of a recorded result. Those that are no longer stored are not shown.
pub(crate) async fn with_media(store: &Store, mut result: CellResult) -> CellResult {
    let (CellResult::Completed { output, .. } | CellResult::Waiting { output, .. } | CellResult::Failed { output, .. }) =
        &mut result;
    for item in output {
        let Some(media) = media_of(item).filter(|media| media.data.is_empty()) else { continue };
        let Some(handle) = media.handle.clone() else { continue };
        match read_whole(store, &handle).await {
            Ok(data) => media.data = data.into(),
            Err(error) => tracing::warn!(%error, handle = handle.as_str(), "cannot load an image of a result"),
        }
        if media.data.is_empty() {
            let text = format!("[{handle} is no longer stored]");
            *item = OutputItem::Text { text };
        }
    }
    result
}

fn raw(value: &Value) -> Option<Box<RawValue>> {
    RawValue::from_string(value.to_string()).ok()
}

#[cfg(test)]
mod tests {
    use contract::cell::{CellResult, Effect, EffectState, OutputItem, Telemetry};
    use contract::error::ErrorCode;
    use contract::ids::CallId;
    use serde_json::value::RawValue;

    use super::{from_json, to_json};

    #[test]
    fn a_recorded_result_survives_a_json_round_trip() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let output = vec![OutputItem::Text { text: "a".to_owned() }, OutputItem::Json { value: raw("[1,null]") }];
        let telemetry = Telemetry { visible_tools: vec!["exec".to_owned()], call_count: 3, ..Telemetry::default() };
        let completed = CellResult::Completed {
            value: raw("{\"b\":1,\"a\":2}"),
            output: output.clone(),
            telemetry: telemetry.clone(),
        };
        let effect = Effect { tool: "mcp:a:b".to_owned(), call: CallId(3), state: EffectState::Unknown };
        let failed = |code: Option<ErrorCode>| CellResult::Failed {
            error: "no".to_owned(),
            code,
            output: output.clone(),
            effects: code.map(|_| effect.clone()).into_iter().collect(),
            telemetry: telemetry.clone(),
        };
        for result in [completed, failed(None), failed(Some(ErrorCode::Timeout))] {
            let text = to_json(&result);
            assert_eq!(from_json(&text).map(|back| to_json(&back)), Some(text));
        }
        assert!(from_json("{\"status\":\"waiting\"}").is_none());
    }
}
