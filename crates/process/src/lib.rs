//! Child processes that are not trusted: MCP servers and plugins, which exchange one message per line over their standard
//! streams, and shell commands.
//!
//! A [`Process`] has its own process group, a limited environment (`environment`) and a keeper (`keeper`): a small
//! parent process that ends the child and all its descendants when the host process ends, however it ends. [`Tail`]
//! keeps the last lines of the child's standard error. A [`RunningCommand`] is a shell command, which can be confined
//! (`confine`).
//!
//! Messages: [`Lines`] reads them with a length limit and [`LineWriter`] writes them to a process that may not read.
//! [`Envelope`] determines the kind of a message without parsing it; [`MessageKind`] defines the limits of each kind.
//! Before a message is parsed, a [`PendingReservation`] reserves memory for it. [`LargeMessageReader`] reads messages above
//! the usual limit: it writes their long strings to a file (`large_texts`) and keeps only the rest in memory. Of a message
//! that is too long even so, only the outline is kept (`outline`), which says whose response it is.
//!
//! [`Lifecycle`] decides when a process is started, and when it is restarted after a failure.

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
mod outline;
mod program_end;
mod reason;
mod spec;
mod spool;
mod stderr;

pub use bounds::{MessageKind, endless_response, response_too_long, too_large};
pub use child::{CLOSE_GRACE, MayFinish, Process, ProcessExit, StartedProcess};
pub use command::{Reports, RunningCommand};
pub use confine::{
    CommandLimits, Confinement, DEVICES, Folder, Network, SYSTEM_READABLE, Support, support as confinement_support,
};
pub use envelope::{Envelope, response_id};
pub use environment::{command_variables, is_inheritable, withheld};
pub use intake::{ArrivedTexts, PendingReservation, Reservation, ResponseSlot};
#[doc(hidden)]
pub use keeper::set_keeper_program;
pub use keeper::{keeper_main, keeper_main_closing_files};
pub use lifecycle::{Action, Event, Lifecycle, Phase, Restart, jitter};
pub use line_writer::{LineWriter, WriteSlot};
pub use lines::{LargeMessages, Line, LineError, Lines};
pub use program_end::ProgramEnd;
pub use reason::FirstReason;
pub use spec::{CommandSpec, Report};
pub use spool::{LargeMessage, LargeMessageReader, MessageTooLong, SpooledText};
pub use stderr::{MAX_SHOWN_CHARS, STDERR_BYTES, StderrReader, Tail, excerpt};

/// The maximum size of one message from a server or plugin. The reader stops before a longer one is in memory.
pub const MAX_FRAME_BYTES: usize = contract::limits::MAX_SERVER_MESSAGE_BYTES;

/// The maximum number of consecutive lines that are not messages: some servers print banners and logs to their standard
/// output.
pub const MAX_BAD_FRAMES: usize = 10;

/// The maximum number of messages that wait until a server or plugin reads them, in addition to those in the pipe.
pub const MAX_UNSENT: usize = 256;

/// The maximum number of requests from a server or plugin to the host that are not answered yet.
pub const MAX_UNANSWERED_REQUESTS: usize = 64;

/// The maximum number of progress updates of one call.
pub const MAX_UPDATES: u32 = 1_000;

/// The maximum length of the text of a progress update.
pub const MAX_UPDATE_CHARS: usize = 1_000;
