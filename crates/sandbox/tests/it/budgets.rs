//! Budgets of a cell's calls, and cells that lie about numbers, timers and buffers.

use std::process::Command;

use contract::cell::{Language, OutputItem};
use contract::frame::{Budget, LegEnd};
use contract::ids::CallId;
use contract::limits::{MAX_JSON_VALUES, MAX_OUTSTANDING_BYTES, MAX_TARGET_BYTES};
use serde_json::{Value, json};

use crate::lab::{End, Lab, budget, end, resolve};

/// A budget with enough memory, because memory is not under test here.
fn large_budget() -> Budget {
    Budget { memory_bytes: 256 << 20, run_ms: 60_000, ..budget() }
}

fn run(source: &str) -> End {
    Lab::shared().run_with(source, Language::JavaScript, large_budget()).0
}

const REFUSED: &str = "const refused = async (make) => { try { await make(); return 'accepted' } \
                       catch (e) { return [e.code, e.message] } };";

#[test]
fn a_call_over_a_limit_rejects_with_an_error_that_the_cell_can_catch() {
    let target = "the name of the tool is too long: at most 1024 bytes";
    let values = "input has too many values to send: at most 200000 numbers, strings, keys, arrays and objects";
    assert_eq!(
        (MAX_TARGET_BYTES, MAX_JSON_VALUES, MAX_OUTSTANDING_BYTES),
        (1024, 200_000, 32 << 20),
        "as the texts say"
    );
    let cases = [
        ("tools.describe('a'.repeat(1 << 24))", target),
        ("tools.describe('a'.repeat(1025))", target),
        ("tools.call('é'.repeat(600), {})", target),
        ("tools.call('\\ud800'.repeat(1 << 20), {})", target),
        ("tools.call({ toString: () => 'a'.repeat(1 << 24) })", target),
        ("tools.echo(Array(4100).fill(Array(1000).fill([0])))", values),
        ("tools.echo(Array(199999).fill(0).concat([[]]))", values),
        ("tools.echo(Object.fromEntries(Array.from({ length: 1e5 }, (_, i) => [i, i])))", values),
        ("tools.search('x', { limit: Array(200001).fill(1) })", values),
        ("MCP.fixture.echo(Array(200000).fill({}))", values),
    ];
    for (call, message) in cases {
        let (end, _) = Lab::shared().run_with(
            &format!("{REFUSED} return refused(() => {call})"),
            Language::JavaScript,
            large_budget(),
        );
        assert_eq!(end, End::Value(json!(["value_too_large", message])), "{call}");
    }
    for accepted in ["tools.describe('a'.repeat(1024))", "tools.echo(Array(199000).fill(0))"] {
        assert_eq!(
            run(&format!("{REFUSED} return refused(() => {accepted})")),
            End::Value(json!("accepted")),
            "{accepted}"
        );
    }
}

#[test]
fn an_uncaught_refusal_fails_the_cell_with_a_shortened_tool_name() {
    let End::Failed(code, message) = run("await tools.describe('a'.repeat(1 << 24))") else { panic!() };
    assert_eq!(code, Some("nested_tool_failed"));
    assert!(message.len() < 400 && message.contains("the name of the tool is too long"), "{message}");
}

#[test]
fn all_outstanding_calls_share_one_budget_of_bytes() {
    // Twenty times 16 MiB; each call alone is within every limit.
    let source = "const s = 'a'.repeat((16 << 20) - 100); const all = [];
        for (let i = 0; i < 20; i++) all.push(tools.call('openclaw:a:b', s).then(() => 'sent', (e) => e.code));
        for (let i = 0; i < 300; i++) all.push(tools.describe(s).then(() => 'sent', (e) => e.code));
        const ends = await Promise.all(all);
        return [ends.filter((e) => e === 'sent').length, ends.filter((e) => e === 'value_too_large').length]";
    let lab = Lab::shared();
    let cell = lab.new_cell();
    let leg = lab.start_with(cell, source, Language::JavaScript, large_budget());
    let LegEnd::Suspended { calls, .. } = &leg.end else { panic!("{:?}", leg.end) };
    let bytes: usize = calls.iter().map(|call| call.target.len() + call.payload.len()).sum();
    assert!(calls.len() == 2 && bytes <= MAX_OUTSTANDING_BYTES, "{} calls of {bytes} bytes", calls.len());
    let replies = calls.iter().map(|call| resolve(call.id, &json!(1))).collect();
    assert_eq!(end(lab.deliver(cell, replies)), End::Value(json!([2, 318])));
}

