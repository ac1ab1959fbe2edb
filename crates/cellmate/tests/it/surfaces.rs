//! What the model sees, and its calls by name.

use cellmate::{AgentRun, Answer, Scope, SurfaceChoice, json};

use super::{Result, builder, letters};

fn names(run: &AgentRun) -> Vec<&str> {
    run.tools().iter().map(|tool| tool.name.as_str()).collect()
}

pub(super) async fn code_mode_shows_exec_and_wait_by_default() -> Result {
    let host = builder().tool(letters()).build().await?;
    let run = host.run(Scope::agent("a"))?;
    assert_eq!(names(&run), ["exec", "wait"]);
    run.verify(&["exec", "wait"])?;
    assert_eq!(run.verify(&["exec", "wait", "shell"]).unwrap_err().code(), "invalid_tool");
    let json = serde_json::to_value(run.tools())?;
    assert_eq!((&json[0]["name"], &json[0]["parameters"]["type"]), (&json!("exec"), &json!("object")));
    let answer = run.call("exec", "1", json!({"code": "await yield_control('a break'); return 7"})).await;
    let json = serde_json::to_value(&answer)?;
    let run_id = json["runId"].as_str().unwrap_or_else(|| panic!("{json}"));
    let answer = run.call("wait", "2", json!({"runId": run_id})).await;
    assert!(matches!(&answer, Answer::Cell(result) if result.value() == Some(json!(7))), "{answer:?}");
    assert!(run.call("exec", "3", json!({})).await.is_error());
    let answer = run.call("exec", "4", json!(r#"{"code": "return 8"}"#)).await;
    assert!(matches!(&answer, Answer::Cell(result) if result.value() == Some(json!(8))), "{answer:?}");
    assert!(run.call("exec", "5", json!("return 8")).await.is_error());
    Ok(())
}

pub(super) async fn tool_search_is_called_by_name() -> Result {
    let config = json!({"tools": {"toolSearch": {"enabled": true, "mode": "tools"}}});
    let host = builder().tool(letters()).config(config).build().await?;
    let run = host.run(Scope::agent("a"))?;
    assert_eq!(names(&run), ["tool_search", "tool_describe", "tool_call"]);
    let found = serde_json::to_value(run.call("tool_search", "1", json!({"query": "letter"})).await)?;
    assert_eq!(found[0]["id"], "plugin:post:send_letter");
    let input = json!({"id": "plugin:post:send_letter", "args": {"to": "Ada"}});
    let called = serde_json::to_value(run.call("tool_call", "2", input).await)?;
    assert!(called["result"].to_string().contains("Ada"), "{called}");
    assert!(run.call("tool_call", "3", json!({"id": "plugin:post:burn"})).await.is_error());

    let host = builder().tool(letters()).surface(SurfaceChoice::Search).build().await?;
    let run = host.run(Scope::agent("a"))?;
    assert_eq!(names(&run), ["tool_search_code"]);
    let answer = run.call("tool_search_code", "1", json!({"code": "return 7"})).await;
    assert_eq!(serde_json::to_value(&answer)?["value"], 7, "{answer:?}");
    Ok(())
}

pub(super) async fn direct_tools_are_called_by_name_and_resumed_after_approval() -> Result {
    let host = builder().tool(letters().ask_first()).surface(SurfaceChoice::Direct).build().await?;
    let run = host.run(Scope::agent("a"))?;
    let [name] = names(&run)[..] else { panic!("{:?}", run.tools()) };
    let answer = run.call(name, "1", json!({"to": "Ada"})).await;
    let Answer::Waiting { run_id, .. } = &answer else { panic!("{answer:?}") };
    assert_eq!(serde_json::to_value(&answer)?["status"], "waiting");
    assert!(matches!(run.resume(run_id).await, Answer::Waiting { .. }));
    host.approve(&host.approvals().await?[0].id, "the operator").await?;
    assert_eq!(serde_json::to_value(run.resume(run_id).await)?, json!({"number": 1, "to": "Ada"}));
    assert!(run.call(name, "2", json!({"from": "Ada"})).await.is_error());
    Ok(())
}

pub(super) async fn an_unknown_tool_is_refused_with_the_known_ones() -> Result {
    let host = builder().tool(letters()).build().await?;
    let run = host.run(Scope::agent("a"))?;
    for name in ["send_letter", "tool_search", "", "exec\u{1b}[2J"] {
        let answer = serde_json::to_value(run.call(name, "1", json!({})).await)?;
        assert_eq!((&answer["status"], &answer["code"]), (&json!("failed"), &json!("invalid_input")));
        let error = answer["error"].as_str().unwrap();
        assert!(error.contains("exec, wait") && !error.contains('\u{1b}'), "{error}");
    }
    Ok(())
}

pub(super) async fn policy_applies_to_the_tools_of_the_program() -> Result {
    let host = builder().tool(letters()).config(json!({"tools": {"deny": ["plugin:post:*"]}})).build().await?;
    let result = host.run(Scope::agent("a"))?.exec("1", "return (await tools.search('letter')).length").await;
    assert_eq!(result.value(), Some(json!(0)), "{result:?}");
    Ok(())
}
