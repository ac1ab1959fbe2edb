//! Turns of gateways that are killed at every fault point, on SQLite and Postgres, with a client that repeats its requests
//! to the next gateway. No answer may be lost, no call may be sent under two ids, and no effect may happen twice.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use executor::clock::now_ms;
use fault::GATEWAY_POINTS;
use futures_util::{StreamExt, stream};
use serde_json::{Value, json};
use store::{Location, SessionFilter, Store, TurnState};
use tempfile::TempDir;
use testkit::ledger::Ledger;
use testkit::model::{Condition, Reply, ScriptedModel};
use testkit::postgres::Server;
use tokio::task::block_in_place;
use tokio_util::sync::CancellationToken;
use wire::Wire;

use crate::answer::{Answer, Asked};
use crate::clients::Talk;
use crate::world::{ADA, Form, Options, PATIENCE, WIRES, World, exec, path, serve, start_gateway};

/// The signal with which a fault point kills its process.
const SIGKILL: i32 = 9;

/// Histories at once; most of the time they wait for leases of killed hosts.
const PARALLEL: usize = 32;

/// How long a turn whose host was killed may stay in progress: its lease, `abandonedSeconds` of this test, and time for
/// a loaded machine.
const ORPHANED: Duration = Duration::from_secs(6 + 1 + 20);

/// A cell that calls a server tool that must not be repeated and two client tools at once, then one that depends on them.
const CODE: &str = "
    const look = (q) => tools.call('client:app:lookup', {q});
    const effect = async () => {
        try {
            return (await tools.call('openclaw:ledger:slow', {n: 7})).did.n;
        } catch (error) {
            return 'unknown';
        }
    };
    const [done, a, b] = await Promise.all([effect(), look(1), look(2)]);
    return 'sum ' + await look(a + b) + ' effect ' + done;";

const QUESTION: &str = "look it up";

const FINAL_TEXT: &str = "all done";

/// The beginning of a text of which the client receives only a part.
const PARTIAL: &str = "unfinished";

/// How long a host pauses at a fault point.
const PAUSE: Duration = Duration::from_millis(400);

/// The variables that describe a host process.
const STORE: &str = "CELLMATE_TEST_STORE";
const LEDGER: &str = "CELLMATE_TEST_LEDGER";
const MODEL: &str = "CELLMATE_TEST_MODEL";
const FAULT: &str = "CELLMATE_TEST_FAULT";

/// What a host prints before its address.
const LISTENING: &str = "listening at ";

/// What a host prints before the fault points that it has reached.
const REACHED: &str = "reached ";

