//! Launchers: finds the programs in their arguments and files, and the rank of a process that they started.
//!
//! The facts about one launcher are its `Dialect`, in a file of its own: here, or in the folder of its WLM. `table`
//! lists the dialects. Nothing here opens a file. Only `recognize` starts a process: a launcher that is asked for its
//! version. Tests compare the dialects with the help texts of the installed launchers.

mod dialect;
mod facts;
mod files;
mod held;
mod hydra;
mod openmpi;
mod options;
pub(crate) mod proxies;
mod prrte;
mod recognize;
mod rewrite;
mod table;
mod variables;

pub(crate) use dialect::{Adjusted, Dialect, Environment, Given, Grammar, ProgramFiles, Takes};
pub use facts::{RankFacts, dies_with_step, find_node_name, parse_rank_facts};
pub(crate) use files::{insert_words, rewrite_file, trimmed_newline, unwritable, words_of};
pub(crate) use held::{build_shim, find_launcher, find_program, move_files, plan_driven, plan_launcher};
pub(crate) use options::{Part, locate};
pub(crate) use recognize::recognize;
pub(crate) use rewrite::rewrite;
#[cfg(test)]
pub(crate) use table::find_by_version;
pub use table::{find_by_word, is_launcher_option};
pub use variables::{LocalFacts, NoRank, RankSide};
pub(crate) use variables::{RankVariables, Variables};

#[cfg(test)]
pub(crate) mod tests;
