//! Adversarial texts, each repeated up to the maximum source length and up to the guard's own limits.

mod patterns;

use std::thread;
use std::time::{Duration, Instant};

use super::{MAX_DEPTH, MAX_NESTING, Reading, check};
use crate::source::{Language, MAX_SOURCE_BYTES, Rejection, prepare};
use patterns::{HIDING, NESTING, Pattern, RETRIES, SWALLOWING};

fn fill((prefix, unit, middle, close, suffix): Pattern, count: usize) -> String {
    let (units, closes) = (unit.repeat(count), close.repeat(count));
    format!("{prefix}{units}{middle}{closes}{suffix}")
}

fn fits(pattern: Pattern, count: usize, language: Language) -> bool {
    let source = fill(pattern, count);
    source.len() <= MAX_SOURCE_BYTES && check(&source, language).is_ok()
}

/// Returns about the maximum number of repetitions that the guard accepts.
fn limit(pattern: Pattern, language: Language) -> usize {
    let mut high = 1;
    while fits(pattern, high, language) {
        high *= 2;
    }
    let mut low = high / 2;
    while high - low > 1 + low / 100 {
        let middle = low.midpoint(high);
        if fits(pattern, middle, language) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

/// Returns the processor time that this thread has taken: the time that passes depends on other tests.
fn processor_time() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok().map(Duration::from_nanos)
}

/// Prepares the source on the smallest allowed stack, and returns the time it took.
///
/// A stack overflow aborts the test.
fn survive(source: String, language: Language) -> Duration {
    let work = move || {
        let (start, before) = (Instant::now(), processor_time());
        prepare(&source, language).ok();
        match (before, processor_time()) {
            (Some(before), Some(after)) => after.saturating_sub(before),
            _ => start.elapsed(),
        }
    };
    let thread = thread::Builder::new().stack_size(64 << 20).spawn(work);
    let took = thread.ok().and_then(|thread| thread.join().ok());
    took.unwrap_or(Duration::MAX)
}

fn attack(patterns: &[Pattern]) {
    for &pattern in patterns {
        let (_, unit, _, close, _) = pattern;
        let max = (MAX_SOURCE_BYTES - 100) / (unit.len() + close.len());
        let mut count = limit(pattern, Language::JavaScript);
        for language in [Language::JavaScript, Language::TypeScript] {
            if !fits(pattern, count, language) {
                count = limit(pattern, language);
            }
            for count in [max, count] {
                let took = survive(fill(pattern, count), language);
                assert!(took < Duration::from_secs(2), "{pattern:?} {count} times, {language:?}: {took:?}");
            }
        }
    }
}

#[test]
fn survives_nested_texts() {
    attack(&NESTING);
}

#[test]
fn survives_texts_that_are_read_repeatedly() {
    attack(&RETRIES);
}

#[test]
fn survives_texts_that_hide_brackets() {
    attack(&HIDING);
}

#[test]
fn survives_tokens_consumed_as_arrows() {
    attack(&SWALLOWING);
}

/// oxc panics on the key of the options of an `import` type if it is a template with an escape.
#[test]
fn survives_the_options_of_an_import() {
    for source in
        ["let x: import('a', { `\\n`: 1 })", "x as import('a', { `\\u0041${1", "<!--\nlet x: import('a', { `\\n`: 1 })"]
    {
        assert!(prepare(source, Language::TypeScript).is_err(), "{source}");
        assert!(prepare(source, Language::JavaScript).is_err(), "{source}");
    }
}

/// A bound that is far too loose would accept these.
#[test]
fn refuses_deep_texts_wherever_they_hide() {
    let deep = MAX_DEPTH as usize + 100;
    for pattern in NESTING {
        // A pattern that needs fewer tokens than the limit for its depth is not too deep.
        let source = fill(pattern, deep);
        if source.len() <= MAX_SOURCE_BYTES {
            let verdict = check(&source, Language::TypeScript);
            assert!(matches!(verdict, Err(Rejection::TooDeep { .. })), "{pattern:?}: {verdict:?}");
        }
    }
    for pattern in HIDING.into_iter().chain(SWALLOWING) {
        let verdict = check(&fill(pattern, deep), Language::TypeScript);
        assert!(matches!(verdict, Err(Rejection::TooDeep { .. })), "{pattern:?}: {verdict:?}");
    }
    let nested = fill(("", "(", "", ")", ""), MAX_NESTING + 1);
    assert!(check(&nested, Language::JavaScript).is_err());
}

/// Long programs in every common style, none of which is deep.
#[test]
fn passes_long_programs() {
    let lines = [
        "const a = await f(b, { c: 1 })\n",
        "const a = await f(b, { c: 1 });",
        "if (a) {\n  b()\n} else {\n  c()\n}\n",
        "for (let i = 0; i < n; i++) { a.push(i / 2) }\n",
        "function f(a, b) { return a < b ? a : b }\n",
        "class A { x = 1\n y() { return this.x }\n get z() { return 1 } }\n",
        "const s = `a ${b} c ${d / 2} /`; // it's `fine` / ok\n",
        "x = y.replace(/[\"'`(]/g, '(').split(/\\s+/)\n",
        "type A = { a: Map<string, Array<B<C>>>; b?: (x: D) => E }\n",
        "export_ = (a + b) / 2 / 3\n",
        "while (a < b) a += (c - d) / 1000\n",
        "items.map(x => ({ y: x.z.map(v => ({ w: v.u })) }))\n",
        "return /a/.test(b) ? /c/ : !/d/.test(e)\n",
        "const r = x as T, q = <U>y, p = z!\n",
        "switch (a) { case 'b': return /c/; default: d() }\n",
    ];
    for line in lines {
        let source = line.repeat(MAX_SOURCE_BYTES / 4 / line.len());
        let verdict = check(&source, Language::TypeScript);
        assert_eq!(verdict, Ok(Reading::Clear), "{line}");
    }
    let list = format!("return [{}]", "{ a: 'b', c: [1, -2, 3 / 4], d: null },\n".repeat(4_000));
    assert_eq!(check(&list, Language::JavaScript), Ok(Reading::Clear));
}
