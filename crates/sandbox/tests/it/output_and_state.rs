//! The functions `output`, `store`, `load`, `forget` and `keys`: the calls that a cell sends to the host, and the values
//! that the cell gets from the answers.

use contract::cell::Language;
use contract::frame::{Budget, LegEnd, Reply, ReplyValue};
use contract::ids::CallId;
use serde_json::{Value, json};

use crate::lab::{End, Lab, budget, end, resolve};

const HANDLE: &str = "out_cm_1_l0n0";

/// Runs a cell that makes one call. Checks that the call is `expected` (method, target and payload), answers it, and
/// returns the end of the cell.
fn run_and_answer(source: &str, expected: (&str, &str, Value), answer: &Value) -> End {
    let lab = Lab::shared();
    let cell = lab.new_cell();
    let leg = lab.start(cell, source);
    let LegEnd::Suspended { calls, .. } = &leg.end else { panic!("{source}: {:?}", leg.end) };
    let call = &calls[0];
    let payload: Value = serde_json::from_slice(&call.payload).unwrap();
    assert_eq!((call.method.as_str(), call.target.as_str(), payload), expected, "{source}");
    end(lab.deliver(cell, vec![resolve(call.id, answer)]))
}

/// Runs an expression that must throw `invalid_input` before it makes a call. Returns the message.
fn refusal_message(source: &str) -> String {
    let cell =
        format!("try {{ await {source}; return 'accepted' }} catch (e) {{ return [e.name, e.code, e.message] }}");
    match Lab::shared().run(&cell).0 {
        End::Value(Value::Array(error)) => {
            assert_eq!((&error[0], &error[1]), (&json!("TypeError"), &json!("invalid_input")), "{source}");
            error[2].as_str().unwrap().to_owned()
        }
        other => panic!("{source}: {other:?}"),
    }
}

#[test]
fn output_reads_by_handle_or_by_an_object_that_has_one() {
    let cases = [
        ("output.list()", "list", json!([])),
        ("output.read('out_cm_1_l0n0')", "read", json!([HANDLE, {}])),
        (
            "output.read({ handle: 'out_cm_1_l0n0' }, { offset: 5, length: 9 })",
            "read",
            json!([HANDLE, {"offset": 5, "length": 9}]),
        ),
        ("output.read(output.ref('out_cm_1_l0n0'))", "read", json!([HANDLE, {}])),
        ("output.lines('out_cm_1_l0n0', { from: 1 })", "lines", json!([HANDLE, {"from": 1}])),
        ("output.json('out_cm_1_l0n0')", "json", json!([HANDLE])),
        ("output.grep('out_cm_1_l0n0', 'a+b')", "grep", json!([HANDLE, "a+b", {}])),
        (
            "output.grep('out_cm_1_l0n0', /a\\/b/gi, { limit: 3 })",
            "grep",
            json!([HANDLE, {"source": "a\\/b", "flags": "gi"}, {"limit": 3}]),
        ),
    ];
    for (call, target, payload) in cases {
        let end = run_and_answer(&format!("return await {call}"), ("output", target, payload), &json!(["answer"]));
        assert_eq!(end, End::Value(json!(["answer"])), "{call}");
    }
}

#[test]
fn a_reference_to_an_output_is_an_argument_of_a_tool() {
    let source = "const ref = output.ref({ handle: 'out_cm_1_l0n0' }); return [await tools.echo({ body: ref }), Object.isFrozen(ref)]";
    let expected = json!([{"body": {"$handle": HANDLE}}, true]);
    assert_eq!(Lab::shared().run(source).0, End::Value(expected));
}

#[test]
fn what_is_not_a_handle_or_a_pattern_or_a_key_is_refused_without_a_call() {
    for handle in ["undefined", "null", "5", "'x'", "{}", "{ handle: 5 }", "[]", "() => 1", "Symbol()"] {
        for function in ["read", "lines", "json", "grep", "ref"] {
            let message = refusal_message(&format!("output.{function}({handle})"));
            assert!(message.starts_with(&format!("output.{function}() takes a handle")), "{message}");
        }
    }
    assert!(refusal_message("output.grep('out_cm_1_l0n0', 5)").starts_with("output.grep() takes a pattern"));
    for key in ["", "''", "5", "null", "{}"] {
        for function in ["store", "load", "forget"] {
            let message = refusal_message(&format!("{function}({key})"));
            assert!(message.starts_with(&format!("{function}() takes a key")), "{message}");
        }
    }
    for value in ["undefined", "() => 1", "Symbol()"] {
        assert!(refusal_message(&format!("store('k', {value})")).contains("forget(key) deletes a key"), "{value}");
    }
}

