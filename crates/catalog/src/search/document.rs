//! The searchable text of a tool, by field.

use contract::tool::ToolSpec;
use serde_json::Value;

/// The number of fields; a word's weight depends on its field.
pub(crate) const FIELDS: usize = 6;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    Name,
    Description,
    ParameterNames,
    ParameterDescriptions,
    Owner,
    OwnerDescription,
}

impl Field {
    pub const ALL: [Self; FIELDS] = [
        Self::Name,
        Self::Description,
        Self::ParameterNames,
        Self::ParameterDescriptions,
        Self::Owner,
        Self::OwnerDescription,
    ];
}

/// The maximum length read of one field; only the beginning of a longer text is searched.
const MAX_FIELD_BYTES: usize = 8 << 10;

/// The maximum nesting of parameters that is read.
const MAX_DEPTH: usize = 4;

/// A tool as searchable text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Document {
    pub id: String,
    pub name: String,
    /// Preceded by the label that a person sees, if that says more than the name.
    pub description: String,
    pub parameter_names: String,
    pub parameter_descriptions: String,
    /// The server, plugin or program that the tool belongs to.
    pub owner: String,
    pub owner_description: String,
}

impl Document {
    pub fn of(tool: &ToolSpec) -> Self {
        let label = tool.label.as_deref().filter(|label| !label.eq_ignore_ascii_case(tool.id.name()));
        let description = head(&tool.description);
        let mut document = Self {
            id: tool.id.as_str().to_owned(),
            name: tool.id.name().to_owned(),
            description: label.map_or_else(|| description.clone(), |label| format!("{} {description}", head(label))),
            owner: tool.id.owner().to_owned(),
            owner_description: head(tool.about_owner.as_deref().unwrap_or_default()),
            ..Self::default()
        };
        document.read_parameters(&tool.parameters, 0);
        document
    }

    /// Reads the JSON form of search results, with `parameters` and, if known, a description of its source.
    pub fn from_json(tool: &Value) -> Option<Self> {
        let text = |key: &str| tool.get(key).and_then(Value::as_str).unwrap_or_default();
        let mut document = Self {
            id: tool.get("id")?.as_str()?.to_owned(),
            name: text("name").to_owned(),
            description: head(text("description")),
            owner: text("sourceName").to_owned(),
            owner_description: head(text("sourceDescription")),
            ..Self::default()
        };
        append(&mut document.owner_description, text("category"));
        document.read_parameters(tool.get("parameters").unwrap_or(&Value::Null), 0);
        Some(document)
    }

    /// Reads names, descriptions and enum values of the parameters, recursively.
    fn read_parameters(&mut self, schema: &Value, depth: usize) {
        let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
        for (name, property) in properties {
            append(&mut self.parameter_names, name);
            if let Some(description) = property.get("description").and_then(Value::as_str) {
                append(&mut self.parameter_descriptions, description);
            }
            for word in property.get("enum").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
                append(&mut self.parameter_descriptions, word);
            }
            if depth + 1 < MAX_DEPTH {
                self.read_parameters(property, depth + 1);
                if let Some(items) = property.get("items") {
                    self.read_parameters(items, depth + 1);
                }
            }
        }
    }

    pub(crate) fn field(&self, field: Field) -> &str {
        match field {
            Field::Name => &self.name,
            Field::Description => &self.description,
            Field::ParameterNames => &self.parameter_names,
            Field::ParameterDescriptions => &self.parameter_descriptions,
            Field::Owner => &self.owner,
            Field::OwnerDescription => &self.owner_description,
        }
    }
}

fn append(text: &mut String, more: &str) {
    if text.len() + more.len() <= MAX_FIELD_BYTES {
        text.push_str(more);
        text.push(' ');
    }
}

fn head(text: &str) -> String {
    crate::text::cut(text.to_owned(), MAX_FIELD_BYTES)
}
