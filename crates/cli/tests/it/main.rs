//! Cellmate as its user meets it: through the binary, and through workers that are the binary.

mod cells;
mod command;
mod workers;
