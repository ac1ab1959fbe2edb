//! Types as data, between schema and text.

mod combine;

use serde_json::Value;

pub(super) use combine::{intersect, union};

/// A type that is a single word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Unknown,
    Never,
    Null,
    Boolean,
    Number,
    String,
}

impl Word {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Never => "never",
            Self::Null => "null",
            Self::Boolean => "boolean",
            Self::Number => "number",
            Self::String => "string",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type<'a> {
    Word(Word),
    /// A literal as it is written, and the word for its kind.
    Literal(Word, String),
    /// A member of a union that stands for this many omitted members.
    More(Word, usize),
    Array(Box<Type<'a>>),
    Tuple(Tuple<'a>),
    Object(Object<'a>),
    Union(Vec<Type<'a>>),
    Intersection(Vec<Type<'a>>),
    /// A definition of the same function, by its position.
    Defined(usize),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tuple<'a> {
    pub(super) items: Vec<Type<'a>>,
    /// The number of items that must be present.
    pub(super) required: usize,
    pub(super) rest: Option<Box<Type<'a>>>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Object<'a> {
    pub(super) fields: Vec<Field<'a>>,
    /// The number of fields that are not shown.
    pub(super) omitted_fields: usize,
    /// The type of all other keys, if the schema gives one.
    pub(super) rest: Option<Box<Type<'a>>>,
}

#[derive(Clone, Debug)]
pub(super) struct Field<'a> {
    pub(super) name: String,
    pub(super) required: bool,
    pub(super) value: Type<'a>,
    /// The schemas that the field comes from, for what its type cannot express.
    pub(super) schemas: Vec<&'a Value>,
}

impl PartialEq for Field<'_> {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, self.required, &self.value) == (&other.name, other.required, &other.value)
    }
}

impl Type<'_> {
    pub(super) const UNKNOWN: Self = Self::Word(Word::Unknown);
    pub(super) const NEVER: Self = Self::Word(Word::Never);

    /// Whether copies of the type are cheap and short to read.
    fn is_small(&self) -> bool {
        match self {
            Self::Word(_) | Self::Literal(..) | Self::More(..) => true,
            Self::Array(item) => matches!(**item, Self::Word(_)),
            Self::Object(object) => object.fields.is_empty() && object.rest.is_none(),
            Self::Tuple(_) | Self::Union(_) | Self::Intersection(_) | Self::Defined(_) => false,
        }
    }

    /// Returns the number of omitted fields, if the type is an object that shows none.
    fn omitted_field_count(&self) -> Option<usize> {
        match self {
            Self::Object(Object { fields, omitted_fields, rest: None }) if fields.is_empty() && *omitted_fields > 0 => {
                Some(*omitted_fields)
            }
            _ => None,
        }
    }

    /// Returns whether it is certain that no value has both types.
    fn excludes(&self, other: &Self) -> bool {
        match (self.kind(), other.kind()) {
            (Some(one), Some(two)) => one != two,
            _ => false,
        }
    }

    fn kind(&self) -> Option<&'static str> {
        match self {
            Self::Word(Word::Unknown) | Self::More(Word::Unknown, _) => None,
            Self::Word(word) | Self::Literal(word, _) | Self::More(word, _) => Some(word.as_str()),
            Self::Array(_) | Self::Tuple(_) => Some("array"),
            Self::Object(_) => Some("object"),
            Self::Union(_) | Self::Intersection(_) | Self::Defined(_) => None,
        }
    }
}
