//! The protocols between gantry's parts, as data. The links that carry them are in `gantry-link`.
//!
//! | module | content |
//! | --- | --- |
//! | [`frame`] | cuts a byte stream into messages |
//! | [`window`] | how much a peer may send, and when it gets new room |
//! | [`flow`] | streams between the frontend and a node |
//! | [`tree`], [`stream`] | which nodes are linked; the tree of bulk data |
//! | [`message`], [`staging`] | frontend and agents; the files in their messages |
//! | [`build`] | the build that wrote a ticket |
//! | [`hold`] | an agent and the ranks that a launcher brings |
//! | [`backend`] | an agent and its node's daemons |
//! | [`channel`], [`assembly`] | a tool's frontend and its daemons; assembly of large parts |
//! | [`rendezvous`] | ranks that exchange data |
//! | [`runtime`] | the ranks of a co-allocated job and its frontend |
//! | [`starter`] | the program with MPIR's symbols and the command that works for it |

pub mod frame;
pub mod window;
pub mod flow;
pub mod tree;
pub mod stream;
pub mod staging;
mod blob;
pub mod build;
mod ticket;
mod reply;
pub mod message;
pub mod mpi;
pub mod hold;
pub mod backend;
pub mod rendezvous;
pub mod runtime;
pub mod channel;
pub mod assembly;
pub mod starter;
