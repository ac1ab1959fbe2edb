//! `--config`, for every command that reads configuration.

use std::path::PathBuf;

use clap::Args;

use super::Places;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ConfigArguments {
    /// Use this configuration file instead of the default ones; other clients' files work. May be repeated.
    #[arg(long = "config", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

impl ConfigArguments {
    pub(crate) fn places(&self) -> Places {
        Places::here(&self.files)
    }
}
