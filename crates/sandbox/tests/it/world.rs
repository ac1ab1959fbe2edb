//! The guest's environment: what a cell finds, and what it must not find.

use contract::cell::{Language, OutputItem};
use serde_json::{Value, json};

use crate::lab::{End, Lab, budget};

fn check(source: &str, expected: Value) {
    let (end, _) = Lab::shared().run(source);
    assert_eq!(end, End::Value(expected), "{source}");
}

fn check_failure(source: &str, code: Option<&'static str>, message: &str) {
    let (end, _) = Lab::shared().run(source);
    assert_eq!(end, End::Failed(code, message.to_owned()), "{source}");
}

#[test]
fn a_cell_returns_a_json_value() {
    check("return 1+1", json!(2));
    check("1 + 1", json!(null));
    check("const a = await Promise.all([1, 2].map(async (n) => n * 2)); return { a }", json!({"a": [2, 4]}));
    check("return undefined", json!(null));
    check("return () => 1", json!("[function]"));
    check("return { n: 1n }", json!({"n": "1"}));
    check("const a = []; a.push(a); return a", json!(["[circular]"]));
    check("return new Error('boom')", json!({"name": "Error", "message": "boom"}));
    check("return [NaN, new Date(0), undefined]", json!([null, "1970-01-01T00:00:00.000Z", null]));
}

#[test]
fn tools_are_found_called_and_frozen() {
    check("return await tools.call('openclaw:test:echo', { a: 1 })", json!({"a": 1}));
    check("return await tools.call('openclaw:test:echo')", json!({}));
    check("return await tools.echo({ b: 2 })", json!({"b": 2}));
    check("return Object.keys(tools)", json!(["search", "describe", "call", "echo"]));
    check("return [typeof tools.nope, Object.isFrozen(tools), 'echo' in tools]", json!(["undefined", true, true]));
    check("tools.call = 1; return typeof tools.call", json!("function"));
    check("try { 'use strict'; delete tools.call } catch {} return typeof tools.call", json!("function"));
    check(
        "return [ALL_TOOLS.length, ALL_TOOLS[0].id, Object.isFrozen(ALL_TOOLS[0])]",
        json!([1, "openclaw:test:echo", true]),
    );
    check("return await tools.search('x', { limit: 3 })", json!(["x", {"limit": 3}]));
    check("const v = [1]; const p = tools.call('x:y:z', v); v.push(2); return await p", json!([1]));
    check("return Object.getPrototypeOf(tools)", json!(null));
}

#[test]
fn namespaces_call_by_path() {
    check("return await MCP.fixture.echo({ a: 1 })", json!([["fixture", "echo"], [{"a": 1}]]));
    check(
        "return await MCP.fixture.resources.read({ uri: 'x' })",
        json!([["fixture", "resources", "read"], [{"uri": "x"}]]),
    );
    check(
        "return [MCP.fixture.$serverName, typeof MCP.other, Object.keys(MCP)]",
        json!(["fixture", "undefined", ["$api", "fixture"]]),
    );
    check("return await Issues.list({ state: 'open' })", json!([["list"], [{"state": "open"}]]));
    check("return [namespaces.Issues === Issues, Issues.limits]", json!([true, [3]]));
}

