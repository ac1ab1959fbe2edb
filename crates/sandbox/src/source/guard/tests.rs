//! Adversarial texts: each is filled up to the longest source and up to the guard's own limits.

use std::thread;
use std::time::{Duration, Instant};

use super::{MAX_DEPTH, MAX_NESTING, Reading, check};
use crate::source::{Language, MAX_SOURCE_BYTES, Rejection, prepare};

/// `prefix`, `unit` repeated, `middle`, `close` repeated, `suffix`.
type Pattern = (&'static str, &'static str, &'static str, &'static str, &'static str);

/// What nests in JavaScript and TypeScript, in brackets and without.
const NESTING: [Pattern; 96] = [
    ("", "(", "a", ")", ""),
    ("", "[", "", "]", ""),
    ("", "[", "a", "]", "=1"),
    ("x=", "{a:", "1", "}", ""),
    ("", "{", "", "}", ""),
    ("", "function a(){", "", "}", ""),
    ("x=", "()=>{", "", "}", ""),
    ("x=", "{a(){return ", "1", "}}", ""),
    ("x=", "{get a(){return ", "1", "}}", ""),
    ("x=", "class{a=", "1", "}", ""),
    ("x=", "class{a(){x=", "1", "}}", ""),
    ("x=", "class{[", "1", "]=1}", ""),
    ("", "class a{static{", "", "}}", ""),
    ("x=", "class extends ", "a", "{}", ""),
    ("", "`${", "a", "}`", ""),
    ("let x:", "`${", "a", "}`", ""),
    ("", "a(", "a", ")", ""),
    ("", "a[", "a", "]", ""),
    ("", "new a(", "a", ")", ""),
    ("", "!", "a", "", ""),
    ("", "- ", "a", "", ""),
    ("", "typeof ", "a", "", ""),
    ("", "void ", "a", "", ""),
    ("", "delete ", "a", "", ""),
    ("", "await ", "a", "", ""),
    ("", "await!", "a", "", ""),
    ("", "new ", "a", "", ""),
    ("", "++ ", "a", "", ""),
    ("", "!\n", "a", "", ""),
    ("", "typeof\n", "a", "", ""),
    ("function*g(){", "yield ", "a", "", "}"),
    ("", "<a>", "a", "", ""),
    ("", "a=", "a", "", ""),
    ("", "a?b:", "a", "", ""),
    ("", "a?", "b", ":c", ""),
    ("", "a=>", "a", "", ""),
    ("", "async a=>", "a", "", ""),
    ("", "()=>", "a", "", ""),
    ("x=", "(a):b=>", "c", "", ""),
    ("", "a**", "a", "", ""),
    ("", "1+", "1", "", ""),
    ("", "1||1&&1|1^1&1==1<1<<1+1*", "1", "", ""),
    ("", "a??", "1", "", ""),
    ("a", ".b", "", "", ""),
    ("a", "\n.b", "", "", ""),
    ("a", "?.b", "", "", ""),
    ("a", "()", "", "", ""),
    ("a", "\n()", "", "", ""),
    ("a", "[0]", "", "", ""),
    ("a", "!", "", "", ""),
    ("a", " as b", "", "", ""),
    ("a", " satisfies b", "", "", ""),
    ("a", "`b`", "", "", ""),
    ("a", "<b>", "", "", ""),
    ("", "if(a)", "a", "", ""),
    ("", "if(a)\n", "a", "", ""),
    ("", "if(a);else ", "a", "", ""),
    ("", "if(a)x,", "a", "", ""),
    ("if(a){}", "else if(a){}", "", "", ""),
    ("", "while(a)", "a", "", ""),
    ("", "for(;;)", "a", "", ""),
    ("", "for(a of b)\n", "a", "", ""),
    ("", "with(a)", "a", "", ""),
    ("", "a:", "a", "", ""),
    ("", "a:\n", "a", "", ""),
    ("", "do ", "a", ";while(a)", ""),
    ("", "do if(a)x;else ", "a", ";while(a)", ""),
    ("", "switch(a){case 1:", "", "}", ""),
    ("", "try{", "", "}finally{}", ""),
    ("let x:", "keyof ", "a", "", ""),
    ("let x:", "keyof\n", "a", "", ""),
    ("let x:", "readonly ", "a", "", ""),
    ("let x:", "? ", "a", "", ""),
    ("let x:", "!", "a", "", ""),
    ("let x:a", "!", "", "", ""),
    ("let x:", "a extends b?c:", "a", "", ""),
    ("let x:", "a extends b?", "c", ":d", ""),
    ("let x:", "a extends [", "c", "]?1:1", ""),
    ("let x:", "A<", "a", ">", ""),
    ("let x:", "A<a,", "a", ">", ""),
    ("x=", "A<", "a", ">", "()"),
    ("let x:a", "[]", "", "", ""),
    ("let x:", "a[", "a", "]", ""),
    ("let x:a", ".b", "", "", ""),
    ("let x:", "()=>", "a", "", ""),
    ("let x:", "new()=>", "a", "", ""),
    ("let x:", "(a:", "a", ")=>b", ""),
    ("let x:", "(", "a", ")", ""),
    ("let x:", "[", "a", "]", ""),
    ("let x:", "{a:", "a", "}", ""),
    ("let x:", "{[a in b]:", "a", "}", ""),
    ("let x:", "<T extends ", "a", ">()=>a", ""),
    ("let x:", "typeof a<", "a", ">", ""),
    ("let ", "[", "a", "]", "=1"),
    ("let ", "{a:", "a", "}", "=1"),
    ("", "namespace a{", "", "}", ""),
];

/// What oxc reads more than once.
const RETRIES: [Pattern; 38] = [
    ("", "(a=", "1", ")", ""),
    ("", "({a=", "1", "})", ""),
    ("", "([a=", "1", "])", ""),
    ("", "async(a=", "1", ")", ""),
    ("", "(`${(a=", "1", ")}`)", ""),
    ("", "a?(b=", "1", "):c=>d", ""),
    ("", "a?(b):c=>", "1", "", ""),
    ("", "a?(b):c=>(", "1", ")", ""),
    ("", "(a?(b=", "1", "):d=>e)", ""),
    ("", "<a>(b=", "1", ")", ""),
    ("", "async<a>(b=", "1", ")", ""),
    ("", "async<(a=", "1", ")>(1)", ""),
    ("", "async<", "1", "", ""),
    ("x=", "a<", "b", "", ""),
    ("x=", "a<b,", "b", "", ""),
    ("x=", "a<(", "1", ")", ""),
    ("x=", "a<[", "1", "]", ""),
    ("x=", "a<{a:", "1", "}", ""),
    ("x=", "a<(x=", "1", ")", ""),
    ("x=", "a<({a=", "1", "})", ""),
    ("x=", "a<({a=", "1", "})=>b>", ""),
    ("x=", "a<`${", "1", "}`", ""),
    ("x=", "a<`${(x=a<`${", "1", "}`)=>b}`>", ""),
    ("", "new a<(x=", "1", ")", ""),
    ("", "new new a<(x=", "1", ")", ""),
    ("", "class a extends b<(x=", "1", ")", "{}"),
    ("", "x as ({a=", "1", "})=>b", ""),
    ("", "x as ([a=", "1", "])=>b", ""),
    ("", "x as (public {a=", "1", "})=>b", ""),
    ("let x:", "({a=", "b", "})", ""),
    ("let x:", "({[", "b", "]:c})", ""),
    ("let x:", "infer U extends [", "1", "]?1:2", ""),
    ("let x:a extends ", "infer U extends (", "1", ")?1:2", "?1:2"),
    ("", "<T extends ({a=", "1", "})=>b>()=>1", ""),
    ("", "static\n", "1", "", ""),
    ("x=", "a<", "b", "", "\n=======\n"),
    ("x=0x", "f", "n", "", ""),
    ("", "/*@__PURE__*/(", "a", ")", ""),
];

/// Texts that hide brackets from a scanner that guesses wrong what a slash is: in the first half it
/// starts a regular expression, in the second it divides.
const HIDING: [Pattern; 22] = [
    ("if(a)/\"/;", "(", "a", ")", ";/\"/"),
    ("do;while(a)/\"/;", "(", "a", ")", ";/\"/"),
    ("let a\n/\"/;", "(", "a", ")", ";/\"/"),
    ("let a:b[]\n/\"/;", "(", "a", ")", ";/\"/"),
    ("type A=B\n/`/;", "(", "a", ")", ";/`/"),
    ("for(;;)break\n/`/;", "(", "a", ")", ";/`/"),
    ("class A{}/`/;", "(", "a", ")", ";/`/"),
    ("return/`/;", "(", "a", ")", ";/`/"),
    ("{}/`/;", "(", "a", ")", ";/`/"),
    ("i\\u0066(a)/\"/;", "(", "a", ")", ";/\"/"),
    ("<!-- `\n", "(", "a", ")", ";//`"),
    ("x as while\n(a)/\"/;\"+", "(", "a", ")", "+\"/\""),
    ("let x:while\n(a)/\"/;\"+", "(", "a", ")", "+\"/\""),
    ("x as return/\"/;\"+", "(", "a", ")", "+\"/\""),
    ("x as return!/\"/;\"+", "(", "a", ")", "+\"/\""),
    ("x as {a;b}?/\"/;\"+", "(", "a", ")", "+\"/\""),
    ("x as A<B>!/\"/;\"+", "(", "a", ")", "+\"/\""),
    ("f<T>/\"/;\"+", "(", "a", ")", "+\"/\""),
    ("i++/\"/;\"+", "(", "a", ")", "+\"/\""),
    ("({}/\"/;\"+", "(", "a", ")", "+\"/\")"),
    (".5.\nwhile(a)/\"/;\"+", "(", "a", ")", "+\"/\""),
    ("a.return/\"/;\"+", "(", "a", ")", "+\"/\""),
];

fn fill((prefix, unit, middle, close, suffix): Pattern, count: usize) -> String {
    let (units, closes) = (unit.repeat(count), close.repeat(count));
    format!("{prefix}{units}{middle}{closes}{suffix}")
}

fn fits(pattern: Pattern, count: usize, language: Language) -> bool {
    let source = fill(pattern, count);
    source.len() <= MAX_SOURCE_BYTES && check(&source, language).is_ok()
}

/// About the most repetitions that the guard lets through.
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

/// Prepares on the smallest stack that is allowed, and returns how long it took.
///
/// A stack that overflows aborts the test.
fn survive(source: String, language: Language) -> Duration {
    let work = move || {
        let start = Instant::now();
        let _ = prepare(&source, language);
        start.elapsed()
    };
    let thread = thread::Builder::new().stack_size(64 << 20).spawn(work);
    let took = thread.ok().and_then(|thread| thread.join().ok());
    took.unwrap_or(Duration::MAX)
}

fn attack(patterns: &[Pattern]) {
    for &pattern in patterns {
        for language in [Language::JavaScript, Language::TypeScript] {
            let (_, unit, _, close, _) = pattern;
            let most = (MAX_SOURCE_BYTES - 100) / (unit.len() + close.len());
            for count in [most, limit(pattern, language)] {
                let took = survive(fill(pattern, count), language);
                let limit = Duration::from_secs(2);
                assert!(took < limit, "{pattern:?} {count} times, {language:?}: {took:?}");
            }
        }
    }
}

#[test]
fn survives_what_nests() {
    attack(&NESTING);
}

#[test]
fn survives_what_is_read_again() {
    attack(&RETRIES);
}

#[test]
fn survives_what_hides() {
    attack(&HIDING);
}

/// A bound that is wrong by much would let these through.
#[test]
fn refuses_what_is_deep_wherever_it_hides() {
    let deep = MAX_DEPTH as usize + 100;
    for pattern in NESTING {
        // A pattern that needs fewer tokens than the limit for its depth is not too deep.
        let source = fill(pattern, deep);
        if source.len() <= MAX_SOURCE_BYTES {
            let verdict = check(&source, Language::TypeScript);
            assert!(matches!(verdict, Err(Rejection::TooDeep { .. })), "{pattern:?}: {verdict:?}");
        }
    }
    for pattern in HIDING {
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
