//! Programs that are set up wrongly. Their `main` is that of the test harness, which does not call `worker_main`.
#![expect(clippy::unwrap_used, reason = "an unexpected value fails the test")]

use std::os::unix::fs::PermissionsExt;

use cellmate::{Builder, Cellmate, Error, ErrorKind, KeyFile, Scope, Store, Tool, json};

fn refused(builder: Builder) -> Error {
    cellmate::block_on(async { builder.build().await.map(drop) }).unwrap_err()
}

fn tool(id: &str) -> Tool {
    Tool::new(id, "Echoes.", json!({"type": "object"})).call(async |call| Ok(call.input().clone()))
}

#[test]
fn a_program_without_worker_main_is_refused_before_it_starts_itself_again() {
    let error = refused(Cellmate::builder());
    assert_eq!((error.kind(), error.code()), (ErrorKind::WorkerMainMissing, "worker_main_missing"));
    assert!(error.to_string().contains("`cellmate::worker_main()` first"), "{error}");
}

#[test]
fn invalid_settings_are_refused_with_the_place_and_the_remedy() {
    let builder = || Cellmate::builder().workers_in_this_process();
    let nothing = Tool::new("plugin:a:b", "Does nothing.", json!({}));
    let with_schema = |schema| Tool::new("plugin:a:b", "Echoes.", schema).call(async |call| Ok(call.input().clone()));
    let misspelt = json!({"properties": {"a": {"type": "strin"}}, "required": ["a"]});
    let unlisted = json!({"properties": {"a": {"type": "string"}}, "required": "a"});
    let output = tool("plugin:a:b").output_schema(json!({"type": "strin"}));
    let cases = [
        (builder().config(json!({"tools": {"codeMode": {"timeoutMs": "soon"}}})), "invalid_config", "timeoutMs"),
        (builder().config(json!({"mcpServers": {}})), "invalid_config", "sections are `tools`"),
        (builder().config(json!(["tools"])), "invalid_config", "`tools`"),
        (builder().config(json!({"store": {"retention": 7}})), "invalid_config", "`store.retention`"),
        (builder().config(json!({"store": {"url": "runs.db"}})), "invalid_config", "`Builder::store`"),
        (builder().limits(json!({"timeoutSeconds": 1})), "invalid_config", "tools.codeMode.timeoutSeconds"),
        (builder().limits(json!(7)), "invalid_config", "must be an object"),
        (builder().tool(tool("send_letter")), "invalid_tool", "<source>:<owner>:<name>"),
        (builder().tool(nothing), "invalid_tool", "add `.call("),
        (builder().tool(tool("plugin:a:b")).tool(tool("plugin:a:b")), "invalid_tool", "two tools have the id"),
        (
            builder().tool(with_schema(json!("nonsense"))),
            "invalid_tool",
            "`plugin:a:b` has an invalid schema; `schema`",
        ),
        (builder().tool(with_schema(json!({"type": "string"}))), "invalid_tool", "`schema.type`: expected `object`"),
        (builder().tool(with_schema(misspelt)), "invalid_tool", "did you mean `string`"),
        (builder().tool(with_schema(unlisted)), "invalid_tool", "`schema.required`: expected a list of names"),
        (builder().tool(output), "invalid_tool", "`output_schema.type`"),
        (builder().ask_first(" "), "invalid_tool", "pattern"),
    ];
    for (builder, code, part) in cases {
        let error = refused(builder);
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_key_file_is_created_for_its_owner_only_and_refused_if_others_can_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key");
    let key = KeyFile::open(&path).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&path).unwrap();
    assert_eq!(KeyFile::open(&path).unwrap(), key);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);

    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let error = KeyFile::open(&path).unwrap_err();
    assert_eq!(error.code(), "key_unavailable");
    assert!(error.to_string().contains("chmod 600"), "{error}");
    let error = KeyFile::open(folder.path().join("no/such/folder")).unwrap_err();
    assert!(error.to_string().contains("cannot create key file"), "{error}");
}

#[test]
fn a_store_that_cannot_be_opened_is_named_without_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let key = || KeyFile::open(folder.path().join("key")).unwrap();
    let stores = [
        (Store::file(folder.path().join("no/such/folder/runs.db"), key()), "store_unavailable", "no/such/folder"),
        (Store::postgres("runs.db", key()), "invalid_config", "postgres://"),
        (Store::postgres("postgres://me:secret@[", key()), "invalid_config", "Postgres address"),
    ];
    for (store, code, part) in stores {
        let error = refused(Cellmate::builder().workers_in_this_process().store(store));
        assert_eq!(error.code(), code, "{error}");
        assert!(error.to_string().contains(part) && !error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn a_test_runs_cells_in_its_own_process() {
    let value = cellmate::block_on(async {
        let host = Cellmate::builder().workers_in_this_process().workers(1).tool(tool("plugin:a:echo")).build().await?;
        let result = host.run(Scope::agent("a"))?.exec("1", "return tools.echo({n: 1})").await;
        Ok::<_, Error>(result.value())
    });
    assert_eq!(value.unwrap(), Some(json!({"n": 1})));
}

#[test]
fn the_guide_lists_the_code_of_every_kind_of_error() {
    let guide = include_str!("../../../docs/guide/embedding.md");
    let kinds = include_str!("../src/error.rs");
    let codes: Vec<&str> = kinds
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Self::")?.split_once(" => \"")?.1.strip_suffix("\","))
        .collect();
    assert!(codes.contains(&ErrorKind::InvalidRun.code()), "{codes:?}");
    let missing: Vec<&&str> = codes.iter().filter(|code| !guide.contains(&format!("| `{code}` |"))).collect();
    assert!(missing.is_empty(), "docs/guide/embedding.md does not list {missing:?}");
}
