//! `--config`, as every command that reads configuration takes it.

use std::path::PathBuf;

use clap::Args;

use super::Places;

#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ConfigArguments {
    /// Read this file and no other of ours; may be given more than once. A client's own file will do.
    #[arg(long = "config", value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
}

impl ConfigArguments {
    pub(crate) fn places(&self) -> Places {
        Places::here(&self.files)
    }
}
