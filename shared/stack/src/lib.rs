//! Shared code of `gantry stack` and its daemons on the nodes: call paths on the wire, and the symbols that give them
//! names.
//!
//! | module | content |
//! | --- | --- |
//! | [`orders`] | the orders for a daemon |
//! | [`frame`] | a frame of a call path, and its text in a prefix tree |
//! | [`motion`] | whether a rank has moved |
//! | [`load`] | resource use of ranks and nodes |
//! | [`module`] | programs and libraries: their ids and where they are |
//! | [`symbols`] | functions and lines of one file |
//! | `files`, `apart` | a file's id; where its debug information is when it is not in it |
//! | [`demangle`] | names as in the source |
//!
//! A daemon sends addresses in files, and identifies a file by its build id. So ranks of all nodes at one place form
//! one branch. Names and lines are looked up once per address, not per rank: where the tool runs, or on a node if
//! only nodes have the file.

pub mod apart;
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
    /// From daemons: a prefix tree of [`Module`](crate::module::Module)s. It also has the path of each file that was not
    /// read in time, then that.
    pub const MODULES: u32 = 3;
    /// To daemons: for how many milliseconds the tool waits, then addresses to look up, as frames in text. Each has a line.
    pub const LOOK_UP: u32 = 4;
    /// From daemons: a prefix tree of each address, then its inlined calls, outermost first. It also has each
    /// [`Module`](crate::module::Module) that cannot be read, then why.
    pub const FOUND: u32 = 5;
    /// To daemons: asks whether ranks have moved since the last request. The samples of all orders in between count.
    pub const MOTION_ASKED: u32 = 6;
    /// From daemons: ranks by their [`Motion`](crate::motion::Motion).
    pub const MOTION: u32 = 7;
    /// To daemons: asks for the load of ranks, with this many digits of each figure.
    pub const LOAD_ASKED: u32 = 8;
    /// From daemons: ranks by their [`Load`](crate::load::Load).
    pub const LOAD: u32 = 9;
    /// From daemons: the first rank of each node by its [`HostLoad`](crate::load::HostLoad).
    pub const HOSTS: u32 = 10;
}
