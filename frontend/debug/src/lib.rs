//! One debugger for many ranks: parses commands, picks their ranks and merges the answers. Pure: it does no I/O.
//!
//! | module | content |
//! | --- | --- |
//! | [`input`] | what a line means |
//! | [`sets`] | names of sets of ranks |
//! | [`session`] | the state and place of all ranks; the ranks of a command |
//! | [`round`] | the answers to one command |
//! | [`fold`] | merges texts that differ only in numbers |
//! | [`statistic`] | statistics of the numbers of many ranks |
//! | [`compare`] | compares two sets of ranks |

pub mod compare;
pub mod fold;
pub mod input;
pub mod round;
pub mod session;
pub mod sets;
pub mod statistic;
