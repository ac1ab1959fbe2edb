//! The shell with real commands: what ordinary ones can do, and what hostile ones cannot.
//!
//! The keeper of a command is this program, started again, so it has its own `main`.
#![expect(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "an unexpected value fails the test")]

// The crate's own name here, as in the other crates.
extern crate cellmate_tools as tools;

mod escape;
mod lab;
mod limits;
mod ordinary;
mod processes;

use libtest_mimic::{Arguments, Trial};

macro_rules! trials {
    ($($module:ident::$name:ident),* $(,)?) => {
        vec![$(Trial::test(concat!(stringify!($module), "::", stringify!($name)), || {
            $module::$name();
            Ok(())
        })),*]
    };
}

fn main() -> std::process::ExitCode {
    process::keeper_main_closing_files(sandbox::close_inherited_files);

    let trials = trials![
        ordinary::exit_code_and_both_streams_are_returned,
        ordinary::a_command_can_change_its_folders,
        ordinary::home_and_temporary_files_are_private_and_removed,
        ordinary::variables_are_set_and_standard_input_is_empty,
        ordinary::a_command_that_ends_by_a_signal_names_it,
        ordinary::progress_is_sent_at_a_limited_rate,
        ordinary::a_read_only_root_can_be_read_but_not_changed,
        ordinary::a_folder_that_the_user_names_can_be_read,
        ordinary::an_unusable_folder_is_refused_with_the_reason,
        limits::of_much_output_start_and_end_are_kept,
        limits::binary_output_is_escaped,
        limits::a_flood_of_output_takes_bounded_memory,
        limits::files_and_core_dumps_are_limited,
        limits::commands_beyond_the_limit_wait_or_are_refused,
        processes::a_command_that_ignores_signals_ends_at_its_timeout,
        processes::background_processes_end_with_the_command,
        processes::too_many_processes_end_the_command,
        processes::processes_that_multiply_in_their_own_sessions_are_ended,
        processes::dropping_the_call_ends_the_command_and_removes_its_files,
        escape::files_outside_the_folders_can_neither_be_read_nor_changed,
        escape::the_users_secrets_are_out_of_reach,
        escape::the_host_and_the_keeper_are_out_of_reach,
        escape::namespaces_and_mounts_are_denied,
        escape::without_network_no_socket_can_be_created,
        escape::with_network_sockets_in_the_file_system_stay_denied,
        escape::privileges_are_dropped,
        escape::dangerous_system_calls_are_denied,
        escape::there_is_no_terminal,
        escape::inherited_files_are_closed,
        escape::a_root_that_was_replaced_is_not_used,
        escape::a_system_that_can_confine_commands_ignores_unconfined,
        escape::commands_of_an_ordinary_user_are_confined_as_those_of_root,
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
