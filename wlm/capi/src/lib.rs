//! `libgantry_tm`: the task management interface of PBS for C programs. `include/tm.h` is its header and its documentation.
//!
//! There is no logic here: a call converts its arguments from C, calls the one
//! [`Session`](gantry_wlm::pbs::tm::blocking::Session) of this process, and converts the answer. No panic leaves it.
#![expect(unsafe_code, reason = "a C ABI: every function takes pointers from C")]

mod begin;
mod pointers;
mod session;
mod unsupported;

use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gantry_wlm::pbs::tm::Code;

/// The return value of an outcome.
fn number(outcome: Result<(), Code>) -> c_int {
    outcome.err().map_or(0, |code| code.0)
}

/// Runs the inside of a call.
fn call(body: impl FnOnce() -> Result<(), Code>) -> c_int {
    // A body's changes are behind a lock that a panic poisons for all later calls.
    number(catch_unwind(AssertUnwindSafe(body)).unwrap_or(Err(Code::SYSTEM)))
}