#[test]
#[ignore = "run by the tests below"]
fn gateway_in_a_separate_process() {
    let Ok(store) = std::env::var(STORE) else { return };
    let variable = |name: &str| std::env::var(name).unwrap();
    if let Ok(fault) = std::env::var(FAULT) {
        fault::arm(&fault).unwrap();
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let base = runtime.block_on(async {
        let store = open(&store).await;
        let ledger = Arc::new(Ledger::open(Path::new(&variable(LEDGER))).unwrap());
        let gateway = start_gateway(&store, ledger, &Options::default(), &variable(MODEL)).await;
        serve(gateway, CancellationToken::new()).await
    });
    println!("{LISTENING}{base}");
    // Each line asks for the fault points. The host ends with the process that started it.
    for _line in std::io::stdin().lock().lines() {
        println!("{REACHED}{}", json!(fault::reached()));
    }
}

async fn open(store: &str) -> Store {
    let location = match store.starts_with("postgres:") {
        true => Location::Postgres(store.to_owned()),
        false => Location::File(store.into()),
    };
    crate::world::open(&location).await
}

/// A gateway in a process of its own.
struct Host {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
    base: String,
}

impl Host {
    /// Starts a host without a fault.
    fn start(place: &Place) -> Self {
        Self::start_with(place, None).unwrap()
    }

    /// Starts a host. Returns `None` if it was killed before it listened: a background task may reach the fault point
    /// first.
    fn start_with(place: &Place, fault: Option<&str>) -> Option<Self> {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["faults::gateway_in_a_separate_process", "--exact", "--ignored", "--nocapture"])
            .env(STORE, &place.store)
            .env(LEDGER, &place.ledger)
            .env(MODEL, place.model.url())
            .env_remove(FAULT)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(fault) = fault {
            command.env(FAULT, fault);
        }
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let Some(base) = after(&mut output, LISTENING) else {
            let ended = child.wait().unwrap();
            assert_eq!(ended.signal(), Some(SIGKILL), "the host does not listen: {ended}");
            return None;
        };
        Some(Self { child, output, base })
    }

    /// Returns how often each fault point was reached.
    fn reached(&mut self) -> BTreeMap<String, usize> {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        serde_json::from_str(&after(&mut self.output, REACHED).unwrap()).unwrap()
    }

    /// Returns whether the host was killed, for which it is given some time.
    fn is_dead(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if self.child.try_wait().unwrap().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // A host that was killed cannot be killed again.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns what follows the mark in the first line that contains it.
fn after(output: &mut impl BufRead, mark: &str) -> Option<String> {
    output.lines().map_while(Result::ok).find_map(|line| line.split_once(mark).map(|(_, rest)| rest.to_owned()))
}

/// What survives the hosts of a history: the store, the effects and the model.
struct Place {
    store: String,
    ledger: PathBuf,
    model: ScriptedModel,
    /// Deleted with the place.
    folder: Arc<TempDir>,
}

impl Place {
    /// Creates a place with this store, or with a new SQLite file if it is empty.
    fn new(store: &str, disturbance: &Disturbance) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("store.db").display().to_string();
        let when = |text: &str| Some(Condition { last_contains: Some(text.to_owned()), ..Condition::default() });
        let mut script = vec![
            Reply { when: when(QUESTION), ..exec(CODE) },
            Reply { when: when("sum 300 effect"), ..Reply::text(FINAL_TEXT) },
        ];
        if let Disturbance::KillInText(response) = disturbance {
            // Chosen first, and only once.
            let text = format!("{PARTIAL} {}", "and more ".repeat(100));
            let cut = Reply {
                text,
                times: Some(1),
                cut_after_bytes: Some(2_000),
                stall_ms: 600_000,
                ..script[*response].clone()
            };
            script.insert(0, cut);
        }
        Self {
            store: if store.is_empty() { file } else { store.to_owned() },
            ledger: folder.path().join("ledger"),
            model: ScriptedModel::start(script.into()).unwrap(),
            folder: Arc::new(folder),
        }
    }
}

/// What happens in a history besides its requests.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Disturbance {
    None,
    /// The host is killed at a fault point.
    Kill(String),
    /// The host is killed after the client has received a part of the model's text, in the response with this number.
    KillInText(usize),
    /// The host pauses at a fault point, and the client does not wait for it: it closes its connection and sends the
    /// request again.
    HangUp(String),
    /// Each request is sent to another host. All hosts run at the same time.
    Nodes,
}

/// A case of a test: how one history is disturbed.
#[derive(Clone, Debug)]
struct Case {
    /// Empty for an SQLite file.
    store: String,
    wire: Wire,
    form: Form,
    disturbance: Disturbance,
}

impl Case {
    /// Returns the case with this number. Neighbours differ in wire and form.
    fn new(number: usize, store: &str, disturbance: Disturbance) -> Self {
        let form = if number.is_multiple_of(2) { Form::Stream } else { Form::Whole };
        Self { store: store.to_owned(), wire: WIRES[number % WIRES.len()], form, disturbance }
    }

    fn fault(&self) -> Option<&str> {
        match &self.disturbance {
            Disturbance::Kill(fault) | Disturbance::HangUp(fault) => Some(fault),
            Disturbance::None | Disturbance::KillInText(_) | Disturbance::Nodes => None,
        }
    }
}

/// A client of hosts that are killed.
struct Session<'a> {
    case: &'a Case,
    place: &'a Place,
    host: Host,
    /// The hosts of earlier requests that were not killed.
    others: Vec<Host>,
    client: reqwest::Client,
    deaths: usize,
    hang_ups: u32,
}

impl<'a> Session<'a> {
    fn new(case: &'a Case, place: &'a Place) -> Self {
        // Another test may have installed it.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder().pool_max_idle_per_host(0).build().unwrap();
        let disturbed = block_in_place(|| Host::start_with(place, case.fault()));
        let deaths = usize::from(disturbed.is_none());
        let host = disturbed.unwrap_or_else(|| block_in_place(|| Host::start(place)));
        Self { case, place, host, others: Vec::new(), client, deaths, hang_ups: 0 }
    }