#[test]
fn a_reply_releases_the_bytes_of_its_call_even_after_a_snapshot() {
    let source = "const s = 'a'.repeat(15 << 20);
        const send = () => tools.call('openclaw:a:b', s).then(() => 'sent', (e) => e.code);
        const first = send(), second = send();
        await tools.call('openclaw:a:first');
        const third = send();
        await tools.call('openclaw:a:second');
        return [await first, await second, await third, await send()]";
    let lab = Lab::shared();
    let cell = lab.new_cell();
    let leg = lab.start_with(cell, source, Language::JavaScript, large_budget());
    assert!(matches!(leg.end, LegEnd::Suspended { ref calls, .. } if calls.len() == 3));
    let snapshot = lab.freeze(cell);
    // Two calls of 15 MiB are still outstanding, so the third is refused.
    let leg = lab.thaw_with(cell, &snapshot, vec![resolve(CallId(3), &json!(1))], large_budget());
    let LegEnd::Suspended { calls, .. } = &leg.end else { panic!("{:?}", leg.end) };
    assert_eq!(calls.iter().map(|call| call.target.as_str()).collect::<Vec<_>>(), ["openclaw:a:second"]);
    let replies = vec![resolve(CallId(1), &json!(1)), resolve(CallId(2), &json!(1)), resolve(calls[0].id, &json!(1))];
    let LegEnd::Suspended { calls, .. } = lab.deliver(cell, replies).end else { panic!() };
    assert_eq!(calls.len(), 1);
    let last = end(lab.deliver(cell, vec![resolve(calls[0].id, &json!(1))]));
    assert_eq!(last, End::Value(json!(["sent", "sent", "value_too_large", "sent"])));
}

#[test]
fn printed_values_are_counted_and_returned_ones_are_not() {
    let budget = Budget { output_bytes: 10 << 20, ..large_budget() };
    let run = |source: &str| Lab::shared().run_with(source, Language::JavaScript, budget);
    let (end, output) = run("for (let i = 0; i < 5; i++) json(Array(60000).fill(0)); return 1");
    assert_eq!(end, End::Value(json!(1)));
    // Nothing is lost: a text with too many values to parse is shown as plain text.
    let kinds: Vec<bool> = output.iter().map(|item| matches!(item, OutputItem::Json { .. })).collect();
    assert_eq!(kinds, [true, true, true, false, false]);
    assert!(output.iter().all(|item| item.bytes() > 120_000));
    // The host stores such a value without parsing it.
    let (end, _) = run("return Array(300000).fill(0)");
    assert!(matches!(end, End::Value(Value::Array(items)) if items.len() == 300_000));
}

#[test]
fn a_url_that_is_too_long_is_refused() {
    let source = "const a = 'https://a.b/' + 'é'.repeat(20 << 20); \
         try { new URL(a); return 'parsed' } catch (e) { return [e.name, URL.canParse(a), URL.canParse(a.slice(0, 1000))] }";
    assert_eq!(run(source), End::Value(json!(["TypeError", false, true])));
}

#[test]
fn clear_timeout_never_clears_a_tool_call() {
    // An object that converts to one number at first and to another later.
    let liar =
        "const liar = (...numbers) => ({ toString: () => String(numbers.shift()), valueOf: () => numbers.shift(),
        [Symbol.toPrimitive]: () => numbers.length > 1 ? numbers.shift() : numbers[0] });";
    let cases = [
        "clearTimeout(liar(timer, 2))",
        "clearTimeout(liar(2, timer))",
        "clearTimeout({ toString: () => String(timer), valueOf: () => 2 })",
        "clearTimeout({ toString: () => '2', valueOf: () => timer })",
        "clearTimeout('2')",
        "clearTimeout(2.0)",
        "clearTimeout(2n)",
        "clearTimeout([2])",
        "for (let i = -5; i < 9; i++) if (i !== timer) clearTimeout(i)",
        "for (const x of [NaN, Infinity, 2 ** 32 + 2, '__proto__', undefined, null, {}]) clearTimeout(x)",
        "const call = tools.call; for (let i = 0; i < 3; i++) clearTimeout(new Proxy([2], {}))",
    ];
    for case in cases {
        let source = format!(
            "{liar} const timer = setTimeout(() => 0, 1e6); const answer = tools.call('openclaw:a:b', 1); {case}; return answer"
        );
        let lab = Lab::shared();
        let cell = lab.new_cell();
        let leg = lab.start(cell, &source);
        let LegEnd::Suspended { calls, cleared } = &leg.end else { panic!("{case}: {:?}", leg.end) };
        assert!(calls.iter().any(|call| call.id == CallId(2)) && cleared.is_empty(), "{case}");
        assert_eq!(
            end(lab.deliver(cell, vec![resolve(CallId(2), &json!("answered"))])),
            End::Value(json!("answered")),
            "{case}"
        );
    }
}

