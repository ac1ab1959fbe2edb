//! Tests of `prepare`: it never panics, its output is JavaScript, and it rejects what it must.

use std::panic::Location;

use oxc_allocator::Allocator;
use oxc_parser::Parser;
use oxc_span::SourceType;
use proptest::collection::vec;
use proptest::prelude::{ProptestConfig, Strategy, any, prop_oneof, proptest};
use proptest::sample::select;

use super::{Language, MAX_SOURCE_BYTES, Rejection, SourcePosition, prepare};

/// Punctuation, names and literals, which random text joins without a space.
const TOKENS: &str = "( ) [ ] { } < > => = == ! ? ?. : ; , . ... + - * / % && | & ?? ++ -- ` ${ ' \" \\ é 😀 \
    a b x T #p @ 1 1. .5 0xf 1n 's' \"s\" `t` /r/g <!-- --> constructor super this require null any string";

/// Keywords, which random text ends with a space: otherwise the next piece would join them.
const KEYWORDS: &str = "as satisfies keyof typeof infer extends implements readonly unique is asserts new \
    abstract declare in of instanceof await yield async function class static get set private public \
    override accessor if else for while do switch case default try catch return throw break let var \
    const type interface enum namespace module import export from void delete global using debugger with";

const SPACES: [&str; 8] = ["\n", "\r\n", " ", "\t", "\u{2028}", "\u{a0}", "// c\n", "/* c */"];

/// Pieces of TypeScript that are valid next to each other in any order.
const STATEMENTS: [&str; 41] = [
    "let a: T = b as U;",
    "type A<T> = { [K in keyof T]?: T[K] }\n",
    "interface B extends C { d: E }\n",
    "f<T>(x!, y satisfies Z)\n",
    "enum F { G, H = 'i' }\n",
    "const g = <T,>(x: T): T => x\n",
    "const h = async (x?: A): Promise<{\n b: C\n}> => x\n",
    "declare const j: number\n",
    "class K<T> extends L<T> implements M { private n?: T; constructor(private o: P) { super() } }\n",
    "abstract class Q { abstract r(): void; [s: string]: any; declare t: U }\n",
    "(a as any)\n",
    "[a as any]\n",
    "`a`\n",
    "/a/g\n",
    "+a!\n",
    "foo as T\n",
    "let k: T\n",
    "x!\n",
    "function l(this: A, b: B): asserts b is C { return b }\n",
    "function m(a: A): void\nfunction m(a) {}\n",
    "for (const n of o as P[]) { break }\n",
    "try {} catch (e: unknown) {}\n",
    "if (a) b as T\nelse c!\n",
    "return <T>\n  x\n",
    "const q = () => <T>{ a: 1 }\n",
    "namespace R { export type S = 1 }\n",
    "namespace T { export const u = 1; export function v() { return u } export namespace W.X { let y = 2 } }\n",
    "label: while (a as B) { continue label }\n",
    "new Map<string, Array<T>>([[a, b]])\n",
    "const { a: s, ...t }: U = v\n",
    "declare module 'w' { const x: number }\n",
    "x = y ? (z) : w => v\n",
    "const o = { m<T>(x: T): T { return x }, get y(): U { return 1 } }\n",
    "a?.b<T>(c)?.[d!];",
    "class Z {\n get: T\n x() {}\n y = z as T\n private [w] = 1\n}\n",
    "let é: 'ü' | \"😀\" = b\n",
    "switch (a as B) { case c!: d() }\n",
    "throw <Error>e\n",
    "do x as T\nwhile (y)\n",
    "{ type A = 1 }\n",
    "async function* g<T>(): G<T> { yield <T>x; await y! }\n",
];

