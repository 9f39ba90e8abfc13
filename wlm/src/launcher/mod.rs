//! Launchers: where the program stands among their arguments, what the files say that some read programs from, and how a process that
//! they have started learns its rank.
//!
//! This is all that is known of launchers, and no launcher is named outside this folder and the folders of WLMs. Nothing here opens a file, and
//! `recognize` alone starts a process: a launcher that is asked for its version. The tables hold facts about the launchers' option parsers; a test compares them with the help texts of the
//! launchers that are installed.

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
mod srun;
pub(crate) mod table;

pub use dialect::Launcher;
pub use facts::{LocalFacts, NoRank, RankFacts, dies_with_step, find_node_name, parse_rank_facts};
pub(crate) use files::{escape_multi_prog, rewrite_file};
pub(crate) use held::{build_shim, find_launcher, find_program, move_files, plan_driven, plan_launcher};
pub(crate) use options::{Part, locate};
pub use prrte::is_asked_for;
pub(crate) use recognize::recognize;
pub(crate) use rewrite::rewrite;
pub(crate) use table::dialect_of;
pub use table::is_launcher_option;

#[cfg(test)]
mod tests;
