//! Flux. Detection, command lines and parsers need no instance. `Flux` runs the commands.
//!
//! gantry uses Flux's commands and their JSON, and does not link with Flux. Facts were measured with flux-core 0.88,
//! and the tests parse recordings of it. Sources: the manual pages of flux-run, flux-job, flux-exec, flux-uri and
//! flux-batch.

mod ask;
mod attach;
mod cause;
mod command;
mod detect;
mod extras;
mod job;
mod jobs;
mod launcher;
mod reference;
mod submit;
mod waits;
mod wanted;
mod wlm;
mod words;

pub use extras::FluxExtras;
pub use job::Job;
pub use reference::{JobId, Target};

pub(crate) use jobs::JOB_VARIABLES;
pub(crate) use launcher::{FLUX_RANKS, FLUX_RUN};
pub(crate) use wlm::Flux;

#[cfg(test)]
mod recorded;
