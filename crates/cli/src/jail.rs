//! How a command that runs cells has its workers jailed.

use clap::{Args, ValueEnum};
use codemode::pool::{JailPolicy, Launch, PoolOptions};

#[derive(Debug, Args)]
pub(crate) struct JailArguments {
    /// What must stand between a cell's worker and this machine.
    #[arg(long, value_enum, default_value_t = JailArgument::Required)]
    jail: JailArgument,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum JailArgument {
    /// Landlock and seccomp, or nothing runs.
    Required,
    /// What this machine has.
    Preferred,
    /// Only the WebAssembly sandbox, for debugging.
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

    /// One worker is enough for one cell, whatever memory limit it has.
    pub(crate) fn pool(&self, memory_limit_bytes: u64) -> PoolOptions {
        let jail = self.policy();
        let options = PoolOptions::new(Launch::ThisProgram);
        PoolOptions { jail, workers: 1, slots: 4, threads: 2, memory_limit_bytes, ..options }
    }
}
