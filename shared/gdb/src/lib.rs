//! What `gantry gdb` and its daemons on the nodes have in common: orders, answers, and the words of gdb.
//!
//! | module | content |
//! | --- | --- |
//! | [`order`] | what daemons are to do |
//! | [`answer`] | how a rank stands, and what its gdb has said |
//! | [`mi`] | what gdb writes to a program that drives it |
//!
//! Each order has one contribution of each daemon: ranks by their [`answer::Answer`]. Ranks with the same answer travel as one.

pub mod answer;
pub mod mi;
pub mod order;

/// The file name of the daemon.
pub const DAEMON: &str = "gantry-gdbd";

/// Tags on the channel between the tool and its daemons.
pub mod tags {
    /// To daemons: an [`Order`](crate::order::Order).
    pub const ORDER: u32 = 1;
    /// From daemons: ranks by their [`Answer`](crate::answer::Answer), or by [`Words`](crate::answer::Words).
    pub const ANSWER: u32 = 2;
}
