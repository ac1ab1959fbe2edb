//! The plugins in `plugins/`, run for real.
