//! `--jail`: how commands that run cells confine their workers.

use clap::{Args, ValueEnum};
use codemode::pool::{JailPolicy, Launch, PoolOptions};

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
