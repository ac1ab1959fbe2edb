//! The scripted server over HTTP: `fake-mcp script.json http PORT_FILE`. It serves one request per connection.
//!
//! The script's `http` configures it: `json` (no streams), `session` (the session id), `listen` (steps for the stream
//! of server messages; if absent, there is no such stream), `resume` (steps for a client that resumes a broken stream;
//! they answer the last request).
//!
//! For logins: `accepts` (a file of valid tokens, one per line, each with its scopes), `issuer` (the issuer's URL),
//! `metadata` (the path of the resource metadata), `challenge` (further parameters in the challenge of a rejected POST;
//! other methods then get no challenge) and `wants` (the scope that a method requires).

use std::io::{Read, stdin};
use std::net::{TcpListener, TcpStream};
use std::process::exit;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::Fake;
use crate::out::{Answer, Out};
use crate::request::Request;

pub(crate) fn serve(script: Value, port_file: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::fs::write(format!("{port_file}.part"), port.to_string()).unwrap();
    std::fs::rename(format!("{port_file}.part"), port_file).unwrap();
    // The test keeps the standard input open as long as the server must run.
    thread::spawn(|| {
        drop(stdin().read_to_end(&mut Vec::new()));
        exit(0);
    });
    let shared = Arc::new(Mutex::new(script));
    for stream in listener.incoming() {
        let (stream, shared) = (stream.unwrap(), Arc::clone(&shared));
        thread::spawn(move || answer(stream, port, &shared));
    }
}

fn answer(stream: TcpStream, port: u16, shared: &Arc<Mutex<Value>>) {
    let Some(request) = Request::read(&stream) else { return };
    let script = shared.lock().unwrap().clone();
    let how = script["http"].clone();
    let head = how["session"].as_str().map(|id| format!("mcp-session-id: {id}\r\n")).unwrap_or_default();
    let mut out = Out::Http(Answer { stream, json: how["json"] == true, head, begun: false });
    let mut fake = Fake { script, shared: Some(Arc::clone(shared)) };
    fake.record(&json!({"http": request.method, "target": request.target, "headers": request.headers}).to_string());
    let metadata_at = how["metadata"].as_str().unwrap_or("/.well-known/oauth-protected-resource");
    if request.target.starts_with(metadata_at) && how["issuer"].is_string() {
        let metadata = json!({"resource": format!("http://127.0.0.1:{port}/mcp"), "authorization_servers": [how["issuer"]], "scopes_supported": ["read"]});
        return out.raw(&status("200 OK", "content-type: application/json\r\n", &metadata.to_string()));
    }
    if request.target != "/mcp" {
        return out.raw(&status("404 Not Found", "", ""));
    }
    let message: Value = serde_json::from_str(&request.body).unwrap_or(Value::Null);
    if let Some((code, error)) = refused(&how, &request, &message) {
        let challenge = match how["challenge"].as_str() {
            // Only POST requests get a challenge.
            Some(_) if request.method != "POST" => String::new(),
            Some(more) => format!("www-authenticate: Bearer resource_metadata=\"{metadata_at}\"{more}{error}\r\n"),
            None => format!("www-authenticate: Bearer resource_metadata=\"{metadata_at}/mcp\"{error}\r\n"),
        };
        return out.raw(&status(code, &challenge, ""));
    }
    let names_session = request.headers.get("mcp-session-id").map(String::as_str) == how["session"].as_str();
    let begins = matches!(message["method"].as_str(), Some("initialize" | "server/discover"));
    if how["session"].is_string() && !names_session && !begins {
        return out.raw(&status("404 Not Found", "", ""));
    }
    match request.method.as_str() {
        "POST" => {
            fake.record(&request.body);
            if message["id"].is_null() || !message["method"].is_string() {
                return out.raw(&status("202 Accepted", "", ""));
            }
            fake.keep("lastId", message["id"].clone());
            fake.answer(&message, &mut out);
        }
        "GET" if request.headers.contains_key("last-event-id") => {
            let last = fake.script["lastId"].clone();
            fake.perform(&how["resume"], &json!({"id": last}), &mut out);
        }
        "GET" if how["listen"].is_array() => fake.perform(&how["listen"], &Value::Null, &mut out),
        _ => out.raw(&status("405 Method Not Allowed", "", "")),
    }
}

/// Returns the status and the challenge's error parameters if the token is invalid or lacks the scope that `wants`
/// names for the method.
fn refused(how: &Value, request: &Request, message: &Value) -> Option<(&'static str, String)> {
    let path = how["accepts"].as_str()?;
    let token = request.headers.get("authorization").and_then(|value| value.strip_prefix("Bearer "));
    let accepted = std::fs::read_to_string(path).unwrap_or_default();
    let mut lines = accepted.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let Some(allowed) = lines.find(|words| words.first().copied() == token) else {
        return Some(("401 Unauthorized", String::new()));
    };
    let wanted = message["method"].as_str().and_then(|method| how["wants"][method].as_str())?;
    let short = !allowed.contains(&wanted);
    short.then(|| ("403 Forbidden", format!(", error=\"insufficient_scope\", scope=\"{wanted}\"")))
}

pub(crate) fn status(status: &str, head: &str, body: &str) -> String {
    format!("HTTP/1.1 {status}\r\n{head}content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
}
