//! Decides which definitions get a name, and which are written where they are used.

use super::schema::Definition;
use super::shape::Type;

/// The decisions for one function's definitions.
pub(super) struct Names<'a> {
    definitions: &'a [Definition<'a>],
    prefix: String,
    kinds: Vec<DefinitionKind>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum DefinitionKind {
    /// Written where it is used.
    Inline,
    Named,
    /// Named, and refers to itself.
    Recursive,
    /// Refers to itself directly, which TypeScript does not allow.
    Circular,
}

impl<'a> Names<'a> {
    pub(super) fn new(definitions: &'a [Definition<'a>], prefix: String) -> Self {
        let bare: Vec<Vec<usize>> = definitions.iter().map(|definition| links(&definition.value, bare_links)).collect();
        let all: Vec<Vec<usize>> = (definitions.iter().enumerate())
            .map(|(at, definition)| if reaches(&bare, at) { Vec::new() } else { links(&definition.value, all_links) })
            .collect();
        let uses = uses(&all);
        let kind = |(at, definition): (usize, &Definition<'_>)| match uses.get(at) {
            _ if reaches(&bare, at) => DefinitionKind::Circular,
            Some(1..) if reaches(&all, at) => DefinitionKind::Recursive,
            Some(2..) if !is_word(&definition.value) => DefinitionKind::Named,
            _ => DefinitionKind::Inline,
        };
        let kinds = definitions.iter().enumerate().map(kind).collect();
        Self { definitions, prefix, kinds }
    }

    /// Returns the type that is written in place of this one.
    pub(super) fn seen<'t>(&self, value: &'t Type<'a>) -> &'t Type<'a>
    where
        'a: 't,
    {
        let mut value = value;
        // This terminates: an inline definition only leads to later ones, otherwise it would be recursive.
        while let Type::Defined(at) = value {
            match (self.kinds.get(*at), self.definitions.get(*at)) {
                (Some(DefinitionKind::Inline), Some(definition)) => value = &definition.value,
                (Some(DefinitionKind::Circular), _) | (None, _) | (_, None) => return &Type::UNKNOWN,
                (Some(DefinitionKind::Named | DefinitionKind::Recursive), _) => break,
            }
        }
        value
    }

    pub(super) fn of(&self, at: usize) -> String {
        format!("{}_{}", self.prefix, self.definitions.get(at).map_or("", |definition| definition.name.as_str()))
    }

    /// Returns the positions and types of the definitions that get a declaration.
    pub(super) fn declared(&self) -> impl Iterator<Item = (usize, &'a Type<'a>)> {
        let is_declared = |kind: &DefinitionKind| matches!(kind, DefinitionKind::Named | DefinitionKind::Recursive);
        let all = self.kinds.iter().zip(self.definitions).enumerate();
        all.filter(move |(_, (kind, _))| is_declared(kind)).map(|(at, (_, definition))| (at, &definition.value))
    }

    /// Returns whether a type leads to one that refers to itself.
    pub(super) fn is_recursive(&self, value: &Type<'_>) -> bool {
        let mut found = links(value, all_links);
        let mut next = 0;
        while let Some(at) = found.get(next).copied() {
            match (self.kinds.get(at), self.definitions.get(at)) {
                (Some(DefinitionKind::Recursive), _) => return true,
                (Some(DefinitionKind::Inline), Some(definition)) => all_links(&definition.value, &mut found),
                _ => {}
            }
            next += 1;
        }
        false
    }
}

/// Counts the references to each definition, from the first one and from those that it reaches.
fn uses(links: &[Vec<usize>]) -> Vec<usize> {
    let mut uses = vec![0; links.len()];
    let mut open = vec![0];
    while let Some(at) = open.pop() {
        for link in links.get(at).into_iter().flatten() {
            if let Some(count) = uses.get_mut(*link) {
                if *count == 0 && *link != 0 {
                    open.push(*link);
                }
                *count += 1;
            }
        }
    }
    uses
}

fn reaches(links: &[Vec<usize>], goal: usize) -> bool {
    let mut seen = vec![false; links.len()];
    let mut open = links.get(goal).cloned().unwrap_or_default();
    while let Some(at) = open.pop() {
        if at == goal {
            return true;
        }
        if let Some(was_seen) = seen.get_mut(at).filter(|seen| !**seen) {
            *was_seen = true;
            open.extend(links.get(at).into_iter().flatten());
        }
    }
    false
}

fn links(value: &Type<'_>, collect: fn(&Type<'_>, &mut Vec<usize>)) -> Vec<usize> {
    let mut found = Vec::new();
    collect(value, &mut found);
    found
}

/// Collects the definitions that a type refers to.
fn all_links(value: &Type<'_>, found: &mut Vec<usize>) {
    match value {
        Type::Defined(at) => found.push(*at),
        Type::Array(item) => all_links(item, found),
        Type::Tuple(tuple) => tuple.items.iter().chain(tuple.rest.as_deref()).for_each(|item| all_links(item, found)),
        Type::Object(object) => {
            let values = object.fields.iter().map(|field| &field.value);
            values.chain(object.rest.as_deref()).for_each(|value| all_links(value, found));
        }
        Type::Union(parts) | Type::Intersection(parts) => parts.iter().for_each(|part| all_links(part, found)),
        Type::Word(_) | Type::Literal(..) | Type::More(..) => {}
    }
}

/// Collects the definitions that a type refers to with no field or item in between.
fn bare_links(value: &Type<'_>, found: &mut Vec<usize>) {
    match value {
        Type::Defined(at) => found.push(*at),
        Type::Union(parts) | Type::Intersection(parts) => parts.iter().for_each(|part| bare_links(part, found)),
        Type::Word(_) | Type::Literal(..) | Type::More(..) | Type::Array(_) | Type::Tuple(_) | Type::Object(_) => {}
    }
}

fn is_word(value: &Type<'_>) -> bool {
    match value {
        Type::Word(_) => true,
        Type::Array(item) => is_word(item),
        _ => false,
    }
}