#[test]
fn a_timer_may_clear_another_that_fires_with_it() {
    let source = "let fired = []; const b = () => fired.push('b');
        const first = setTimeout(() => { fired.push('a'); clearTimeout(second) }, 1), second = setTimeout(b, 1);
        await tools.call('openclaw:a:b'); return fired";
    let lab = Lab::shared();
    let cell = lab.new_cell();
    lab.start(cell, source);
    let replies = [1, 2, 3].map(|id| resolve(CallId(id), &Value::Null)).to_vec();
    assert_eq!(end(lab.deliver(cell, replies)), End::Value(json!(["a"])));
}

#[test]
fn a_cell_whose_last_timer_is_cleared_fails_as_stuck() {
    let End::Failed(None, message) =
        run("const t = setTimeout(() => 0, 1e6); clearTimeout(t); await new Promise(() => {})")
    else {
        panic!()
    };
    assert!(message.contains("a promise that nothing can settle"), "{message}");
}

#[test]
fn decoding_reads_only_the_bytes_of_the_view() {
    let secret = "const secret = Array.from({ length: 2000 }, (_, i) => 'SECRET-' + i);";
    let cases = [
        // A view that lies about its position, by property and by conversion.
        "const b = new ArrayBuffer(200000); const v = new Uint8Array(b); \
         Object.defineProperty(v, 'byteLength', { value: { valueOf() { b.transfer(0); return 200000 } } }); return v",
        "const b = new ArrayBuffer(200000); const v = new Uint8Array(b); \
         Object.defineProperty(v, 'byteOffset', { value: { valueOf() { structuredClone(1); b.transfer(); return 0 } } }); return v",
        "const b = new ArrayBuffer(8); const v = new Uint8Array(b); Object.defineProperty(v, 'byteLength', { value: 1 << 20 }); return v",
        "const b = new ArrayBuffer(8); Object.defineProperty(b, 'byteLength', { value: 1 << 20 }); return b",
        "const b = new ArrayBuffer(8); const v = new DataView(b); Object.defineProperty(v, 'byteLength', { value: 1 << 20 }); return v",
        "const b = new ArrayBuffer(8, { maxByteLength: 1 << 20 }); const v = new Uint8Array(b); b.resize(0); return v",
        "const b = new ArrayBuffer(1 << 16); const v = new Uint8Array(b); b.transfer(); return v",
        "const b = new ArrayBuffer(1 << 16); b.transfer(); return b",
        "Object.defineProperty(Object.getPrototypeOf(Uint8Array.prototype), 'byteLength', { get: () => 1 << 20 }); return new Uint8Array(8)",
        "Object.defineProperty(ArrayBuffer.prototype, 'byteLength', { get: () => 1 << 20 }); return new ArrayBuffer(8)",
        "return { byteLength: 1 << 20 }",
        "return { __proto__: Uint8Array.prototype, byteLength: 8, buffer: new ArrayBuffer(8) }",
        "return [1, 2, 3]",
        "return null",
    ];
    for case in cases {
        let source = format!(
            "{secret} let text = ''; try {{ text = new TextDecoder().decode((() => {{ {case} }})()) }} catch (e) {{ text = e.name }} \
             return [text.length <= 200000, text.includes('SECRET'), /[^\\0]/.test(text) ? text : '']"
        );
        let End::Value(seen) = run(&source) else { panic!("{case}") };
        assert!(seen[0] == true && seen[1] == false, "{case}: {seen}");
        assert!(["", "TypeError", "RangeError"].contains(&seen[2].as_str().unwrap()), "{case}: {seen}");
    }
    let source = "const all = new TextEncoder().encode('xaé😀y'); const view = all.subarray(1, 8);
        const odd = new DataView(all.buffer, 1, 7);
        return [view, odd, view.slice().buffer, undefined].map((v) => new TextDecoder().decode(v))";
    assert_eq!(run(source), End::Value(json!(["aé😀", "aé😀", "aé😀", ""])));
    let source = "const into = new Uint8Array(4); const done = new TextEncoder().encodeInto('aéé', into); return [done, [...into]]";
    assert_eq!(run(source), End::Value(json!([{"read": 2, "written": 3}, [97, 195, 169, 0]])));
}

