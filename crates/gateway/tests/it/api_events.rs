//! `GET /api/v1/events`: what a client gets, resumes and misses.

use reqwest::Response;
use serde_json::{Value, json};

use crate::api_client::post;
use crate::world::{ADA, BOB, Options, PATIENCE, World};

/// An open stream of events.
struct Stream {
    response: Response,
    buffer: String,
}

/// One event.
#[derive(Clone, Debug)]
struct Event {
    id: String,
    name: String,
    data: Value,
}

impl Stream {
    async fn open(world: &World, token: &str, last: Option<&str>) -> Self {
        let request = world.client.get(format!("{}/api/v1/events", world.base)).bearer_auth(token);
        let request = if let Some(last) = last { request.header("last-event-id", last) } else { request };
        let response = request.send().await.unwrap();
        assert_eq!(response.status().as_u16(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream; charset=utf-8");
        let mut stream = Self { response, buffer: String::new() };
        // The stream is connected when its first bytes arrive.
        while !stream.buffer.contains("\n\n") {
            stream.read().await;
        }
        stream
    }

    async fn read(&mut self) {
        let chunk = tokio::time::timeout(PATIENCE, self.response.chunk()).await.unwrap().unwrap().unwrap();
        self.buffer.push_str(std::str::from_utf8(&chunk).unwrap());
    }

    /// Returns the next event that is not a comment.
    async fn next(&mut self) -> Event {
        loop {
            while let Some((frame, rest)) = self.buffer.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.buffer = rest;
                let field = |name: &str| {
                    let line = frame.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
                    line.unwrap_or_default().to_owned()
                };
                if !field("event").is_empty() {
                    let data = serde_json::from_str(&field("data")).unwrap();
                    return Event { id: field("id"), name: field("event"), data };
                }
            }
            self.read().await;
        }
    }

    /// Returns the next event of a run that has completed.
    async fn completed_run(&mut self) -> Event {
        loop {
            let event = self.next().await;
            if event.name == "run" && event.data["state"] == "completed" {
                return event;
            }
        }
    }
}

async fn invoke(world: &World, token: &str) {
    assert_eq!(post(world, token, "/tools/invoke", &json!({"tool": "add", "args": {}})).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_resumes_gets_what_it_missed_and_one_that_is_too_late_is_told_to_start_over() {
    let world = World::start(Options::default(), Vec::new()).await;
    let mut stream = Stream::open(&world, ADA, None).await;
    invoke(&world, ADA).await;
    let first = stream.completed_run().await;
    let names: Vec<&String> = first.data.as_object().unwrap().keys().collect();
    assert_eq!(names, ["type", "id", "state", "sessionId", "at"]);
    drop(stream);
    invoke(&world, ADA).await;
    let mut resumed = Stream::open(&world, ADA, Some(&first.id)).await;
    let second = resumed.completed_run().await;
    assert_ne!(second.data["id"], first.data["id"]);
    for late in ["nonsense", "other-7", &format!("{}0000000", first.id)] {
        let mut stream = Stream::open(&world, ADA, Some(late)).await;
        let event = stream.next().await;
        assert_eq!((event.name.as_str(), event.id.is_empty()), ("reset", false));
        let mut again = Stream::open(&world, ADA, Some(&event.id)).await;
        invoke(&world, ADA).await;
        assert_eq!(again.completed_run().await.name, "run");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_no_events_of_others() {
    let world = World::start(Options::default(), Vec::new()).await;
    let mut all = Stream::open(&world, crate::world::ROOT, None).await;
    let mut bobs = Stream::open(&world, BOB, None).await;
    invoke(&world, ADA).await;
    let adas = all.completed_run().await;
    invoke(&world, BOB).await;
    let own = bobs.next().await;
    assert_ne!(own.data["sessionId"], adas.data["sessionId"]);
    let seen = all.completed_run().await;
    assert_eq!(seen.data["sessionId"], own.data["sessionId"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_principal_with_too_many_streams_is_refused_until_one_is_closed() {
    let world = World::start(Options::default(), Vec::new()).await;
    let mut streams = Vec::new();
    for _ in 0..gateway::api::limits::MAX_STREAMS_PER_PRINCIPAL {
        streams.push(Stream::open(&world, ADA, None).await);
    }
    let address = format!("{}/api/v1/events", world.base);
    let refused = world.client.get(&address).bearer_auth(ADA).send().await.unwrap();
    assert_eq!((refused.status().as_u16(), refused.headers()["retry-after"].to_str().unwrap()), (429, "1"));
    drop(Stream::open(&world, BOB, None).await);
    streams.clear();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while world.client.get(&address).bearer_auth(ADA).send().await.unwrap().status().as_u16() != 200 {
        assert!(tokio::time::Instant::now() < deadline);
        tokio::task::yield_now().await;
    }
}
