//! The Debug Adapter Protocol for all ranks: what editors send comes in, and what they get and what gdb is to do goes out. Pure: it does no input and no
//! output.
//!
//! | module | content |
//! | --- | --- |
//! | [`frame`] | messages in a stream of bytes |
//! | [`message`] | requests, responses and events |
//! | [`args`] | what editors say with a request; configurations |
//! | [`adapter`] | the state machine: inputs and effects |
//! | `state` | what it knows |
//! | `threads` | ranks at the same place are one thread, with a number that stays |
//! | `breakpoints` | breakpoints as editors and as gdb have them |
//! | `handles` | numbers of frames and variables |
//! | `values` | variables of many ranks become one list |
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
