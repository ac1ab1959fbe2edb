//! The check of what `cellmate gateway` needs: providers of models with their secrets, and agents with models.

use serde_json::{Value, json};

use crate::policy;
use crate::serve::Models;
use crate::state::ConfiguredStore;

/// What was found out about the models.
pub(super) struct GatewayCheck {
    pub(super) json: Value,
    pub(super) text: String,
    pub(super) is_ok: bool,
}

pub(super) fn check(store: &ConfiguredStore) -> GatewayCheck {
    match models(store) {
        Ok(models) => GatewayCheck { json: models.to_json(), text: models.summary(), is_ok: models.is_ok() },
        Err(why) => GatewayCheck { json: json!({"error": why}), text: why, is_ok: false },
    }
}

fn models(store: &ConfiguredStore) -> Result<Models, String> {
    let places = store.places();
    let loaded = client_config::load(&places).map_err(|error| error.to_string())?;
    let policy = policy::read(&loaded.settings).map_err(|error| error.to_string())?;
    Models::read(&loaded.settings, &policy.config, &places).map_err(|error| error.to_string())
}
