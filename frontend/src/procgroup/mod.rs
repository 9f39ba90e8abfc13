//! Process groups: found, signalled and killed by what their processes are.
//!
//! A process group is an app as a process manager sees it: a number, who submitted it, and processes of which each has a host, a program and a pid.
//! "Which groups have a process of b.out on host 20 or 21?" is a [`Query`]. It is asked in the XML of the SciDAC process manager ([`xml`]), or in a
//! line that people type ([`text`]); both become the same types.
//!
//! | module | what is there |
//! | --- | --- |
//! | `attribute` | what groups and processes are known by |
//! | `hosts` | lists of hosts, `ccn-%d:64-73` |
//! | `group` | groups in memory: processes in runs, names once |
//! | `query` | what is asked: patterns, restrictions, columns |
//! | `matching` | which groups a query means |
//! | [`text`] | the query as people type it |
//! | `request` | what a process manager is asked, and answers |
//! | [`xml`] | both as XML |
//! | `manager` | carries requests out over all groups of the user |
//! | `create`, `owner` | groups that are started by a message, and the process that owns each |
//! | [`serve`] | the same for other programs, on a socket |

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