    /// Sends a request once.
    async fn try_ask(&mut self, talk: &Talk, retries: u32) -> reqwest::Result<Answer> {
        let mut body = talk.body();
        body["stream"] = json!(self.case.form == Form::Stream);
        let request = self.client.post(format!("{}{}", self.host.base, path(talk.wire))).bearer_auth(ADA).json(&body);
        let limit = match self.case.disturbance {
            // Longer each time, so that a slow machine is not disturbed forever.
            Disturbance::HangUp(_) => PAUSE / 4 * (1 + retries),
            _ => PATIENCE,
        };
        let request = request.header("x-stainless-retry-count", retries.to_string()).timeout(limit);
        let mut response = request.send().await?;
        if matches!(self.case.disturbance, Disturbance::KillInText(_)) && self.deaths == 0 {
            let mut received = String::new();
            // The host is killed in the middle of the model's text, or it asks the client to make calls.
            while let Some(piece) = response.chunk().await? {
                received += std::str::from_utf8(&piece).unwrap();
                if received.contains(PARTIAL) {
                    self.host.child.kill().unwrap();
                }
            }
            return Ok(Answer::of_stream(talk.wire, received));
        }
        Answer::try_read(talk.wire, response).await
    }

    /// Sends a request, and repeats it until it is answered. If the host was killed, the next one is asked.
    async fn ask(&mut self, talk: &Talk) -> Answer {
        if self.case.disturbance == Disturbance::Nodes {
            let next = block_in_place(|| Host::start(self.place));
            self.others.push(std::mem::replace(&mut self.host, next));
        }
        let deadline = Instant::now() + PATIENCE;
        for retries in 0.. {
            assert!(Instant::now() < deadline, "{:?}: the request is not answered", self.case);
            match self.try_ask(talk, retries).await {
                Ok(answer) if answer.status == 200 && answer.error().is_none() => return answer,
                Ok(answer) if answer.status == 503 => tokio::time::sleep(Duration::from_millis(100)).await,
                Ok(answer) => panic!("{:?}: {}", self.case, answer.raw),
                Err(error) if error.is_timeout() && matches!(self.case.disturbance, Disturbance::HangUp(_)) => {
                    self.hang_ups += 1;
                }
                Err(error) => block_in_place(|| {
                    assert!(self.host.is_dead(), "{:?}: {error:?}", self.case);
                    self.deaths += 1;
                    self.host = Host::start(self.place);
                }),
            }
        }
        unreachable!()
    }
}

/// The result of one history.
struct HistoryResult {
    deaths: usize,
    hang_ups: u32,
    /// The fault points that the last host has reached.
    reached: BTreeMap<String, usize>,
}

/// Runs one history: a question, two rounds of client calls, and the final text.
async fn history(case: &Case) -> HistoryResult {
    let place = Place::new(&case.store, &case.disturbance);
    let mut session = Session::new(case, &place);
    let mut talk = Talk::new(case.wire, QUESTION);
    let mut asked: BTreeMap<String, Asked> = BTreeMap::new();
    let text = loop {
        let answer = session.ask(&talk).await;
        let calls = answer.calls();
        if calls.is_empty() {
            break answer.text();
        }
        for call in &calls {
            let first = asked.entry(call.id.clone()).or_insert_with(|| call.clone());
            assert_eq!(first, call, "{case:?}: a call that is sent again is the same");
        }
        let results: Vec<(&Asked, Value)> =
            calls.iter().map(|call| (call, json!(call.arguments["q"].as_i64().unwrap() * 10))).collect();
        talk.answer(&answer, &results);
    };
    assert_eq!(text, FINAL_TEXT, "{case:?}");
    let inputs: Vec<i64> = asked.values().map(|call| call.arguments["q"].as_i64().unwrap()).collect();
    assert_eq!(inputs.len(), 3, "{case:?}: every call has one id: {asked:?}");
    assert_eq!(BTreeSet::from_iter(inputs), BTreeSet::from([1, 2, 30]), "{case:?}: {asked:?}");
    judge_model(case, &place);
    let result = HistoryResult {
        deaths: session.deaths,
        hang_ups: session.hang_ups,
        reached: block_in_place(|| session.host.reached()),
    };
    drop(session);
    judge_store(case, &place).await;
    result
}

