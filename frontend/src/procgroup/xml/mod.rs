//! The process manager's messages as XML.
//!
//! The format is that of the Scalable Systems Software project's process manager (SciDAC, 2003), in its published
//! form and in the draft of its notebook. Both are read; the draft's is written. Input is untrusted: it is first read
//! into a small tree, with limits and without entities, and then interpreted.

mod read;
mod tree;
mod write;

pub use read::{parse_request, read_request};
pub use tree::{Element, MAX_BYTES, XmlError, parse_document};
pub use write::{write_answer, write_request};
