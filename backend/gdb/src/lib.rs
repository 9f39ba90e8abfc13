//! Drives a gdb for each rank of a node that somebody looks at.
//!
//! | module | content |
//! | --- | --- |
//! | [`daemon`] | the daemon: carries out orders, and tells how its ranks stand |
//! | `desk` | all ranks of the node, each with its gdb |
//! | `gdb` | one gdb: what is said to it, and what it says |
//! | `process` | its process, and a thread that reads what it writes |
//! | `dialogue` | what is said to a gdb and what it says, without a process |
//! | `words` | all that a gdb has written, as far as there is room |
//! | `program` | finds the debugger |
//! | `watcher` | a process that lets ranks go when the daemon is killed; `sys`: makes it |
//!
//! A gdb lets its rank go when its input ends and the rank stands. So ranks that run are stopped for it by a signal that they ignore otherwise.

pub mod daemon;
mod desk;
mod dialogue;
mod gdb;
mod process;
mod program;
mod sys;
mod watcher;
mod words;