/// Checks that the model was asked only with whole responses and results, and that the effect happened at most once.
fn judge_model(case: &Case, place: &Place) {
    let mut bodies: BTreeMap<usize, BTreeSet<String>> = BTreeMap::new();
    for request in place.model.requests() {
        let messages = request.json()["messages"].as_array().unwrap().len();
        bodies.entry(messages).or_default().insert(String::from_utf8(request.body).unwrap());
    }
    let counts: Vec<usize> = bodies.values().map(BTreeSet::len).collect();
    assert_eq!(counts, [1, 1], "{case:?}: a request that is repeated is the same: {bodies:#?}");
    let last = bodies.pop_last().unwrap().1.pop_last().unwrap();
    let effects = std::fs::read_to_string(&place.ledger).unwrap();
    let effects = effects.lines().filter(|line| line.starts_with("slow ")).count();
    if last.contains("sum 300 effect 7") {
        assert_eq!(effects, 1, "{case:?}");
    } else {
        assert!(last.contains("sum 300 effect unknown") && effects <= 1, "{case:?}: {effects} effects: {last}");
        let is_killed = matches!(case.disturbance, Disturbance::Kill(_));
        assert!(is_killed, "{case:?}: the outcome of a call that was not interrupted is known");
    }
}

/// Checks that the store contains one turn, which is over and whose calls were all answered.
async fn judge_store(case: &Case, place: &Place) {
    let store = open(&place.store).await;
    let sessions = store.sessions(&SessionFilter::default(), 10, None).await.unwrap();
    assert_eq!(sessions.len(), 1, "{case:?}");
    let turns = store.turns_of_session(&sessions[0].session_id).await.unwrap();
    let states: Vec<TurnState> = turns.iter().map(|turn| turn.state).collect();
    assert_eq!(states, [TurnState::Completed], "{case:?}");
    let deliveries = store.deliveries_of_turn(&turns[0].turn_id).await.unwrap();
    assert_eq!(deliveries.len(), 3, "{case:?}: {deliveries:?}");
    assert!(deliveries.iter().all(|one| one.answered_at.is_some()), "{case:?}: {deliveries:?}");
    let runs = store.runs_of_session(&sessions[0].session_id).await.unwrap();
    assert!(runs.is_empty(), "{case:?}: the run of a turn that is over is over: {runs:?}");
}

/// Runs histories at the same time, and returns their results in the order in which they end.
async fn histories(cases: Vec<Case>) -> Vec<(Case, HistoryResult)> {
    let run = |case: Case| async {
        tokio::spawn(async move {
            let result = history(&case).await;
            (case, result)
        })
        .await
        .unwrap()
    };
    stream::iter(cases).map(run).buffer_unordered(PARALLEL).collect().await
}

/// Returns how often an undisturbed history reaches each fault point.
async fn reached(store: &str) -> BTreeMap<String, usize> {
    let (_, result) = histories(vec![Case::new(0, store, Disturbance::None)]).await.remove(0);
    let names: BTreeSet<&str> = result.reached.keys().map(String::as_str).collect();
    let missing: Vec<&str> = GATEWAY_POINTS.into_iter().filter(|point| !names.contains(point)).collect();
    assert_eq!(missing, [""; 0], "every fault point of turns is reached");
    result.reached
}

