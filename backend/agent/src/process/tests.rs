//! The process layer with real processes.

mod errors;
mod follow;
mod held;
mod lifetime;
