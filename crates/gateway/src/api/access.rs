//! Who may use a route, and what of the store a caller may see.

use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use contract::ids::TurnId;
use contract::scope::Scope;
use http_server::{Caller, Permission};
use store::{INVOKE_RUN, MCP_SESSION, Store, StoreError};

use super::error::ApiError;

/// The permission that a route needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequiredPermission {
    /// Any valid token.
    Token,
    One(Permission),
    /// Either of two.
    Either(Permission, Permission),
}

impl RequiredPermission {
    /// Returns the permissions of which a caller must have one; none if any token will do.
    pub(crate) fn permissions(self) -> Vec<Permission> {
        match self {
            Self::Token => Vec::new(),
            Self::One(permission) => vec![permission],
            Self::Either(first, second) => vec![first, second],
        }
    }

    /// Checks that the caller's token has the permission. This is the only place that does.
    pub(crate) fn check(self, caller: &Caller) -> Result<(), ApiError> {
        let needed = self.permissions();
        let mut refusal = None;
        for permission in &needed {
            match caller.require(*permission) {
                Ok(()) => return Ok(()),
                Err(why) => refusal = Some(why),
            }
        }
        let message = match (refusal, needed.as_slice()) {
            (None, _) => return Ok(()),
            (Some(_), [first, second]) => {
                let (first, second) = (first.as_str(), second.as_str());
                format!("this token has neither the permission `{first}` nor `{second}`; use one with either")
            }
            (Some(why), _) => why.to_string(),
        };
        Err(ApiError::new(StatusCode::FORBIDDEN, "permission_denied", message))
    }
}

/// The caller of a request, and what it may see: its own things or, with the permission `admin`, all.
#[derive(Clone, Debug)]
pub(crate) struct Viewer {
    pub(crate) caller: Caller,
}

impl Viewer {
    pub(crate) fn principal(&self) -> &str {
        self.caller.principal.name()
    }

    pub(crate) fn sees_all(&self) -> bool {
        self.caller.permissions.has(Permission::Admin)
    }

    /// Returns the only principal whose things the caller sees; `None` if it sees all.
    pub(crate) fn only(&self) -> Option<&str> {
        (!self.sees_all()).then(|| self.principal())
    }

    /// Whether the caller sees what belongs to this principal; `None` belongs to no principal.
    pub(crate) fn sees(&self, owner: Option<&str>) -> bool {
        self.sees_all() || owner == Some(self.principal())
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Viewer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Caller>().cloned();
        caller.map(|caller| Self { caller }).ok_or_else(no_token)
    }
}

/// Returns the error for a request that `http_server` has not authenticated.
pub(crate) fn no_token() -> ApiError {
    ApiError::new(StatusCode::UNAUTHORIZED, "unauthorized", "missing or invalid token")
}

/// Returns the principal that a run of this scope belongs to. It agrees with the lists of the store.
pub(crate) async fn owner(store: &Store, scope: &Scope) -> Result<Option<String>, StoreError> {
    if let Some(principal) = scope.session_id.strip_prefix(MCP_SESSION) {
        return Ok(Some(principal.to_owned()));
    }
    if let Some(principal) = scope.agent_run_id.strip_prefix(INVOKE_RUN) {
        return Ok(Some(principal.to_owned()));
    }
    if scope.agent_run_id.is_empty() {
        return Ok(None);
    }
    Ok(store.turn(&TurnId::new(scope.agent_run_id.clone())).await?.map(|turn| turn.principal))
}
