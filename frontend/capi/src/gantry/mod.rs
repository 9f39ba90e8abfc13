//! The functions of `gantry.h`, beyond the reference: a module for each of its sections.

pub mod app;
pub mod channel;
pub mod deadline;
pub mod end;
pub mod error;
pub mod events;
pub mod gate;
pub mod inbox;
pub mod job;
pub mod outcome;
pub mod rendezvous;
pub mod session;