/// Checks that at each fault point of turns at least one history was disturbed. Timing matters: one may reach a point less
/// often than the undisturbed history.
fn assert_all_disturbed(results: &[(Case, HistoryResult)], is_disturbed: impl Fn(&HistoryResult) -> bool) {
    for point in GATEWAY_POINTS {
        let is_at = |case: &Case| case.fault().is_some_and(|fault| fault.starts_with(point));
        assert!(results.iter().any(|(case, result)| is_at(case) && is_disturbed(result)), "{point}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_killed_at_any_fault_point_loses_and_repeats_nothing_on_sqlite() {
    let reached = reached("").await;
    // A host that is killed while it opens the store has no turns.
    let points = reached.iter().filter(|(point, _)| !point.starts_with("open."));
    let faults = points.flat_map(|(point, times)| {
        // Each time for the points of turns, and the first time for those of runs.
        let times = if GATEWAY_POINTS.contains(&point.as_str()) { *times } else { 1 };
        (1..=times).map(move |hit| format!("{point}:{hit}:kill"))
    });
    let cases = faults.enumerate().map(|(number, fault)| Case::new(number, "", Disturbance::Kill(fault)));
    assert_all_disturbed(&histories(cases.collect()).await, |result| result.deaths == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_killed_at_any_fault_point_loses_and_repeats_nothing_on_postgres() {
    let server = Server::start().unwrap();
    let schemas = server.schemas(1 + GATEWAY_POINTS.len()).unwrap();
    let reached = reached(&schemas[GATEWAY_POINTS.len()]).await;
    let cases = GATEWAY_POINTS.iter().zip(&schemas).enumerate().map(|(number, (point, schema))| {
        // Every history reaches the points at least this often.
        let hit = 1 + number % reached[*point].min(3);
        Case::new(number, schema, Disturbance::Kill(format!("{point}:{hit}:kill")))
    });
    assert_all_disturbed(&histories(cases.collect()).await, |result| result.deaths == 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_killed_in_the_middle_of_a_text_never_uses_the_half_response() {
    let case = |number: usize| {
        let disturbance = Disturbance::KillInText(number % 2);
        Case { form: Form::Stream, ..Case::new(number / 2, "", disturbance) }
    };
    for (case, result) in histories((0..2 * WIRES.len()).map(case).collect()).await {
        assert_eq!(result.deaths, 1, "{case:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_at_any_fault_point_and_comes_back_loses_and_repeats_nothing() {
    let reached = reached("").await;
    let faults = GATEWAY_POINTS.iter().flat_map(|point| {
        let pause = PAUSE.as_millis();
        (1..=reached[*point].min(2)).map(move |hit| format!("{point}:{hit}:sleep={pause}"))
    });
    let cases = faults.enumerate().map(|(number, fault)| Case::new(number, "", Disturbance::HangUp(fault)));
    let results = histories(cases.collect()).await;
    for (case, result) in &results {
        assert_eq!(result.deaths, 0, "{case:?}");
    }
    assert_all_disturbed(&results, |result| result.hang_ups > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_turn_on_one_node_are_answered_on_another() {
    let server = Server::start().unwrap();
    let schemas = server.schemas(WIRES.len()).unwrap();
    let case = |(number, schema): (usize, &String)| Case::new(number, schema, Disturbance::Nodes);
    for (case, result) in histories(schemas.iter().enumerate().map(case).collect()).await {
        assert_eq!(result.deaths, 0, "{case:?}");
    }
}

/// Kills a host at a fault point, and checks that another one ends the turn, because the client does not come back.
async fn leave(case: Case) {
    let place = Place::new(&case.store, &case.disturbance);
    let mut session = Session::new(&case, &place);
    let mut talk = Talk::new(case.wire, QUESTION);
    while let Ok(answer) = session.try_ask(&talk, 0).await {
        let results: Vec<(Asked, Value)> = answer.calls().into_iter().map(|call| (call, json!(10))).collect();
        let results: Vec<(&Asked, Value)> = results.iter().map(|(call, value)| (call, value.clone())).collect();
        assert!(!results.is_empty(), "{case:?}: {}", answer.raw);
        talk.answer(&answer, &results);
    }
    assert!(block_in_place(|| session.host.is_dead()), "{case:?}");
    let died = Instant::now();
    let options = Options { gateway: json!({"abandonedSeconds": 1}), ..Options::default() };
    let other = World::start_over((open(&place.store).await, Arc::clone(&place.folder)), options, Vec::new()).await;
    let sessions = other.store.sessions(&SessionFilter::default(), 10, None).await.unwrap();
    let turn = other.store.turns_of_session(&sessions[0].session_id).await.unwrap().remove(0);
    assert_eq!(turn.state, TurnState::Running, "{case:?}");
    loop {
        other.gateway.sweep(now_ms()).await.unwrap();
        let row = other.store.turn(&turn.turn_id).await.unwrap().unwrap();
        if row.state == TurnState::Aborted {
            break;
        }
        assert_eq!(row.state, TurnState::Running, "{case:?}");
        assert!(died.elapsed() < ORPHANED, "{case:?}: the turn is still in progress");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let runs = other.store.runs_of_session(&sessions[0].session_id).await.unwrap();
    assert!(runs.is_empty(), "{case:?}: the run of a turn that is over is over: {runs:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_whose_gateway_was_killed_and_whose_client_stays_away_is_ended() {
    let points = [
        "turn.after_create:1",
        "turn.after_model:1",
        "delivery.before_commit:1",
        "answer.after_commit:1",
        "answer.after_settle:1",
        "delivery.before_commit:2",
        "turn.before_end:1",
    ];
    let case = |(number, point): (usize, &&str)| Case::new(number, "", Disturbance::Kill(format!("{point}:kill")));
    let left = points.iter().enumerate().map(case).map(|case| tokio::spawn(leave(case)));
    for ended in futures_util::future::join_all(left).await {
        ended.unwrap();
    }
}
