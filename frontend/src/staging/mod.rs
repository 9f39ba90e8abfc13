//! What a program needs in order to run, and how it comes to the nodes.
//!
//! | module | what is there |
//! | --- | --- |
//! | [`resolver`] | [`Resolver`]: finds what programs and libraries need, as the loader would, and runs nothing |
//! | [`closure`] | [`Closure`]: the answer |
//! | `walk`, `script_chain` | the way from a file to all that it needs |
//! | `search` | where the loader looks for a library, and in which order |
//! | `symbol_versions`, [`libc_needs`] | whether what was found is new enough; which C library is needed |
//! | [`arch`], `loader`, `hwcaps` | what the search depends on: the machine a file is for, its loader, its processor |
//! | [`elf`], [`ld_cache`], `ld_conf`, [`script`], [`dlopen`], `tokens` | parsers, all pure |
//! | `root` | paths inside a system that is not the one we run on |

pub mod arch;
pub mod closure;
#[doc(hidden)] // pure parsers are public so that they can be fuzzed; they promise nothing
pub mod dlopen;
#[doc(hidden)]
pub mod elf;
mod hwcaps;
#[doc(hidden)]
pub mod ld_cache;
mod ld_conf;
pub mod libc_needs;
mod loader;
pub mod resolver;
mod root;
#[doc(hidden)]
pub mod script;
mod script_chain;
mod search;
mod symbol_versions;
mod tokens;
mod walk;

pub use arch::Arch;
pub use closure::{Closure, Dependency, How, LibcNeeds, Missing, Need, Optional, Why};
pub use libc_needs::GlibcVersion;
pub use resolver::{Resolver, ResolverConfig};
