//! One debugger for many ranks: what is typed, whom it is for, and what comes of it. Pure: it does no input and no output.
//!
//! | module | content |
//! | --- | --- |
//! | [`input`] | what a line means |
//! | [`sets`] | names of sets of ranks |
//! | [`session`] | who stands, who runs, and where; which ranks are meant |
//! | [`round`] | the answers to one command |
//! | [`fold`] | texts that differ in numbers alone become one |
//! | [`statistic`] | what numbers of many ranks come to |
//! | [`compare`] | two sets of ranks side by side |

pub mod compare;
pub mod fold;
pub mod input;
pub mod round;
pub mod session;
pub mod sets;
pub mod statistic;
