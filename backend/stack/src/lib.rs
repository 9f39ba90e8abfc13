//! Reads the stacks of processes: stops a thread for an instant, copies its registers and its stack, lets it go, and finds its callers in the copy.
//!
//! | module | content |
//! | --- | --- |
//! | [`reader`] | [`reader::Reader`]: the stacks of a process |
//! | [`daemon`] | the daemon: reads the ranks of its node when it is told to |
//! | `stop` | stops one thread and lets it go as it was |
//! | `maps`, `memory`, `image` | what a process has mapped, its memory, the files in it |
//! | `unwind` | callers, by `.eh_frame` where a file has it, else by frame pointers; `calls`: else by the calls that return addresses stand behind |
//! | `python` | the functions of Python that a thread is in |
//! | `steady` | which frames have stood unchanged |
//! | `usage` | what a process and its machine use; `motion`, `load`: what is answered of it |
//! | `refusal` | why a process may not be read |
//!
//! No program and no file is needed on the node: how to find callers stands in the memory of the process itself.

mod calls;
pub mod daemon;
mod image;
mod load;
mod maps;
mod memory;
mod motion;
mod python;
pub mod reader;
mod refusal;
mod registers;
mod steady;
mod stop;
mod sys;
mod unwind;
mod usage;
