//! What every store must do, wherever its rows are: the same functions run against each.

mod approvals;
mod fences;
mod opening;
mod sealing;
mod settling;
mod sweeping;
mod transcripts;
mod world;
