//! `libcommontools_fe`: the frontend library for tools in C and C++.
//!
//! The functions of `common_tools_fe.h` are those of the reference interface; `gantry.h` has ours. Nothing is decided here: a function converts what
//! C gives it, calls the Rust library, and converts the answer. `libcommontools_fe.map` lists the symbols.
//!
//! | module | what is there |
//! | --- | --- |
//! | `process` | what this process has: runtime, handles, attributes; made anew in a forked child |
//! | `handles`, `attribute_values` | what the ids stand for; the values of attributes |
//! | `table` | ids that are never used again, and what is behind them |
//! | `threads` | the runtime's threads, which take no signal of the host program's |
//! | [`library`], [`attributes`], `log` | version, errors, attributes, logs |
//! | [`launch`], [`app`], [`info`] | launching, dealing with an application, what is known of it |
//! | [`session`], [`manifest`], [`daemon`] | storage on nodes, what is put there, what is started there |
//! | [`ops`] | what single workload managers have |
//! | [`gantry`] | what goes beyond the reference, a module for each section of `gantry.h` |
//!
//! No panic leaves the library: [`enter`](gantry_shared_capi::enter) makes an error of it. A call's work is done on the library's own threads while the caller
//! waits: there SIGPIPE is blocked, which would end the host program when it is written to somebody who has gone.
#![expect(unsafe_code, reason = "exported functions and what they are given by C")]

mod process;
mod handles;
mod attribute_values;
mod table;
mod threads;
mod log;
pub mod library;
pub mod attributes;
pub mod launch;
pub mod app;
pub mod info;
pub mod session;
pub mod manifest;
pub mod daemon;
pub mod symbols;
pub mod ops;
pub mod gantry;
