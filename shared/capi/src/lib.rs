//! The border between C programs and gantry's libraries, the same in both of them.
//!
//! | module | content |
//! | --- | --- |
//! | [`border`] | [`enter`]: the entry code of every exported function, which also stops panics |
//! | [`fault`] | [`Fault`]: the error of a failed call; the last one of each thread |
//! | `texts` | the texts of errors that C has got |
//! | [`text`] | strings and lists of strings from C |
//! | [`memory`] | memory of `malloc` for C, which C may `free` |
//! | [`deadline`] | timeouts of a thread's calls |
//! | [`data`] | data types of the channel and of rendezvous, used by both libraries |
//!
//! The safety section of each function names the caller's promises that cannot be checked: pointers are null or point
//! to what the header says.
#![expect(
    unsafe_code,
    reason = "a C ABI is made of raw pointers; every one of them is turned into something safe here or one call further"
)]

pub mod border;
pub mod fault;
mod texts;
pub mod text;
pub mod memory;
pub mod deadline;
pub mod data;

pub use border::enter;
pub use fault::Fault;
