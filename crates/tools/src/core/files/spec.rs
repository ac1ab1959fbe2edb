//! The definitions of the file tools. Names and parameters are those that models know from OpenClaw.

use contract::limits::{
    FIND_LIMIT, GREP_CONTEXT, GREP_LIMIT, LS_LIMIT, MAX_EDITS, MAX_GREP_LINE_CHARS, MAX_READ_BYTES,
};
use contract::tool::{Repeat, ToolId, ToolSpec};
use serde_json::{Value, json};

use crate::core::roots::Roots;

/// Returns a definition. The description names the roots, so approvals that were given for other roots do not hold.
fn spec(roots: &Roots, name: &str, about: &str, parameters: Value, output: Value, repeat: Repeat) -> Option<ToolSpec> {
    let id = ToolId::parse(&format!("openclaw:core:{name}")).ok()?;
    let spec = ToolSpec::new(id, format!("{about} {roots}."), parameters);
    Some(ToolSpec { output: Some(output), repeat, declared_repeat: repeat, ..spec })
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

fn path(about: &str) -> Value {
    json!({"type": "string", "description": about})
}

pub(super) fn read(roots: &Roots) -> Option<ToolSpec> {
    let about = format!(
        "Read a text file, or see an image (png, jpeg, gif, webp). A cell gets at most {MAX_READ_BYTES} bytes; continue \
         with `nextOffset`."
    );
    let parameters = object(
        &json!({
            "path": path("The file, relative or absolute."),
            "offset": {"type": "integer", "minimum": 1, "description": "The first line to read, counted from 1."},
            "limit": {"type": "integer", "minimum": 1, "description": "How many lines to read; all by default."},
        }),
        &["path"],
    );
    let output = object(
        &json!({
            "kind": {"enum": ["text", "image", "binary"]},
            "path": {"type": "string"},
            "text": {"type": "string", "description": "The lines, with their line breaks."},
            "startLine": {"type": "integer"},
            "endLine": {"type": "integer"},
            "totalLines": {"type": ["integer", "null"]},
            "truncated": {"type": "boolean", "description": "Whether there is more after `text`."},
            "nextOffset": {"type": "integer"},
            "lossy": {"type": "boolean", "description": "Whether invalid UTF-8 was replaced by U+FFFD."},
            "bom": {"type": "boolean", "description": "Whether the file begins with a byte order mark, which is left out."},
            "mimeType": {"type": "string"},
            "bytes": {"type": "integer"},
        }),
        &["kind", "path"],
    );
    spec(roots, "read", &about, parameters, output, Repeat::Always)
}

pub(super) fn ls(roots: &Roots) -> Option<ToolSpec> {
    let about = "List the entries of a folder, sorted by name, with hidden ones.";
    let parameters = object(
        &json!({
            "path": path("The folder; the first root by default."),
            "limit": limit("entries", LS_LIMIT.default, *LS_LIMIT.range.end()),
        }),
        &[],
    );
    let entry = object(
        &json!({
            "name": {"type": "string"},
            "type": {"enum": ["file", "directory", "symlink", "other"]},
            "bytes": {"type": "integer"},
        }),
        &["name", "type"],
    );
    let output = object(
        &json!({
            "path": {"type": "string"},
            "entries": {"type": "array", "items": entry},
            "total": {"type": "integer"},
            "truncated": {"type": "boolean"},
        }),
        &["path", "entries", "total", "truncated"],
    );
    spec(roots, "ls", about, parameters, output, Repeat::Always)
}

pub(super) fn find(roots: &Roots) -> Option<ToolSpec> {
    let about = "Find files by glob. The paths can be passed to the other file tools. Respects .gitignore.";
    let mut properties = json!({
        "pattern": {"type": "string", "minLength": 1, "description": "A glob. Without `/` it matches names (`*.rs`), otherwise paths below `path` (`src/**/*.ts`)."},
        "path": path("The folder to search; the first root by default."),
        "type": {"enum": ["file", "directory", "any"], "default": "file", "description": "What to find."},
        "limit": limit("paths", FIND_LIMIT.default, *FIND_LIMIT.range.end()),
    });
    add_selection(&mut properties);
    let output = object(
        &json!({
            "paths": {"type": "array", "items": {"type": "string"}},
            "truncated": {"type": "boolean"},
            "reason": {"enum": ["limit", "entries", "time", null]},
            "unreadFolders": {"type": "integer"},
        }),
        &["paths", "truncated"],
    );
    spec(roots, "find", about, object(&properties, &["pattern"]), output, Repeat::Always)
}

pub(super) fn grep(roots: &Roots) -> Option<ToolSpec> {
    let about = format!(
        "Search the contents of files for a pattern, line by line. Respects .gitignore. Lines are cut after \
         {MAX_GREP_LINE_CHARS} characters."
    );
    let mut properties = json!({
        "pattern": {"type": "string", "minLength": 1, "description": "A regular expression, in ripgrep's syntax."},
        "path": path("The folder or file to search; the first root by default."),
        "glob": {"type": "string", "description": "Search only files that match, such as `*.ts`; `!` excludes."},
        "ignoreCase": {"type": "boolean", "default": false},
        "literal": {"type": "boolean", "default": false, "description": "Whether `pattern` is plain text."},
        "context": {"type": "integer", "minimum": 0, "default": GREP_CONTEXT.default, "description": format!("Lines before and after each match, at most {}.", GREP_CONTEXT.range.end())},
        "limit": limit("matches", GREP_LIMIT.default, *GREP_LIMIT.range.end()),
    });
    add_selection(&mut properties);
    let found = object(
        &json!({
            "path": {"type": "string"},
            "line": {"type": "integer"},
            "text": {"type": "string"},
            "before": {"type": "array", "items": {"type": "string"}},
            "after": {"type": "array", "items": {"type": "string"}},
        }),
        &["path", "line", "text"],
    );
    let output = object(
        &json!({
            "matches": {"type": "array", "items": found},
            "filesSearched": {"type": "integer"},
            "filesSkipped": {"type": "integer"},
            "truncated": {"type": "boolean"},
            "reason": {"enum": ["limit", "entries", "time", null]},
        }),
        &["matches", "filesSearched", "truncated"],
    );
    spec(roots, "grep", &about, object(&properties, &["pattern"]), output, Repeat::Always)
}

/// The three tools below change files, so they declare that they must not be repeated. Writing the same content twice
/// does no harm by itself, but after a crash, minutes may have passed, and a repeated `write` could replace what a person
/// wrote since.
pub(super) fn write(roots: &Roots) -> Option<ToolSpec> {
    let about = "Write a whole file. It is created with its folders, or replaced.";
    let parameters = object(
        &json!({"path": path("The file, relative or absolute."), "content": {"type": "string", "description": "The whole content."}}),
        &["path", "content"],
    );
    let output = object(
        &json!({"path": {"type": "string"}, "bytes": {"type": "integer"}, "created": {"type": "boolean"}}),
        &["path", "bytes", "created"],
    );
    spec(roots, "write", about, parameters, output, Repeat::Never)
}

pub(super) fn edit(roots: &Roots) -> Option<ToolSpec> {
    let about = "Replace texts in a file. Each `oldText` must be in the file exactly once; all are looked for in the file as \
                 it is before the call. Give `edits`, or one `oldText` and `newText`.";
    let text = |about: &str| json!({"type": "string", "description": about});
    let replacement = object(
        &json!({"oldText": text("The exact text to replace."), "newText": text("The text that replaces it.")}),
        &["oldText", "newText"],
    );
    let parameters = object(
        &json!({
            "path": path("The file, relative or absolute."),
            "edits": {"type": "array", "items": replacement, "minItems": 1, "maxItems": MAX_EDITS},
            "oldText": text("The exact text to replace."),
            "newText": text("The text that replaces it."),
        }),
        &["path"],
    );
    let output = object(
        &json!({
            "path": {"type": "string"},
            "replacements": {"type": "integer"},
            "firstChangedLine": {"type": "integer"},
            "diff": {"type": "string", "description": "The changed lines as a unified diff."},
        }),
        &["path", "replacements", "diff"],
    );
    spec(roots, "edit", about, parameters, output, Repeat::Never)
}

pub(super) fn apply_patch(roots: &Roots) -> Option<ToolSpec> {
    let about = "Change several files with one patch: `*** Begin Patch`, sections `*** Add File: PATH` (lines with `+`), \
                 `*** Update File: PATH` (optionally `*** Move to: PATH`; changes after `@@` with lines that begin with a \
                 space, `-` or `+`), `*** Delete File: PATH`, `*** End Patch`. If any part fails, nothing is changed.";
    let parameters = object(&json!({"input": {"type": "string", "description": "The patch."}}), &["input"]);
    let paths = json!({"type": "array", "items": {"type": "string"}});
    let summary =
        object(&json!({"added": paths, "modified": paths, "deleted": paths}), &["added", "modified", "deleted"]);
    let moved = object(&json!({"from": {"type": "string"}, "to": {"type": "string"}}), &["from", "to"]);
    let output =
        object(&json!({"summary": summary, "moved": {"type": "array", "items": moved}}), &["summary", "moved"]);
    spec(roots, "apply_patch", about, parameters, output, Repeat::Never)
}

fn limit(what: &str, default: u64, most: u64) -> Value {
    json!({"type": "integer", "minimum": 1, "default": default, "description": format!("How many {what} to return, at most {most}.")})
}

/// Adds the parameters that `find` and `grep` share.
fn add_selection(properties: &mut Value) {
    let shared = [
        (
            "hidden",
            json!({"type": "boolean", "default": true, "description": "Whether names that begin with `.` are included."}),
        ),
        (
            "includeIgnored",
            json!({"type": "boolean", "default": false, "description": "Whether ignored files and .git are included."}),
        ),
    ];
    if let Some(fields) = properties.as_object_mut() {
        fields.extend(shared.map(|(key, schema)| (key.to_owned(), schema)));
    }
}
