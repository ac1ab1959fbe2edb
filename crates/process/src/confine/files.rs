//! Landlock: files, TCP, signals and abstract sockets.

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::fs::fstat;

use super::{Confinement, DEVICES, Folder, Network, SYSTEM_READABLE, Support};

/// The newest rights that this program knows. The kernel enforces those that it knows too.
const NEWEST: ABI = ABI::V9;

/// Tries to create rulesets, without applying them.
pub(super) fn support() -> Result<Support, String> {
    let required = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    required
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(Ruleset::create)
        .map_err(|_| "this kernel has no Landlock (Linux 5.13 or later, with `landlock` among its `lsm`)".to_owned())?;
    let scopes = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).scope(Scope::from_all(ABI::V6));
    Ok(Support { scopes: scopes.and_then(Ruleset::create).is_ok() })
}

/// Whether Landlock restricts `truncate` (Linux 6.2). If not, seccomp must deny it.
pub(super) fn restricts_truncation() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.handle_access(AccessFs::Truncate).and_then(Ruleset::create).is_ok()
}

/// Denies this process all files but those of the confinement.
///
/// File access as of Linux 5.13 is required; what later kernels add (truncation, device controls, TCP, signals, sockets)
/// is applied where it exists.
pub(super) fn restrict(confinement: &Confinement) -> Result<(), String> {
    let refused = |error: landlock::RulesetError| format!("cannot apply Landlock: {error}");
    let mut ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .map_err(refused)?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))
        .map_err(refused)?
        .scope(Scope::from_all(NEWEST))
        .map_err(refused)?;
    if confinement.network == Network::Denied {
        ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST)).map_err(refused)?;
    }
    let device = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Truncate | AccessFs::IoctlDev;
    let mut ruleset = ruleset
        .create()
        .map_err(refused)?
        .add_rules(path_beneath_rules(SYSTEM_READABLE, AccessFs::from_read(NEWEST)))
        .map_err(refused)?
        .add_rules(path_beneath_rules(DEVICES, device))
        .map_err(refused)?;
    for (folders, access) in [(&confinement.readable, AccessFs::from_read(NEWEST)), (&confinement.writable, changes())]
    {
        for folder in folders {
            ruleset = ruleset.add_rule(PathBeneath::new(open(folder)?, access)).map_err(refused)?;
        }
    }
    match ruleset.restrict_self().map_err(refused)?.ruleset {
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(()),
        RulesetStatus::NotEnforced => Err("cannot apply Landlock: this kernel does not enforce it".to_owned()),
    }
}

/// Everything in a folder, except devices and sockets.
fn changes() -> BitFlags<AccessFs> {
    AccessFs::from_all(NEWEST)
        & !(AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev | AccessFs::ResolveUnix)
}

fn open(folder: &Folder) -> Result<PathFd, String> {
    let shown = folder.path.display();
    let opened = PathFd::new(&folder.path).map_err(|error| format!("cannot open the folder `{shown}`: {error}"))?;
    let found = fstat(&opened).map_err(|error| format!("cannot read the folder `{shown}`: {error}"))?;
    if (found.st_dev, found.st_ino) != (folder.device, folder.inode) {
        return Err(format!("another folder has taken the place of `{shown}`; restart Cellmate to use that one"));
    }
    Ok(opened)
}
