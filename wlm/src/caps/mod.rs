//! Abilities that only some workload managers have. A WLM lists its own in [`Capabilities`](crate::Capabilities).

pub mod batch;
pub mod host_lists;
pub mod jobs;
pub mod launcher_output;
pub mod queue;
pub mod waits;
