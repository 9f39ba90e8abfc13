//! What gantry's parts say to each other, as data. The links that carry it are in `gantry-link`.
//!
//! | module | who speaks |
//! | --- | --- |
//! | [`frame`] | cuts a byte stream into messages |
//! | [`window`], [`owed`] | how much may come before more is allowed; when more is |
//! | [`flow`] | what is streamed between the frontend and a node |
//! | [`tree`], [`stream`] | who is linked to whom; the tree of bulk data |
//! | [`message`], [`staging`] | frontend and agents; the files that this is about |
//! | [`hold`] | an agent and the ranks that a launcher brings |
//! | [`backend`] | an agent and its node's daemons |
//! | [`channel`], [`assembly`] | a tool's frontend and its daemons; how large parts come |
//! | [`rendezvous`] | ranks that exchange data |
//! | [`runtime`] | the ranks of a co-allocated job and its frontend |
//! | [`starter`] | the program that has MPIR's symbols and the command that works for it |

pub mod frame;
pub mod window;
pub mod owed;
pub mod flow;
pub mod tree;
pub mod stream;
pub mod staging;
mod blob;
pub mod message;
pub mod mpi;
pub mod hold;
pub mod backend;
pub mod rendezvous;
pub mod runtime;
pub mod channel;
pub mod assembly;
pub mod starter;
