//! The fault that a test armed in this process, of which there is at most one, and how often each fault point was
//! reached.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{GATEWAY_POINTS, InjectedFault, POINTS};

static FAULT: Mutex<FaultState> = parking_lot::const_mutex(FaultState { armed: None, reached: BTreeMap::new() });

#[derive(Debug)]
struct FaultState {
    armed: Option<ArmedFault>,
    reached: BTreeMap<&'static str, u32>,
}

#[derive(Debug)]
struct ArmedFault {
    name: &'static str,
    /// How often the point must still be reached until the action happens.
    remaining: u32,
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

/// The text given to [`arm`] does not describe a fault.
#[derive(Debug, thiserror::Error)]
#[error(
    "invalid fault `{0}`; expected `NAME:HIT:kill`, `NAME:HIT:sleep=MS` or `NAME:HIT:error`, with a name from POINTS \
     or GATEWAY_POINTS"
)]
pub struct InvalidFault(String);

/// Arms one fault point, and disarms any other. In `NAME:HIT:ACTION`, `HIT` counts from 1: with 2, the action happens
/// when the point is reached for the second time. Has no effect in a simulated thread.
pub fn arm(text: &str) -> Result<(), InvalidFault> {
    let invalid = || InvalidFault(text.to_owned());
    let mut parts = text.split(':');
    let (Some(name), Some(hit), Some(action), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return Err(invalid());
    };
    let name = POINTS.into_iter().chain(GATEWAY_POINTS).find(|point| *point == name).ok_or_else(invalid)?;
    let remaining = hit.parse().ok().filter(|hit| *hit > 0).ok_or_else(invalid)?;
    let action = match action.split_once('=') {
        None if action == "kill" => Action::Kill,
        None if action == "error" => Action::Fail,
        Some(("sleep", ms)) => Action::Sleep(Duration::from_millis(ms.parse().map_err(|_| invalid())?)),
        _ => return Err(invalid()),
    };
    FAULT.lock().armed = Some(ArmedFault { name, remaining, action });
    Ok(())
}

/// Returns how often each fault point was reached, without those that never were. A simulated thread counts nothing.
pub fn reached() -> BTreeMap<&'static str, u32> {
    FAULT.lock().reached.clone()
}

/// Counts that a fault point was reached, and performs the armed action if it is due.
pub(super) fn reach(name: &'static str) -> Result<(), InjectedFault> {
    let action = {
        let mut fault = FAULT.lock();
        *fault.reached.entry(name).or_default() += 1;
        match &mut fault.armed {
            Some(armed) if armed.name == name => {
                armed.remaining -= 1;
                let action = armed.action;
                if armed.remaining == 0 {
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
