//! `write`: a whole file, new or replaced.

use executor::ToolResult;
use serde_json::json;

use super::CancelFlag;
use super::failure::Failure;
use super::input::Input;
use super::replace::{NewFolders, Permissions, Target};
use crate::core::roots::{Roots, shorten};

pub(super) fn write(roots: &Roots, input: &Input<'_>, cancel: &CancelFlag) -> Result<ToolResult, Failure> {
    let place = roots.locate_for_change(input.required_text("path")?)?;
    let content = input.required_text("content")?;
    let mut folders = NewFolders::default();
    folders.create_for(roots, &place)?;
    let target = Target::find(roots, place)?;
    let former = target.check_changeable()?;
    let permissions = former.as_ref().map_or(Permissions::New, Permissions::Of);
    target.stage(content.as_bytes(), &permissions, cancel)?.overwrite()?;
    folders.keep();
    let (created, bytes) = (former.is_none(), content.len());
    let done = if created { "created" } else { "replaced" };
    let details = json!({"path": target.place.shown, "bytes": bytes, "created": created});
    let text = format!("`{}` was {done} with {bytes} bytes", shorten(&target.place.shown));
    Ok(ToolResult { details: Some(details), ..ToolResult::text(text) })
}