#[test]
fn the_bridge_of_tool_search_exists_if_a_table_names_it() {
    let bridge = r#"{"kind":"object","entries":[["tools",{"kind":"tools"}]]}"#;
    let lab = Lab::with_tables(1, &[("namespaces", r#"["openclaw"]"#), ("namespace/openclaw", bridge)]);
    let cases = [
        ("return await openclaw.tools.search('x', { limit: 3 })", json!(["x", {"limit": 3}])),
        ("return await openclaw.tools.call('mcp:a:b', { c: 1 })", json!({"c": 1})),
        ("return Object.keys(openclaw.tools)", json!(["search", "describe", "call"])),
        ("openclaw.tools.call = 1; return [typeof openclaw.tools.call, ALL_TOOLS.length]", json!(["function", 0])),
    ];
    for (source, expected) in cases {
        assert_eq!(lab.run(source).0, End::Value(expected), "{source}");
    }
    check("return [typeof openclaw, typeof namespaces.openclaw]", json!(["undefined", "undefined"]));
}

#[test]
fn declaration_files_are_read_without_a_call() {
    check("return (await API.list('mcp')).map((f) => f.path)", json!(["mcp/index.d.ts", "mcp/fixture.d.ts"]));
    check(
        "return [(await API.list()).length, (await API.list('mcp/')).length, (await API.list('m')).length]",
        json!([2, 2, 0]),
    );
    check("return await API.read('mcp/fixture.d.ts')", json!("fixture"));
    check(
        "const o = []; for (const p of ['mcp/nope.d.ts', '../x', 'mcp/../mcp/fixture.d.ts', '']) { try { await API.read(p); o.push(p) } catch {} } return o",
        json!([]),
    );
}

#[test]
fn output_keeps_its_order() {
    let (end, output) = Lab::shared()
        .run("text('a'); json({ b: 1 }); console.log('c', { d: [1] }, undefined, new TypeError('e')); text(5)");
    assert_eq!(end, End::Value(json!(null)));
    let shown: Vec<String> = output
        .iter()
        .map(|item| match item {
            OutputItem::Text { text } => text.clone(),
            OutputItem::Json { value } => format!("json {}", value.get()),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(shown, ["a", r#"json {"b":1}"#, r#"c {"d":[1]} undefined TypeError: e"#, "5"]);
}

#[test]
fn an_uncaught_exception_has_name_message_and_place() {
    check_failure("const x = 1;\n  null.y", None, "TypeError: cannot read property 'y' of null (at 2:8)");
    check_failure("throw 'plain'", None, "plain");
    check_failure("throw { a: 1 }", None, r#"{"a":1}"#);
    check_failure("throw undefined", None, "undefined");
    check_failure("class Mine extends Error { name = 'Mine' }\nthrow new Mine('x')", None, "Mine: x (at 2:11)");
    check_failure(
        "await new Promise(() => {})",
        None,
        "the cell waits for a promise that nothing can settle: no tool call and no timer is pending",
    );
}

#[test]
fn a_nested_failure_is_a_plain_error_and_names_its_tool() {
    check(
        "try { await tools.call('openclaw:test:fail') } catch (e) { return [e instanceof Error, e.message] }",
        json!([true, "fixture failure"]),
    );
    check_failure(
        "await tools.call('openclaw:test:fail')",
        Some("nested_tool_failed"),
        "tool `openclaw:test:fail` failed: fixture failure",
    );
    check_failure(
        "await Promise.all(Array.from({ length: 1100 }, () => tools.call('openclaw:test:echo')))",
        Some("too_many_pending_tool_calls"),
        "Error: too many calls outstanding: at most 1024 at once; await some before making more (at 1:60)",
    );
}

#[test]
fn timers_and_yields_come_from_the_host() {
    check("let n = 0; await new Promise((done) => setTimeout(() => { n = 7; done() }, 10)); return n", json!(7));
    check("const t = setTimeout(() => {}, 10); clearTimeout(t); return 'x'", json!("x"));
    check("setTimeout(() => {}, 1e9); return 'dropped'", json!("dropped"));
    check("return await yield_control('why')", json!(null));
    check("return [Date.now(), new Date().toISOString()]", json!([1_700_000_000_000_u64, "2023-11-14T22:13:20.000Z"]));
}

#[test]
fn a_cell_that_returned_completes_after_its_calls_settle() {
    let (end, output) = Lab::shared().run("tools.echo({ a: 1 }).then((v) => json(v)); return 'early'");
    assert_eq!(end, End::Value(json!("early")));
    assert_eq!(output.len(), 1);
}

#[test]
fn web_helpers_exist() {
    check("return [...new TextEncoder().encode('é\\ud800')]", json!([195, 169, 239, 191, 189]));
    check("return new TextDecoder().decode(new Uint8Array([0xef, 0xbb, 0xbf, 104, 105, 0xff]))", json!("hi\u{fffd}"));
    check(
        "try { new TextDecoder('utf-8', { fatal: true }).decode(new Uint8Array([0xff])) } catch (e) { return e.name }",
        json!("TypeError"),
    );
    check("return [btoa('hi'), atob('aGk=')]", json!(["aGk=", "hi"]));
    check(
        "const m = structuredClone({ d: new Date(1), m: new Map([[1, { x: 1 }]]), s: new Set([2]), u: new Uint8Array([3]) }); return [m.d.getTime(), m.m.get(1).x, m.s.has(2), m.u[0]]",
        json!([1, 1, true, 3]),
    );
    check("const a = { b: 1 }; a.self = a; const c = structuredClone(a); return c.self === c && c !== a", json!(true));
    check(
        "const u = new URL('../b?q=1#h', 'https://ex.com:443/a/c'); u.searchParams.append('r', 'ä b'); return [u.href, u.host, u.pathname, u.search]",
        json!(["https://ex.com/b?q=1&r=%C3%A4+b#h", "ex.com", "/b", "?q=1&r=%C3%A4+b"]),
    );
    check(
        "const u = new URL('http://a.b/'); u.port = '8080'; u.hash = 'x'; u.pathname = '/p q'; return String(u)",
        json!("http://a.b:8080/p%20q#x"),
    );
    check(
        "return [URL.canParse('nope'), [...new URLSearchParams('a=1&b=%20+x')]]",
        json!([false, [["a", "1"], ["b", "  x"]]]),
    );
}

#[test]
fn there_is_no_ambient_authority() {
    check(
        "return ['process', 'require', 'fetch', 'Deno', 'Bun', 'WebSocket', 'XMLHttpRequest', 'std', 'os', 'SharedArrayBuffer', 'Atomics', 'performance', 'WebAssembly', 'print', 'gc', 'navigator'].filter((k) => k in globalThis)",
        json!([]),
    );
    check("return Object.getOwnPropertyNames(globalThis).filter((k) => k.startsWith('__'))", json!([]));
    check("try { await eval(\"import('fs')\"); return 'loaded' } catch { return 'refused' }", json!("refused"));
    check(
        "Error.prepareStackTrace = (e, s) => s; return [typeof new Error('x').stack, Error.prepareStackTrace]",
        json!(["string", null]),
    );
    check("return typeof this?.constructor?.constructor('return typeof process')()", json!("string"));
}

#[test]
fn patched_built_ins_do_not_reach_the_bridge() {
    check(
        "JSON.stringify = () => 'x'; Promise.prototype.then = () => 'x'; Map.prototype.get = () => 'x'; Array.prototype.push = () => { throw 1 }; Object.defineProperty = () => { throw 1 }; \
         Array.prototype[Symbol.iterator] = () => { throw 1 }; String.prototype.slice = () => { throw 1 }; Object.freeze = () => { throw 1 }; globalThis.String = () => { throw 1 }; \
         text('t'); json({ a: 1 }); return [await tools.echo({ a: 1 }), (await MCP.fixture.echo())[0], ALL_TOOLS.length]",
        json!([{"a": 1}, ["fixture", "echo"], 1]),
    );
    check("Object.prototype.toJSON = () => 'x'; return { a: 1 }", json!("x"));
    check("await tools.echo(JSON.parse('{\"__proto__\":{\"x\":1}}')); return ({}).x === undefined", json!(true));
}

#[test]
fn randomness_comes_from_the_seed() {
    let (first, _) = Lab::shared().run("return [Math.random(), Math.random()]");
    let (second, _) = Lab::shared().run("return [Math.random(), Math.random()]");
    assert_eq!(first, second);
    check(
        "const r = Array.from({ length: 1000 }, Math.random); return r.every((x) => x >= 0 && x < 1) && new Set(r).size",
        json!(1000),
    );
}

#[test]
fn typescript_runs() {
    let (end, _) = Lab::shared().run_with("const n: number = 41; return n + 1", Language::TypeScript, budget());
    assert_eq!(end, End::Value(json!(42)));
}
