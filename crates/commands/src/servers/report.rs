//! The last known state of each server: its tool list or failure, its login, and the command to run next.

use client_config::{LoadedConfig, Places, ServerEntry, Switch, display};
use contract::text;
use executor::StandingApprovals;
use executor::clock::now_ms;
use mcp::{CHECK_STDERR, LastFailure, LoginStatus, Status, UpstreamOptions, Upstreams};
use serde_json::{Value, json};
use store::{Location, Store};

use crate::age::ago;
use crate::hint;
use crate::state::{StateError, StoreArguments};

/// The longest failure message that is shown.
const MAX_SHOWN_CHARS: usize = 1_000;

/// A configured server with its last known state.
#[derive(Debug)]
pub(crate) struct ServerReport {
    pub(crate) entry: ServerEntry,
    status: Status,
    login: LoginStatus,
}

/// A server's state in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readiness {
    Off,
    NeedsLogin,
    /// The login lacks scopes that the server requires.
    NeedsScopes,
    Failed,
    /// The server was never started.
    Untested,
    Ready,
}

impl Readiness {
    fn of(switch: Switch, status: &Status, login: &LoginStatus) -> Self {
        match login {
            _ if switch == Switch::Off => Self::Off,
            LoginStatus::LoggedOut { wanted: true } | LoginStatus::LoggedIn { over: true, .. } => Self::NeedsLogin,
            LoginStatus::LoggedIn { wanted, .. } if !wanted.is_empty() => Self::NeedsScopes,
            _ if status.last_failure.is_some() => Self::Failed,
            _ if status.listed_at.is_none() => Self::Untested,
            LoginStatus::NotSupported | LoginStatus::LoggedOut { .. } | LoginStatus::LoggedIn { .. } => Self::Ready,
        }
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::NeedsLogin | Self::NeedsScopes => "needs login",
            Self::Failed => "failed",
            Self::Untested => "not tried",
            Self::Ready => "ready",
        }
    }

    /// Whether calls would fail until the user acts.
    pub(crate) fn needs_attention(self) -> bool {
        matches!(self, Self::NeedsLogin | Self::NeedsScopes | Self::Failed)
    }

    fn next(self, name: &str) -> Option<String> {
        let name = display::for_shell(&display::plain(name));
        match self {
            Self::Off | Self::Ready => None,
            Self::NeedsLogin | Self::NeedsScopes => Some(hint::command(&format!("servers login {name}"))),
            Self::Failed | Self::Untested => Some(hint::command(&format!("servers test {name}"))),
        }
    }
}

/// Reports on all configured servers, in their order. Creates nothing in the state folder.
pub(crate) async fn server_reports(
    loaded: &LoadedConfig,
    places: &Places,
    store: &StoreArguments,
) -> Result<Vec<ServerReport>, StateError> {
    let lists = store.lists(places);
    let options = UpstreamOptions { cache_dir: lists, ..UpstreamOptions::DEFAULT };
    let upstreams = Upstreams::new(loaded.servers.iter().map(ServerEntry::spec).collect(), &options);
    let mut statuses = upstreams.statuses_against(&standing_approvals(loaded, places, store).await?);
    let report = |entry: &ServerEntry| {
        let at = statuses.iter().position(|status| status.name == entry.name)?;
        Some(ServerReport {
            entry: entry.clone(),
            status: statuses.swap_remove(at),
            login: mcp::login_status(&entry.spec()),
        })
    };
    Ok(loaded.servers.iter().filter_map(report).collect())
}

/// Returns the standing approvals; none if there is no store yet.
async fn standing_approvals(
    loaded: &LoadedConfig,
    places: &Places,
    store: &StoreArguments,
) -> Result<StandingApprovals, StateError> {
    let Some(store) = existing_store(loaded, places, store).await? else { return Ok(StandingApprovals::default()) };
    let approved = StandingApprovals::in_store(&store).await;
    approved.map_err(|error| StateError::Store { location: store.location().to_string(), error })
}

/// Opens the store; `None` if there is none yet.
pub(super) async fn existing_store(
    loaded: &LoadedConfig,
    places: &Places,
    store: &StoreArguments,
) -> Result<Option<Store>, StateError> {
    if store.folder(places).is_none_or(|folder| !folder.exists()) {
        return Ok(None);
    }
    let store_settings = store.choose(&loaded.settings, places)?;
    if matches!(&store_settings.location, Location::File(path) if !path.exists()) {
        return Ok(None);
    }
    store_settings.open().await.map(Some)
}

impl ServerReport {
    pub(crate) fn readiness(&self) -> Readiness {
        let switch = if self.entry.enabled { Switch::On } else { Switch::Off };
        Readiness::of(switch, &self.status, &self.login)
    }

    /// Returns the command to run next, or `None` if there is nothing to do.
    pub(crate) fn next(&self) -> Option<String> {
        self.readiness().next(&self.entry.name)
    }

    /// Returns how many tools the server listed, and when.
    pub(crate) fn tools(&self) -> String {
        match self.status.listed_at {
            Some(at) => format!("{} tools, {}", self.status.tools, ago(now_ms().saturating_sub(at))),
            None => "-".to_owned(),
        }
    }

