//! `docs/reference/limits.md`: every limit of the modules with limits, with the number that is in the source.

use std::collections::{BTreeMap, BTreeSet};

use super::{compare, read, root};

/// The modules with limits, and the prefix of their names on the page.
const MODULES: [(&str, &str); 6] = [
    ("crates/contract/src/limits.rs", ""),
    ("crates/http_server/src/limits.rs", "http_server::"),
    ("crates/mcp/src/server/http/limits.rs", "mcp::http::"),
    ("crates/gateway/src/api/limits.rs", "gateway::api::"),
    ("crates/gateway/src/provider/limits.rs", "gateway::provider::"),
    ("crates/wire/src/limits.rs", "wire::"),
];

/// A list of other limits.
const NOT_A_LIMIT: &str = "GATEWAY_NUMBERS";

/// The number of a constant.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Number {
    Plain(u64),
    Milliseconds(u64),
    /// A configurable number, with the key, the default and the range.
    Bound(String, u64, u64, u64),
}

/// Evaluates numbers, names, `+`, `-`, `*`, `<<` and parentheses.
struct Expression<'a> {
    rest: &'a str,
    known: &'a BTreeMap<String, Number>,
}

impl Expression<'_> {
    fn shift(&mut self) -> u64 {
        let mut value = self.sum();
        while self.takes("<<") {
            value <<= self.sum();
        }
        value
    }

    fn sum(&mut self) -> u64 {
        let mut value = self.product();
        loop {
            if self.takes("+") {
                value += self.product();
            } else if self.takes("-") {
                value -= self.product();
            } else {
                return value;
            }
        }
    }

    fn product(&mut self) -> u64 {
        let mut value = self.atom();
        while self.takes("*") {
            value *= self.atom();
        }
        value
    }

    fn atom(&mut self) -> u64 {
        if self.takes("(") {
            let value = self.shift();
            assert!(self.takes(")"), "{}", self.rest);
            return value;
        }
        let end = self.rest.find(|letter: char| !letter.is_alphanumeric() && !"_.".contains(letter));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        // The end of a range begins with two points.
        let (word, rest) = word.split_once("..").map_or((word, rest), |(word, _)| (word, &self.rest[word.len()..]));
        self.rest = rest;
        if let Ok(number) = word.replace('_', "").parse() {
            return number;
        }
        match self.known.get(word.trim_end_matches(".default")) {
            Some(Number::Plain(number) | Number::Bound(_, number, ..)) => *number,
            other => panic!("`{word}` is {other:?}"),
        }
    }

    fn takes(&mut self, mark: &str) -> bool {
        let rest = self.rest.trim_start();
        self.rest = rest.strip_prefix(mark).unwrap_or(rest);
        self.rest.len() < rest.len()
    }
}

fn evaluate(text: &str, known: &BTreeMap<String, Number>) -> u64 {
    let mut expression = Expression { rest: text.trim(), known };
    let value = expression.shift();
    assert!(expression.rest.trim().is_empty(), "`{}` of `{text}` is not understood", expression.rest);
    value
}

/// Returns name, type and value of a constant, from the text after `pub`.
fn declaration(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once(';')?.0.split_once("const ")?;
    let (name, rest) = rest.split_once(": ")?;
    let (kind, value) = rest.split_once(" = ")?;
    (before.len() < 10 && name != NOT_A_LIMIT).then_some((name, kind, value))
}

/// Returns the limits of a module, without those of its tests.
fn constants(file: &str) -> BTreeMap<String, Number> {
    let text = read(file);
    let text = text.split("#[cfg(test)]").next().unwrap();
    let mut known = BTreeMap::new();
    let mut rest: Vec<(&str, &str, &str)> = text.split("\npub").skip(1).filter_map(declaration).collect();
    // A limit may refer to one that is declared after it.
    rest.sort_by_key(|(_, _, value)| value.bytes().any(|byte| byte.is_ascii_uppercase()) && !value.contains("::"));
    for (name, kind, value) in rest {
        let value = value.split_whitespace().collect::<Vec<_>>().join(" ");
        let inside = |start: &str| value.strip_prefix(start).and_then(|rest| rest.strip_suffix(')')).map(str::to_owned);
        let number = match kind {
            "Bound" => {
                let inner = inside("Bound::new(").unwrap();
                let [key, default, range] = inner.splitn(3, ", ").collect::<Vec<_>>().try_into().unwrap();
                let (least, most) = range.split_once("..=").unwrap();
                let number = |text: &str| evaluate(text, &known);
                Number::Bound(key.trim_matches('"').to_owned(), number(default), number(least), number(most))
            }
            "Duration" => match (inside("Duration::from_secs("), inside("Duration::from_millis(")) {
                (Some(seconds), _) => Number::Milliseconds(1_000 * evaluate(&seconds, &known)),
                (_, Some(milliseconds)) => Number::Milliseconds(evaluate(&milliseconds, &known)),
                _ => panic!("{name}: {value}"),
            },
            _ => Number::Plain(evaluate(&value, &known)),
        };
        known.insert(name.to_owned(), number);
    }
    assert!(!known.is_empty(), "{file} has no limits");
    known
}

