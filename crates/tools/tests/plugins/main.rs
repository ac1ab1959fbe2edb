//! Plugins that run for real: a scripted one that misbehaves, and those in `plugins/`.

mod attacks;
mod place;
mod shipped;
mod work;
