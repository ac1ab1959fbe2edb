//! A type for each kind of id, so that they cannot be confused.

use std::fmt;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::tool::write_hex;

/// The id of a cell in a worker. The host assigns ids and never reuses one within a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CellId(pub u64);

/// The number of a host call within its cell, counting from 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub u32);

/// Declares an id that is text: it has the text's traits and coerces to `&str`, but is no other text.
macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Makes an id of a text.
            pub fn new(id: impl Into<String>) -> Self {
                Self(id.into())
            }

            /// Returns the text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Returns the text.
            pub fn into_string(self) -> String {
                self.0
            }
        }

        impl std::ops::Deref for $name {
            type Target = str;

            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl AsRef<str> for $name {
            fn as_ref(&self) -> &str {
                &self.0
            }
        }

        impl From<String> for $name {
            fn from(id: String) -> Self {
                Self(id)
            }
        }

        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self(id.to_owned())
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// The id of an agent's turn.
    TurnId
}

text_id! {
    /// The id of a run, as `exec` returns it and `wait` takes it.
    RunId
}

text_id! {
    /// The name of a stored output of a run, as results show it and `output.read` takes it: `out_<run>_<name>`.
    OutputHandle
}

impl OutputHandle {
    /// The bytes of the longest name of an output within its run.
    pub const MAX_NAME_BYTES: usize = 32;

    /// The bytes of a longer text than any handle.
    pub const MAX_BYTES: usize = 256;

    /// Returns the handle of a run's output. The name has lower-case letters and digits only.
    pub fn of(run: &RunId, name: &str) -> Self {
        Self(format!("out_{run}_{name}"))
    }

    /// Returns the run and the name within it; `None` if the text is not a handle.
    pub fn parts(&self) -> Option<(RunId, &str)> {
        let (run, name) = self.0.strip_prefix("out_")?.rsplit_once('_')?;
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_name = !name.is_empty() && name.len() <= Self::MAX_NAME_BYTES && name.bytes().all(is_plain);
        (is_name && !run.is_empty()).then(|| (RunId::new(run), name))
    }
}

text_id! {
    /// The id of a pending approval, as `cellmate approvals` shows it.
    ApprovalId
}

/// SHA-256 of a guest image before it is compiled. A snapshot can only be restored into the image it was taken of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageId(pub [u8; 32]);

/// SHA-256 of a catalog's tables. Workers and snapshots identify tables by it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CatalogHash(pub [u8; 32]);

impl CatalogHash {
    pub fn of(tables: &[u8]) -> Self {
        Self(Sha256::digest(tables).into())
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cell {}", self.0)
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Display for CatalogHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hex(&self.0, f)
    }
}

impl fmt::Debug for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageId({self})")
    }
}

impl fmt::Debug for CatalogHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CatalogHash({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::{OutputHandle, RunId};

    #[test]
    fn a_handle_names_its_run_and_its_output() {
        let run = RunId::new("cm_1a");
        let handle = OutputHandle::of(&run, "l3n0");
        assert_eq!((handle.as_str(), handle.parts()), ("out_cm_1a_l3n0", Some((run, "l3n0"))));
        for text in ["", "out_", "out_cm", "out__1", "cm_1a_l3n0", "out_cm_1a_", "out_cm_1a_L3", "out_cm_1a_../x"] {
            assert_eq!(OutputHandle::new(text).parts(), None, "{text}");
        }
    }
}
