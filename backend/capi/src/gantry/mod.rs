//! The functions of `gantry_be.h`, beyond the reference: a module for each of its sections.

pub mod channel;
pub mod contribute;
pub mod deadline;
pub mod error;
pub mod place;
pub mod rendezvous;
pub mod runtime;
