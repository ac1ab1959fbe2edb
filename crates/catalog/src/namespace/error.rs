//! The reasons why a namespace is not available, and how to fix them.

use contract::limits::{
    MAX_IDENTIFIER_BYTES, MAX_NAMESPACE_BYTES, MAX_NAMESPACE_DEPTH, MAX_NAMESPACE_VALUES, MAX_NAMESPACES,
};

use super::scope::ScopeFailure;

/// Names and paths in these errors are cleaned and shortened, because they may come from a cell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NamespaceError {
    // Errors of a registration.
    #[error(
        "`{0}` cannot be a global: use letters, digits, `_` and `$`, no digit first, at most {MAX_IDENTIFIER_BYTES}"
    )]
    NotAnIdentifier(String),
    #[error("`{0}` is a JavaScript keyword; choose another global name")]
    ReservedWord(String),
    #[error("`{0}` is already a global of every cell; choose another global name")]
    BuiltInGlobal(String),
    #[error("the global `{global}` belongs to the namespace `{owner}`; choose another or unregister that one")]
    GlobalTaken { global: String, owner: String },
    #[error("the namespace `{0}` is already registered; unregister it first")]
    DuplicateId(String),
    #[error("a registry holds at most {MAX_NAMESPACES} namespaces; unregister one, or merge two")]
    TooMany,

    // Errors of a scope.
    #[error("the scope of `{global}` could not be created; fix its plugin")]
    ScopeFailed {
        global: String,
        #[source]
        cause: ScopeFailure,
    },
    #[error("the scope of `{0}` must be an object; put its values under names")]
    NotAnObject(String),
    #[error("`{path}` has the unsafe key `{key}`; rename it")]
    UnsafeKey { path: String, key: String },
    #[error("`{path}` has the key `{key}` twice; rename one")]
    DuplicateKey { path: String, key: String },
    #[error("`{0}` must not be a function: `await` would call it; rename it")]
    Thenable(String),
    #[error("`{0}` nests deeper than {MAX_NAMESPACE_DEPTH} levels; flatten it")]
    TooDeep(String),
    #[error("`{0}` holds more than {MAX_NAMESPACE_VALUES} values; let a tool return them")]
    TooManyValues(String),
    #[error("`{0}` holds more than {MAX_NAMESPACE_BYTES} bytes of names and texts; let a tool return them")]
    TooLarge(String),
    #[error("`{path}` calls `{tool}`, which its namespace does not require; add it to the required tools")]
    UndeclaredTool { path: String, tool: String },

    // Errors of a call. An unknown path and a forged one give the same error.
    #[error("`{0}` is not a function of this run's namespaces")]
    NotCallable(String),
}
