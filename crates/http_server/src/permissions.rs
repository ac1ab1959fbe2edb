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
    /// Use the other permissions for the runs, turns and approvals of all principals.
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

    /// Returns what the permission allows, as a verb phrase for messages such as "the token may not …".
    pub(crate) fn action(self) -> &'static str {
        match self {
            Self::Execute => "run turns or tools",
            Self::Approve => "decide approvals",
            Self::Read => "see runs, sessions or transcripts",
            Self::Admin => "see or decide what belongs to other principals",
        }
    }

    fn bit(self) -> u8 {
        1 << self as u8
    }
}

/// A set of permissions. None of them implies another: a token that may execute cannot approve its own calls.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Permissions(u8);

/// The error that a text is not a list of permissions.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a list of permissions separated by commas; the permissions are execute, approve, read and admin")]
pub struct BadPermissions;

impl Permissions {
    pub fn all() -> Self {
        Permission::ALL.into_iter().collect()
    }

    /// Returns the permissions that an agent needs: to execute and to read. `gateway::api` limits readers without
    /// `admin` to the runs of their own principal.
    pub fn for_agents() -> Self {
        [Permission::Execute, Permission::Read].into_iter().collect()
    }

    /// Parses a comma-separated list such as `execute,read`.
    pub fn parse(text: &str) -> Result<Self, BadPermissions> {
        let find = |name: &str| {
            Permission::ALL.into_iter().find(|permission| permission.as_str() == name.trim()).ok_or(BadPermissions)
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

impl FromIterator<Permission> for Permissions {
    fn from_iter<I: IntoIterator<Item = Permission>>(permissions: I) -> Self {
        Self(permissions.into_iter().fold(0, |bits, permission| bits | permission.bit()))
    }
}

impl fmt::Display for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Permission::as_str).collect();
        f.write_str(&names.join(","))
    }
}

impl fmt::Debug for Permissions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Permissions({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::{BadPermissions, Permission, Permissions};

    #[test]
    fn parse_and_display_round_trip_and_invalid_lists_are_rejected() {
        for text in ["execute", "approve", "read", "admin", "execute,read", "execute,approve,read,admin"] {
            let permissions = Permissions::parse(text).unwrap();
            assert_eq!(permissions.to_string(), text);
            assert_eq!(permissions.iter().count(), text.split(',').count());
        }
        assert_eq!(Permissions::parse(" read , execute,read"), Permissions::parse("execute,read"));
        assert_eq!(Permissions::all(), Permission::ALL.into_iter().collect());
        for bad in ["", ",", "execute,", "Execute", "all", "execute;read", "exec\0ute"] {
            assert_eq!(Permissions::parse(bad), Err(BadPermissions), "{bad}");
        }
        assert!(!Permissions::default().has(Permission::Read));
    }
}
