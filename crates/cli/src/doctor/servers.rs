//! The configured servers as a doctor sees them: as they are remembered, or started where that is asked for.

use serde_json::{Value, json};

use crate::arguments::DoctorArguments;
use crate::config::{self, Loaded, Problem, shown};
use crate::servers::{ServerReport, meet, problem_json, server_json, standings};

#[derive(Debug)]
pub(super) struct Servers {
    stood: Vec<ServerReport>,
    problems: Vec<Problem>,
}

impl Servers {
    /// The error is about the configuration or the state itself.
    pub(super) async fn look(arguments: &DoctorArguments) -> Result<Self, String> {
        let places = arguments.store.places();
        let loaded = config::load(&places).map_err(|error| error.to_string())?;
        let store = arguments.store.arguments();
        if arguments.servers {
            let lists = store.lists(&places);
            let on = loaded.servers.iter().filter(|server| server.enabled).cloned().collect();
            // They end here; what came of them is in what is remembered.
            drop(meet(on, lists).await);
        }
        let stood = standings(&loaded, &places, store).await.map_err(|error| error.to_string())?;
        let Loaded { problems, .. } = loaded;
        Ok(Self { stood, problems })
    }

    pub(super) fn are_well(&self) -> bool {
        self.problems.is_empty() && !self.stood.iter().any(|stood| stood.verdict().is_trouble())
    }

    pub(super) fn readable(&self) -> String {
        if self.stood.is_empty() && self.problems.is_empty() {
            return "servers        none; `cellmate servers add NAME -- COMMAND` adds one\n".to_owned();
        }
        let bad = self.stood.iter().filter(|stood| stood.verdict().is_trouble()).count() + self.problems.len();
        let well = if bad == 0 { "nothing wrong with them".to_owned() } else { format!("{bad} need something") };
        let mut text = format!("servers        {} configured, {well}\n", self.stood.len());
        for stood in &self.stood {
            let (name, state) = (shown::plain(&stood.entry.name), stood.verdict().as_str());
            text += &format!("  {name}: {state}, {}\n", stood.tools());
            stood.remarks().iter().for_each(|remark| text += &format!("    {remark}\n"));
            stood.next().iter().for_each(|next| text += &format!("    run `{next}`\n"));
        }
        self.problems.iter().for_each(|problem| text += &format!("  problem: {problem}\n"));
        text
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "servers": self.stood.iter().map(server_json).collect::<Vec<_>>(),
            "problems": self.problems.iter().map(problem_json).collect::<Vec<_>>(),
        })
    }
}
