//! Drives a gdb for each rank of a node that the user looks at.
//!
//! | module | content |
//! | --- | --- |
//! | [`daemon`] | the daemon: carries out orders, and reports the state of its ranks |
//! | `desk` | all ranks of the node, each with its gdb |
//! | `gdb` | one gdb: its input and its output |
//! | `interrupt` | the signal that stops a rank |
//! | `process` | gdb's process, and a thread that reads its output |
//! | `dialogue` | the commands to a gdb and its output, without a process |
//! | `words` | all output of a gdb, as far as there is room |
//! | `symbols` | debug information that this node lacks, or that the login side has sent |
//! | `program` | finds the debugger |
//! | `traps` | removes the breakpoints of a gdb that was killed |
//! | `watcher` | a process that releases ranks when the daemon is killed; `sys`: makes it |
//!
//! A gdb detaches from its rank when its input ends and the rank is stopped. So the daemon stops running ranks for it,
//! by a signal that they ignore otherwise.

pub mod daemon;
mod desk;
mod dialogue;
mod gdb;
mod interrupt;
mod process;
mod program;
mod symbols;
mod sys;
mod traps;
mod watcher;
mod words;
