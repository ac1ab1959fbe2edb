//! The result of erasing each feature of TypeScript, as whole bodies.

use crate::source::{Language, prepare};

/// Checks the JavaScript that a TypeScript cell becomes, and that it has as many lines as its source.
pub(super) fn check(source: &str, expected: &str) {
    let script = prepare(source, Language::TypeScript).map(|prepared| prepared.script);
    assert_eq!(script, Ok(format!("(async()=>{{\n{expected}\n}})")), "{source}");
    assert_eq!(expected.lines().count(), source.lines().count(), "{source}");
}

#[test]
fn type_annotations_become_blanks() {
    let cases = [
        ("let x: number = 1", "let x         = 1"),
        (
            "const a: string = 'é', b: Map<string, number> = new Map()",
            "const a         = 'é', b                      = new Map()",
        ),
        ("let x: string", "let x;       "),
        ("let x!: number; x = 1", "let x         ; x = 1"),
        ("var f: (a: number, b?: string) => void = g", "var f                                  = g"),
        (
            "let t: [a: string, b?: number, ...rest: boolean[]] = y",
            "let t                                              = y",
        ),
        (
            "let u: 'a' | \"b\" | 1 | -1 | true | null | undefined = z",
            "let u                                               = z",
        ),
        ("let s: {\n  a: string\n  b(x: T): void\n} = {}", "let s   \n           \n               \n  = {}"),
        ("for (const x: number of xs) { y(x) }", "for (const x         of xs) { y(x) }"),
        ("try { a() } catch (e: unknown) { b(e) }", "try { a() } catch (e         ) { b(e) }"),
        ("const { a, b }: { a: string; b: number } = c", "const { a, b }                           = c"),
        ("const [a, ...b]: number[] = c", "const [a, ...b]           = c"),
        ("let x /* c */ : /* d */ T /* e */ = 1 // f: T", "let x /* c */             /* e */ = 1 // f: T"),
        ("let 名: 型 = 値, x: \"😀\" = y", "let 名      = 値, x         = y"),
    ];
    for (source, expected) in cases {
        check(source, expected);
    }
}

#[test]
fn assertions_and_type_arguments_become_blanks() {
    let cases = [
        ("return x as any", "return x;      "),
        ("return x as const", "return x;        "),
        ("f(x as unknown as T, y satisfies U)", "f(x                , y            )"),
        ("const v = { a: 1 } as const satisfies V;", "const v = { a: 1 }                     ;"),
        ("x!.y!.z!()", "x .y .z ()"),
        ("(x as any).y = (z!) as T", "(x       ).y = (z );    "),
        (
            "(a as any) = 1; [b as any] = c; ({ d: e as any } = f); g!++",
            "(a       ) = 1; [b       ] = c; ({ d: e        } = f); g ++",
        ),
        ("return <any>x", "return      x"),
        ("return (<T>x).y + <U>(z)", "return (   x).y +    (z)"),
        ("const f = () => <T>{ a: 1 }", "const f = () => (  { a: 1 })"),
        ("<any>function () {}", "(    function () {})"),
        ("for (const k of Object.keys(o) as K[]) {}", "for (const k of Object.keys(o)       ) {}"),
        ("a ? b as T : c as U", "a ? b      : c;    "),
        ("return [...x as T[]]", "return [...x       ]"),
        ("const g = f<string>; new Map<string, T[]>; h<T>`x`", "const g = f        ; new Map             ; h   `x`"),
        ("a?.b<T>(c)?.<U>(d)", "a?.b   (c)?.   (d)"),
        ("1 as number + 2; typeof x as T; (await p as T).q", "1           + 2; typeof x     ; (await p     ).q"),
    ];
    for (source, expected) in cases {
        check(source, expected);
    }
}

