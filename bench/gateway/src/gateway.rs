//! The processes of the benchmark: the scripted model, and the gateway in front of it.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use figures::{Facts, Samples};
use serde_json::{Value, json};

use crate::client::Client;
use crate::{Result, print_line, processes};

/// How long the scripted model waits before it answers.
pub(crate) const THINKING_MS: u64 = 50;

/// The model's last text of a correct turn.
pub(crate) const RIGHT: &str = "right";

/// The model's text if the last message is not one that the script expects, for instance if a cell got a wrong result.
const WRONG: &str = "wrong";

/// The result that clients send for the call of their tool.
pub(crate) const TOOL_RESULT: &str = "blue";

/// How long a process may take to start.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How long OpenClaw may take to start.
const OPENCLAW_START_LIMIT: Duration = Duration::from_secs(180);

/// How long to wait after load until the gateway is idle: by then, workers that are no longer needed have ended.
const IDLE_WAIT: Duration = Duration::from_secs(12);

/// The number of gateways that are started to measure the time to ready.
const STARTS: usize = 5;

/// The configured limit of suspended runs.
const MAX_WAITING_RUNS: u32 = 20_000;

/// The paths of the programs that the benchmark starts.
#[derive(Debug)]
pub(crate) struct Binaries {
    cellmate: PathBuf,
    model: PathBuf,
}

impl Binaries {
    pub(crate) fn find(folder: &Path) -> Result<Self> {
        let found = |name: &str| {
            let path = folder.join(name);
            path.canonicalize().map_err(|error| format!("{}: {error}; build it first", path.display()))
        };
        Ok(Self { cellmate: found("cellmate")?, model: found("scripted-model")? })
    }
}

/// Returns the script of the model: its answers to the results of cells, and to users who write `[plain]`, `[cell]` or
/// `[park]`. The first rule whose text is anywhere in the conversation applies.
fn script() -> Value {
    let when = |text: &str| json!({"contains": text});
    let exec = |code: &str| json!([{"name": "exec", "arguments": {"code": code}}]);
    let waiting = "return 'got ' + await tools.call('client:app:lookup', {q: 1})";
    json!([
        {"when": when("done 1"), "text": RIGHT, "delayMs": THINKING_MS},
        {"when": when(&format!("got {TOOL_RESULT}")), "text": RIGHT, "delayMs": THINKING_MS},
        {"when": when("[plain]"), "text": RIGHT, "delayMs": THINKING_MS},
        {"when": when("[cell]"), "calls": exec("return 'done ' + 1"), "delayMs": THINKING_MS},
        {"when": when("[park]"), "calls": exec(waiting), "delayMs": THINKING_MS},
        {"when": {}, "text": WRONG},
    ])
}

/// A running gateway with its model and its folder. Dropping it kills both processes and removes the folder.
#[derive(Debug)]
pub(crate) struct Gateway {
    folder: PathBuf,
    model: Child,
    gateway: Option<Child>,
    address: String,
    token: String,
    /// Time from the start of the process to the first positive answer of `/readyz`.
    pub(crate) time_to_ready: Duration,
}

impl Gateway {
    pub(crate) fn start(binaries: &Binaries) -> Result<Self> {
        let (mut started, model) = Self::start_model(binaries)?;
        started.start_gateway(binaries, &model)?;
        Ok(started)
    }

    /// Starts an OpenClaw, an installed npm package, instead of Cellmate.
    pub(crate) fn start_openclaw(binaries: &Binaries, package: &Path) -> Result<Self> {
        let (mut started, model) = Self::start_model(binaries)?;
        started.start_openclaw_gateway(package, &model)?;
        Ok(started)
    }

    /// Starts the model, and returns its URL. The gateway is not started yet.
    fn start_model(binaries: &Binaries) -> Result<(Self, String)> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("cellmate-bench-gateway-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("script.json"), script().to_string())?;
        let mut command = Command::new(&binaries.model);
        let mut model = command.arg(folder.join("script.json")).stdout(Stdio::piped()).spawn()?;
        let mut url = String::new();
        BufReader::new(model.stdout.take().ok_or("the model has no output")?).read_line(&mut url)?;
        let started = Self {
            folder,
            model,
            gateway: None,
            address: String::new(),
            token: String::new(),
            time_to_ready: Duration::ZERO,
        };
        Ok((started, url.trim().to_owned()))
    }

