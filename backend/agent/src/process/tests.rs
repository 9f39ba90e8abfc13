//! The process layer with real processes.

mod errors;
mod held;
mod lifetime;
