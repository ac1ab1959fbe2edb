//! Outputs that are too large for a result: they are stored, later cells read them, tools receive them by reference,
//! and replays and forks treat them as the run did.

use codemode::replay::Record;
use contract::cell::{CellResult, OutputItem};
use contract::config::Quotas;
use contract::ids::RunId;
use serde_json::{Value, json};
use store::{OutputKind, RunFilter};

use crate::fake_tools::{Behavior, FakeTools};
use crate::replaying::pool;
use crate::world::{Parts, Workers, World, code};

/// A cell that returns 20,000 rows and prints a text of many lines.
const LARGE: &str = "
    text('small')
    text(Array.from({ length: 30000 }, (_, n) => `line ${n} \u{1F600}`).join('\\n'))
    return Array.from({ length: 20000 }, (_, id) => ({ id, name: `row ${id}` }))";

async fn open(parts: Parts) -> World {
    Parts { workers: Workers::Attached, ..parts }.open().await
}

async fn last_run(world: &World) -> RunId {
    world.store().runs(&RunFilter::default(), 1).await.unwrap()[0].run_id.clone()
}

fn handle(preview: &Value) -> String {
    assert_eq!(preview["type"], "stored", "{preview}");
    preview["handle"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn later_cells_of_the_session_read_what_a_result_does_not_show() {
    let world = open(Parts::default()).await;
    let run = world.run();
    let result = run.exec(LARGE).await;
    assert_eq!(result["status"], "completed", "{result}");
    let shown = result["output"].to_string().len() + result["value"].to_string().len();
    assert!(shown <= 64 << 10, "{shown}");
    assert_eq!(result["output"][0], json!({"type": "text", "text": "small"}));
    assert_eq!(result["value"]["shape"], "{ id: number, name: string }[] /* 20000 items */");
    assert_eq!(result["telemetry"]["storedOutputs"]["count"], 2);
    let (rows, lines) = (handle(&result["value"]), handle(&result["output"][1]));

    let read = run.value(&format!(
        "const rows = '{rows}', lines = {{ handle: '{lines}' }}
         const pages = []
         for (let offset = 0, page; (page = await output.read(rows, {{ offset, length: 70001 }})) !== ''; offset += page.length)
           pages.push(page)
         const again = JSON.stringify(Array.from({{ length: 20000 }}, (_, id) => ({{ id, name: `row ${{id}}` }})))
         const listed = await output.list()
         return {{
           pages: pages.length > 5 && pages.join('') === again,
           json: JSON.stringify(await output.json(rows)) === again,
           lines: await output.lines(lines, {{ from: 29998, count: 5 }}),
           found: (await output.grep(lines, /LINE 1234\\d /i)).map((one) => one.text),
           offset: await output.grep(lines, '^line 7 ').then(([one]) => output.read(lines, {{ offset: one.offset, length: 6 }})),
           listed: listed.map((one) => [one.handle === lines.handle || one.handle === rows, one.type, one.lines]),
         }}"
    ))
    .await;
    let found: Vec<String> = (12340..12350).map(|n| format!("line {n} \u{1F600}")).collect();
    assert_eq!(
        read,
        json!({
            "pages": true,
            "json": true,
            "lines": ["line 29998 \u{1F600}", "line 29999 \u{1F600}"],
            "found": found,
            "offset": "line 7",
            "listed": [[true, "json", 1], [true, "text", 30000]],
        })
    );

    let refused = "const refused = []
        for (const read of [() => output.read('HANDLE'), () => output.read('out_cm_0_l0n0'), () => output.grep('HANDLE', '('),
          () => output.read('HANDLE', { offset: -1 }), () => output.json('HANDLE')])
          refused.push(await read().then(() => 'read', (error) => error.code))
        return refused";
    let own = run.value(&refused.replace("HANDLE", &lines)).await;
    assert_eq!(own, json!(["read", "unknown_output", "invalid_input", "invalid_input", "invalid_input"]));
    let other = world.run_as("main/other/run").value(&refused.replace("HANDLE", &lines)).await;
    assert_eq!(other[0], "unknown_output");
    assert_eq!(world.run_as("main/session/later").value(&refused.replace("HANDLE", &lines)).await[0], "read");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_exact_in_any_order_and_an_output_that_was_removed_meanwhile_is_unknown() {
    let fakes = FakeTools::new([("openclaw:core:pause", Behavior::WaitForGate)]);
    let world = open(Parts { sources: vec![fakes.clone()], ..Parts::default() }).await;
    let run = world.run();
    let stored = run.exec(LARGE).await;
    let stored_run = last_run(&world).await;
    let (rows, lines) = (handle(&stored["value"]), handle(&stored["output"][1]));
    let cell = format!(
        "const lines = Array.from({{ length: 30000 }}, (_, n) => `line ${{n}} \u{1F600}`).join('\\n')
         const rows = JSON.stringify(Array.from({{ length: 20000 }}, (_, id) => ({{ id, name: `row ${{id}}` }})))
         const offsets = [0, 100000, 250000, 262100, 300000, 5, 430000, 262100, 100000]
         const wrong = []
         for (const offset of offsets)
           for (const [handle, text] of [['{lines}', lines], ['{rows}', rows]])
             if (await output.read(handle, {{ offset, length: 4001 }}) !== text.slice(offset, offset + 4001).toWellFormed()) wrong.push(offset)
         await output.read('{lines}', {{ length: 10 }})
         await tools.pause({{}})
         const removed = await output.read('{lines}', {{ offset: 400000, length: 10 }}).catch((error) => error.code)
         return {{ wrong, removed }}"
    );
    let world = &world;
    let (result, ()) = tokio::join!(run.value(&cell), async {
        while fakes.calls().is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
        assert_eq!(world.store().delete_runs(std::slice::from_ref(&stored_run)).await.unwrap(), 1);
        fakes.gate.notify_one();
    });
    assert_eq!(result, json!({"wrong": [], "removed": "unknown_output"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_receives_a_stored_output_that_the_cell_only_names() {
    let fakes = FakeTools::new([("openclaw:core:write", Behavior::Echo)]);
    let world = open(Parts { sources: vec![fakes.clone()], ask: vec!["write"], ..Parts::default() }).await;
    let run = world.run();
    let stored = run.exec(LARGE).await;
    let (rows, lines) = (handle(&stored["value"]), handle(&stored["output"][1]));
    let cell = format!(
        "const wrote = await tools.write({{ text: {{ $handle: '{lines}' }}, rows: [{{ $handle: '{rows}' }}] }})
         return typeof wrote"
    );
    let (run_id, _) = run.suspend(&cell).await;
    let asked = world.pending().await;
    assert_eq!(asked[0].input["rows"][0][19_999], json!({"id": 19_999, "name": "row 19999"}), "people see the content");
    world.approve_all(store::ApprovalScope::Once).await;
    assert_eq!(run.wait(&run_id).await["status"], "completed");
    let calls = fakes.calls();
    assert!(calls[0].input["text"].as_str().unwrap().ends_with("line 29999 \u{1F600}"));

    let unknown =
        run.value("return await tools.write({ text: { $handle: 'out_cm_0_l0n0' } }).catch((error) => error.code)");
    assert_eq!(unknown.await, "unknown_output");
    assert_eq!(fakes.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn replays_and_forks_of_runs_with_stored_outputs_are_exact() {
    let world = open(Parts::default()).await;
    let run = world.run();
    run.exec(LARGE).await;
    let stored = last_run(&world).await;
    let reads = format!(
        "const [newest] = (await output.list()).filter((one) => one.type === 'text')
         text(await output.read(newest.handle, {{ length: 100000 }}))
         await yield_control()
         return (await output.lines(newest, {{ from: 3, count: 1 }}))[0] + '{}'",
        "y".repeat(70_000)
    );
    let (run_id, waiting) = run.suspend(&reads).await;
    handle(&waiting["output"][0]);
    let ended = run.wait(&run_id).await;
    handle(&ended["value"]);
    for id in [&stored, &run_id] {
        let record = Record::read(world.store(), id).await.unwrap();
        let mut verdicts = Vec::new();
        assert!(
            record.replay(&pool().await, 60_000, |step| verdicts.push(step.verdict.clone())).await.unwrap(),
            "{verdicts:?}"
        );
    }
    // A value that differs from the stored one is found, although the result has only its preview.
    let mut record = Record::read(world.store(), &run_id).await.unwrap();
    let last = record.legs.last_mut().unwrap().ended.as_mut().unwrap();
    last.output_digest = last.output_digest.replace(" value ", " value 0");
    assert!(!record.replay(&pool().await, 60_000, |_| {}).await.unwrap());

    let config = run.prepared.config.code_mode.clone();
    let fork = world.code_mode.fork(&record.run.scope, &config, "fork", &run_id, 2).await.unwrap();
    let mut result = run.wait(&fork).await;
    while result["status"] == "waiting" {
        result = run.wait(&fork).await;
    }
    assert!(handle(&result["value"]).contains(fork.as_str()), "the fork has its own outputs: {result}");
    assert_eq!(result["value"]["first"], ended["value"]["first"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_fails_the_run_and_keeps_what_is_small() {
    let quotas = Quotas { stored_bytes: 1 << 20, ..Quotas::DEFAULT };
    let world = open(Parts { quotas, ..Parts::default() }).await;
    let run = world.run();
    let result = run.exec("text('kept'); text('x'.repeat(3 << 20)); return { answer: 42 }").await;
    assert_eq!(result["status"], "failed", "{result}");
    assert!(result["error"].as_str().unwrap().contains("maxStoredBytes"), "{result}");
    let output = result["output"].as_array().unwrap();
    assert_eq!((&output[0]["text"], &output[2]["value"]), (&json!("kept"), &json!({"answer": 42})));
    assert!(output[1]["text"].as_str().unwrap().starts_with("[3145728 bytes of text are lost"), "{result}");
    let run_id = last_run(&world).await;
    assert_eq!(world.store().outputs_of_run(&run_id).await.unwrap(), []);
    assert_eq!(run.wait(&run_id).await["error"], result["error"], "the end is stored");
    assert_eq!(run.value("return 1").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stored_budget_is_that_of_the_whole_run() {
    let tools = json!({"codeMode": {"enabled": true, "maxOutputBytes": 1024, "maxStoredOutputBytes": 65536}});
    let world = open(Parts { tools, ..Parts::default() }).await;
    let run = world.run();
    let cell = "for (let n = 0; n < 4; n++) { text('x'.repeat(20000)); await yield_control() }";
    let (run_id, _) = run.suspend(cell).await;
    for _ in 0..2 {
        assert_eq!(run.wait(&run_id).await["status"], "waiting");
    }
    let last = run.wait(&run_id).await;
    assert_eq!(code(&last), "output_limit_exceeded", "{last}");
    // A result may always have what it can show.
    let small = "for (let n = 0; n < 4; n++) { text('x'.repeat(900)); await yield_control() } return 1";
    let (run_id, _) = run.suspend(small).await;
    for _ in 0..3 {
        assert_eq!(run.wait(&run_id).await["status"], "waiting");
    }
    assert_eq!(run.wait(&run_id).await["value"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_leaves_the_cell_as_data_beside_the_result() {
    let world = open(Parts::default()).await;
    let run = world.run();
    // The source is part of the transcript, so it must not have the data.
    let cell = r"return { content: [{ type: 'image', data: btoa('\x00\x01\x02\x03'), mimeType: 'image/png' }] }";
    let result = run.exec(cell).await;
    let run_id = last_run(&world).await;
    let handle = format!("out_{run_id}_l0n0");
    let image = json!({"type": "image", "mimeType": "image/png", "bytes": 4, "handle": handle});
    assert_eq!((&result["value"]["content"][0], &result["output"]), (&image, &json!([image])), "{result}");
    assert!(!world.export("session").await.iter().any(|entry| entry.to_string().contains("AAECAw")));
    let rows = world.store().outputs_of_run(&run_id).await.unwrap();
    assert_eq!((rows[0].kind, rows[0].mime_type.as_deref()), (OutputKind::Image, Some("image/png")));
    // The result can be read again, with its image.
    let (executor, config) = (&run.prepared.executor, &run.prepared.config.code_mode);
    let again = world.code_mode.wait(executor, config, "wait-1", &run_id).await;
    let CellResult::Completed { output, .. } = again else { panic!("{again:?}") };
    assert!(matches!(&output[0], OutputItem::Image(media) if *media.data == [0, 1, 2, 3]), "{output:?}");
    assert_eq!(run.value(&format!("return await output.read('{handle}', {{ offset: 1, length: 2 }})")).await, "AQI=");
    let record = Record::read(world.store(), &run_id).await.unwrap();
    assert!(record.replay(&pool().await, 60_000, |_| {}).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stored_image_is_shown_again_by_its_handle() {
    let world = open(Parts::default()).await;
    let run = world.run();
    let result = run.exec("image({ data: 'AAECAw==', mimeType: 'image/png' })").await;
    let handle = result["output"][0]["handle"].as_str().unwrap().to_owned();
    let again = run.exec(&format!("image('{handle}'); image('out_cm_0_l0n0')")).await;
    assert_eq!(again["output"][0], result["output"][0], "{again}");
    assert!(again["output"][1]["text"].as_str().unwrap().contains("not shown"), "{again}");
}