    fn start_openclaw_gateway(&mut self, package: &Path, model: &str) -> Result<()> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        self.address = format!("127.0.0.1:{port}");
        self.token = "0123456789abcdef0123456789abcdef".to_owned();
        let work = self.folder.join("work");
        std::fs::create_dir_all(&work)?;
        let only = json!({
            "id": "demo", "name": "demo", "contextWindow": 200_000, "maxTokens": 8_192, "input": ["text"],
            "reasoning": false, "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0},
        });
        let provider = json!({"baseUrl": model, "apiKey": "none", "api": "openai-completions", "models": [only]});
        let config = json!({
            "gateway": {
                "mode": "local", "port": port, "bind": "loopback", "auth": {"mode": "token", "token": self.token},
                "http": {"endpoints": {"chatCompletions": {"enabled": true}}},
            },
            "models": {"providers": {"scripted": provider}},
            "agents": {"defaults": {"model": {"primary": "scripted/demo"}, "workspace": work, "skipBootstrap": true}},
            "tools": {"codeMode": {"enabled": true}},
        });
        let (file, log) = (self.folder.join("openclaw.json"), self.folder.join("stderr"));
        std::fs::write(&file, config.to_string())?;
        // The Node that `npm ci --prefix bench/peer` installs.
        let node = package.join("../../../node_modules/node/bin/node");
        let mut command = Command::new(node.canonicalize().map_err(|error| format!("{}: {error}", node.display()))?);
        command.arg(package.join("openclaw.mjs")).args(["gateway", "run", "--port", &port.to_string()]);
        // It must neither read nor write the state of an OpenClaw that the user has.
        command.env("HOME", &self.folder).env("OPENCLAW_STATE_DIR", self.folder.join("openclaw"));
        command.env("OPENCLAW_CONFIG_PATH", file).current_dir(&self.folder);
        let log_file = File::create(&log)?;
        let (out, began) = (log_file.try_clone()?, Instant::now());
        let child = command.stdin(Stdio::null()).stdout(out).stderr(log_file).spawn()?;
        let gateway = self.gateway.insert(child);
        let is_ready = |gateway: &str| {
            Client::connect(gateway, "").and_then(|mut client| client.get("/readyz")).is_ok_and(|status| status == 200)
        };
        while !is_ready(&self.address) {
            if gateway.try_wait()?.is_some() || began.elapsed() > OPENCLAW_START_LIMIT {
                return Err(format!("OpenClaw did not start: {}", std::fs::read_to_string(&log)?).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        self.time_to_ready = began.elapsed();
        Ok(())
    }

    fn start_gateway(&mut self, binaries: &Binaries, model: &str) -> Result<()> {
        let config = json!({
            "tools": {"codeMode": {"enabled": true, "maxLiveRuns": MAX_WAITING_RUNS}},
            // All sessions belong to one principal.
            "store": {"perPrincipal": {"maxWaitingRuns": MAX_WAITING_RUNS}},
            "models": {"providers": {"scripted": {"baseUrl": model, "api": "openai-completions"}}},
            "agents": {"defaults": {"model": "scripted/demo"}},
        });
        let (file, state, log) =
            (self.folder.join("config.json5"), self.folder.join("state"), self.folder.join("stderr"));
        std::fs::write(&file, config.to_string())?;
        let mut command = Command::new(&binaries.cellmate);
        command.args(["gateway", "--listen", "127.0.0.1:0", "--config"]).arg(file).arg("--state-dir").arg(&state);
        command.env("HOME", &self.folder).current_dir(&self.folder);
        let began = Instant::now();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?).spawn()?;
        let gateway = self.gateway.insert(child);
        self.address = loop {
            let text = std::fs::read_to_string(&log)?;
            if let Some((_, rest)) = text.split_once("serving agents at http://") {
                break rest.split('/').next().unwrap_or_default().to_owned();
            }
            if gateway.try_wait()?.is_some() || began.elapsed() > START_LIMIT {
                return Err(format!("the gateway did not start: {text}").into());
            }
            std::thread::sleep(Duration::from_millis(1));
        };
        self.token = std::fs::read_to_string(state.join("token"))?.trim().to_owned();
        while self.connect()?.get("/readyz")? != 200 {
            if began.elapsed() > START_LIMIT {
                return Err("the gateway is not ready".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.time_to_ready = began.elapsed();
        Ok(())
    }

    pub(crate) fn connect(&self) -> Result<Client> {
        Client::connect(&self.address, &self.token)
    }

    fn pid(&self) -> Result<u32> {
        self.gateway.as_ref().map(Child::id).ok_or_else(|| "the gateway does not run".into())
    }

    /// Returns the CPU time of the gateway and its workers so far, in milliseconds.
    pub(crate) fn cpu_ms(&self) -> Result<f64> {
        processes::cpu_ms(self.pid()?)
    }

    /// Waits until the gateway is idle, and returns the memory of it and its workers.
    pub(crate) fn idle_pss_mib(&self) -> Result<f64> {
        std::thread::sleep(IDLE_WAIT);
        self.pss_mib()
    }

    /// Returns the memory of the gateway and its workers now.
    pub(crate) fn pss_mib(&self) -> Result<f64> {
        processes::pss_mib(self.pid()?)
    }

    /// Returns the size of the store's files, in bytes.
    pub(crate) fn store_bytes(&self) -> Result<u64> {
        let mut bytes = 0;
        for entry in std::fs::read_dir(self.folder.join("state"))? {
            let entry = entry?;
            if entry.file_name().to_string_lossy().starts_with("runs.db") {
                bytes += entry.metadata()?.len();
            }
        }
        Ok(bytes)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        for child in self.gateway.iter_mut().chain([&mut self.model]) {
            if let Err(error) = child.kill().and_then(|()| child.wait()) {
                eprintln!("bench-gateway: cannot end a process: {error}");
            }
        }
        if let Err(error) = std::fs::remove_dir_all(&self.folder) {
            eprintln!("bench-gateway: cannot remove {}: {error}", self.folder.display());
        }
    }
}

/// Measures the time to ready, and the memory of an idle gateway and its workers.
pub(crate) fn measure_starts(binaries: &Binaries, facts: &mut Facts) -> Result<()> {
    let mut samples = Samples::default();
    for _ in 1..STARTS {
        samples.push(Gateway::start(binaries)?.time_to_ready.as_secs_f64() * 1e3);
    }
    let gateway = Gateway::start(binaries)?;
    samples.push(gateway.time_to_ready.as_secs_f64() * 1e3);
    let pss = gateway.idle_pss_mib()?;
    println!("\nstart");
    print_line("ready after (median of 5; longest)", &format!("{:.0} ms; {:.0} ms", samples.p50(), samples.max()));
    print_line("idle gateway and workers (PSS)", &format!("{pss:.1} MiB"));
    facts.add("ready_ms", samples.p50());
    facts.add("ready_longest_ms", samples.max());
    facts.add("idle_pss_mib", pss);
    Ok(())
}
