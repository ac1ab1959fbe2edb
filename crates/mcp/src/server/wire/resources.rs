//! Answers `resources/list`, `resources/templates/list` and `resources/read`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use executor::internal_message;
use rmcp::model::{
    ErrorData, ListResourceTemplatesResult, ListResourcesResult, MetaObject, ReadResourceResult, Resource,
    ResourceContents, ResourceTemplate,
};
use serde_json::json;
use store::OutputRow;

use crate::server::client_key::ClientKey;
use crate::server::principal::Principal;
use crate::server::resources::{self, Data, OutputPart, OutputUri, ReadError, TEMPLATE, mime_type};
use crate::server::service::McpService;

/// The key in `_meta` of what a read returns.
const PART: &str = "cellmate/part";

pub(super) async fn list(
    service: &McpService,
    caller: (&Principal, &ClientKey),
    cursor: Option<&str>,
) -> Result<ListResourcesResult, ErrorData> {
    let page = resources::list(service.code_mode().store(), caller, cursor).await;
    let page = page.map_err(|error| failed(&ReadError::Store(error)))?;
    let page = page.ok_or_else(|| {
        ErrorData::invalid_params("the cursor is invalid, or its output is gone; list the outputs from the start", None)
    })?;
    let mut list = ListResourcesResult::with_all_items(page.rows.iter().map(listed).collect());
    list.next_cursor = page.next;
    Ok(list)
}

pub(super) fn templates() -> ListResourceTemplatesResult {
    let template = ResourceTemplate::new(TEMPLATE, "output")
        .with_title("Stored output")
        .with_description("An output of a cell or tool that was too large for a result, or a part of it in bytes.");
    ListResourceTemplatesResult::with_all_items(vec![template])
}

pub(super) async fn read(
    service: &McpService,
    principal: &Principal,
    uri: &str,
) -> Result<ReadResourceResult, ErrorData> {
    // Each read takes memory for a part and its encoded form.
    let _permit = service.resource_read().await;
    let read = async {
        let parsed = OutputUri::parse(uri)?;
        resources::read(service.code_mode().store(), principal, &parsed).await
    };
    let part = read.await.map_err(|error| failed(&error))?;
    Ok(ReadResourceResult::new(vec![contents(uri, part)]))
}

fn listed(row: &OutputRow) -> Resource {
    let resource = Resource::new(OutputUri::whole(&row.handle), row.handle.as_str());
    let resource = resource.with_mime_type(mime_type(row)).with_size(row.bytes);
    match &row.source {
        Some((_, tool)) => resource.with_description(format!("Returned by {tool}")),
        None => resource.with_description("Output of a cell"),
    }
}

fn contents(uri: &str, part: OutputPart) -> ResourceContents {
    let mime_type = mime_type(&part.row);
    let mut about = json!({"offset": part.offset, "bytes": part.row.bytes});
    if let (Some(next), Some(fields)) = (part.next_uri(), about.as_object_mut()) {
        fields.insert("next".to_owned(), json!(next));
    }
    let mut meta = MetaObject::new();
    meta.insert(PART.to_owned(), about);
    let contents = match part.data {
        Data::Text(text) => ResourceContents::text(text, uri),
        Data::Bytes(bytes) => ResourceContents::blob(STANDARD.encode(bytes), uri),
    };
    contents.with_mime_type(mime_type).with_meta(meta)
}

fn failed(error: &ReadError) -> ErrorData {
    let message = error.to_string();
    match error {
        ReadError::Unknown => ErrorData::resource_not_found(message, None),
        ReadError::TooLarge { bytes, first } => {
            ErrorData::invalid_params(message, Some(json!({"bytes": bytes, "first": first})))
        }
        ReadError::BadPart => ErrorData::invalid_params(message, None),
        ReadError::Store(cause) => {
            ErrorData::internal_error(internal_message("read a stored output", cause, &message), None)
        }
    }
}
