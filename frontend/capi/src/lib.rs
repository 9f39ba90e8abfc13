//! `libcommontools_fe`: the frontend library for tools in C and C++.
//!
//! The functions of `common_tools_fe.h` are those of the reference interface; `gantry.h` has gantry's own. They
//! contain no logic: a function converts its arguments from C, calls the Rust library, and converts the answer.
//! `libcommontools_fe.map` lists the symbols.
//!
//! | module | content |
//! | --- | --- |
//! | `process` | this process's state: runtime, handles, attributes; made anew in a forked child |
//! | `handles`, `attribute_values` | the objects behind ids; the values of attributes |
//! | `table` | ids that are never used again, and their objects |
//! | `threads` | the runtime's threads, which block the host program's signals |
//! | [`library`], [`attributes`], `log` | version, errors, attributes, logs |
//! | [`launch`], [`app`], [`info`] | launching, functions of an application, information about it |
//! | [`session`], [`manifest`], [`daemon`] | storage on nodes, its files, its daemons |
//! | [`ops`] | functions of single workload managers |
//! | [`gantry`] | functions beyond the reference, a module for each section of `gantry.h` |
//!
//! No panic leaves the library: [`enter`](gantry_shared_capi::enter) converts it to an error. The library's own
//! threads do the work while the caller waits. They block SIGPIPE, which would end the host program after a write to
//! a closed connection.
#![expect(unsafe_code, reason = "exported functions and their arguments from C")]

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
