//! Arguments that several commands share: `--config`, `--scope`, `--provider`, `--surface` and `--jail`.

use std::path::PathBuf;
use std::sync::Arc;

use catalog::SurfaceChoice;
use catalog::policy::Provider;
use clap::{Args, ValueEnum};
use client_config::{Places, Scope};
use codemode::pool::{JailPolicy, Launch, PoolOptions};

use crate::secrets::StoredSecrets;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ConfigArguments {
    /// Use this configuration file instead of the default ones; other clients' files work. May be repeated.
    #[arg(long = "config", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

impl ConfigArguments {
    pub(crate) fn places(&self) -> Places {
        places_here(&self.files)
    }
}

/// Which of the policy's rules apply to a run, besides its agent's.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PolicyArguments {
    /// Apply the rules of `tools.byProvider` for this model; without it, the rules of all providers apply together.
    #[arg(long, value_name = "NAME[/MODEL]", value_parser = Provider::parse)]
    provider: Option<Provider>,
    /// Apply the rules of `tools.sandbox.tools`, for an agent whose own tools run in a sandbox.
    #[arg(long)]
    pub(crate) sandboxed: bool,
}

impl PolicyArguments {
    pub(crate) fn is_given(&self) -> bool {
        self.provider.is_some() || self.sandboxed
    }

    pub(crate) fn provider(&self) -> Provider {
        self.provider.clone().unwrap_or_default()
    }
}

/// The value of `--surface`: how tools are shown to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SurfaceArgument {
    /// `exec` and `wait`: the model writes cells that call the tools.
    Code,
    /// The controls of Tool Search, in the mode of `tools.toolSearch`.
    Search,
    /// The tools themselves.
    Direct,
    /// The tools themselves if they are few and small, else code.
    Auto,
}

impl From<SurfaceArgument> for SurfaceChoice {
    fn from(argument: SurfaceArgument) -> Self {
        match argument {
            SurfaceArgument::Code => Self::Code,
            SurfaceArgument::Search => Self::Search,
            SurfaceArgument::Direct => Self::Direct,
            SurfaceArgument::Auto => Self::Auto,
        }
    }
}

/// Returns the places for this process, with the user's secrets.
pub(crate) fn places_here(files: &[PathBuf]) -> Places {
    let places = Places::here(files);
    let secrets = StoredSecrets::new(places.clone());
    places.with_secrets(Arc::new(secrets))
}

/// The value of `--scope`: whose configuration a command changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ScopeArgument {
    User,
    #[value(alias = "local")]
    Project,
}

impl From<ScopeArgument> for Scope {
    fn from(argument: ScopeArgument) -> Self {
        match argument {
            ScopeArgument::User => Self::User,
            ScopeArgument::Project => Self::Project,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct JailArguments {
    /// Required sandbox level.
    #[arg(long, value_enum, default_value_t = JailArgument::Required)]
    jail: JailArgument,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum JailArgument {
    /// Landlock and seccomp; refuse to run without them.
    Required,
    /// The protections that this machine supports.
    Preferred,
    /// Only the WebAssembly sandbox; for debugging.
    Off,
}

impl JailArguments {
    pub(crate) fn policy(&self) -> JailPolicy {
        match self.jail {
            JailArgument::Required => JailPolicy::Required,
            JailArgument::Preferred => JailPolicy::Preferred,
            JailArgument::Off => JailPolicy::Off,
        }
    }

    /// Returns the options of a pool for one cell: one worker is enough.
    pub(crate) fn pool(&self, memory_limit_bytes: u64) -> PoolOptions {
        let jail = self.policy();
        let options = PoolOptions::new(Launch::ThisProgram);
        PoolOptions { jail, workers: 1, slots: 4, threads: 2, memory_limit_bytes, ..options }
    }
}
