//! What must hold when the host is killed, and when its cells are hostile.

mod host;
mod hostile;
mod killed;
