//! Every limit, exceeded on purpose: each gives its own error code and never a crash.

use std::time::Instant;

use contract::cell::Language;
use contract::frame::Budget;
use serde_json::json;

use crate::lab::{End, Lab, budget};

/// Recursion of every kind ends in an exception that the cell can catch.
#[test]
fn stack_overflow_can_be_caught() {
    let recursions = [
        "const f = () => f() + 1; f()",
        "function f(...a) { return f(...a, 1) } f()",
        "const o = { toString() { return `${this}` } }; String(o)",
        "const o = { get x() { return this.x } }; o.x",
        "const o = { valueOf() { return +this } }; +o",
        "const p = new Proxy({}, { get(t, k, r) { return r[k] } }); p.x",
        "const a = [3, 2, 1]; const s = () => a.slice().sort(() => s()); s()",
        "const r = () => [1].map(r); r()",
        "const r = () => 'a'.replace(/a/, r); r()",
        "class A { constructor() { new A() } } new A()",
        "function* g() { yield* g() } [...g()]",
        "const e = () => eval('e()'); e()",
        "const j = { toJSON() { return JSON.stringify(this) } }; JSON.stringify(j)",
        "JSON.parse('['.repeat(100000))",
        "JSON.parse('{\"a\":'.repeat(100000))",
        "let x = []; for (let i = 0; i < 200000; i++) x = [x]; JSON.stringify(x)",
        "let x = {}; for (let i = 0; i < 200000; i++) x = { x }; JSON.stringify(x)",
        "eval('['.repeat(100000))",
        "eval('('.repeat(100000))",
        "eval('{'.repeat(100000))",
        "eval('!'.repeat(100000) + '1')",
        "eval('-'.repeat(1).concat(' -'.repeat(100000), '1'))",
        "eval('a=>'.repeat(50000) + '1')",
        "eval('1?'.repeat(50000) + '1' + ':1'.repeat(50000))",
        "eval('`${'.repeat(50000))",
        "eval('function f(){'.repeat(20000))",
        "eval('if(1)'.repeat(50000) + ';')",
        "eval('a:'.repeat(1).concat('{'.repeat(30000)))",
        "eval('[a='.repeat(30000))",
        "eval('1**'.repeat(50000) + '1')",
        "eval('new '.repeat(50000) + 'A')",
        "eval('class A extends '.repeat(20000))",
        "new RegExp('('.repeat(100000))",
        "new RegExp('(?:'.repeat(100000) + ')'.repeat(100000))",
        "new RegExp('[' .repeat(100000), 'v')",
        "let f = () => 1; for (let i = 0; i < 50000; i++) f = Object.defineProperty(f.bind(null), 'name', { value: '' }); f()",
        "let p = {}; for (let i = 0; i < 50000; i++) p = new Proxy(p, {}); p.x",
        "let x = []; for (let i = 0; i < 200000; i++) x = [x]; x.flat(Infinity)",
        "let x = []; for (let i = 0; i < 200000; i++) x = [x]; String(x)",
        "let x = []; for (let i = 0; i < 200000; i++) x = [x]; structuredClone(x)",
        "new Function('return ' + '['.repeat(100000))",
        "const o = {}; o.__proto__ = new Proxy({}, { has() { return 'x' in o } }); 'x' in o",
        "Reflect.construct(function F() { return Reflect.construct(F, []) }, [])",
        "const i = { [Symbol.iterator]() { return [...i] } }; [...i]",
        "const a = async () => { await a() }; for (let i = 0; i < 3; i++) a()",
    ];
    for source in recursions {
        let cell = format!("try {{ {source} }} catch (e) {{ return e instanceof Error }} return true");
        let (end, _) = Lab::shared().run(&cell);
        assert_eq!(end, End::Value(json!(true)), "{source}");
    }
}

/// Deeply nested values that leave the cell.
#[test]
fn deep_values_are_refused_without_a_crash() {
    let deep = "let x = 1; for (let i = 0; i < 100000; i++) x = [x];";
    for source in [
        format!("{deep} return x"),
        format!("{deep} json(x)"),
        format!("{deep} await tools.echo(x)"),
        format!("{deep} throw x"),
    ] {
        let (end, _) = Lab::shared().run(&source);
        assert!(matches!(end, End::Failed(None, _)), "{source}: {end:?}");
    }
    let (end, _) = Lab::shared().run("let x = 1; for (let i = 0; i < 1001; i++) x = [x]; await tools.echo(x)");
    let expected = "tool `openclaw:test:echo` failed: input nests too deeply to send: at most 1000 levels";
    assert!(matches!(end, End::Failed(Some("nested_tool_failed"), text) if text.starts_with(expected)));
}

