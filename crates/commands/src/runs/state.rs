//! `cellmate runs state`: lists the values that the cells of a session keep for each other, prints one, and deletes them.

use std::io::IsTerminal;
use std::process::ExitCode;

use contract::text;
use executor::clock::now_ms;
use serde_json::{Value, json};
use store::{Millis, SessionKey, SessionTotals, SessionValue, Store};

use super::RunsError;
use super::arguments::StateArguments;
use super::remove::{DeletionPrompt, is_confirmed};
use crate::age::span;
use crate::render::{self, OutputFormat};
use crate::size::size;
use crate::table::Table;

/// The most sessions that are listed.
const MAX_SESSIONS: u32 = 1_000;

/// How many sessions an error names.
const MAX_NAMED: usize = 8;

/// The longest name that is printed in a message.
const MAX_NAME_CHARS: usize = 100;

#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("no session `{0}` has values; `cellmate runs state` lists the sessions that have")]
    None(String),
    #[error("`{typed}` means several sessions; {advice}: {candidates}")]
    Several { typed: String, advice: &'static str, candidates: String },
    #[error("session `{session}` has no value `{key}`; `cellmate runs state {session}` lists its keys")]
    NoKey { session: String, key: String },
}

pub(super) async fn run(
    store: &Store,
    arguments: &StateArguments,
    format: OutputFormat,
) -> Result<ExitCode, RunsError> {
    let mut sessions = store.sessions_with_values(MAX_SESSIONS).await?;
    sessions.retain(|(session, _)| is_wanted(session, arguments));
    let Some(typed) = &arguments.session else {
        list_sessions(&sessions, format);
        return Ok(ExitCode::SUCCESS);
    };
    let session = find(&sessions, typed)?;
    let prompt = DeletionPrompt::from_flag(arguments.yes);
    match (&arguments.key, &arguments.remove) {
        (_, Some(key)) => return delete(store, session, key.as_deref(), prompt, format).await,
        (Some(key), None) => {
            let value = store.session_value(session, key).await?.ok_or_else(|| no_key(session, key))?;
            print_value(&value, format);
        }
        (None, None) => print_values(session, &store.session_values(session).await?, format),
    }
    Ok(ExitCode::SUCCESS)
}

fn is_wanted(session: &SessionKey, arguments: &StateArguments) -> bool {
    let has_client = arguments.client.as_ref().is_none_or(|client| match client.is_empty() {
        true => session.client.is_empty(),
        false => session.client.starts_with(client),
    });
    has_client && arguments.agent.as_ref().is_none_or(|agent| session.agent_id == *agent)
}

/// Returns the session with this id, or the only one whose id starts with the text.
fn find<'a>(sessions: &'a [(SessionKey, SessionTotals)], typed: &str) -> Result<&'a SessionKey, SessionError> {
    let typed = typed.trim();
    let mut found: Vec<&SessionKey> =
        sessions.iter().map(|(session, _)| session).filter(|session| session.session_id == typed).collect();
    if found.is_empty() && !typed.is_empty() {
        let all = sessions.iter().map(|(session, _)| session);
        found = all.filter(|session| session.session_id.starts_with(typed)).collect();
    }
    match found.as_slice() {
        [only] => Ok(only),
        [] => Err(SessionError::None(short(typed))),
        several => {
            let mut named: Vec<String> = several.iter().take(MAX_NAMED).map(|session| described(session)).collect();
            if several.len() > MAX_NAMED {
                named.push("and more".to_owned());
            }
            let advice = how_to_choose(several);
            Err(SessionError::Several { typed: short(typed), advice, candidates: named.join("; ") })
        }
    }
}

/// Returns how the user can say which of several sessions is meant.
fn how_to_choose(sessions: &[&SessionKey]) -> &'static str {
    let differ = |part: fn(&SessionKey) -> &str| {
        let first = sessions.first().map(|session| part(session));
        sessions.iter().any(|session| Some(part(session)) != first)
    };
    if differ(|session| session.session_id.as_str()) {
        "type more of the id, or choose with --client or --agent"
    } else if differ(|session| session.client.as_str()) {
        "choose one with --client KEY"
    } else {
        "choose one with --agent ID"
    }
}

fn described(session: &SessionKey) -> String {
    let SessionKey { agent_id, session_id, client } = session;
    let client = if client.is_empty() { "''".to_owned() } else { short(client) };
    format!("{} (agent {}, client {client})", short(session_id), short(agent_id))
}

fn short(text: &str) -> String {
    text::line(text, MAX_NAME_CHARS)
}

fn no_key(session: &SessionKey, key: &str) -> SessionError {
    SessionError::NoKey { session: short(&session.session_id), key: short(key) }
}

fn list_sessions(sessions: &[(SessionKey, SessionTotals)], format: OutputFormat) {
    if format == OutputFormat::Json {
        let listed = sessions.iter().map(|(session, totals)| {
            let mut listed = session_json(session);
            if let Some(fields) = listed.as_object_mut() {
                fields.insert("keys".to_owned(), totals.keys.into());
                fields.insert("bytes".to_owned(), totals.bytes.into());
            }
            listed
        });
        return render::print_json(&listed.collect());
    }
    if sessions.is_empty() {
        return render::note("no session has values; a cell keeps one with `await store(key, value)`");
    }
    let mut table = Table::new(["SESSION", "KEYS", "SIZE", "AGENT", "CLIENT"]).with_whole(&[1, 2]);
    for (session, totals) in sessions {
        let SessionKey { agent_id, session_id, client } = session.clone();
        table.add([session_id, totals.keys.to_string(), size(totals.bytes), agent_id, client]);
    }
    render::print_table(&table);
}

