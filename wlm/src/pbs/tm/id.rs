//! The numbers by which task management names things.

use std::fmt;

/// A place in a job where tasks can start: one for every requested process, in the order of the lines of the node
/// file. Several may be on one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub i32);

impl NodeId {
    /// No node: the parent of a task that task management has not started.
    pub const NONE: Self = Self(-1);
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// A task of a job: a session of processes on one host. Unique in the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u32);

impl TaskId {
    /// No task.
    pub const NONE: Self = Self(0);
    /// The job's script.
    pub const SCRIPT: Self = Self(1);
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "task {:08X}", self.0)
    }
}

/// The number of a request and of its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub i32);

impl EventId {
    /// No event.
    pub const NONE: Self = Self(0);
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "event {}", self.0)
    }
}
