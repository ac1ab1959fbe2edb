//! The tools of this process itself, as the configuration enables them: core tools and plugins.

use std::sync::Arc;

use ::tools::core::CoreTools;
use executor::run::LocalTools;

use crate::policy::CallPolicy;

/// Returns the core tools and plugins that the user enabled.
pub(crate) fn local_tools(policy: &CallPolicy) -> LocalTools {
    LocalTools { sources: vec![Arc::new(CoreTools::new(policy.config.core_tools()))], ..LocalTools::default() }
}
