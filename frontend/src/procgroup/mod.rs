//! Process groups: queried, signalled and killed by properties of their processes.
//!
//! A process group is an app as a process manager sees it: a number, a submitter, and processes with host, program
//! and pid. "Which groups have a process of b.out on host 20 or 21?" is a [`Query`]. It comes in the XML of the
//! SciDAC process manager ([`xml`]), or as a line of text ([`text`]); both become the same types.
//!
//! | module | content |
//! | --- | --- |
//! | `attribute` | attributes of groups and processes |
//! | `hosts` | lists of hosts, `ccn-%d:64-73` |
//! | `group` | groups in memory: processes in runs, names once |
//! | `query` | queries: patterns, restrictions, columns |
//! | `matching` | finds the groups that match a query |
//! | [`text`] | the query as a line of text |
//! | `request` | requests to a process manager, and its answers |
//! | [`xml`] | both as XML |
//! | `manager` | carries out requests for all groups of the user |
//! | `create`, `owner` | groups that a message starts, and the process that owns each |
//! | [`serve`] | the process manager for other programs, on a socket |

mod attribute;
mod create;
mod group;
mod hosts;
mod manager;
mod matching;
#[doc(hidden)]
pub mod owner;
mod query;
mod request;
pub mod serve;
pub mod text;
pub mod xml;

pub use attribute::{Columns, GroupAttribute, ProcessAttribute};
pub use create::OWNER_OPTION;
pub use group::{GroupFacts, Groups, Process, Run};
pub use manager::ProcessManager;
pub use matching::{Found, Matches, find};
pub use query::{Number, Numbers, Pattern, Query, Term, Value};
pub use request::{Answer, CreateGroup, ProcessSpec, Request, Told};
