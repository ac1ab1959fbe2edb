//! Builds the policy layers of one run from the configuration and the run's scope.

use contract::config::Path;
use contract::config::policy::{Lists, PolicyConfig, Rules, Scope};

use super::Layer;

/// The properties of a run that its policy depends on.
#[derive(Clone, Debug)]
pub struct RunScope<'a> {
    pub provider: Option<&'a str>,
    /// Without the provider: `gpt-5`, not `openai/gpt-5`.
    pub model: Option<&'a str>,
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
pub fn layers(config: &PolicyConfig, run: &RunScope<'_>) -> Vec<Layer> {
    let scopes = config.scopes.iter();
    let own: Vec<(String, &Rules)> = scopes.clone().map(|scope| (scope.place.clone(), &scope.rules)).collect();
    let provider: Vec<(String, &Rules)> = scopes.clone().flat_map(|scope| for_provider(scope, run)).collect();

    let mut layers: Vec<Layer> = [profile(&own), profile(&provider)].into_iter().flatten().collect();
    for scope in scopes.clone() {
        layers.push(Layer { place: scope.place.clone(), lists: scope.rules.lists.clone() });
        let lists = for_provider(scope, run).into_iter();
        layers.extend(lists.map(|(place, rules)| Layer { place, lists: rules.lists.clone() }));
    }
    if run.sandboxed {
        layers.extend(
            scopes.map(|scope| Layer { place: format!("{}.sandbox.tools", scope.place), lists: scope.sandbox.clone() }),
        );
    }
    layers.push(Layer { place: "run".to_owned(), lists: run.lists.clone() });
    layers
}

/// Returns a scope's rules for the run's provider, then those for its provider and model.
fn for_provider<'c>(scope: &'c Scope, run: &RunScope<'_>) -> Vec<(String, &'c Rules)> {
    let Some(provider) = run.provider else { return Vec::new() };
    let place = Path::root(&scope.place).key("byProvider");
    let model = run.model.map(|model| format!("{provider}/{model}"));
    [Some(provider.to_owned()), model]
        .into_iter()
        .flatten()
        .filter_map(|key| Some((place.key(&key).to_string(), scope.by_provider.get(&key)?)))
        .collect()
}

/// Returns the layer of a profile: the last profile in `rules`, extended by the last `alsoAllow` in `rules`.
fn profile(rules: &[(String, &Rules)]) -> Option<Layer> {
    let (place, profile) = rules.iter().rev().find_map(|(place, rules)| Some((place, rules.profile.as_ref()?)))?;
    let also_allow = rules.iter().rev().find_map(|(_, rules)| rules.lists.also_allow.clone());
    let lists = Lists { allow: Some(profile.allow.clone()), also_allow, deny: Vec::new() };
    Some(Layer { place: format!("{place}.profile: {}", profile.name), lists })
}
