//! Brings the files that a session's daemons need to the nodes that lack them.
//!
//! | module | content |
//! | --- | --- |
//! | `find` | finds the files that a manifest names |
//! | `needs` | the dependencies of programs |
//! | `gather` | reads the files of a manifest and their dependencies |
//! | `resolver` | [`Resolver`]: finds the dependencies of programs and libraries as the loader would, without running anything |
//! | `closure` | [`Closure`]: the result |
//! | `walk`, `script_chain` | the walk from a file to all its dependencies |
//! | `search` | the loader's search path for a library |
//! | `symbol_versions`, `libc_needs` | whether found libraries are new enough; the required C library |
//! | `arch`, `loader`, `hwcaps` | parameters of the search: architecture, loader, processor |
//! | [`elf`], [`ld_cache`], `ld_conf`, `script`, `dlopen`, `tokens` | parsers, all pure |
//! | `symbols` | the symbols that a program defines |
//! | `root` | paths inside another system than the running one |
//! | `names` | hash tables by name |
//! | `content` | the identity of a file's content: build id or hash |
//! | `plan` | the target of each file |
//! | `ledger` | the files that a session has already |
//! | `send` | asks nodes which files they lack, and sends these once |
//! | `stream` | the archive, built while it is sent |
//! | `squeeze` | whether and how it is compressed |
//! | `progress` | how often progress is reported |

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
