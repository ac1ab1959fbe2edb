//! The policy layers of one run, from the configuration and the run's scope.

use contract::config::Path;
use contract::config::policy::{Lists, PolicyConfig, Rules, Scope};

use super::Layer;

/// The properties of a run that its policy depends on.
#[derive(Clone, Debug)]
pub struct RunScope<'a> {
    pub provider: Option<&'a str>,
    /// Without the provider: `gpt-5`, not `openai/gpt-5`.
    pub model: Option<&'a str>,
    pub sandboxed: bool,
    /// The run's own lists; `Lists::default()` restricts nothing.
    pub lists: &'a Lists,
}

/// Returns the layers of a run: profile, provider's profile, then the lists: global, provider, agent, sandbox, run.
///
/// A narrower scope's profile replaces a broader one's, and so does its `alsoAllow` for that profile. Lists never
/// replace each other: each is a layer.
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

/// Returns a scope's rules for the run's provider, then those for its exact model.
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

/// Returns the last profile chosen, with the last additions made, as a layer.
fn profile(rules: &[(String, &Rules)]) -> Option<Layer> {
    let (place, profile) = rules.iter().rev().find_map(|(place, rules)| Some((place, rules.profile.as_ref()?)))?;
    let also_allow = rules.iter().rev().find_map(|(_, rules)| rules.lists.also_allow.clone());
    let lists = Lists { allow: Some(profile.allow.clone()), also_allow, deny: Vec::new() };
    Some(Layer { place: format!("{place}.profile: {}", profile.name), lists })
}
