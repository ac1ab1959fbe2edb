//! Unions and intersections of types.

use std::collections::HashMap;

use super::{Object, Type, Word};

/// Returns the union: flat, without duplicates, and with `true | false` as `boolean` and `null` last.
pub(in crate::declare) fn union(members: Vec<Type<'_>>) -> Type<'_> {
    let mut flat: Vec<Type<'_>> = Vec::new();
    for member in members {
        let parts = if let Type::Union(parts) = member { parts } else { vec![member] };
        for part in parts {
            if part == Type::UNKNOWN {
                return Type::UNKNOWN;
            }
            if part == Type::NEVER || flat.contains(&part) {
                continue;
            }
            match omitted_field_count_mut(&mut flat).zip(part.omitted_field_count()) {
                Some((known, omitted)) => *known += omitted,
                None => flat.push(part),
            }
        }
    }
    flat.sort_by_key(|part| *part == Type::Word(Word::Null));
    let truth = |value: &str| Type::Literal(Word::Boolean, value.to_owned());
    if flat.contains(&truth("true")) && flat.contains(&truth("false")) {
        flat.retain(|part| *part != truth("false"));
        flat.iter_mut().filter(|part| **part == truth("true")).for_each(|part| *part = Type::Word(Word::Boolean));
    }
    match flat.len() {
        0 => Type::NEVER,
        1 => flat.pop().unwrap_or(Type::NEVER),
        _ => Type::Union(flat),
    }
}

/// Returns the omitted-field count of the first object that shows no fields, so that the counts of others can be added
/// to it.
fn omitted_field_count_mut<'t>(members: &'t mut [Type<'_>]) -> Option<&'t mut usize> {
    let object = members.iter_mut().find(|member| member.omitted_field_count().is_some())?;
    if let Type::Object(object) = object { Some(&mut object.omitted_fields) } else { None }
}

/// Returns the intersection, simplified if that copies little, otherwise as a [`Type::Intersection`].
pub(in crate::declare) fn intersect<'a>(one: Type<'a>, two: Type<'a>) -> Type<'a> {
    match (one, two) {
        (Type::Word(Word::Unknown), other) | (other, Type::Word(Word::Unknown)) => other,
        (one, two) if one == two => one,
        (Type::Word(Word::Never), _) | (_, Type::Word(Word::Never)) => Type::NEVER,
        (Type::Union(members), small) | (small, Type::Union(members)) if small.is_small() => {
            union(members.into_iter().map(|member| intersect(member, small.clone())).collect())
        }
        (Type::More(Word::Unknown, omitted), Type::Word(word))
        | (Type::Word(word), Type::More(Word::Unknown, omitted)) => Type::More(word, omitted),
        (more @ Type::More(Word::Unknown, _), _) | (_, more @ Type::More(Word::Unknown, _)) => more,
        (Type::Object(one), Type::Object(two)) => Type::Object(merge(one, two)),
        (Type::Array(one), Type::Array(two)) => Type::Array(Box::new(intersect(*one, *two))),
        (one, two) if one.excludes(&two) => Type::NEVER,
        (Type::Word(_), narrow) | (narrow, Type::Word(_)) if narrow.kind().is_some() => narrow,
        // `type: object` beside a reference adds nothing to its target.
        (Type::Object(any), other) | (other, Type::Object(any)) if any == Object::default() => other,
        (one, two) => intersection(one, two),
    }
}

fn intersection<'a>(one: Type<'a>, two: Type<'a>) -> Type<'a> {
    let mut parts = if let Type::Intersection(parts) = one { parts } else { vec![one] };
    let others = if let Type::Intersection(others) = two { others } else { vec![two] };
    for other in others {
        let is_kin = |part: &Type<'_>| matches!((part, &other), (Type::Object(_), Type::Object(_))) || *part == other;
        match parts.iter_mut().find(|part| is_kin(part)) {
            Some(part) => *part = intersect(std::mem::replace(part, Type::UNKNOWN), other),
            None => parts.push(other),
        }
    }
    Type::Intersection(parts)
}

/// Merges two objects into one with the fields of both.
fn merge<'a>(mut one: Object<'a>, two: Object<'a>) -> Object<'a> {
    let indices: HashMap<String, usize> =
        one.fields.iter().enumerate().map(|(index, field)| (field.name.clone(), index)).collect();
    for field in two.fields {
        match indices.get(&field.name).and_then(|index| one.fields.get_mut(*index)) {
            Some(known) => {
                known.value = intersect(std::mem::replace(&mut known.value, Type::UNKNOWN), field.value);
                known.required |= field.required;
                known.schemas.extend(field.schemas);
            }
            None => one.fields.push(field),
        }
    }
    one.fields.sort_by_key(|field| !field.required);
    one.omitted_fields += two.omitted_fields;
    one.rest = match (one.rest, two.rest) {
        (Some(one), Some(two)) => Some(Box::new(intersect(*one, *two))),
        (one, two) => one.or(two),
    };
    one
}