/// Endless cells, in JavaScript and inside QuickJS's own C code.
#[test]
fn an_endless_cell_is_stopped_in_time() {
    let endless = [
        "while (true) {}",
        "for (;;) try { throw 1 } catch {} finally { continue }",
        "for (;;) await 0",
        "const f = () => Promise.resolve().then(f); await f()",
        "function* g() { for (;;) yield 1 } for (const x of g());",
        "/(a+)+$/.test('a'.repeat(40) + 'b')",
        "let x = [0]; for (let i = 0; i < 60; i++) x = [x, x]; JSON.stringify(x)",
        "[].indexOf.call({ length: 2 ** 53 - 1 }, 1)",
        "Array.prototype.fill.call({ length: 2 ** 53 - 1, set 0(v) {} }, 1)",
        "'a'.repeat(2 ** 20).split('').map((x) => 'b'.repeat(2 ** 12).indexOf('c'.repeat(2 ** 11))).length",
        "for (;;) 'ab'.repeat(1 << 20).replaceAll('b', 'cc')",
        "for (;;) new Array(1e5).fill(0).sort()",
        "let n = 3n; for (;;) n = n * n % (2n ** 20000n)",
        "for (;;) new Date().toISOString()",
        "Object.defineProperty(globalThis, 'x', { get() { for (;;); } }); x",
        "const e = new Error('m'); Object.defineProperty(e, 'message', { get() { for (;;); } }); throw e",
        "return { toJSON() { for (;;); } }",
        "text({ toJSON() { for (;;); } })",
        "await tools.echo({ toJSON() { for (;;); } })",
        "for (;;) new Uint8Array(1 << 22).fill(1)",
        "for (;;) structuredClone({ a: [1, 2, 3] })",
        "for (;;) JSON.parse('[1,2,3]')",
        "for (;;) new URL('https://a.b/c')",
        "for (;;) tools.nope",
        "new RegExp('(x+x+)+y').exec('x'.repeat(64))",
        "for (;;) ALL_TOOLS",
        "for (;;) eval('1+1')",
    ];
    let budget = Budget { run_ms: 150, ..budget() };
    for source in endless {
        let started = Instant::now();
        let (end, _) = Lab::shared().run_with(source, Language::JavaScript, budget);
        let took = started.elapsed().as_millis();
        let expected = "the cell ran for its whole budget of 150 ms without finishing; do less work in one cell";
        assert_eq!(end, End::Failed(Some("timeout"), expected.to_owned()), "{source}");
        assert!(took < 400, "{source} took {took} ms");
    }
}

#[test]
fn memory_is_capped_for_every_kind_of_allocation() {
    let bombs = [
        "const a = []; for (;;) a.push(new Array(1000).fill(1))",
        "let s = 'x'; for (;;) { s += s; s.charCodeAt(s.length - 1) }",
        "new ArrayBuffer(1 << 30)",
        "const m = new Map(); for (let i = 0; ; i++) m.set(i, { i })",
        "for (;;) try { const a = []; for (;;) a.push('x'.repeat(100000) + a.length) } catch {}",
        "const a = []; for (;;) a.push(Promise.resolve().then(() => {}))",
        "'x'.repeat(2 ** 29).split('')",
    ];
    let budget = Budget { memory_bytes: 16 << 20, ..budget() };
    for source in bombs {
        let (end, _) = Lab::shared().run_with(source, Language::JavaScript, budget);
        let expected = "the cell exceeded its memory limit of 16777216 bytes; keep less data at once";
        assert_eq!(end, End::Failed(Some("memory_limit_exceeded"), expected.to_owned()), "{source}");
    }
}

#[test]
fn the_smallest_memory_is_enough_for_a_small_cell() {
    let budget = Budget { memory_bytes: 1 << 20, ..budget() };
    let (end, _) = Lab::shared().run_with("return 1", Language::JavaScript, budget);
    assert_eq!(end, End::Value(json!(1)));
}

#[test]
fn output_over_its_limit_keeps_what_fits_and_reports_the_total() {
    let budget = Budget { output_bytes: 1024, ..budget() };
    let source = "for (let i = 0; i < 5; i++) text('x'.repeat(300)); return 1";
    let (end, output) = Lab::shared().run_with(source, Language::JavaScript, budget);
    let expected = "the cell's output and value take 1580 bytes, the limit is 1024; return or print less, for example a summary or a slice";
    assert_eq!(end, End::Failed(Some("output_limit_exceeded"), expected.to_owned()));
    assert_eq!(output.len(), 3);
    for source in [
        "return 'y'.repeat(2000)",
        "for (;;) text('z'.repeat(100))",
        "for (;;) text('')",
        "text('a'); await tools.echo({}); for (;;) console.log(1)",
    ] {
        let (end, _) = Lab::shared().run_with(source, Language::JavaScript, budget);
        assert!(matches!(end, End::Failed(Some("output_limit_exceeded"), _)), "{source}: {end:?}");
    }
}

#[test]
fn values_too_large_to_send_are_refused() {
    let budget = Budget { memory_bytes: 256 << 20, ..budget() };
    let source = "try { await tools.echo('x'.repeat(17 << 20)) } catch (e) { return [e.message, e.code] }";
    let (end, _) = Lab::shared().run_with(source, Language::JavaScript, budget);
    let expected = json!(["input is too large to send: at most 16 MiB of JSON", "value_too_large"]);
    assert_eq!(end, End::Value(expected));
}

#[test]
fn source_over_its_limit_is_refused() {
    let (end, _) = Lab::shared().run(&format!("return 1 // {}", "x".repeat(256 << 10)));
    assert!(matches!(&end, End::Failed(Some("invalid_input"), text) if text.contains("262144")), "{end:?}");
}
