//! The permissions of a token.

use std::fmt;

/// A permission that a token may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Permission {
    /// Run turns and tools, and call `/mcp`.
    Execute,
    /// Decide approvals.
    Approve,
    /// See runs, sessions and transcripts.
    Read,
    /// Manage the server.
    Admin,
}

impl Permission {
    pub const ALL: [Self; 4] = [Self::Execute, Self::Approve, Self::Read, Self::Admin];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Execute => "execute",
            Self::Approve => "approve",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }

    /// Returns what the permission allows, as the end of a sentence such as "the token may not …".
    pub(crate) fn action(self) -> &'static str {
        match self {
            Self::Execute => "run turns or tools",
            Self::Approve => "decide approvals",
            Self::Read => "see runs, sessions or transcripts",
            Self::Admin => "manage the server",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of permissions. None of them implies another: a token that may execute cannot approve its own calls.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Scopes(u8);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a list of permissions separated by commas; the permissions are execute, approve, read and admin")]
pub struct BadScopes;

impl Scopes {
    pub fn all() -> Self {
        Permission::ALL.into_iter().collect()
    }

    /// Returns the permissions that an agent needs: to execute, and to read its own runs.
    pub fn of_agents() -> Self {
        [Permission::Execute, Permission::Read].into_iter().collect()
    }

    /// Parses `execute,read`.
    pub fn parse(text: &str) -> Result<Self, BadScopes> {
        let find = |name: &str| {
            Permission::ALL.into_iter().find(|permission| permission.as_str() == name.trim()).ok_or(BadScopes)
        };
        text.split(',').map(find).collect()
    }

    pub fn has(self, permission: Permission) -> bool {
        self.0 & permission.bit() != 0
    }

    pub fn iter(self) -> impl Iterator<Item = Permission> {
        Permission::ALL.into_iter().filter(move |permission| self.has(*permission))
    }
}

impl FromIterator<Permission> for Scopes {
    fn from_iter<I: IntoIterator<Item = Permission>>(permissions: I) -> Self {
        Self(permissions.into_iter().fold(0, |bits, permission| bits | permission.bit()))
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Permission::as_str).collect();
        f.write_str(&names.join(","))
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scopes({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::{BadScopes, Permission, Scopes};

    #[test]
    fn scopes_are_written_as_they_are_read_and_no_permission_implies_another() {
        for text in ["execute", "approve", "read", "admin", "execute,read", "execute,approve,read,admin"] {
            let scopes = Scopes::parse(text).unwrap();
            assert_eq!(scopes.to_string(), text);
            assert_eq!(scopes.iter().count(), text.split(',').count());
        }
        assert_eq!(Scopes::parse(" read , execute,read"), Scopes::parse("execute,read"));
        assert_eq!(Scopes::all(), Permission::ALL.into_iter().collect());
        for bad in ["", ",", "execute,", "Execute", "all", "execute;read", "exec\0ute"] {
            assert_eq!(Scopes::parse(bad), Err(BadScopes), "{bad}");
        }
        assert!(!Scopes::default().has(Permission::Read));
    }
}