#[test]
fn functions_lose_their_types() {
    let cases = [
        (
            "function f<T extends U = V>(this: Window, a: T, b?: string, ...c: T[]): asserts a is T { return a }",
            "function f                 (              a   , b         , ...c     )                 { return a }",
        ),
        ("function f(this: T) {}", "function f(       ) {}"),
        ("function f(this: T,) {}", "function f(        ) {}"),
        (
            "async function* g<T>(x: T): AsyncGenerator<T> { yield x }",
            "async function* g   (x   )                    { yield x }",
        ),
        ("const f = function <T>(x: T): T { return x }", "const f = function    (x   )    { return x }"),
        ("const f = <T,>(x: T): T => x", "const f =     (x   )    => x"),
        ("const f = async <T>(x: T): Promise<T> => x", "const f = async    (x   )             => x"),
        (
            "const f = (x?: number, { y }: { y: T } = z): x is number => true",
            "const f = (x         , { y }           = z)              => true",
        ),
        (
            "const o = { m<T>(x: T): T { return x }, get v(): T { return 1 }, set v(x: T) {}, async *[k]<T>(): G {} }",
            "const o = { m   (x   )    { return x }, get v()    { return 1 }, set v(x   ) {}, async *[k]   ()    {} }",
        ),
        (
            "function f(a: string): void\nfunction f(a: number): void;\nfunction f(a: any) {}",
            ";                          \n;                           \nfunction f(a     ) {}",
        ),
        ("declare function f(): void\nf()", ";                         \nf()"),
        ("a.sort((x: T, y: T): number => x - y)", "a.sort((x   , y   )         => x - y)"),
    ];
    for (source, expected) in cases {
        check(source, expected);
    }
}

#[test]
fn a_line_break_in_a_type_does_not_end_a_statement() {
    // No line may end before `=>`, nor after `return`, `throw` and `async`.
    let cases = [
        ("const f = (x: T): {\n  a: T\n} => x", "const f = (x       \n      \n) => x"),
        ("const f = (x: T) // c\n  : T => x", "const f = (x     // c\n    ) => x"),
        ("const f = async <\n  T\n>(x: T) => x", "const f = async (\n   \n  x   ) => x"),
        ("return <T>\n  (x: T) => x", "return (  \n   x   ) => x"),
        ("return <\n  T\n>(x: T): Promise<\n  T\n> => x", "return (\n   \n  x              \n   \n) => x"),
        ("return <T>\n  x", "return (  \n  x)"),
        ("throw <T>\n  x", "throw (  \n  x)"),
        ("return x as {\n  a: T\n}", "return x;    \n      \n "),
        ("f<\n  T\n>(x)", "f \n   \n (x)"),
        ("let x: T\r\nlet y: U\rlet z: \u{2028}V\u{2029} = 1", "let x;  \r\nlet y;  \rlet z  \u{2028} \u{2029} = 1"),
    ];
    for (source, expected) in cases {
        check(source, expected);
    }
}

#[test]
fn lines_that_a_type_kept_apart_stay_apart() {
    let cases = [
        ("foo\ntype A = B\n(bar)", "foo\n;         \n(bar)"),
        ("foo\ninterface I { a: string }\n[bar]", "foo\n;                        \n[bar]"),
        ("foo\ndeclare const x: number\n`bar`", "foo\n;                      \n`bar`"),
        ("foo as T\n(bar)", "foo;    \n(bar)"),
        ("let a = b as T\n[c]", "let a = b;    \n[c]"),
        ("a!\n(b)", "a \n(b)"),
        ("if (a) b as T\nelse c!\n(d)", "if (a) b;    \nelse c \n(d)"),
        ("while (a) b satisfies T\n+c", "while (a) b            \n+c"),
        ("type A = 1; type B = 2\nfoo()", ";           ;         \nfoo()"),
    ];
    for (source, expected) in cases {
        check(source, expected);
    }
}

#[test]
fn declarations_of_types_become_empty_statements() {
    let cases = [
        (
            "interface A extends B, C<D> { x: string; [k: string]: any; (a: T): U; new (a: T): V; m?(): W }",
            ";                                                                                             ",
        ),
        (
            "type A<T> = T extends infer U extends string ? `${U}-x` : { [K in keyof T]?: T[K] }",
            ";                                                                                  ",
        ),
        (
            "declare let x: number; declare var y; declare class C { m(): void }",
            ";                      ;              ;                            ",
        ),
        ("declare enum E { A } declare const enum F { B }", ";                    ;                         "),
        (
            "declare namespace N { const x: number }\ndeclare module 'm' { export const y: string }\ndeclare global { interface Window { z: T } }",
            ";                                      \n;                                            \n;                                           ",
        ),
        (
            "namespace N { export type A = 1; interface B {} namespace C.D { type E = 2 } }",
            ";                                                                             ",
        ),
        (
            "type = 1; declare = type; namespace = declare; abstract = async",
            "type = 1; declare = type; namespace = declare; abstract = async",
        ),
        (
            "let as = 1, satisfies = as, is = satisfies, keyof = is",
            "let as = 1, satisfies = as, is = satisfies, keyof = is",
        ),
    ];
    for (source, expected) in cases {
        check(source, expected);
    }
}

