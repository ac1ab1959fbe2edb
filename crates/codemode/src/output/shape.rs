//! The shape of a JSON value as a short TypeScript type, read from the text without building its values.

use contract::json::well_formed;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// How deep a shape looks, and how many keys and array items it looks at.
const MAX_DEPTH: usize = 4;
const MAX_KEYS: usize = 20;
const MAX_ITEMS: usize = 20;

/// The characters of the longest shape, and of the longest key in it.
const MAX_CHARS: usize = 400;
const MAX_KEY_CHARS: usize = 60;

/// What is known of the values at one path. A path through an array has several.
#[derive(Clone, Debug, Default)]
struct Shape {
    string: bool,
    number: bool,
    boolean: bool,
    null: bool,
    array: Option<Box<Shape>>,
    object: Option<Fields>,
}

#[derive(Clone, Debug, Default)]
struct Fields {
    /// How many objects were looked at.
    objects: usize,
    fields: Vec<Field>,
    has_more: bool,
}

#[derive(Clone, Debug)]
struct Field {
    key: String,
    shape: Shape,
    /// How many of the objects have the field.
    seen: usize,
}

/// Returns the shape of a JSON text; `None` if the text cannot be read.
pub(super) fn shape(text: &str) -> Option<String> {
    let mut shape = Shape::default();
    let mut items = None;
    let text = well_formed(text);
    let mut reader = serde_json::Deserializer::from_str(&text);
    ShapeVisitor { shape: &mut shape, depth: 0, items: Some(&mut items) }.deserialize(&mut reader).ok()?;
    let written = (1..=MAX_DEPTH).rev().map(|depth| shape.write(depth)).find(|text| text.chars().count() <= MAX_CHARS);
    let mut written = written.unwrap_or_else(|| {
        let mut cut: String = shape.write(1).chars().take(MAX_CHARS - 1).collect();
        cut.push('…');
        cut
    });
    if let Some(items) = items {
        written.push_str(&format!(" /* {items} items */"));
    }
    Some(written)
}

impl Shape {
    fn write(&self, depth: usize) -> String {
        let mut types: Vec<String> = Vec::new();
        if let Some(item) = &self.array {
            let item = if depth == 0 { "unknown".to_owned() } else { item.write(depth - 1) };
            types.push(if item.contains(" | ") && !item.starts_with('{') {
                format!("({item})[]")
            } else {
                format!("{item}[]")
            });
        }
        if let Some(fields) = &self.object {
            types.push(if depth == 0 { "object".to_owned() } else { fields.write(depth - 1) });
        }
        let scalars =
            [(self.string, "string"), (self.number, "number"), (self.boolean, "boolean"), (self.null, "null")];
        types.extend(scalars.into_iter().filter(|(has, _)| *has).map(|(_, name)| name.to_owned()));
        if types.is_empty() { "unknown".to_owned() } else { types.join(" | ") }
    }
}

impl Fields {
    fn write(&self, depth: usize) -> String {
        let field = |field: &Field| {
            let optional = if field.seen < self.objects { "?" } else { "" };
            format!("{}{optional}: {}", written_key(&field.key), field.shape.write(depth))
        };
        let mut fields: Vec<String> = self.fields.iter().map(field).collect();
        if self.has_more {
            fields.push("…".to_owned());
        }
        if fields.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", fields.join(", ")) }
    }

    /// Returns the shape of a field, or `None` if there are too many fields.
    fn field(&mut self, key: &str) -> Option<&mut Shape> {
        let index = match self.fields.iter().position(|field| field.key == key) {
            Some(index) => index,
            None if self.fields.len() == MAX_KEYS => {
                self.has_more = true;
                return None;
            }
            None => {
                self.fields.push(Field { key: key.to_owned(), shape: Shape::default(), seen: 0 });
                self.fields.len() - 1
            }
        };
        let field = self.fields.get_mut(index)?;
        field.seen += 1;
        Some(&mut field.shape)
    }
}

fn written_key(key: &str) -> String {
    let is_name = key.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_' || first == '$')
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$');
    let mut short: String = key.chars().take(MAX_KEY_CHARS).collect();
    if short.len() < key.len() {
        short.push('…');
    }
    if is_name { short } else { serde_json::to_string(&short).unwrap_or_default() }
}

/// Adds a value to a shape. Values that are too deep are skipped without recursion.
struct ShapeVisitor<'a> {
    shape: &'a mut Shape,
    depth: usize,
    /// Receives the number of items, if the value is an array.
    items: Option<&'a mut Option<usize>>,
}

impl<'de> DeserializeSeed<'de> for ShapeVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<(), D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ShapeVisitor<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        self.shape.boolean = true;
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        self.shape.number = true;
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        self.shape.number = true;
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        self.shape.number = true;
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        self.shape.string = true;
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.shape.null = true;
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let item = self.shape.array.get_or_insert_default();
        let mut count = 0_usize;
        while self.depth < MAX_DEPTH && count < MAX_ITEMS {
            if items.next_element_seed(ShapeVisitor { shape: item, depth: self.depth + 1, items: None })?.is_none() {
                break;
            }
            count += 1;
        }
        while items.next_element::<IgnoredAny>()?.is_some() {
            count += 1;
        }
        if let Some(items) = self.items {
            *items = Some(count);
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let fields = self.shape.object.get_or_insert_default();
        fields.objects += 1;
        while let Some(key) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            match fields.field(&key).filter(|_| self.depth < MAX_DEPTH) {
                Some(shape) => map.next_value_seed(ShapeVisitor { shape, depth: self.depth + 1, items: None })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_CHARS, shape};

    #[test]
    fn a_shape_is_a_typescript_type() {
        let cases = [
            ("1.5", "number"),
            ("\"a\"", "string"),
            ("null", "null"),
            ("{}", "{}"),
            ("[]", "unknown[] /* 0 items */"),
            ("[1,-2,3]", "number[] /* 3 items */"),
            (r#"[1,"a",null]"#, "(string | number | null)[] /* 3 items */"),
            (r#"{"id":1,"the name":"a","tags":["x"]}"#, r#"{ id: number, "the name": string, tags: string[] }"#),
            (r#"[{"a":1,"b":true},{"a":"x"}]"#, "{ a: string | number, b?: boolean }[] /* 2 items */"),
            (r#"{"a":{"b":{"c":{"d":{"e":1}}}}}"#, "{ a: { b: { c: { d: object } } } }"),
            (r#"{"a":[[[[[1]]]]]}"#, "{ a: unknown[][][][] }"),
            ("\"\\ud800\"", "string"),
        ];
        for (text, expected) in cases {
            assert_eq!(shape(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(shape("{\"a\":"), None);
    }

    #[test]
    fn a_shape_is_short_however_large_and_deep_the_value_is() {
        let keys =
            |count: usize| (0..count).map(|n| format!("\"key_{n}\":{{\"inner_{n}\":[{n}]}}")).collect::<Vec<_>>();
        let wide = format!("{{{}}}", keys(500).join(","));
        let shown = shape(&wide).unwrap();
        assert!(shown.chars().count() <= MAX_CHARS && shown.contains("key_0: object"), "{shown}");
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(shape(&deep).as_deref(), Some("unknown[][][][][] /* 1 items */"));
        let many = format!("[{}0]", "0,".repeat(1_000_000));
        assert_eq!(shape(&many).as_deref(), Some("number[] /* 1000001 items */"));
        let long_key = format!("{{\"{}\":1}}", "k".repeat(10_000));
        assert!(shape(&long_key).unwrap().len() < 100);
    }
}
