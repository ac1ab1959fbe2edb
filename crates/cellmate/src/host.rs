//! [`Cellmate`], the host: what a program keeps for all its agent runs.

use std::sync::Arc;

use codemode::CodeMode;
use codemode::pool::Pool;
use contract::ids::{ApprovalId, RunId};
use contract::scope::Scope;
use executor::run::{Host, RunRequest, prepare};
use executor::{CallToken, Outcome};
use store::{ApprovalScope, Decision, RunFilter, SettleResult};

use crate::agent_run::AgentRun;
use crate::approvals::{self, Approval, ApprovalRequests};
use crate::error::{self, Result};
use crate::replay::{self, Replay};
use crate::run_info::RunInfo;

/// The workers, the store and the tools of a program, for all its agents. Clones share them.
///
/// The workers end when the last clone is dropped. Call [`shut_down`](Self::shut_down) before the program ends, so that
/// other processes can take over its runs at once.
#[derive(Clone, Debug)]
pub struct Cellmate {
    pub(crate) code_mode: CodeMode,
    pub(crate) pool: Pool,
    pub(crate) host: Arc<Host>,
    #[cfg(feature = "mcp")]
    pub(crate) servers: Arc<mcp::Upstreams>,
}

impl Cellmate {
    /// Selects the tools that the agent's model sees, from configuration and policy. Each
    /// [`exec`](AgentRun::exec) of the result starts a run.
    ///
    /// This is cheap: call it for each turn of the agent, or keep the result for many.
    pub fn run(&self, scope: Scope) -> Result<AgentRun> {
        let request = RunRequest { scope, ..RunRequest::default() };
        let prepared = prepare(&self.host, &request).map_err(|error| error::prepare(&error))?;
        Ok(AgentRun::new(self.code_mode.clone(), prepared))
    }

    /// Returns the calls of all runs in the store that wait for a person, oldest first.
    pub async fn approvals(&self) -> Result<Vec<Approval>> {
        approvals::pending(self.code_mode.store()).await
    }

    /// Returns the approvals one by one as they are requested, for a program that notifies people.
    ///
    /// ```no_run
    /// # async fn notify(_: &cellmate::Approval) {}
    /// # async fn example(host: cellmate::Cellmate) -> cellmate::Result<()> {
    /// let mut requests = host.approval_requests();
    /// loop {
    ///     notify(&requests.next().await?).await;
    /// }
    /// # }
    /// ```
    pub fn approval_requests(&self) -> ApprovalRequests {
        ApprovalRequests::new(self.code_mode.store().clone())
    }

    /// Approves one call. `by` names the person; the transcript shows it.
    pub async fn approve(&self, id: &ApprovalId, by: &str) -> Result<()> {
        self.decide(id, &Decision::Approve { edited_input: None, reach: ApprovalScope::Once }, by).await
    }

    /// Denies one call. The cell gets an error that contains the note.
    pub async fn deny(&self, id: &ApprovalId, by: &str, note: impl Into<String>) -> Result<()> {
        self.decide(id, &Decision::Deny { note: note.into() }, by).await
    }

    /// Records any decision about one call, including a changed input, an answer to a tool's question, or a decision
    /// for all later calls of the tool.
    pub async fn decide(&self, id: &ApprovalId, decision: &Decision, by: &str) -> Result<()> {
        let recorded = self.code_mode.decide(id, decision, by).await;
        recorded.map(drop).map_err(|error| error::decision(&error))
    }

    /// Supplies the outcome of a call that a [`ToolSource`](crate::source::ToolSource) left pending, in this process or
    /// another one.
    pub async fn settle(&self, token: &CallToken, outcome: &Outcome) -> Result<SettleResult> {
        self.code_mode.settle(token, outcome).await.map_err(|error| error::settle(&error))
    }

    /// Returns the newest runs of all agents in the store.
    pub async fn runs(&self, limit: u32) -> Result<Vec<RunInfo>> {
        let rows = self.code_mode.store().runs(&RunFilter::default(), limit).await;
        Ok(rows.map_err(|error| error::store(&error))?.into_iter().map(RunInfo::from).collect())
    }

    /// Returns the transcript of a session as JSON lines: calls of the model, calls of tools, decisions and results.
    ///
    /// The transcript belongs to the session id alone: agents that have sessions of the same id share it.
    pub async fn export(&self, session_id: &str) -> Result<String> {
        self.code_mode.store().export(session_id).await.map_err(|error| error::store(&error))
    }

    /// Runs a recorded cell again with the replies that it received, and compares each step (the code between two
    /// replies) with the record.
    ///
    /// No tool is called, no approval is needed and nothing is written. The run may be waiting, or finished and still
    /// in the store.
    ///
    /// ```
    /// use cellmate::{Cellmate, Scope, StepEnd, Tool, json};
    ///
    /// # cellmate::block_on(async {
    /// let toss = Tool::new("plugin:coin:toss", "Tosses a coin.", json!({"type": "object"}))
    ///     .call(async |_| Ok(json!("heads")));
    /// let host = Cellmate::builder().tool(toss).workers_in_this_process().build().await?;
    /// let run = host.run(Scope::agent("gambler"))?;
    /// run.exec("1", "return [await tools.toss({}), Math.random()]").await;
    ///
    /// let run_id = run.run_of_call("1").await?.unwrap();
    /// let replay = host.replay(&run_id).await?;
    /// assert!(replay.matches());
    /// assert_eq!(replay.steps[0].calls[0].target, "plugin:coin:toss");
    /// assert_eq!(replay.steps[1].replies[0].value, json!("heads"));
    /// assert!(matches!(&replay.steps[1].end, StepEnd::Returned(value) if value[0] == "heads"));
    /// # host.shut_down().await
    /// # }).unwrap();
    /// ```
    pub async fn replay(&self, run_id: &RunId) -> Result<Replay> {
        replay::replay(&self.pool, self.code_mode.store(), run_id).await
    }

    /// Cancels a run of any agent. Returns whether there was a run to cancel.
    ///
    /// When this returns, the end is written, and the run's calls in this process are cancelled.
    pub async fn cancel(&self, run_id: &RunId) -> bool {
        self.code_mode.abort(run_id).await
    }

    /// Cancels every run of a session, of any agent. Returns how many were cancelled.
    pub async fn end_session(&self, session_id: &str) -> usize {
        self.code_mode.end_session(session_id).await
    }

    /// Releases the runs of this process, so that another one can resume them at once, and stops MCP servers.
    ///
    /// Runs that wait stay in the store. For calls in progress the process that resumes the run acts as after a crash: it
    /// repeats them if the tool declares that this is safe, and otherwise their outcome is unknown. The functions of
    /// [`Tool`](crate::Tool)s are not interrupted, so end the program afterwards.
    pub async fn shut_down(&self) -> Result<()> {
        let released = self.code_mode.shut_down().await;
        #[cfg(feature = "mcp")]
        self.servers.stop_all().await;
        released.map_err(|error| error::store(&error))
    }
}
