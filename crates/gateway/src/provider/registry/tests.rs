use contract::config::ModelsConfig;
use serde_json::{Value, json};
use telemetry::Redactor;
use wire::upstream::Quirks;

use super::{DebugSettings, Providers};

fn create(providers: &Value) -> Result<Providers, Vec<String>> {
    let config = ModelsConfig::resolve(&json!({"providers": providers})).unwrap();
    let expand = |text: &str| match text {
        "${KEY}" => Ok("value-of-the-key".to_owned()),
        "${UNSET}" => Err("environment variable `UNSET` is not set".to_owned()),
        text => Ok(text.to_owned()),
    };
    let created = Providers::new(&config, &expand, DebugSettings::default());
    created.map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn provider(more: &Value) -> Value {
    let mut provider = json!({"baseUrl": "https://api.example/v1", "api": "chat"});
    provider.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    provider
}

#[test]
fn errors_name_the_setting_and_not_its_value() {
    let cases = [
        (json!({"apiKey": "${UNSET}"}), "`models.providers.p.apiKey`: environment variable `UNSET` is not set"),
        (
            json!({"apiKey": "secret\nkey-1"}),
            "`models.providers.p.apiKey`: the value contains characters that a header cannot have",
        ),
        (json!({"headers": {"x y": "secret-2"}}), "`models.providers.p.headers`: `x y` is not the name of a header"),
        (
            json!({"headers": {"Host": "secret-3"}}),
            "`models.providers.p.headers`: `Host` cannot be set, because the gateway sets it itself; remove it",
        ),
        (
            json!({"baseUrl": "http://api.example"}),
            "`models.providers.p.baseUrl`: prompts and keys would be sent unencrypted to a public host; use https",
        ),
        (
            json!({"baseUrl": "https://me:secret-4@api.example"}),
            "`models.providers.p.baseUrl`: it contains a user name or password; write credentials as `apiKey` or in `headers`",
        ),
    ];
    for (more, expected) in cases {
        assert_eq!(create(&json!({"p": provider(&more)})).unwrap_err(), [expected]);
    }
    let wrong = provider(&json!({"apiKey": "${UNSET}"}));
    assert_eq!(create(&json!({"a": wrong, "b": wrong})).unwrap_err().len(), 2);
}

#[test]
fn keys_and_headers_are_hidden_from_the_log() {
    let more = json!({"apiKey": "${KEY}", "headers": {"X-Auth": "Token header-secret-7"}});
    let providers = create(&json!({"p": provider(&more)})).unwrap();
    for secret in ["value-of-the-key", "header-secret-7"] {
        assert_eq!(Redactor::global().redact(secret), "[redacted]");
        assert!(!format!("{providers:?}{:?}", providers.target("p/m")).contains(secret));
    }
}

#[test]
fn a_target_is_found_only_for_a_configured_provider() {
    let models = json!([{"id": "a/b", "contextWindow": 10}]);
    let providers = create(&json!({"p": provider(&json!({"models": models})), "q": provider(&json!({}))})).unwrap();
    assert_eq!(providers.ids().collect::<Vec<_>>(), ["p", "q"]);
    let target = providers.target("P/a/b").unwrap();
    assert_eq!((target.model.as_str(), target.context_window, target.max_tokens), ("a/b", Some(10), None));
    assert_eq!(providers.target("p/other").unwrap().context_window, None);
    assert!(providers.target("r/x").is_none() && providers.target("p").is_none());
    assert!(providers.target("https://evil.example/v1/m").is_none());
}

#[test]
fn every_quirk_of_the_configuration_is_the_one_of_the_same_name() {
    let all = serde_json::to_value(Quirks::default()).unwrap();
    for name in all.as_object().unwrap().keys() {
        let given = provider(&json!({"quirks": {name: true}}));
        let quirks = create(&json!({"p": given})).unwrap().target("p/m").unwrap().provider.quirks();
        let mut expected = all.clone();
        expected[name] = json!(true);
        assert_eq!(serde_json::to_value(quirks).unwrap(), expected);
    }
}
