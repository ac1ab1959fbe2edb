//! The `cellmate` binary; its commands are in the crate `commands`.

fn main() -> std::process::ExitCode {
    commands::main()
}
