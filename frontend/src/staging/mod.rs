//! What a session's daemons need, brought to the nodes that lack it.
//!
//! | module | what is there |
//! | --- | --- |
//! | `find` | where what a manifest names is |
//! | `needs` | what programs need |
//! | `gather` | what a manifest names and what that needs, looked at |
//! | `resolver` | [`Resolver`]: finds what programs and libraries need, as the loader would, and runs nothing |
//! | `closure` | [`Closure`]: the answer |
//! | `walk`, `script_chain` | the way from a file to all that it needs |
//! | `search` | where the loader looks for a library, and in which order |
//! | `symbol_versions`, `libc_needs` | whether what was found is new enough; which C library is needed |
//! | `arch`, `loader`, `hwcaps` | what the search depends on: the machine a file is for, its loader, its processor |
//! | [`elf`], [`ld_cache`], `ld_conf`, `script`, `dlopen`, `tokens` | parsers, all pure |
//! | `symbols` | which symbols a program defines |
//! | `root` | paths inside a system that is not the one we run on |
//! | `names` | tables of what has a name |
//! | `content` | what is in a file: build id or hash |
//! | `plan` | which of it goes where |
//! | `ledger` | what a session has already |
//! | `send` | asks nodes what they lack, and sends that once |
//! | `stream` | the archive, made while it is sent |
//! | `squeeze` | whether and how it is compressed |
//! | `progress` | how often that is told |

mod arch;
mod closure;
pub(crate) mod content;
mod dlopen;
#[doc(hidden)] // pure parsers are public so that they can be fuzzed; they promise nothing
pub mod elf;
pub(crate) mod find;
pub(crate) mod gather;
mod hwcaps;
#[doc(hidden)]
pub mod ld_cache;
mod ld_conf;
pub(crate) mod ledger;
mod libc_needs;
mod loader;
mod names;
pub(crate) mod needs;
pub(crate) mod plan;
mod progress;
mod resolve;
mod resolver;
mod root;
mod script;
mod script_chain;
mod search;
pub(crate) mod send;
mod squeeze;
mod stream;
mod symbol_versions;
pub mod symbols;
mod tokens;
mod walk;
pub(crate) mod want;

pub use arch::Arch;
pub use closure::{Closure, Dependency, How, LibcNeeds, Missing, Need, Optional, Why};
pub use libc_needs::GlibcVersion;
pub use resolver::{Resolver, ResolverConfig};
