//! The provider of a run's model, which `tools.byProvider` has rules for.

/// The provider and model of a run, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Provider {
    /// Not known, for example because another program talks to the model. The rules of all providers apply together.
    #[default]
    Unknown,
    Known {
        name: String,
        /// Without the provider: `gpt-5`, not `openai/gpt-5`.
        model: Option<String>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("write a provider as `NAME` or `NAME/MODEL`, as the keys of `tools.byProvider` are written")]
pub struct BadProvider;

impl Provider {
    /// Reads `NAME` or `NAME/MODEL`. The model may itself contain `/`.
    pub fn parse(text: &str) -> Result<Self, BadProvider> {
        let (name, model) = match text.split_once('/') {
            Some((name, model)) => (name, Some(model)),
            None => (text, None),
        };
        if name.is_empty() || model.is_some_and(str::is_empty) {
            return Err(BadProvider);
        }
        Ok(Self::Known { name: name.to_owned(), model: model.map(str::to_owned) })
    }

    /// Returns the keys of `byProvider` whose rules apply to a run of this provider: the provider's, then the model's.
    pub(super) fn keys(&self) -> Vec<String> {
        match self {
            Self::Unknown => Vec::new(),
            Self::Known { name, model } => {
                let model = model.as_ref().map(|model| format!("{name}/{model}"));
                [Some(name.clone()), model].into_iter().flatten().collect()
            }
        }
    }
}
