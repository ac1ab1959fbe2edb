//! A turn of an agent: from a client's message to the model's final answer.
//!
//! [`record`] is pure: it says what happened in a turn and what must happen next. Everything else acts on that.

pub mod record;
