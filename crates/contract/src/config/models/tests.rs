use serde_json::{Value, json};

use super::{ModelApi, ModelsConfig, ProviderQuirks, QUIRKS};

fn errors(models: &Value) -> Vec<String> {
    ModelsConfig::resolve(models).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn a_provider_of_openclaw_is_read() {
    let config = ModelsConfig::resolve(&json!({
        "mode": "merge",
        "providers": {
            "local": {
                "baseUrl": "http://127.0.0.1:11434/v1",
                "apiKey": {"source": "env", "provider": "default", "id": "LOCAL_KEY"},
                "api": "openai-completions",
                "authHeader": true,
                "headers": {"x-team": "${TEAM}"},
                "models": [{"id": "qwen3:8b", "name": "Qwen", "reasoning": false, "input": ["text"],
                    "cost": {"input": 0}, "contextWindow": 131072, "maxTokens": 8192}],
            },
            "google": {"baseUrl": "https://g.example", "api": "google-generative-ai", "models": []},
        },
    }))
    .unwrap();
    assert_eq!(config.providers.len(), 1);
    let local = &config.providers["local"];
    assert_eq!((local.api, local.streams, local.timeout_seconds), (ModelApi::Chat, true, 300));
    assert_eq!(local.api_key.as_deref(), Some("${LOCAL_KEY}"));
    assert_eq!(local.headers["x-team"], "${TEAM}");
    let model = &local.models[0];
    assert_eq!((model.context_window, model.max_tokens), (Some(131_072), Some(8_192)));
    assert!(!local.allow_private && local.extra.is_empty() && local.quirks == ProviderQuirks::default());
}

#[test]
fn every_name_of_an_api_is_accepted() {
    for (word, api) in ModelApi::WORDS {
        let models = json!({"providers": {"p": {"baseUrl": "https://p.example", "api": word}}});
        assert_eq!(ModelsConfig::resolve(&models).unwrap().providers["p"].api, api, "{word}");
    }
    assert_eq!(ModelsConfig::resolve(&Value::Null).unwrap(), ModelsConfig::default());
}

#[test]
fn every_quirk_has_a_key_of_its_own() {
    let quirks_with = |key: &str| {
        let provider = json!({"baseUrl": "https://p.example", "api": "chat", "quirks": {key: true}});
        ModelsConfig::resolve(&json!({"providers": {"p": provider}})).unwrap().providers["p"].quirks
    };
    let all: Vec<ProviderQuirks> = QUIRKS.iter().map(|(key, _)| quirks_with(key)).collect();
    for (position, quirks) in all.iter().enumerate() {
        assert_ne!(*quirks, ProviderQuirks::default(), "{}", QUIRKS[position].0);
        assert!(!all[..position].contains(quirks), "{}", QUIRKS[position].0);
    }
}

#[test]
fn errors_have_paths_and_show_no_secrets() {
    let found = errors(&json!({"providers": {
        "a": {"baseUrl": "ftp://me:secret-1@x", "api": "openai-completion", "apiKey": ["secret-2"]},
        "b": {"headers": {"x": {"source": "file", "id": "secret-3"}}, "stream": 1, "apikey": "secret-4"},
        "c": {"baseUrl": "https://c.example", "api": "chat", "models": [{"name": "n"}, {"id": ""}], "quirks": {"x": true},
            "extra": {"tools": [], "temperature": 0}, "timeoutSeconds": "5"},
        "d": 7,
    }}));
    let reference = "a string such as `${secret:NAME}` or `${VARIABLE}`";
    let hidden = "another value, which may be a secret and is not shown";
    assert_eq!(
        found,
        [
            format!("`models.providers.a.baseUrl`: expected an http or https address, found {hidden}").as_str(),
            format!("`models.providers.a.apiKey`: expected {reference}, found {hidden}").as_str(),
            "`models.providers.a.api`: expected one of `openai-completions`, `openai-responses`, `anthropic-messages`, \
             `chat`, `responses`, `messages`, found `\"openai-completion\"`; did you mean `openai-completions`?",
            "`models.providers.b.baseUrl`: expected the address of the provider's API, found `null`",
            "`models.providers.b.api`: expected the API that the provider speaks, found `null`",
            format!("`models.providers.b.headers.x`: expected {reference}, found {hidden}").as_str(),
            "`models.providers.b.stream`: expected `true` or `false`, found `1`",
            "`models.providers.b.apikey`: unknown key; did you mean `apiKey`?",
            "`models.providers.c.models[0].id`: expected the model's id, found `null`",
            "`models.providers.c.models[1].id`: expected the model's id, found `\"\"`",
            "`models.providers.c.timeoutSeconds`: expected a whole number from 1 to 3600, found `\"5\"`",
            "`models.providers.c.quirks.x`: unknown key; known keys are `maxTokens`, `developerRole`, `reasoningContent`, \
             `noStreamOptions`, `systemMessages`, `noCacheControl`",
            "`models.providers.c.extra.tools`: expected no tools here (`tools` decides which tools a run has), found a list",
            "`models.providers.d`: expected an object, found `7`",
        ]
    );
    let provider =
        json!({"baseUrl": "https://me:secret-5@x", "apiKey": "secret-6", "api": "chat", "headers": {"a": "secret-7"}});
    let shown = format!("{:?}", ModelsConfig::resolve(&json!({"providers": {"p": provider}})).unwrap());
    assert!(!shown.contains("secret"), "{shown}");
}

#[test]
fn a_model_is_found_by_provider_and_id() {
    let provider = json!({"baseUrl": "https://p.example", "api": "chat"});
    let config = ModelsConfig::resolve(&json!({"providers": {"OpenRouter": provider}})).unwrap();
    let found = |name: &str| config.find(name).map(|(id, _, model)| format!("{id} {model}"));
    assert_eq!(found("openrouter/meta/llama-4").as_deref(), Some("OpenRouter meta/llama-4"));
    for name in ["openrouter", "openrouter/", "other/m", "", "/"] {
        assert_eq!(found(name), None, "{name}");
    }
}
