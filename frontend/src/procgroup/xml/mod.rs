//! The process manager's messages as XML.
//!
//! Their form is that of the Scalable Systems Software project's process manager (SciDAC, 2003), in its published form and in the draft that its notebook
//! has: both are read, the draft's is written. What comes in is nobody's friend: it is read into a small tree first, within bounds and without entities,
//! and only then understood.

mod read;
mod tree;
mod write;

pub use read::{parse_request, read_request};
pub use tree::{Element, MAX_BYTES, XmlError, parse_document};
pub use write::{write_answer, write_request};