fn random_tokens() -> impl Strategy<Value = String> {
    let tokens: Vec<&str> = TOKENS.split_whitespace().collect();
    let keywords: Vec<&str> = KEYWORDS.split_whitespace().collect();
    let piece = prop_oneof![
        8 => select(tokens).prop_map(str::to_owned),
        4 => select(keywords).prop_map(|word| format!("{word} ")),
        2 => select(&SPACES[..]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    vec(piece, 0..80).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2_000) })]

    #[test]
    fn prepare_never_panics(source in random_tokens()) {
        prepare(&source, Language::JavaScript).ok();
        prepare(&source, Language::TypeScript).ok();
    }

    #[test]
    fn transpiled_typescript_is_javascript_on_the_same_lines(
        statements in vec(select(&STATEMENTS[..]), 0..12)
    ) {
        let source = statements.concat();
        if let Ok(prepared) = prepare(&source, Language::TypeScript) {
            assert_javascript(&prepared.script);
            // The wrapper adds a line before the source and one after it.
            assert_eq!(prepared.script.lines().count(), format!("{source}\n").lines().count() + 2);
        } else {
            assert!(source.is_empty(), "{source}");
        }
    }

    #[test]
    fn random_text_that_is_accepted_becomes_javascript(source in random_tokens()) {
        if let Ok(prepared) = prepare(&source, Language::TypeScript) {
            assert_javascript(&prepared.script);
        }
    }
}

#[track_caller]
fn assert_javascript(script: &str) {
    let allocator = Allocator::default();
    let returned = Parser::new(&allocator, script, SourceType::script()).parse();
    let place = Location::caller();
    assert!(returned.diagnostics.is_empty(), "{place}\n{script}\n{:?}", returned.diagnostics.first());
}

#[test]
fn empty_and_too_large_sources_are_rejected() {
    let limit = MAX_SOURCE_BYTES;
    assert_eq!(prepare("", Language::JavaScript), Err(Rejection::Empty));
    assert_eq!(prepare(" \n\t", Language::TypeScript), Err(Rejection::Empty));
    assert_eq!(prepare("```js\n```", Language::TypeScript), Err(Rejection::Empty));
    assert!(prepare(&" ".repeat(limit - 1).replacen(' ', "1", 1), Language::JavaScript).is_ok());
    let bytes = limit + 1;
    let rejection = prepare(&"1".repeat(bytes), Language::JavaScript);
    assert_eq!(rejection, Err(Rejection::TooLarge { bytes, limit }));
}

#[test]
fn code_fences_are_removed_and_line_numbers_stay() {
    let prepared = prepare("\n```ts\nlet x: T = 1\nreturn x\n```\n", Language::TypeScript);
    let script = prepared.map(|prepared| prepared.script);
    assert_eq!(script.as_deref(), Ok("(async()=>{\n\n\nlet x    = 1\nreturn x\n\n\n})"));
    let rejection = prepare("```js\nreturn (\n```", Language::JavaScript);
    let place = SourcePosition { line: 3, column: 1 };
    assert!(matches!(rejection, Err(Rejection::Syntax { place: found, .. }) if found == place));
}

#[test]
fn shell_commands_are_rejected_and_javascript_with_their_names_is_accepted() {
    let shell = ["cd /tmp && npm install", "cat file | grep x", "echo $HOME", "#!/bin/bash\nls"];
    for source in shell {
        assert_eq!(prepare(source, Language::JavaScript), Err(Rejection::Shell), "{source}");
        assert_eq!(prepare(source, Language::TypeScript), Err(Rejection::Shell), "{source}");
    }
    for source in ["git.status()", "echo('hi')", "ls -la; return 1", "a = ls -la"] {
        assert!(prepare(source, Language::JavaScript).is_ok(), "{source}");
        assert!(prepare(source, Language::TypeScript).is_ok(), "{source}");
    }
}

#[test]
fn unsupported_typescript_is_rejected() {
    let cases = [
        ("@d class A {}", 1, 1, "decorators"),
        ("class A {\n  @d() m() {} }", 2, 3, "decorators"),
        ("class A { m(@d x) {} }", 1, 13, "decorators"),
        ("import a = b.c", 1, 1, "import"),
        ("export = a", 1, 1, "return"),
    ];
    for (source, line, column, expected) in cases {
        let (message, place) = match prepare(source, Language::TypeScript) {
            Err(Rejection::TypeScript { message, place }) => (message, place),
            other => (format!("{other:?}"), SourcePosition { line: 0, column: 0 }),
        };
        assert_eq!(place, SourcePosition { line, column }, "{source}: {message}");
        assert!(message.contains(expected), "{source}: {message}");
    }
}