#[test]
fn classes_keep_only_what_runs() {
    let cases = [
        ("class A<T> extends B<T> implements C, D<T> { }", "class A    extends B                       { }"),
        (
            "class A implements B {}; const C = class implements D {}; class E<T> extends (F as G)<T> {}",
            "class A              {}; const C = class              {}; class E    extends (F     )    {}",
        ),
        (
            "abstract class A { abstract x: number; abstract m(): void; abstract get y(): T; z = 1 }",
            "         class A { ;                   ;                   ;                    z = 1 }",
        ),
        (
            "class A { x: number; y?: string; z!: T; readonly w = 1; static v: T = 2 }",
            "class A { x        ; y         ; z    ;          w = 1; static v    = 2 }",
        ),
        (
            "class A { private a = 1; public static b; protected readonly c: T; override d() {} private async e(): Promise<T> {} }",
            "class A {         a = 1;        static b;                    c   ;          d() {}         async e()             {} }",
        ),
        (
            "class A { private *g() {} public [k] = 1; protected static [l]() {} private get h(): T { return 1 } }",
            "class A { ;       *g() {} ;      [k] = 1;           static [l]() {}         get h()    { return 1 } }",
        ),
        (
            "class A {\n  a = b\n  private [k] = 1\n  c = d\n  public *g() {}\n  e = f\n  protected in = 2\n}",
            "class A {\n  a = b\n  ;       [k] = 1\n  c = d\n  ;      *g() {}\n  e = f\n  ;         in = 2\n}",
        ),
        (
            "class A {\n  get: T\n  m() {}\n  static: U\n  set?\n  n() {}\n  x = y as V\n  [z] = 1\n}",
            "class A {\n  get;  \n  m() {}\n  static;  \n  set;\n  n() {}\n  x = y;    \n  [z] = 1\n}",
        ),
        (
            "class A {\n  [key: string]: any\n  static [key: number]: T;\n  declare x: number\n  declare readonly y: T;\n  z\n}",
            "class A {\n  ;                 \n  ;                       \n  ;                \n  ;                     \n  z\n}",
        ),
        (
            "class A {\n  constructor(a: string)\n  constructor(a: number);\n  constructor(a: any) {}\n  m(): void\n  m(x?: T) {}\n  o?(): void {}\n}",
            "class A {\n  ;                     \n  ;                      \n  constructor(a     ) {}\n  ;        \n  m(x    ) {}\n  o ()       {}\n}",
        ),
        (
            "class A { private constructor() { super() } ['m']?(): T { return 1 } 'q'?: T; 1!: U; #p: T = 2 }",
            "class A {         constructor() { super() } ['m'] ()    { return 1 } 'q'    ; 1    ; #p    = 2 }",
        ),
        (
            "class A { static { let x: T = 1 } accessor y: T = 1 }",
            "class A { static { let x    = 1 } accessor y    = 1 }",
        ),
        (
            "class A { m(this: A, x: T): x is U { return super.m<T>(x!) as V } }",
            "class A { m(         x   )         { return super.m   (x );     } }",
        ),
    ];
    for (source, expected) in cases {
        check(source, expected);
    }
}

#[test]
fn javascript_is_unchanged() {
    let cases = [
        ("const x = 1 < 2 && 3 > (4)", "const x = 1 < 2 && 3 > (4)"),
        (
            "const s = 'let x: number as T', t = `type A = ${x as T} as U`, r = /x as T/",
            "const s = 'let x: number as T', t = `type A = ${x     } as U`, r = /x as T/",
        ),
        ("// let x: T as U\n/* interface */ return 1", "// let x: T as U\n/* interface */ return 1"),
        ("label: for (;;) { break label }", "label: for (;;) { break label }"),
        ("return a ? (b) : c => d", "return a ? (b) : c => d"),
        (
            "return await Promise.all([1, 2].map(async (x) => x))",
            "return await Promise.all([1, 2].map(async (x) => x))",
        ),
    ];
    for (source, expected) in cases {
        check(source, expected);
    }
}
