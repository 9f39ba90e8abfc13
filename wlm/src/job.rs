//! What runs, as the seam names it.

use gantry_shared::id::AppId;

/// Something that runs already, in the words of its WLM: `1234` or `1234,1240` for processes of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobRef(pub String);

/// An app of ours, as far as a WLM needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppRef {
    /// The app.
    pub app: AppId,
    /// The names of its nodes, by node number.
    pub hosts: Vec<String>,
}
