//! `$ref`: the target becomes a definition, built once for all references to it.

use serde_json::Value;

use super::super::refs;
use super::super::shape::Type;
use super::{Definition, Nesting, ShapeBuilder, literal};

impl<'a> ShapeBuilder<'a> {
    /// Returns a definition or, if no more definitions are allowed, an outline in place.
    pub(super) fn reference(&mut self, reference: &Value, nesting: Nesting) -> Type<'a> {
        let Some(target) = refs::resolve(self.root, reference) else {
            return self.omit();
        };
        if let Some(at) = self.schemas.iter().position(|schema| std::ptr::eq(*schema, target)) {
            return Type::Defined(at);
        }
        if literal::fits_inline(target) {
            return self.schema(target, nesting);
        }
        if self.schemas.len() > self.detail.definitions {
            return self.schema(target, Nesting { levels: 0, ..nesting });
        }
        self.define(target, &refs::name(reference))
    }

    /// Returns the target itself, to be merged with the keywords beside the reference.
    pub(super) fn expanded(&mut self, reference: &Value, nesting: Nesting) -> Type<'a> {
        match refs::resolve(self.root, reference) {
            Some(target) => self.schema(target, nesting),
            None => self.omit(),
        }
    }

    pub(super) fn define(&mut self, schema: &'a Value, wanted: &str) -> Type<'a> {
        let mut name = wanted.to_owned();
        let mut number = 2;
        while self.built.iter().any(|definition| definition.name == name) {
            name = format!("{wanted}{number}");
            number += 1;
        }
        self.schemas.push(schema);
        self.built.push(Definition { name, value: Type::UNKNOWN });
        Type::Defined(self.built.len() - 1)
    }
}