#[test]
fn session_values_are_sent_and_answers_are_unwrapped() {
    let version = json!({"version": "cm_1:3"});
    let cases = [
        ("store('k', { a: 1 })", "store", json!(["k", {"a": 1}, {}]), version.clone(), version.clone()),
        (
            "store('k', null, { ifVersion: 'v' })",
            "store",
            json!(["k", null, {"ifVersion": "v"}]),
            version.clone(),
            version.clone(),
        ),
        (
            "store('k', 1, { ifVersion: null })",
            "store",
            json!(["k", 1, {"ifVersion": null}]),
            version.clone(),
            version.clone(),
        ),
        // The version of a key that `load` did not find.
        (
            "store('k', 1, { ifVersion: undefined })",
            "store",
            json!(["k", 1, {"ifVersion": null}]),
            version.clone(),
            version,
        ),
        (
            "store('k', 1, { ifversion: 'v' })",
            "store",
            json!(["k", 1, {"ifversion": "v"}]),
            json!({"version": "v"}),
            json!({"version": "v"}),
        ),
        ("load('k')", "load", json!(["k"]), json!({"value": [1], "version": "v"}), json!([1])),
        ("load('k')", "load", json!(["k"]), json!({"value": null, "version": "v"}), json!(null)),
        (
            "load('k', { version: true })",
            "load",
            json!(["k"]),
            json!({"value": 1, "version": "v", "other": 1}),
            json!({"value": 1, "version": "v"}),
        ),
        ("load('k').then((found) => found === undefined)", "load", json!(["k"]), json!(null), json!(true)),
        (
            "load('k', { version: true }).then((found) => found === undefined)",
            "load",
            json!(["k"]),
            json!(null),
            json!(true),
        ),
        ("forget('k')", "forget", json!(["k", {}]), json!(true), json!(true)),
        ("forget('k', { ifVersion: 'v' })", "forget", json!(["k", {"ifVersion": "v"}]), json!(false), json!(false)),
        ("keys()", "keys", json!([]), json!([{"key": "k"}]), json!([{"key": "k"}])),
    ];
    for (call, target, payload, answer, expected) in cases {
        let end = run_and_answer(&format!("return await {call}"), ("state", target, payload), &answer);
        assert_eq!(end, End::Value(expected), "{call}");
    }
}

#[test]
fn a_rejected_call_throws_its_code_and_an_uncaught_rejection_names_the_function() {
    let rejection = br#"{"message":"no output has this handle","code":"unknown_output","tool":"read"}"#;
    let reject = |source: &str| {
        let lab = Lab::shared();
        let cell = lab.new_cell();
        lab.start(cell, source);
        end(lab.deliver(cell, vec![Reply { call: CallId(1), value: ReplyValue::Rejected(rejection.to_vec()) }]))
    };
    assert_eq!(
        reject("try { await output.read('out_cm_1_l0n0') } catch (e) { return [e.code, e.message] }"),
        End::Value(json!(["unknown_output", "no output has this handle"]))
    );
    for (source, name) in [("output.read('out_cm_1_l0n0')", "output.read()"), ("store('k', 1)", "store()")] {
        let expected = format!("{name} failed: no output has this handle");
        assert_eq!(reject(&format!("await {source}")), End::Failed(Some("nested_tool_failed"), expected), "{source}");
    }
}

