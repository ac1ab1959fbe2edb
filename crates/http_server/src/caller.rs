//! The authenticated sender of a request.

use tokio_util::sync::CancellationToken;

use crate::permissions::{Permission, Permissions};
use crate::principal::Principal;
use crate::refusal::Refusal;

/// The authenticated sender of a request. The request gate puts it into the request's extensions.
#[derive(Clone, Debug)]
pub struct Caller {
    pub principal: Principal,
    /// The id or name of the token, for logs. It is no secret.
    pub token: String,
    pub permissions: Permissions,
    /// Cancelled when the token is revoked or expires. The request gate then closes the caller's connections; work that
    /// outlives its connection must watch it itself.
    pub revoked: CancellationToken,
}

impl Caller {
    /// Returns a caller whose token cannot be revoked while the server runs.
    pub(crate) fn permanent(principal: Principal, permissions: Permissions) -> Self {
        Self { token: principal.name().to_owned(), principal, permissions, revoked: CancellationToken::new() }
    }

    /// Checks that the caller's token has this permission. For things whose existence must not be revealed, map the
    /// error to [`Refusal::NotFound`].
    pub fn require(&self, permission: Permission) -> Result<(), Refusal> {
        if self.permissions.has(permission) { Ok(()) } else { Err(Refusal::Permission(permission)) }
    }
}
