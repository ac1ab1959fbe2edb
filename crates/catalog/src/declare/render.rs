//! Renders one schema within a number of bytes, in as much detail as fits.

use serde_json::Value;

use super::names::Names;
use super::note;
use super::print::{Comments, Layout, Printer};
use super::schema::{Detail, Shape, shape};
use super::shape::{Object, Type};
use crate::text::property;

/// From full detail to the first level alone, of which only as many fields as fit are shown.
const DETAILS: [Detail; 5] = [
    Detail { levels: 8, definitions: 32, fields: 256, literal_bytes: 1024, note_bytes: 120 },
    Detail { levels: 5, definitions: 16, fields: 256, literal_bytes: 512, note_bytes: 60 },
    Detail { levels: 3, definitions: 8, fields: 256, literal_bytes: 256, note_bytes: 0 },
    Detail { levels: 2, definitions: 2, fields: 256, literal_bytes: 160, note_bytes: 0 },
    Detail { levels: 1, definitions: 0, fields: 256, literal_bytes: 120, note_bytes: 0 },
];

/// What a schema describes, and where its text goes.
pub(super) struct Role<'a> {
    /// The prefix of its definitions' names.
    pub(super) prefix: String,
    /// Whether it is an input, which is always an object.
    pub(super) is_input: bool,
    /// The name of the definition itself, in case it refers to itself.
    pub(super) name: &'a str,
    /// The indentation of its definitions.
    pub(super) margin: usize,
    /// The indentation of the line that it is written on.
    pub(super) indent: usize,
    pub(super) limit: usize,
    pub(super) comments: Comments,
}

impl Role<'_> {
    fn layout(&self) -> Layout {
        if self.is_input { Layout::Parameters } else { Layout::Nested }
    }
}

pub(super) struct RenderedSchema {
    /// `type` declarations, each on its own lines.
    pub(super) definitions: String,
    pub(super) text: String,
    /// The fields of the first level and their descriptions.
    pub(super) described: Vec<(String, String)>,
    /// Whether no field is required.
    pub(super) is_optional: bool,
    pub(super) is_cut: bool,
}

/// Renders the schema in as much detail as fits.
pub(super) fn render(schema: &Value, role: &Role<'_>) -> RenderedSchema {
    let fits = |shape: &Shape<'_>, detail: &Detail, layout: Layout| written(shape, role, detail.note_bytes, layout);
    for detail in &DETAILS {
        let shape = shape(schema, role.name, *detail);
        if !shape.is_exhausted
            && let Some(rendered) = fits(&shape, detail, role.layout())
        {
            return rendered;
        }
    }
    let least = DETAILS.last().and_then(|detail| {
        let mut rendered = fits(&shape(schema, role.name, *detail), detail, Layout::Fitted)?;
        rendered.is_cut = true;
        Some(rendered)
    });
    least.unwrap_or_else(|| RenderedSchema {
        definitions: String::new(),
        text: if role.is_input { "Record<string, unknown>" } else { "unknown" }.to_owned(),
        described: Vec::new(),
        is_optional: false,
        is_cut: true,
    })
}

/// Prints the shape, unless that is too long.
fn written(shape: &Shape<'_>, role: &Role<'_>, note_bytes: usize, layout: Layout) -> Option<RenderedSchema> {
    let names = Names::new(&shape.definitions, role.prefix.clone());
    let mut printer = Printer::new(shape.root, &names, note_bytes, role.limit).with_comments(role.comments);
    for (at, value) in names.declared() {
        printer.push(&format!("{}type {} = ", " ".repeat(role.margin), names.of(at)));
        match layout {
            Layout::Parameters | Layout::Fitted if at == 0 => printer.root(value, role.margin, layout),
            Layout::Parameters | Layout::Fitted | Layout::Nested => printer.value(value, role.margin),
        }
        printer.push(";\n");
    }
    let definitions = printer.finish()?;
    let limit = role.limit - definitions.len();
    let mut printer = Printer::new(shape.root, &names, note_bytes, limit).with_comments(role.comments);
    let whole = shape.definitions.first().map_or(&Type::UNKNOWN, |definition| names.seen(&definition.value));
    match names.seen(&Type::Defined(0)) {
        Type::Word(_) if role.is_input => printer.push("Record<string, unknown>"),
        Type::Object(object) if role.is_input && *object == Object::default() => printer.push("Record<string, never>"),
        _ if layout == Layout::Nested => printer.value(&Type::Defined(0), role.indent),
        _ => printer.root(&Type::Defined(0), role.indent, layout),
    }
    let text = printer.finish()?;
    let fields = if let Type::Object(object) = whole { object.fields.as_slice() } else { &[] };
    Some(RenderedSchema {
        definitions,
        text,
        described: fields.iter().map(|field| (field.name.clone(), note::text(shape.root, &field.schemas))).collect(),
        is_optional: matches!(whole, Type::Object(_) | Type::Word(_)) && fields.iter().all(|field| !field.required),
        is_cut: shape.is_cut,
    })
}

/// The maximum length of a signature, and the details that it may have.
const BRIEF_BYTES: usize = 400;
const BRIEF: [Detail; 3] = [
    Detail { levels: 3, definitions: 0, fields: 32, literal_bytes: 160, note_bytes: 0 },
    Detail { levels: 2, definitions: 0, fields: 32, literal_bytes: 80, note_bytes: 0 },
    Detail { levels: 1, definitions: 0, fields: 32, literal_bytes: 40, note_bytes: 0 },
];

/// Renders an input on one line, as `{ path: string; limit?: number }`.
pub(super) fn signature(schema: &Value) -> String {
    let role = Role {
        prefix: String::new(),
        is_input: true,
        name: "Input",
        margin: 0,
        indent: 0,
        limit: BRIEF_BYTES,
        comments: Comments::Blocks,
    };
    let written = |detail: &Detail| {
        let shape = shape(schema, role.name, *detail);
        let rendered = written(&shape, &role, 0, Layout::Nested).filter(|_| !shape.is_exhausted)?;
        rendered.definitions.is_empty().then_some(rendered.text)
    };
    let text = BRIEF.iter().find_map(written).unwrap_or_else(|| named(schema));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Renders the names alone, required ones first.
fn named(schema: &Value) -> String {
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema.get("properties").and_then(Value::as_object);
    let mut names: Vec<(bool, &str)> = properties
        .into_iter()
        .flat_map(|properties| properties.keys())
        .map(|name| (!required.contains(&name.as_str()), name.as_str()))
        .collect();
    names.sort_by_key(|(is_optional, _)| *is_optional);
    let mut text = String::from("{ ");
    for (is_optional, name) in names {
        let field = format!("{}{}: unknown; ", property(name), if is_optional { "?" } else { "" });
        if text.len() + field.len() > BRIEF_BYTES - "… }".len() {
            text.push_str("… ");
            break;
        }
        text.push_str(&field);
    }
    text.push('}');
    text
}
