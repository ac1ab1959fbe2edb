//! Builds the policy layers of one run from the configuration and the run's scope.

use std::collections::BTreeSet;

use contract::config::Path;
use contract::config::policy::{Lists, PolicyConfig, Rules, Scope};

use super::{Layer, Provider};

/// The properties of a run that its policy depends on.
#[derive(Clone, Debug)]
pub struct RunScope<'a> {
    pub provider: &'a Provider,
    /// Whether the agent's own tools run in a sandbox; then the `sandbox` lists apply, too.
    pub sandboxed: bool,
    /// The run's own lists; `Lists::default()` restricts nothing.
    pub lists: &'a Lists,
}

/// Returns the layers of a run, all of which must allow a tool.
///
/// First come the profile and the provider's profile. Only the narrowest of each is used: an agent's replaces the
/// global one, a model's replaces its provider's. So does the `alsoAllow` that extends a profile. Then come the lists,
/// each as a layer of its own: each scope's, followed by those for the provider and model; those for sandboxed runs;
/// the run's.
///
/// If the provider is not known, the layers of every provider and model that has rules apply together, so that a tool
/// is allowed only if it is allowed with each of them.
pub fn layers(config: &PolicyConfig, run: &RunScope<'_>) -> Vec<Layer> {
    let scopes = config.scopes.iter();
    let own: Vec<(String, &Rules)> = scopes.clone().map(|scope| (scope.path.clone(), &scope.rules)).collect();
    let providers = match run.provider {
        Provider::Unknown => configured(config),
        known @ Provider::Known { .. } => vec![known.clone()],
    };
    let mut layers: Vec<Layer> = profile(&own).into_iter().collect();
    for provider in &providers {
        let rules: Vec<(String, &Rules)> = scopes.clone().flat_map(|scope| for_provider(scope, provider)).collect();
        add(&mut layers, profile(&rules));
    }
    for scope in scopes.clone() {
        layers.push(Layer { origin: scope.path.clone(), lists: scope.rules.lists.clone() });
        for provider in &providers {
            let lists = for_provider(scope, provider).into_iter();
            add(&mut layers, lists.map(|(origin, rules)| Layer { origin, lists: rules.lists.clone() }));
        }
    }
    if run.sandboxed {
        layers.extend(
            scopes.map(|scope| Layer { origin: format!("{}.sandbox.tools", scope.path), lists: scope.sandbox.clone() }),
        );
    }
    layers.push(Layer { origin: "run".to_owned(), lists: run.lists.clone() });
    layers
}

/// Returns the keys of `byProvider` in all scopes: the providers and models that have rules of their own.
pub fn provider_keys(config: &PolicyConfig) -> BTreeSet<&str> {
    config.scopes.iter().flat_map(|scope| scope.by_provider.keys().map(String::as_str)).collect()
}

fn configured(config: &PolicyConfig) -> Vec<Provider> {
    provider_keys(config).into_iter().map(exactly).collect()
}

/// Returns the provider of a key, also of one that no run can have: its rules are then a layer like any other.
fn exactly(key: &str) -> Provider {
    Provider::parse(key).unwrap_or_else(|_| Provider::Known { name: key.to_owned(), model: None })
}

/// Adds layers that are not there yet: the rules of a provider apply to each of its models.
fn add(layers: &mut Vec<Layer>, more: impl IntoIterator<Item = Layer>) {
    for layer in more {
        if !layers.contains(&layer) {
            layers.push(layer);
        }
    }
}

/// Returns a scope's rules for the provider, then those for its model. The case of letters does not matter, as in
/// OpenClaw.
fn for_provider<'c>(scope: &'c Scope, provider: &Provider) -> Vec<(String, &'c Rules)> {
    let path = Path::root(&scope.path).child("byProvider");
    let rules = |wanted: String| scope.by_provider.iter().filter(move |(key, _)| key.eq_ignore_ascii_case(&wanted));
    let found = provider.keys().into_iter().flat_map(rules);
    found.map(|(key, rules)| (path.child(key).to_string(), rules)).collect()
}

/// Returns the layer of a profile: the last profile in `rules`, extended by the last `alsoAllow` in `rules`.
fn profile(rules: &[(String, &Rules)]) -> Option<Layer> {
    let (origin, profile) = rules.iter().rev().find_map(|(origin, rules)| Some((origin, rules.profile.as_ref()?)))?;
    let also_allow = rules.iter().rev().find_map(|(_, rules)| rules.lists.also_allow.clone());
    let lists = Lists { allow: Some(profile.allow.clone()), also_allow, deny: Vec::new() };
    Some(Layer { origin: format!("{origin}.profile: {}", profile.name), lists })
}
