//! What a commit survives.

/// How durable a commit is when it has returned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// The commit survives a power loss. Required before an effect that must not happen twice, and before a person is
    /// asked.
    #[default]
    Synced,
    /// The commit survives a crash of the process, but maybe not a power loss.
    Relaxed,
}
