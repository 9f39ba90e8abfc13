//! The Debug Adapter Protocol for all ranks. Takes messages from editors, and returns messages for editors and orders
//! for gdb. Pure: it does no I/O.
//!
//! | module | content |
//! | --- | --- |
//! | [`frame`] | splits a stream of bytes into messages |
//! | [`message`] | requests, responses and events |
//! | [`args`] | arguments of requests; configurations |
//! | [`adapter`] | the state machine: inputs and effects |
//! | `state` | the adapter's state |
//! | `threads` | groups ranks at the same place into threads with stable numbers |
//! | `breakpoints` | breakpoints of editors and of gdb |
//! | `handles` | numbers of frames and variables |
//! | `values` | merges variables of many ranks |
//! | `memory` | instructions and bytes |
//!
//! Source: the specification of the Debug Adapter Protocol, 1.65.

pub mod adapter;
pub mod args;
mod breakpoints;
pub mod frame;
mod handles;
mod memory;
pub mod message;
mod state;
mod threads;
mod values;
