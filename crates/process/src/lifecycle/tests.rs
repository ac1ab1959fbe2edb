use std::time::{Duration, Instant};

use super::{Action, Event, Lifecycle, Phase, Restart};

const EVENTS: [Event; 8] = [
    Event::Needed,
    Event::ForceStart,
    Event::Started,
    Event::StartFailed,
    Event::Ended,
    Event::Idle,
    Event::Stop,
    Event::Retire,
];

const SECOND: Duration = Duration::from_secs(1);

fn restart() -> Restart {
    Restart {
        first_wait: SECOND,
        max_wait: 10 * SECOND,
        give_up_after: 3,
        retry_given_up_after: 100 * SECOND,
        healthy_after: 60 * SECOND,
    }
}

fn lifecycle_in(phase: Phase, failures: u32) -> Lifecycle {
    Lifecycle { phase, failures, started_before: true, ..Lifecycle::new(restart()) }
}

/// Every event in every phase, before and after the time that the phase waits for.
#[test]
fn every_event_in_every_phase_does_what_the_table_says() {
    let now = Instant::now();
    let (later, earlier) = (now + 5 * SECOND, now.checked_sub(5 * SECOND).unwrap_or(now));
    let running = Phase::Running { since: now };
    let backing_off = Phase::BackingOff { until: later };
    let failed = Phase::Failed { until: later };
    let after_one = Phase::BackingOff { until: now + SECOND };
    let start = (Phase::Starting, Action::Start);
    let (stop, retire) = ((Phase::Stopped, Action::Disconnect), (Phase::Retired, Action::Disconnect));
    let stays = |phase| (phase, Action::Nothing);
    let retired = stays(Phase::Retired);
    let over_backing = Phase::BackingOff { until: earlier };
    let over_failed = Phase::Failed { until: earlier };
    // In the order of EVENTS.
    let table = [
        (
            Phase::Stopped,
            [
                start,
                start,
                stays(Phase::Stopped),
                stays(Phase::Stopped),
                stays(Phase::Stopped),
                stays(Phase::Stopped),
                stays(Phase::Stopped),
                retired,
            ],
        ),
        (
            Phase::Starting,
            [
                stays(Phase::Starting),
                stays(Phase::Starting),
                stays(running),
                stays(after_one),
                stays(Phase::Starting),
                stays(Phase::Starting),
                stop,
                retire,
            ],
        ),
        (
            running,
            [stays(running), stays(running), stays(running), stays(running), stays(after_one), stop, stop, retire],
        ),
        (
            backing_off,
            [
                (backing_off, Action::WaitUntil(later)),
                start,
                stays(backing_off),
                stays(backing_off),
                stays(backing_off),
                stays(backing_off),
                stays(Phase::Stopped),
                retired,
            ],
        ),
        (
            over_backing,
            [
                start,
                start,
                stays(over_backing),
                stays(over_backing),
                stays(over_backing),
                stays(over_backing),
                stays(Phase::Stopped),
                retired,
            ],
        ),
        (
            failed,
            [
                (failed, Action::Refuse),
                start,
                stays(failed),
                stays(failed),
                stays(failed),
                stays(failed),
                stays(Phase::Stopped),
                retired,
            ],
        ),
        (
            over_failed,
            [
                start,
                start,
                stays(over_failed),
                stays(over_failed),
                stays(over_failed),
                stays(over_failed),
                stays(Phase::Stopped),
                retired,
            ],
        ),
        (
            Phase::Retired,
            [
                (Phase::Retired, Action::Refuse),
                (Phase::Retired, Action::Refuse),
                retired,
                retired,
                retired,
                retired,
                retired,
                retired,
            ],
        ),
    ];
    for (phase, expected) in table {
        for (event, expected) in EVENTS.into_iter().zip(expected) {
            let mut lifecycle = lifecycle_in(phase, 0);
            let action = lifecycle.on(event, now, 1.0);
            assert_eq!((lifecycle.phase(), action), expected, "{event:?} in {phase:?}");
        }
    }
}

#[test]
fn waits_double_up_to_the_cap_and_jitter_shortens_them_by_at_most_half() {
    let waits: Vec<u64> = (1..=6).map(|failures| restart().wait(failures, 1.0).as_secs()).collect();
    assert_eq!(waits, [1, 2, 4, 8, 10, 10]);
    assert_eq!(restart().wait(3, 0.0), 2 * SECOND);
    assert_eq!(restart().wait(u32::MAX, 7.0), 10 * SECOND);
}

#[test]
fn a_server_that_keeps_failing_is_given_up_and_again_after_one_more_failure() {
    let now = Instant::now();
    let mut lifecycle = Lifecycle::new(restart());
    let mut time = now;
    for failures in 1..=2 {
        assert_eq!(lifecycle.on(Event::Needed, time, 1.0), Action::Start);
        lifecycle.on(Event::StartFailed, time, 1.0);
        let Phase::BackingOff { until } = lifecycle.phase() else { panic!("{lifecycle:?}") };
        assert_eq!(until - time, restart().wait(failures, 1.0));
        time = until;
    }
    lifecycle.on(Event::Needed, time, 1.0);
    lifecycle.on(Event::StartFailed, time, 1.0);
    assert_eq!(lifecycle.phase(), Phase::Failed { until: time + 100 * SECOND });
    assert_eq!(lifecycle.on(Event::Needed, time + 99 * SECOND, 1.0), Action::Refuse);
    time += 100 * SECOND;
    assert_eq!(lifecycle.on(Event::Needed, time, 1.0), Action::Start);
    lifecycle.on(Event::StartFailed, time, 1.0);
    assert_eq!(lifecycle.phase(), Phase::Failed { until: time + 100 * SECOND }, "one failure is enough now");
    assert_eq!(lifecycle.restarts(), 3);
}

#[test]
fn the_end_of_a_server_that_ran_long_counts_as_a_first_failure() {
    let now = Instant::now();
    let mut soon = lifecycle_in(Phase::Running { since: now }, 2);
    soon.on(Event::Ended, now + 59 * SECOND, 1.0);
    assert!(matches!(soon.phase(), Phase::Failed { .. }), "{soon:?}");
    let mut late = lifecycle_in(Phase::Running { since: now }, 2);
    late.on(Event::Ended, now + 60 * SECOND, 1.0);
    assert_eq!(late.phase(), Phase::BackingOff { until: now + 61 * SECOND });
}

#[test]
fn a_stop_resets_the_failures_and_an_idle_stop_does_not() {
    let now = Instant::now();
    let mut stopped = lifecycle_in(Phase::Failed { until: now + SECOND }, 3);
    stopped.on(Event::Stop, now, 1.0);
    assert_eq!((stopped.failures(), stopped.phase()), (0, Phase::Stopped));
    let mut idle = lifecycle_in(Phase::Running { since: now }, 2);
    idle.on(Event::Idle, now, 1.0);
    assert_eq!((idle.failures(), idle.phase()), (2, Phase::Stopped));
}
