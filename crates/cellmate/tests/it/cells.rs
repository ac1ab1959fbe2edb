//! Cells that call tools of the program.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use cellmate::{CellResult, Cellmate, ErrorCode, RunState, Scope, Tool, ToolError, json};
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};

use super::{Result, builder, letters};

pub(super) async fn a_cell_calls_a_tool_of_the_program() -> Result {
    let host = builder().tool(letters()).build().await?;
    let run = host.run(Scope::agent("writer").session("letters"))?;
    let result = run.exec("call-1", r#"text("sent"); return tools.send_letter({to: "Ada"})"#).await;
    assert_eq!(result.value(), Some(json!({"number": 1, "to": "Ada"})));
    let json = serde_json::to_value(&result)?;
    assert_eq!((&json["status"], &json["output"][0]["text"]), (&json!("completed"), &json!("sent")));
    let transcript = host.export("letters").await?;
    assert!(transcript.lines().any(|line| line.contains("plugin:post:send_letter")), "{transcript}");
    host.shut_down().await
}

pub(super) async fn a_tool_that_fails_or_panics_fails_its_call_only() -> Result {
    let schema = || json!({"type": "object"});
    let failing = Tool::new("plugin:a:fail", "Fails.", schema())
        .call(async |call| Err(ToolError::new(format!("no city {}", call.input()["city"]))));
    let panicking = Tool::new("plugin:a:explode", "Panics.", schema()).call(async |_| panic!("a secret"));
    let host = builder().tool(failing).tool(panicking).build().await?;
    let code = r#"
        const message = async (promise) => promise.catch((error) => error.message)
        return [await message(tools.fail({city: 7})), await message(tools.explode({}))]
    "#;
    let value = host.run(Scope::agent("a"))?.exec("1", code).await.value().unwrap();
    assert!(value[0].as_str().unwrap().contains("no city 7"), "{value}");
    assert!(value[1].as_str().unwrap().contains("panicked"), "{value}");
    assert!(!value.to_string().contains("secret"), "{value}");
    Ok(())
}

pub(super) async fn input_that_the_schema_refuses_does_not_reach_the_tool() -> Result {
    let calls = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&calls);
    let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    let count = Tool::new("plugin:a:count", "Counts.", schema).call(move |call| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move { Ok(json!(call.parse::<Value>()?["n"])) }
    });
    let host = builder().tool(count).build().await?;
    let run = host.run(Scope::agent("a"))?;
    let refused = run.exec("1", "return tools.count({n: 'many'})").await;
    assert!(refused.error().is_some_and(|error| error.contains('n')), "{refused:?}");
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    assert_eq!(run.exec("2", "return tools.count({n: 2})").await.value(), Some(json!(2)));
    assert_eq!(calls.load(Ordering::Relaxed), 1);
    Ok(())
}

pub(super) async fn progress_reaches_the_listener() -> Result {
    let slow = Tool::new("plugin:a:slow", "Is slow.", json!({"type": "object"})).call(async |call| {
        call.progress(json!({"percent": 50}));
        Ok(json!(call.scope().agent_id))
    });
    let host = builder().tool(slow).build().await?;
    let (sender, mut updates) = mpsc::channel(16);
    let run = host.run(Scope::agent("a"))?.on_progress(move |update| sender.try_send(update).unwrap());
    assert_eq!(run.exec("1", "return tools.slow({})").await.value(), Some(json!("a")));
    let update = updates.recv().await.unwrap();
    assert_eq!((update.tool_id.as_str(), update.update), ("plugin:a:slow", json!({"percent": 50})));
    Ok(())
}

pub(super) async fn a_run_is_listed_and_cancelled_with_its_calls() -> Result {
    /// Reports that the call's future was dropped.
    struct Dropped(Arc<Semaphore>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.add_permits(1);
        }
    }
    let (started, dropped) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let [begun, ended] = [Arc::clone(&started), Arc::clone(&dropped)];
    let endless = Tool::new("plugin:a:endless", "Never ends.", json!({"type": "object"})).call(move |_| {
        let (begun, guard) = (Arc::clone(&begun), Dropped(Arc::clone(&ended)));
        async move {
            let _guard = guard;
            begun.add_permits(1);
            std::future::pending().await
        }
    });
    let host = builder().tool(endless).limits(json!({"timeoutMs": 200})).build().await?;
    let run = host.run(Scope::agent("a").session("s"))?;
    let waiting = run.exec("1", "return tools.endless({})").await;
    let run_id = waiting.run_id().unwrap_or_else(|| panic!("{waiting:?}")).clone();
    started.acquire().await.unwrap().forget();
    assert_eq!(run.unfinished(10).await?, std::slice::from_ref(&run_id));
    assert_eq!(run.run_of_call("1").await?, Some(run_id.clone()));
    let other = host.run(Scope::agent("a").session("another"))?;
    assert!(!other.cancel(&run_id).await?);

    assert!(run.cancel(&run_id).await?);
    dropped.acquire().await.unwrap().forget();
    // The call ends before the run does.
    let result = run.wait("2", &run_id).await;
    assert!(matches!(result, CellResult::Failed { code: Some(ErrorCode::Aborted), .. }), "{result:?}");
    assert!(!run.cancel(&run_id).await?);
    let listed = host.runs(10).await?;
    assert_eq!((&listed[0].run_id, listed[0].state), (&run_id, RunState::Aborted));
    Ok(())
}

pub(super) async fn limits_apply_to_cells() -> Result {
    let host = builder().limits(json!({"timeoutMs": 100})).build().await?;
    let result = host.run(Scope::agent("a"))?.exec("1", "while (true) {}").await;
    assert!(matches!(result, CellResult::Failed { code: Some(ErrorCode::Timeout), .. }), "{result:?}");
    Ok(())
}

pub(super) fn print_why_worker_main_is_late() {
    let (_held, wait) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || wait.recv());
    cellmate::worker_main();
    let built = cellmate::block_on(async { Cellmate::builder().build().await.map(drop) });
    println!("{}", built.unwrap_err());
}

pub(super) async fn worker_main_after_a_thread_is_refused_with_the_reason() -> Result {
    let printed = std::process::Command::new(std::env::current_exe()?).arg(crate::LATE_ARGUMENT).output()?;
    let printed = String::from_utf8_lossy(&printed.stdout).into_owned();
    assert!(printed.contains("for example by `#[tokio::main]`"), "{printed}");
    Ok(())
}
