//! `libcommontools_be`: the backend library for tool daemons in C and C++.
//!
//! The functions of `common_tools_be.h` are those of the reference interface; `gantry_be.h` has gantry's own. They
//! contain no logic: each function calls the one [`Backend`](gantry_backend::Backend) of this process and converts.
//! `libcommontools_be.map` lists the symbols.
//!
//! No panic leaves the library: [`enter`](gantry_shared_capi::enter) converts it to an error. The library starts no
//! thread and sets no signal handler.
#![expect(unsafe_code, reason = "exported functions and their arguments from C")]

mod connection;
pub mod dirs;
pub mod gantry;
pub mod node;
pub mod pids;