fn session_json(session: &SessionKey) -> Value {
    json!({"sessionId": session.session_id, "agentId": session.agent_id, "client": session.client})
}

/// Prints the keys of a session.
pub(crate) fn print_values(session: &SessionKey, values: &[SessionValue], format: OutputFormat) {
    if format == OutputFormat::Json {
        let mut all = session_json(session);
        if let Some(fields) = all.as_object_mut() {
            fields.insert("values".to_owned(), values.iter().map(value_json).collect());
        }
        return render::print_json(&all);
    }
    if values.is_empty() {
        return render::note("the session has no values; a cell keeps one with `await store(key, value)`");
    }
    render::print_table(&table(values, now_ms()));
}

fn table(values: &[SessionValue], now: Millis) -> Table<4> {
    let mut table = Table::new(["KEY", "SIZE", "AGE", "VERSION"]).with_whole(&[1, 2]);
    for value in values {
        let bytes = size(value.value.len() as u64);
        table.add([value.key.clone(), bytes, span(now - value.updated_at), value.version.clone()]);
    }
    table
}

/// Returns a value without its content.
fn value_json(value: &SessionValue) -> Value {
    json!({
        "key": value.key,
        "version": value.version,
        "bytes": value.value.len(),
        "runId": value.run_id,
        "updatedAt": value.updated_at,
    })
}

fn print_value(value: &SessionValue, format: OutputFormat) {
    let is_readable = format == OutputFormat::Text && std::io::stdout().is_terminal();
    if format == OutputFormat::Json {
        let mut all = value_json(value);
        let content = contract::json::read(&value.value).unwrap_or_else(|_| Value::from(value.value.as_str()));
        if let Some(fields) = all.as_object_mut() {
            fields.insert("value".to_owned(), content);
        }
        render::print_json(&all);
    } else if is_readable {
        render::print_safe(&format!("{}\n", render::pretty(&value.value)));
    } else {
        render::print_safe(&format!("{}\n", text::escape_json(&value.value)));
    }
}

/// Deletes one value of a session, or all of them. Asks first.
async fn delete(
    store: &Store,
    session: &SessionKey,
    key: Option<&str>,
    prompt: DeletionPrompt,
    format: OutputFormat,
) -> Result<ExitCode, RunsError> {
    let name = short(&session.session_id);
    let question = match key {
        Some(key) => {
            store.session_value(session, key).await?.ok_or_else(|| no_key(session, key))?;
            format!("delete `{}` of session `{name}`", short(key))
        }
        None => match store.session_totals(session).await?.keys {
            1 => format!("delete the value of session `{name}`"),
            keys => format!("delete all {keys} values of session `{name}`"),
        },
    };
    if !is_confirmed(&question, prompt).await? {
        return Ok(render::failed("nothing was deleted"));
    }
    let deleted = store.delete_session_values(session, key).await?;
    match (format, deleted) {
        (OutputFormat::Json, _) => render::print_json(&json!({"deleted": deleted})),
        (OutputFormat::Text, 1) => render::print("deleted 1 value\n"),
        (OutputFormat::Text, _) => render::print(&format!("deleted {deleted} values\n")),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use store::{SessionKey, SessionTotals, SessionValue};

    use super::{find, table};

    fn session(id: &str, client: &str) -> (SessionKey, SessionTotals) {
        let key = SessionKey { agent_id: "local".to_owned(), session_id: id.to_owned(), client: client.to_owned() };
        (key, SessionTotals { keys: 1, bytes: 10 })
    }

    #[test]
    fn a_session_is_found_by_its_id_or_a_unique_start_and_several_are_named_with_their_clients() {
        let sessions =
            [session("mcp:local", "a"), session("mcp:local", ""), session("repl:x", ""), session("repl", "")];
        let found = |typed: &str| find(&sessions, typed).map(|found| found.session_id.clone());
        assert_eq!(found("repl:").unwrap(), "repl:x");
        assert_eq!(found("repl").unwrap(), "repl", "an id is not the start of another");
        let named = "mcp:local (agent local, client a); mcp:local (agent local, client '')";
        for typed in ["mcp", "mcp:local"] {
            let several = format!("`{typed}` means several sessions; choose one with --client KEY: {named}");
            assert_eq!(found(typed).unwrap_err().to_string(), several);
        }
        let unlike = found("r").unwrap_err().to_string();
        assert!(unlike.contains("; type more of the id, or choose with --client or --agent: repl:x ("), "{unlike}");
        for wrong in ["", "x", "repl:x\u{9b}"] {
            let none = found(wrong).unwrap_err().to_string();
            assert!(none.starts_with("no session ") && !none.contains('\u{9b}'), "{none}");
        }
    }

    #[test]
    fn the_table_has_key_size_age_and_version() {
        let value = SessionValue {
            key: "cursor\n".to_owned(),
            value: "[1,2]".to_owned(),
            version: "cm_1:4".to_owned(),
            run_id: "cm_1".into(),
            updated_at: 0,
        };
        let expected = "KEY      SIZE     AGE  VERSION\ncursor   5 bytes  5 s  cm_1:4\n";
        assert_eq!(table(&[value], 5_000).render(None), expected);
    }
}