/// Returns all limits by the names that the page gives them.
fn limits() -> BTreeMap<String, Number> {
    let of = |(file, prefix): (&str, &str)| {
        constants(file).into_iter().map(|(name, number)| (format!("{prefix}{name}"), number)).collect::<Vec<_>>()
    };
    MODULES.into_iter().flat_map(of).collect()
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Returns the number in the largest of the units that divides it.
fn in_units(number: u64, units: &[(u64, &str)]) -> String {
    let unit = units.iter().find(|(size, _)| number >= *size && number.is_multiple_of(*size));
    unit.map_or_else(|| format!("{number}"), |(size, name)| format!("{} {name}", grouped(number / size)))
}

fn bytes(number: u64) -> String {
    in_units(number, &[(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes")])
}

fn milliseconds(number: u64) -> String {
    in_units(number, &[(86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms")])
}

/// Returns the number with the unit that its name says.
fn with_unit(name: &str, number: u64) -> String {
    match name {
        _ if name.ends_with("BYTES") => bytes(number),
        _ if name.ends_with("_MS") => milliseconds(number),
        _ if name.ends_with("SECONDS") => milliseconds(1_000 * number),
        _ if name.ends_with("CHARS") || name.ends_with("UNITS") => format!("{} characters", grouped(number)),
        _ => grouped(number),
    }
}

fn shown(name: &str, number: &Number) -> String {
    match number {
        Number::Plain(number) => with_unit(name, *number),
        Number::Milliseconds(number) => milliseconds(*number),
        Number::Bound(key, default, least, most) => {
            let unit = [("Ms", "_MS"), ("Seconds", "_SECONDS"), ("timeout", "_SECONDS"), ("Bytes", "_BYTES")];
            let unit = unit.into_iter().find(|(end, _)| key.ends_with(end)).map_or("", |(_, unit)| unit);
            let [default, least, most] = [default, least, most].map(|number| with_unit(unit, *number));
            format!("{default} ({least} to {most})")
        }
    }
}

/// Returns the names in backticks.
fn names(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

#[test]
fn every_limit_has_a_row_with_its_number() {
    let limits = limits();
    assert!(limits.len() > 200, "only {} limits were found", limits.len());
    let path = root().join("docs/reference/limits.md");
    let (mut documented, mut page, mut problems) = (BTreeSet::new(), String::new(), Vec::new());
    for line in std::fs::read_to_string(&path).unwrap().lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let (what, setting, past, constants) = match cells.as_slice() {
            ["", what, _, setting, past, constants, ""] if constants.starts_with('`') => {
                (what, setting, past, constants)
            }
            _ => {
                page += &format!("{line}\n");
                continue;
            }
        };
        let mut numbers = Vec::new();
        for name in names(constants) {
            let Some(number) = limits.get(name) else {
                problems.push(format!("`{name}` does not exist"));
                continue;
            };
            numbers.push(shown(name, number));
            if !documented.insert(name.to_owned()) {
                problems.push(format!("`{name}` has two rows"));
            }
            if let Number::Bound(key, ..) = number
                && !names(setting).iter().any(|setting| setting.rsplit('.').next() == Some(key))
            {
                problems.push(format!("`{name}` is the setting `{key}`, which its row does not name"));
            }
        }
        let numbers = numbers.join("; ");
        let cells = [*what, &numbers, setting, past, constants];
        cells.into_iter().for_each(|cell| page += &format!("| {cell} ").replace("|  ", "| "));
        page += "|\n";
    }
    let missing: Vec<&String> = limits.keys().filter(|name| !documented.contains(*name)).collect();
    assert!(problems.is_empty() && missing.is_empty(), "{problems:#?}; without a row: {missing:#?}");
    compare(&path, &page);
}

#[test]
fn numbers_are_shown_with_their_unit() {
    let bound = Number::Bound("timeoutMs".to_owned(), 10_000, 100, 60_000);
    assert_eq!(shown("TIMEOUT_MS", &bound), "10 s (100 ms to 1 min)");
    assert_eq!(shown("MAX_BYTES", &Number::Plain(3 << 19)), "1,536 KiB");
    assert_eq!(shown("MAX_CALLS", &Number::Plain(100_000)), "100,000");
    assert_eq!(shown("LINGER", &Number::Milliseconds(90_000)), "90 s");
    assert_eq!(evaluate("1 + 2 * (3 << 1)", &BTreeMap::new()), 13);
}