#[test]
fn a_cells_own_names_hide_the_functions_of_the_sandbox() {
    let cases = [
        (
            "const output = 1, image = 2, bytes = 3; let store = 4, keys = 5; var audio = 6; function load() { return 7 } \
          class forget {} return [output, image, bytes, store, keys, audio, load(), typeof forget]",
            json!([1, 2, 3, 4, 5, 6, 7, "function"]),
        ),
        ("const { output, keys } = { output: 'a', keys: ['b'] }; return [output, keys]", json!(["a", ["b"]])),
        ("return ((output, keys) => [output, keys])(1, 2)", json!([1, 2])),
        ("const o = []; for (const image of [1, 2]) o.push(image); return o", json!([1, 2])),
        // Assignments without a declaration.
        ("output = []; output.push(1); keys = 2; for (image of [3]); return [output, keys, image]", json!([[1], 2, 3])),
        ("globalThis.store = 1; return store", json!(1)),
        (
            "return [typeof output.read, typeof image, typeof audio, typeof bytes, typeof store, typeof load, typeof forget, typeof keys]",
            json!(["function", "function", "function", "function", "function", "function", "function", "function"]),
        ),
        (
            "output.read = 1; delete output.list; return [Object.isFrozen(output), Object.keys(output), [image, audio, bytes, store, load, forget, keys].every(Object.isFrozen)]",
            json!([true, ["list", "read", "lines", "json", "grep", "ref"], true]),
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(Lab::shared().run(source).0, End::Value(expected), "{source}");
    }
    // Another cell still has the functions of the sandbox.
    assert_eq!(Lab::shared().run("return typeof output.read").0, End::Value(json!("function")));
}

#[test]
fn errors_about_output_and_state_functions_say_what_to_use() {
    let cases = [
        (
            "output('x')",
            "TypeError: output is not a function: use text(value) or console.log(value), or `return` the value (at 1:1)",
        ),
        ("await output.raed('x')", "TypeError: output has no `raed`; did you mean `read`? (at 1:14)"),
        ("await output.zap()", "TypeError: output has no `zap`; it has list, read, lines, json, grep, ref (at 1:14)"),
        ("Store('k', 1)", "ReferenceError: Store is not defined; did you mean `store`? (at 1:1)"),
        (
            "localStorage.x",
            "ReferenceError: localStorage is not defined: use `await store(key, value)` and `await load(key)`, which the cells of a session share (at 1:1)",
        ),
    ];
    for (source, expected) in cases {
        assert_eq!(Lab::shared().run(source).0, End::Failed(None, expected.to_owned()), "{source}");
    }
}

#[test]
fn patched_built_ins_do_not_affect_the_functions_of_the_sandbox() {
    let source = "for (const [o, names] of [[RegExp.prototype, ['exec', 'toString']], [String.prototype, ['startsWith', 'indexOf', 'slice', 'split']],
            [Uint8Array.prototype, ['toBase64']], [Uint8Array, ['fromBase64']], [Object, ['freeze', 'defineProperty']], [Promise.prototype, ['then']]])
          for (const name of names) o[name] = () => { throw new Error('patched') };
        image({ data: new Uint8Array([1]), mimeType: 'image/png' });
        return [bytes('AQID')[2], await output.grep('out_cm_1_l0n0', /a/g), await store('k', 1)]";
    let expected = json!([3, [HANDLE, {"source": "a", "flags": "g"}, {}], ["k", 1, {}]]);
    assert_eq!(Lab::shared().run(source).0, End::Value(expected));
}

/// The budget here is 16 MiB, far more than a result shows: the host stores the rest.
#[test]
fn output_and_value_may_take_all_of_the_output_budget_and_more_fails() {
    let limit = 16 << 20;
    let budget = Budget { output_bytes: limit, run_ms: 60_000, ..budget() };
    let run = |source: &str| Lab::shared().run_with(source, Language::JavaScript, budget);
    let (end, output) = run("for (let i = 0; i < 16; i++) text('x'.repeat((1 << 20) - 16 - (i ? 0 : 2))); return 1");
    assert_eq!((end, output.len()), (End::Value(json!(1)), 16));
    let (end, _) = run("return 'x'.repeat((16 << 20) - 2)");
    assert!(matches!(&end, End::Value(Value::String(text)) if text.len() == (16 << 20) - 2));
    let (end, output) = run("json(Array(1000000).fill(12345)); return 1");
    assert_eq!((end, output.len()), (End::Value(json!(1)), 1));
    let (end, _) = run("return Array(1000000).fill(12345)");
    assert!(matches!(end, End::Value(Value::Array(items)) if items.len() == 1_000_000));

    let over = |total: u64| {
        let text = format!(
            "the cell's output and value take {total} bytes, the limit is {limit}; return or print less, for example a summary or a slice"
        );
        End::Failed(Some("output_limit_exceeded"), text)
    };
    assert_eq!(run("return 'x'.repeat((16 << 20) - 1)").0, over(limit + 1));
    assert_eq!(run("text('x'.repeat((16 << 20) - 15)); return 1").0, over(limit + 1));
    // The cell is stopped soon after the limit.
    let (end, output) = run("for (;;) text('x'.repeat((1 << 16) - 16))");
    assert_eq!((end, output.len()), (over(limit + (2 << 16)), 256));
}
