//! The border between C programs and gantry's libraries, the same in both of them.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`border`] | [`enter`]: what every exported function does first; a panic ends here |
//! | [`fault`] | [`Fault`]: why a call failed; the last one of each thread |
//! | [`text`] | strings and lists of strings that come from C |
//! | [`memory`] | what is given to C: memory of `malloc`, which C may `free` |
//! | [`own`] | what each process has for itself, also after a fork |
//! | [`deadline`] | how long calls of a thread may wait |
//! | [`data`] | what both libraries take and give of the channel and of rendezvous |
//!
//! What C promises and nobody can check is named in the safety section of each function: pointers are null or lead to what the header says.
#![expect(
    unsafe_code,
    reason = "a C ABI is made of raw pointers; every one of them is turned into something safe here or one call further"
)]

pub mod border;
pub mod fault;
pub mod text;
pub mod own;
pub mod memory;
pub mod deadline;
pub mod data;

pub use border::enter;
pub use fault::Fault;
