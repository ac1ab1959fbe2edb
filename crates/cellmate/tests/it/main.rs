//! Programs that embed Cellmate, with jailed workers. The workers are this program, started again, so it has its own
//! `main`.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "an unexpected value fails the test")]

mod approvals;
mod cells;
mod durable;
mod postgres;
mod replays;
#[cfg(feature = "mcp")]
mod servers;
mod surfaces;

use std::process::ExitCode;

use cellmate::{Builder, Cellmate, Error, Tool, json};
use libtest_mimic::{Arguments, Trial};

macro_rules! trials {
    ($($module:ident::$name:ident),* $(,)?) => {
        vec![$(Trial::test(concat!(stringify!($module), "::", stringify!($name)), || {
            cellmate::block_on($module::$name()).map_err(Into::into)
        })),*]
    };
}

/// With this argument, the program starts a thread before it calls `worker_main`, and prints why it cannot be set up.
const LATE_ARGUMENT: &str = "--worker-main-after-a-thread";

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(LATE_ARGUMENT) {
        cells::print_why_worker_main_is_late();
        return ExitCode::SUCCESS;
    }
    cellmate::worker_main();
    #[cfg(feature = "mcp")]
    if std::env::args().nth(1).as_deref() == Some(servers::FAKE_SERVER_ARGUMENT) {
        servers::serve_fake_mcp();
        return ExitCode::SUCCESS;
    }
    let trials = trials![
        cells::a_cell_calls_a_tool_of_the_program,
        cells::a_tool_that_fails_or_panics_fails_its_call_only,
        cells::input_that_the_schema_refuses_does_not_reach_the_tool,
        cells::progress_reaches_the_listener,
        cells::a_run_is_listed_and_cancelled_with_its_calls,
        cells::limits_apply_to_cells,
        cells::worker_main_after_a_thread_is_refused_with_the_reason,
        approvals::a_call_waits_until_it_is_approved,
        approvals::a_denied_call_fails_with_the_note,
        approvals::an_approval_is_decided_once,
        approvals::requests_are_reported_once_and_in_order,
        durable::another_host_resumes_the_run_from_the_store,
        durable::another_key_is_refused_while_a_cell_is_suspended,
        durable::a_parked_call_of_a_source_is_settled_later,
        replays::a_replay_repeats_the_run_and_calls_no_tool,
        replays::a_fork_keeps_recorded_replies_and_makes_the_other_calls_again,
        replays::a_fork_asks_again_for_what_was_approved_in_the_original,
        replays::a_run_that_is_missing_or_of_another_scope_is_a_failed_result_of_wait_and_not_cancelled,
        replays::a_run_that_is_missing_or_of_another_scope_is_not_forked,
        postgres::a_server_that_cannot_be_reached_is_named_without_its_password,
        surfaces::code_mode_shows_exec_and_wait_by_default,
        surfaces::tool_search_is_called_by_name,
        surfaces::direct_tools_are_called_by_name_and_resumed_after_approval,
        surfaces::an_unknown_tool_is_refused_with_the_known_ones,
        surfaces::policy_applies_to_the_tools_of_the_program,
    ];
    #[cfg(feature = "mcp")]
    let trials: Vec<Trial> = trials
        .into_iter()
        .chain(trials![
            servers::a_cell_calls_a_tool_of_an_mcp_server,
            servers::a_server_that_cannot_start_does_not_stop_the_program,
            servers::a_setting_of_the_other_transport_is_refused,
        ])
        .collect();
    let with_server = trials![
        postgres::a_run_of_one_host_is_approved_resumed_and_forked_by_another,
        postgres::another_key_is_refused_while_a_cell_is_suspended,
    ];
    let no_server = std::env::var_os(postgres::SERVER_VARIABLE).is_none();
    let with_server = with_server.into_iter().map(|trial| trial.with_ignored_flag(no_server));
    let trials = trials.into_iter().chain(with_server).collect();
    let arguments = Arguments::from_args();
    libtest_mimic::run(&arguments, trials).exit_code()
}

type Result<T = ()> = std::result::Result<T, Error>;

fn builder() -> Builder {
    Cellmate::builder().workers(1)
}

fn letters() -> Tool {
    let schema = json!({
        "type": "object",
        "properties": {"to": {"type": "string"}},
        "required": ["to"],
        "additionalProperties": false,
    });
    Tool::new("plugin:post:send_letter", "Sends a letter on paper.", schema)
        .call(async |call| Ok(json!({"number": 1, "to": call.input()["to"]})))
}
