//! Standard input, output and error on their way between the tool and the nodes.
//!
//! Both ways are bounded by a window of bytes that are sent and not yet taken, so that a slow reader makes the writer wait, as on a pipe,
//! and no memory grows. The tool's own descriptors may block for ever (a stopped terminal): they are touched on threads of their own.

mod input;
pub(crate) mod launcher;
mod output;

pub(crate) use input::InputFeed;
pub use output::OutputStream;
pub(crate) use output::Outputs;
