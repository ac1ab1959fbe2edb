//! The one armed fault point and its action.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{InjectedFault, POINTS};

static FAULT: Mutex<Fault> = parking_lot::const_mutex(Fault { armed: None, reached: BTreeMap::new() });

#[derive(Debug)]
struct Fault {
    armed: Option<Armed>,
    reached: BTreeMap<&'static str, u32>,
}

#[derive(Debug)]
struct Armed {
    name: &'static str,
    /// Hits that remain until the action happens.
    left: u32,
    action: Action,
}

#[derive(Clone, Copy, Debug)]
enum Action {
    /// Kill the process with SIGKILL, without any cleanup.
    Kill,
    /// Block the thread for this long.
    Sleep(Duration),
    /// Return an error.
    Fail,
}

/// The text given to [`arm`] is not a fault.
#[derive(Debug, thiserror::Error)]
#[error(
    "invalid fault `{0}`; expected `NAME:HIT:kill`, `NAME:HIT:sleep=MS` or `NAME:HIT:error`, with a name from POINTS"
)]
pub struct Unarmed(String);

/// Arms one fault point. The text gives its name, the hit that triggers it, and the action.
pub fn arm(text: &str) -> Result<(), Unarmed> {
    let unarmed = || Unarmed(text.to_owned());
    let mut parts = text.split(':');
    let (Some(name), Some(hit), Some(action), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(unarmed());
    };
    let name = POINTS.into_iter().find(|point| *point == name).ok_or_else(unarmed)?;
    let left = hit.parse().ok().filter(|hit| *hit > 0).ok_or_else(unarmed)?;
    let action = match action.split_once('=') {
        None if action == "kill" => Action::Kill,
        None if action == "error" => Action::Fail,
        Some(("sleep", ms)) => Action::Sleep(Duration::from_millis(ms.parse().map_err(|_| unarmed())?)),
        _ => return Err(unarmed()),
    };
    FAULT.lock().armed = Some(Armed { name, left, action });
    Ok(())
}

/// Returns the points that were reached so far, and how often each.
pub fn reached() -> BTreeMap<&'static str, u32> {
    FAULT.lock().reached.clone()
}

pub(super) fn hit(name: &'static str) -> Result<(), InjectedFault> {
    let action = {
        let mut fault = FAULT.lock();
        *fault.reached.entry(name).or_default() += 1;
        match &mut fault.armed {
            Some(armed) if armed.name == name => {
                armed.left -= 1;
                let action = armed.action;
                if armed.left == 0 {
                    fault.armed = None;
                    Some(action)
                } else {
                    None
                }
            }
            _ => None,
        }
    };
    match action {
        None => Ok(()),
        Some(Action::Kill) => kill(),
        Some(Action::Sleep(time)) => {
            std::thread::sleep(time);
            Ok(())
        }
        Some(Action::Fail) => Err(InjectedFault(name)),
    }
}

fn kill() -> ! {
    // Cannot fail: a process may always kill itself.
    let _ended = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    loop {
        std::thread::park();
    }
}