#[test]
fn every_number_that_leaves_a_cell_can_be_read() {
    assert_eq!(
        run("return [typeof JSON.rawJSON, typeof JSON.isRawJSON]"),
        End::Value(json!(["undefined", "undefined"]))
    );
    let source = "json([Infinity, -Infinity, NaN, Number.MAX_VALUE, -Number.MAX_VALUE, Number.MIN_VALUE, -0]); return [1e400, Number.MAX_VALUE]";
    let (end, output) = Lab::shared().run(source);
    assert_eq!(end, End::Value(json!([null, f64::MAX])));
    let [OutputItem::Json { value }] = output.as_slice() else { panic!("{output:?}") };
    let numbers: Value = contract::json::read(value.get()).unwrap();
    assert_eq!(numbers, json!([null, null, null, f64::MAX, -f64::MAX, 5e-324, 0]));
}

#[test]
fn a_forged_place_outside_the_source_is_left_out() {
    let with_stack = |stack: &str| format!("const e = new Error('m'); e.stack = {stack}; throw e");
    for stack in [
        "'at cell:4294967295:4294967295'",
        "'at cell:2:1'",
        "'at cell:1:1000'",
        "'at cell:0:0'",
        "'at cell:99999999999999999999:1'",
    ] {
        assert_eq!(run(&with_stack(stack)), End::Failed(None, "Error: m".to_owned()), "{stack}");
    }
    assert_eq!(run(&with_stack("'at cell:1:7'")), End::Failed(None, "Error: m (at 1:7)".to_owned()));
    assert_eq!(
        run("const x = 1;\n  null.f"),
        End::Failed(None, "TypeError: cannot read property 'f' of null (at 2:8)".to_owned())
    );

    // The lines are known after a snapshot as well.
    let lab = Lab::shared();
    let cell = lab.new_cell();
    lab.start(cell, "await tools.call('openclaw:a:b');\nthrow new Error('late')");
    let snapshot = lab.freeze(cell);
    let leg = lab.thaw(lab.new_cell(), &snapshot, vec![resolve(CallId(1), &json!(1))]);
    assert_eq!(end(leg), End::Failed(None, "Error: late (at 2:11)".to_owned()));
}

const PROBE: &str = "CELLMATE_DATA_LIMIT_PROBE";

/// Not a test: the entry point of the child process below. It limits its own data, as a worker does.
#[test]
fn data_limit_probe() {
    if std::env::var_os(PROBE).is_none() {
        return;
    }
    let lab = Lab::new(8);
    let grow = "const a = []; for (let i = 0; i < 40; i++) a.push(new Uint8Array(1 << 20).fill(1)); return a.length";
    // The slots stay as small as the image: cells that grew leave nothing behind that counts.
    for _ in 0..8 {
        assert_eq!(lab.run(grow).0, End::Value(json!(40)));
    }
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let data = statm.split_whitespace().nth(5).unwrap().parse::<u64>().unwrap() * 4096;
    let most = Some(data + (200 << 20));
    rustix::process::setrlimit(
        rustix::process::Resource::Data,
        rustix::process::Rlimit { current: most, maximum: most },
    )
    .unwrap();
    // The harness's threads have stacks of 160 MiB; only one exists at a time.
    let mut ends: Vec<Option<&str>> = Vec::new();
    for memory_bytes in [64 << 20, 8 << 20] {
        let budget = Budget { memory_bytes, ..budget() };
        let bomb = "const a = []; for (;;) a.push(new Uint8Array(1 << 20).fill(1))";
        match lab.run_with(bomb, Language::JavaScript, budget).0 {
            End::Failed(code, _) => ends.push(code),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(ends, [Some("memory_limit_exceeded"); 2]);
    // The system refuses: 160 MiB of stack leave 40 MiB, less than the cell's own limit.
    assert!(matches!(lab.run(&grow.replace("40", "60")).0, End::Failed(Some("memory_limit_exceeded"), _)));
    assert_eq!(lab.run("return 1").0, End::Value(json!(1)), "the sandbox stays usable");
    std::process::exit(0);
}

#[test]
fn if_the_system_refuses_memory_only_that_cell_fails() {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "budgets::data_limit_probe", "--nocapture", "--test-threads=1"]).env(PROBE, "1");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
