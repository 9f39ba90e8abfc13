//! The process manager's messages as XML.
//!
//! The format is that of the Scalable Systems Software project's process manager (SciDAC, 2003), in its published
//! form and in the draft of its notebook. Requests are read in both; answers are written in the draft's. Input is
//! untrusted: it is first read into a small tree, with limits and without entities, and then interpreted.

mod read;
mod tree;
mod write;

pub use read::{parse_request, read_request};
pub use tree::{Element, MAX_BYTES, XmlError, parse_document};
pub use write::write_answer;
