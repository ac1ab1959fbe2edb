//! Child processes that are not trusted: MCP servers and plugins, which exchange one message per line over their standard
//! streams, and shell commands.
//!
//! A [`Process`] has its own process group, a limited environment (`environment`) and a keeper (`keeper`), which ends it
//! and everything that it started when the host process ends. [`Tail`] keeps the end of its standard error.
//! A [`RunningCommand`] is a shell command, which can be confined (`confine`).
//!
//! Messages: [`Lines`] reads them with a length limit and [`LineWriter`] writes them to a process that may not read.
//! [`Envelope`] finds out what a message is without parsing it, [`MessageKind`] has the limits of each kind, and
//! [`PendingReservation`] is its part of the memory for parsed messages. [`LargeReader`] reads a message that is longer
//! than others may be, because it has long texts (`large_texts`); it keeps those in a file.
//!
//! [`Lifecycle`] decides when a process is started, restarted and given up.

#![cfg_attr(not(test), warn(clippy::print_stdout))]

mod bounds;
mod child;
mod command;
mod confine;
mod envelope;
mod environment;
mod intake;
mod keeper;
mod large_texts;
mod lifecycle;
mod line_writer;
mod lines;
mod reason;
mod spec;
mod spool;
mod stderr;

pub use bounds::{MessageKind, too_large};
pub use child::{CLOSE_GRACE, Gone, Process, Started};
pub use command::{Reports, RunningCommand};
pub use confine::{
    CommandLimits, Confinement, DEVICES, Folder, Network, SYSTEM_READABLE, Support, support as confinement_support,
};
pub use envelope::{Envelope, response_id};
pub use environment::{command_variables, is_inheritable, withheld};
pub use intake::{ArrivedTexts, PendingReservation, Reservation, Slot};
#[doc(hidden)]
pub use keeper::keep_with;
pub use keeper::{keeper_main, keeper_main_closing};
pub use lifecycle::{Action, Event, Lifecycle, Phase, Restart, jitter};
pub use line_writer::{LineWriter, WriteSlot};
pub use lines::{Line, LineError, Lines};
pub use reason::FirstReason;
pub use spec::{CommandSpec, Report};
pub use spool::{LargeMessage, LargeReader, MessageTooLong, SpooledText};
pub use stderr::{Draining, MAX_SHOWN_CHARS, STDERR_BYTES, Tail};

/// The maximum size of one message from a server or plugin. The reader stops before a longer one is in memory.
pub const MAX_FRAME_BYTES: usize = contract::limits::MAX_SERVER_MESSAGE_BYTES;

/// The maximum number of consecutive lines that are not messages. Some servers print banners and logs to their standard
/// output.
pub const MAX_BAD_FRAMES: usize = 10;

/// The maximum number of messages that a server or plugin has not read yet, beyond what the pipe holds.
pub const MAX_UNSENT: usize = 256;

/// The maximum number of unanswered requests from a server or plugin.
pub const MAX_ASKED: usize = 64;

/// The maximum number of progress updates of one call, and the maximum length of their text.
pub const MAX_UPDATES: u32 = 1_000;
pub const MAX_UPDATE_CHARS: usize = 1_000;
