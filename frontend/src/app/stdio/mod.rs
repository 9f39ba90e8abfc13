//! Carries standard input, output and error between the tool and the nodes.
//!
//! A window of bytes that are sent and not yet taken bounds each direction. So a slow reader makes the writer wait, as
//! on a pipe, and memory does not grow. The tool's own descriptors may block for ever (a stopped terminal), so separate
//! threads read and write them.

mod input;
pub(crate) mod launcher;
mod output;

pub(crate) use input::InputFeed;
pub use output::OutputStream;
pub(crate) use output::Outputs;