    /// Returns what the user should know about the server, one sentence each.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        match &self.login {
            LoginStatus::LoggedOut { wanted: true } => remarks.push("it needs a login".to_owned()),
            LoginStatus::LoggedIn { over: true, .. } => remarks.push("its login has expired".to_owned()),
            LoginStatus::LoggedIn { wanted, .. } if !wanted.is_empty() => {
                remarks.push(format!("it needs a login with the scopes `{}`", display::plain(&wanted.join(" "))));
            }
            LoginStatus::NotSupported | LoginStatus::LoggedOut { .. } | LoginStatus::LoggedIn { .. } => {}
        }
        if let Some(failure) = self.status.last_failure.as_ref().filter(|_| self.readiness() == Readiness::Failed) {
            let when = ago(now_ms().saturating_sub(failure.at));
            let why = text::line(&self.entry.without_secrets(&failure.message), MAX_SHOWN_CHARS);
            let stderr = self.excerpt(failure);
            remarks.push(match stderr.as_slice() {
                [] => format!("it failed {when}: {why}"),
                lines => {
                    let why = why.strip_suffix(CHECK_STDERR).unwrap_or(&why);
                    format!("it failed {when}: {why}; its standard error ends with: {}", lines.join(" | "))
                }
            });
        }
        if !self.status.changed_since_approved.is_empty() {
            let tools = self.status.changed_since_approved.join(", ");
            remarks.push(format!(
                "tools that changed since their approval and need a new one: {}",
                display::plain(&tools)
            ));
        }
        remarks
    }

    /// Returns the last lines of what the server wrote to its standard error before it failed, if they are known.
    fn excerpt(&self, failure: &LastFailure) -> Vec<String> {
        process::excerpt(&self.entry.without_secrets(&failure.stderr))
    }

    pub(crate) fn to_json(&self) -> Value {
        let login = match &self.login {
            LoginStatus::NotSupported => Value::Null,
            LoginStatus::LoggedOut { wanted } => json!({"loggedIn": false, "wanted": wanted}),
            LoginStatus::LoggedIn { issuer, scopes, over, wanted } => {
                json!({"loggedIn": !over, "issuer": issuer, "scopes": scopes, "wantedScopes": wanted})
            }
        };
        let failure = self.status.last_failure.as_ref().map(|failure| {
            let message = self.entry.without_secrets(&failure.message);
            json!({"at": failure.at, "message": message, "stderr": self.excerpt(failure)})
        });
        json!({
            "state": self.readiness().as_str(),
            "login": login,
            "tools": self.status.tools,
            "listedAt": self.status.listed_at,
            "changedSinceApproved": self.status.changed_since_approved,
            "lastError": failure,
            "next": self.next(),
        })
    }
}

#[cfg(test)]
mod tests {
    use client_config::Switch;
    use mcp::{LastFailure, LoginStatus, ServerState, Status};

    use super::Readiness;

    fn status(listed: bool, failed: bool) -> Status {
        Status {
            name: "s".to_owned(),
            state: ServerState::Stopped,
            since: 0,
            restarts: 0,
            failures: 0,
            next_try: None,
            in_flight: 0,
            tools: 1,
            left_out: 0,
            listed_at: listed.then_some(1),
            remembered: listed,
            changed_since_approved: Vec::new(),
            last_failure: failed.then(|| LastFailure {
                at: 1,
                message: "m".to_owned(),
                stderr: String::new(),
                timed_out: false,
            }),
        }
    }

    #[test]
    fn states_that_the_user_can_fix_take_precedence() {
        let logged_in = |over: bool, wanted: &[&str]| LoginStatus::LoggedIn {
            issuer: None,
            scopes: Vec::new(),
            over,
            wanted: wanted.iter().map(|scope| (*scope).to_owned()).collect(),
        };
        let cases = [
            (Switch::Off, status(true, true), LoginStatus::LoggedOut { wanted: true }, Readiness::Off),
            (Switch::On, status(true, true), LoginStatus::LoggedOut { wanted: true }, Readiness::NeedsLogin),
            (Switch::On, status(true, true), logged_in(true, &[]), Readiness::NeedsLogin),
            (Switch::On, status(true, true), logged_in(false, &["a"]), Readiness::NeedsScopes),
            (Switch::On, status(true, true), logged_in(false, &[]), Readiness::Failed),
            (Switch::On, status(true, true), LoginStatus::NotSupported, Readiness::Failed),
            (Switch::On, status(false, false), LoginStatus::LoggedOut { wanted: false }, Readiness::Untested),
            (Switch::On, status(true, false), LoginStatus::LoggedOut { wanted: false }, Readiness::Ready),
        ];
        for (switch, status, login, expected) in cases {
            assert_eq!(Readiness::of(switch, &status, &login), expected, "{status:?} {login:?}");
        }
        assert_eq!(Readiness::Failed.next("a b").as_deref(), Some("cellmate servers test 'a b'"));
        assert_eq!(Readiness::Ready.next("a"), None);
    }
}
