//! `with-postgres COMMAND…`: starts a Postgres server and runs a command with its URL in `CELLMATE_TEST_POSTGRES`.

use std::process::{Command, ExitCode};

use cellmate_testkit::postgres::Server;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("usage: with-postgres COMMAND…");
        return ExitCode::from(2);
    };
    let server = match Server::start() {
        Ok(server) => server,
        Err(error) => {
            eprintln!("with-postgres: {error}");
            return ExitCode::from(2);
        }
    };
    let status = Command::new(program).args(arguments).env("CELLMATE_TEST_POSTGRES", server.url()).status();
    match status {
        Ok(status) => u8::try_from(status.code().unwrap_or(1)).map_or(ExitCode::FAILURE, ExitCode::from),
        Err(error) => {
            eprintln!("with-postgres: {error}");
            ExitCode::from(2)
        }
    }
}
