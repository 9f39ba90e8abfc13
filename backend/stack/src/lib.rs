//! Reads the stacks of processes: stops a thread for an instant, copies its registers and its stack, lets it go, and finds its callers in the copy.
//!
//! | module | content |
//! | --- | --- |
//! | [`reader`] | [`reader::Reader`]: the stacks of a process |
//! | [`daemon`] | the daemon: reads the ranks of its node on request |
//! | `stop` | stops one thread and lets it continue unchanged |
//! | `maps`, `memory`, `image` | the mappings of a process, its memory, the files in it |
//! | `exports` | the names that the loader needs of a file |
//! | `files` | where the files can be read; `aside`: a wait for them that ends; `look_up`: their functions and lines |
//! | `unwind` | callers, by `.eh_frame` if a file has it, else by frame pointers; `calls`: else by return addresses after calls |
//! | `python` | the functions of Python that a thread is in |
//! | `steady` | which frames are unchanged; `script`: whether their variables are elsewhere |
//! | `polling` | whether a busy thread beside the first one only polls |
//! | `usage` | resource use of a process and its machine; `motion`, `load`: the answers about it |
//! | `refusal` | why a process may not be read |
//!
//! The node needs no program and no file for this: the process's own memory describes how to find callers.

mod aside;
mod calls;
pub mod daemon;
mod exports;
mod files;
mod image;
mod load;
mod look_up;
mod maps;
mod memory;
mod motion;
mod polling;
mod python;
pub mod reader;
mod refusal;
mod registers;
mod script;
mod steady;
mod stop;
mod unwind;
mod usage;
