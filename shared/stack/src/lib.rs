//! What `gantry stack` and its daemons on the nodes have in common: call paths as they travel, and the symbols that give them names.
//!
//! | module | content |
//! | --- | --- |
//! | [`orders`] | what a daemon is to read |
//! | [`frame`] | a frame of a call path, and the text that stands for it in a prefix tree |
//! | [`motion`] | whether a rank has moved |
//! | [`load`] | what ranks and nodes use |
//! | [`module`] | programs and libraries: their ids and where they are |
//! | [`symbols`] | functions and lines of one file |
//! | `files`, `apart` | a file's id; where its debug information is when it is not in it |
//! | [`demangle`] | names as people wrote them |
//!
//! A daemon sends addresses in files, and a file by its build id: so the ranks of all nodes that are at one place make one branch. Names and lines are
//! looked up once for each place, not for each rank: where the tool runs, or on a node where only nodes have the file.

mod apart;
pub mod demangle;
mod files;
pub mod frame;
pub mod load;
pub mod module;
pub mod motion;
pub mod orders;
pub mod symbols;

/// The file name of the daemon.
pub const DAEMON: &str = "gantry-stackd";

/// Tags on the channel between the tool and its daemons.
pub mod tags {
    /// To daemons: [`Orders`](crate::orders::Orders).
    pub const ORDERS: u32 = 1;
    /// From daemons: a prefix tree of call paths. A path's set has samples: see [`sample_number`](crate::orders::sample_number).
    pub const STACKS: u32 = 2;
    /// From daemons: a prefix tree of one level, [`Module`](crate::module::Module)s.
    pub const MODULES: u32 = 3;
    /// To daemons: addresses to be looked up, frames as text, one a line.
    pub const LOOK_UP: u32 = 4;
    /// From daemons: a prefix tree: the address, then the calls that it stands for, outermost first.
    pub const FOUND: u32 = 5;
    /// To daemons: whether ranks have moved since this was asked before. The samples of all orders in between count.
    pub const MOTION_ASKED: u32 = 6;
    /// From daemons: ranks by their [`Motion`](crate::motion::Motion).
    pub const MOTION: u32 = 7;
    /// To daemons: what ranks use, with so many digits of each figure.
    pub const LOAD_ASKED: u32 = 8;
    /// From daemons: ranks by their [`Load`](crate::load::Load).
    pub const LOAD: u32 = 9;
    /// From daemons: the first rank of each node by its [`HostLoad`](crate::load::HostLoad).
    pub const HOSTS: u32 = 10;
}
